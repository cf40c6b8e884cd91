package volumesource

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/stokerdata/stoker/source/driver"
)

// volume says where the voxels of a volume lie. Seen from here it is slices, one
// behind the other, of which those of the z axis follow each other for each index of the
// axes before it; and the slices are cut into blocks, row by row of blocks, that lie
// somewhere in files: one block of all slices in a NIfTI file, strips or tiles of each
// slice in a TIFF file, a file for each slice of a DICOM series.
type volume struct {
	// shape has the slowest axis first: z, y, x behind whatever comes before them.
	shape []int
	dtype driver.DType
	big   bool
	// What is meant is slope x voxel + inter; scaled says that this is not the voxel.
	// A block may have its own.
	scaled       bool
	slope, inter float64
	// affine are 16 float32, little-endian; nil where the format says nothing.
	affine []byte
	// gz says that the file is compressed as a whole: places count as it is unpacked.
	gz bool

	// block is the size of a block, z, y, x; those at the ends may reach beyond the
	// volume, and are stored so if full says it. blocks are all of them.
	block  [3]int
	full   bool
	blocks []block
	codec  codec
	// err says why the volume cannot be read, nil for a good one. The block of a bad volume is
	// its bad file, the shape and the type are those of a good one.
	err error
	// bits is a mask of those of a voxel that count, sign the sign among them; 0 for all.
	bits, sign uint32
}

// block is where some voxels lie.
type block struct {
	file         int32
	offset, size int64
	// slope and inter are those of a block in a volume with scales of its own.
	slope, inter float64
	// pieces says that the bytes are items of DICOM, which are put together.
	pieces bool
}

// maxVoxelBytes is the largest volume; what is read of it at once is bounded by
// driver.MaxArrayBytes.
const maxVoxelBytes = 1 << 44

// spatial are the sides z, y, x.
func (v *volume) spatial() [3]int { return [3]int(v.shape[len(v.shape)-3:]) }

// lead is how many volumes of three axes there are.
func (v *volume) lead() int {
	n := 1
	for _, side := range v.shape[:len(v.shape)-3] {
		n *= side
	}
	return n
}

// bytes is the size of the voxels.
func (v *volume) bytes() int64 {
	n := int64(v.dtype.Size())
	for _, side := range v.shape {
		n *= int64(side)
	}
	return n
}

// check bounds the size of a volume and what it is made of.
func (v *volume) check() error {
	n := int64(v.dtype.Size())
	if len(v.shape) > driver.MaxAxes {
		return fmt.Errorf("%d axes are more than the limit of %d", len(v.shape), driver.MaxAxes)
	}
	for _, side := range v.shape {
		if side < 1 || int64(side) > maxVoxelBytes/n {
			return fmt.Errorf("a volume of %s voxels is out of range: it must have 1 to %d bytes", sides(v.shape), int64(maxVoxelBytes))
		}
		n *= int64(side)
	}
	return nil
}

// sides writes a shape for a message.
func sides(shape []int) string {
	var parts []string
	for _, n := range shape {
		parts = append(parts, strconv.Itoa(n))
	}
	return strings.Join(parts, " x ")
}

// whole makes a volume one block of a file.
func (v *volume) whole(offset int64) {
	s := v.spatial()
	v.block = [3]int{s[0] * v.lead(), s[1], s[2]}
	v.blocks = []block{{offset: offset, size: v.bytes()}}
}

// piece is a part of a box that lies in one block: some rows of a slice, as wide as what
// is read.
type piece struct {
	block *block
	// offset and size are those of the bytes to read.
	offset, size int64
	// skip is how many voxels of them come before the first wanted one, stride how
	// many lie between rows; first is where that is in the box, rows x cols how many.
	skip, stride      int
	first, rows, cols int
}

// wideRow is the size in bytes of rows from which on only the wanted part is read: below,
// a disk gives no less.
const wideRow = 16 << 10

// each calls f for all pieces of a box, in an order that is always the same.
func (v *volume) each(box *driver.Box, f func(p *piece)) {
	s, size := v.spatial(), int64(v.dtype.Size())
	grid := [3]int{0, (s[1] + v.block[1] - 1) / v.block[1], (s[2] + v.block[2] - 1) / v.block[2]}
	var p piece
	for l := range v.lead() {
		for z := range box.Size[0] {
			slice := l*s[0] + box.At[0] + z
			bz := slice / v.block[0]
			for by := box.At[1] / v.block[1]; by*v.block[1] < box.At[1]+box.Size[1]; by++ {
				for bx := box.At[2] / v.block[2]; bx*v.block[2] < box.At[2]+box.Size[2]; bx++ {
					p.block = &v.blocks[(bz*grid[1]+by)*grid[2]+bx]
					y, x := by*v.block[1], bx*v.block[2]
					height, width := v.block[1], v.block[2]
					if !v.full {
						height, width = min(height, s[1]-y), min(width, s[2]-x)
					}
					y0, y1 := max(box.At[1], y), min(box.At[1]+box.Size[1], y+v.block[1])
					x0, x1 := max(box.At[2], x), min(box.At[2]+box.Size[2], x+v.block[2])
					p.first = ((l*box.Size[0]+z)*box.Size[1]+y0-box.At[1])*box.Size[2] + x0 - box.At[2]
					p.rows, p.cols, p.stride = y1-y0, x1-x0, width
					from := ((slice-bz*v.block[0])*height+y0-y)*width + x0 - x
					if v.codec != nil {
						p.offset, p.size, p.skip = p.block.offset, p.block.size, from
						f(&p)
						continue
					}
					if row := int64(width) * size; row >= wideRow && 2*p.cols <= width && !v.gz {
						p.size, p.skip, p.rows = int64(p.cols)*size, 0, 1
						for range y1 - y0 {
							p.offset = p.block.offset + int64(from)*size
							f(&p)
							from += width
							p.first += box.Size[2]
						}
						continue
					}
					p.skip = x0 - x
					p.offset, p.size = p.block.offset+int64(from-p.skip)*size, int64(p.rows)*int64(width)*size
					f(&p)
				}
			}
		}
	}
}

// locate appends where the voxels of a box lie. first is the number of the volume's
// first object.
func (v *volume) locate(extents []driver.Extent, box *driver.Box, first int64) []driver.Extent {
	begin := len(extents)
	v.each(box, func(p *piece) {
		object := first + int64(p.block.file)
		if n := len(extents); n > begin && v.codec == nil {
			if e := &extents[n-1]; e.Object == object && e.Offset+e.Size == p.offset {
				e.Size += p.size
				return
			}
		}
		extents = append(extents, driver.Extent{Object: object, Offset: p.offset, Size: p.size, Field: -1})
	})
	return extents
}

// read makes the voxels of a box, little-endian and of a type, of the bytes of its
// extents. temp gives memory for a block as it is unpacked.
func (v *volume) read(out []byte, box *driver.Box, to driver.DType, parts [][]byte, temp func(n int) ([]byte, error)) (err error) {
	var rest []byte
	v.each(box, func(p *piece) {
		if err != nil {
			return
		}
		if len(rest) == 0 || v.codec != nil {
			if len(parts) == 0 {
				err = errNotRead
				return
			}
			rest, parts = parts[0], parts[1:]
		}
		if int64(len(rest)) < p.size {
			err = errNotRead
			return
		}
		b := rest[:p.size]
		rest = rest[p.size:]
		if v.codec != nil {
			if b, err = v.unpackBlock(b, p, temp); err != nil {
				return
			}
			rest = nil
		}
		v.rows(out, b, box, p, to)
	})
	return err
}

var errNotRead = fmt.Errorf("internal error: less was read of it than was asked for")

// maxRatio is more than what any of the compressions makes smaller.
const maxRatio = 4096

// unpackBlock unpacks a block up to the last row that is wanted of it.
func (v *volume) unpackBlock(b []byte, p *piece, temp func(n int) ([]byte, error)) ([]byte, error) {
	n := (p.skip/p.stride + p.rows) * p.stride * v.dtype.Size()
	if p.block.pieces {
		var err error
		if b, err = joined(b); err != nil {
			return nil, fmt.Errorf("the part of %d bytes from byte %d on: %w", p.size, p.offset, err)
		}
	}
	if _, wavelets := v.codec.(*jpeg2000Codec); n/maxRatio > len(b) && !wavelets { // an empty image takes nothing
		return nil, fmt.Errorf("the part of %d bytes from byte %d on cannot hold %d bytes: the file is damaged", p.size, p.offset, n)
	}
	to, err := temp(n)
	if err != nil {
		return nil, err
	}
	got, err := v.codec.unpack(to, b, p.stride)
	if err == nil && got < (p.skip+(p.rows-1)*p.stride+p.cols)*v.dtype.Size() {
		err = fmt.Errorf("it has only %d bytes when it is unpacked: the file is damaged", got)
	}
	if err != nil {
		return nil, fmt.Errorf("the part of %d bytes from byte %d on: %w", p.size, p.offset, err)
	}
	return to[:got], nil
}

// rows puts the rows of a piece where they belong.
func (v *volume) rows(out, b []byte, box *driver.Box, p *piece, to driver.DType) {
	size, toSize := v.dtype.Size(), to.Size()
	from, at := p.skip*size, p.first*toSize
	slope, inter := v.slope, v.inter
	if v.scaled && p.block.slope != 0 {
		slope, inter = p.block.slope, p.block.inter
	}
	n, rows := p.cols, p.rows
	if p.stride == p.cols && p.cols == box.Size[2] { // all of them at once
		n, rows = n*rows, 1
	}
	for range rows {
		v.convert(out[at:at+n*toSize], b[from:from+n*size], to, slope, inter)
		from += p.stride * size
		at += box.Size[2] * toSize
	}
}

// convert makes numbers of a type, little-endian, of the file's.
func (v *volume) convert(out, in []byte, to driver.DType, slope, inter float64) {
	size := v.dtype.Size()
	if to == v.dtype && !v.scaled {
		copy(out, in)
		if v.big && size > 1 {
			swap(out, size)
		}
		if v.bits != 0 {
			v.narrow(out)
		}
		return
	}
	var one [8]byte
	number := v.dtype.Type()
	for i, k := 0, 0; i+size <= len(in); i, k = i+size, k+4 {
		b := one[:size]
		copy(b, in[i:])
		if v.big && size > 1 {
			slices.Reverse(b)
		}
		if v.bits != 0 {
			v.narrow(b)
		}
		var x float64
		switch v.dtype {
		case driver.Uint8:
			x = float64(b[0])
		case driver.Int16:
			x = float64(int16(binary.LittleEndian.Uint16(b)))
		case driver.Uint16:
			x = float64(binary.LittleEndian.Uint16(b))
		default:
			x = number.Float(b)
		}
		if v.scaled {
			x = x*slope + inter
		}
		binary.LittleEndian.PutUint32(out[k:], math.Float32bits(float32(x)))
	}
}

// narrow leaves of little-endian voxels the bits that count.
func (v *volume) narrow(b []byte) {
	if v.dtype.Size() == 1 {
		for i, x := range b {
			b[i] = byte((uint32(x)&v.bits ^ v.sign) - v.sign)
		}
		return
	}
	for ; len(b) >= 2; b = b[2:] {
		x := uint32(binary.LittleEndian.Uint16(b))
		binary.LittleEndian.PutUint16(b, uint16((x&v.bits^v.sign)-v.sign))
	}
}

func swap(b []byte, size int) {
	for ; len(b) >= size; b = b[size:] {
		slices.Reverse(b[:size])
	}
}
