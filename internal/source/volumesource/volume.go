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

// volume describes the voxels of a volume and their positions in files. It is a list of slices:
// all slices along z for the first index of the axes before z, then for the next index. Each
// slice is cut into blocks, stored row by row. A NIfTI file is a single block. A TIFF file has
// strips or tiles for each slice. A DICOM series usually has a file per slice.
type volume struct {
	// shape has the slowest axis first. It ends with z, y, x.
	shape []int
	dtype driver.DType
	big   bool
	// If scaled is true, values are slope x voxel + inter. A block may have its own scale.
	scaled       bool
	slope, inter float64
	// affine is 16 float32 values, little-endian. It is nil if the file does not have an
	// affine.
	affine []byte
	// gz is true for a file compressed as a whole. Offsets then count unpacked bytes.
	gz bool

	// block is the size of a block: z, y, x. Blocks at the edges may reach beyond the volume.
	// If full is true, they are stored in full size.
	block  [3]int
	full   bool
	blocks []block
	codec  codec
	// err is the reason why the volume cannot be read, nil for a good one. A bad volume has one
	// block, of its bad file, and the shape and type of a good volume.
	err error
	// bits masks the bits of a voxel that count. sign is the sign bit among them. Both are 0 if
	// all bits count.
	bits, sign uint32
}

// block is the position of some voxels in a file.
type block struct {
	file         int32
	offset, size int64
	// slope and inter are set if blocks have their own scales.
	slope, inter float64
	// pieces is true if the bytes are DICOM items, which must be joined.
	pieces bool
}

// maxVoxelBytes limits the size of a volume. driver.MaxArrayBytes limits a single read of it.
const maxVoxelBytes = 1 << 44

// spatial returns the sides z, y, x.
func (v *volume) spatial() [3]int { return [3]int(v.shape[len(v.shape)-3:]) }

// lead returns the number of three-dimensional volumes: the product of the axes before z.
func (v *volume) lead() int {
	n := 1
	for _, side := range v.shape[:len(v.shape)-3] {
		n *= side
	}
	return n
}

// bytes returns the size of all voxels.
func (v *volume) bytes() int64 {
	n := int64(v.dtype.Size())
	for _, side := range v.shape {
		n *= int64(side)
	}
	return n
}

// check validates the number of axes and the size of a volume.
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

// sides formats a shape for a message.
func sides(shape []int) string {
	var parts []string
	for _, n := range shape {
		parts = append(parts, strconv.Itoa(n))
	}
	return strings.Join(parts, " x ")
}

// whole makes the volume a single block of a file.
func (v *volume) whole(offset int64) {
	s := v.spatial()
	v.block = [3]int{s[0] * v.lead(), s[1], s[2]}
	v.blocks = []block{{offset: offset, size: v.bytes()}}
}

// piece is the part of a box in one block: some rows of a slice, as wide as the bytes that are
// read.
type piece struct {
	block        *block
	offset, size int64
	// skip is the number of voxels to skip before the first requested voxel, and first is the
	// index of that voxel in the box. The piece has rows x cols voxels, and stride is the
	// distance between its rows.
	skip, stride      int
	first, rows, cols int
}

// wideRow is the size in bytes from which only the requested part of a row is read. For shorter
// rows a disk reads the rest anyway.
const wideRow = 16 << 10

// each calls f for all pieces of a box, always in the same order.
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

// locate appends the extents of a box. first is the number of the volume's first object.
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

// read writes the voxels of a box to out, little-endian and converted to type to. parts are the
// bytes of the box's extents. temp allocates memory for an unpacked block.
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

// maxRatio is above the compression ratio of every codec except JPEG 2000.
const maxRatio = 4096

// unpackBlock unpacks a block up to its last requested row.
func (v *volume) unpackBlock(b []byte, p *piece, temp func(n int) ([]byte, error)) ([]byte, error) {
	n := (p.skip/p.stride + p.rows) * p.stride * v.dtype.Size()
	if p.block.pieces {
		var err error
		if b, err = joined(b); err != nil {
			return nil, fmt.Errorf("the part of %d bytes from byte %d on: %w", p.size, p.offset, err)
		}
	}
	// An empty JPEG 2000 image takes no bytes.
	if _, wavelets := v.codec.(*jpeg2000Codec); n/maxRatio > len(b) && !wavelets {
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

// rows converts the rows of a piece and writes them to their positions in the box.
func (v *volume) rows(out, b []byte, box *driver.Box, p *piece, to driver.DType) {
	size, toSize := v.dtype.Size(), to.Size()
	from, at := p.skip*size, p.first*toSize
	slope, inter := v.slope, v.inter
	if v.scaled && p.block.slope != 0 {
		slope, inter = p.block.slope, p.block.inter
	}
	n, rows := p.cols, p.rows
	if p.stride == p.cols && p.cols == box.Size[2] { // one contiguous piece
		n, rows = n*rows, 1
	}
	asStored := v.asStored(to)
	for range rows {
		if asStored {
			copy(out[at:at+n*toSize], b[from:from+n*size])
		} else {
			v.convert(out[at:at+n*toSize], b[from:from+n*size], to, slope, inter)
		}
		from += p.stride * size
		at += box.Size[2] * toSize
	}
}

// asStored reports whether unpacked voxels have the bytes of numbers of type to, little-endian.
func (v *volume) asStored(to driver.DType) bool {
	return to == v.dtype && !v.scaled && v.bits == 0 && !(v.big && v.dtype.Size() > 1)
}

// convert converts voxels of the file to numbers of type to, little-endian.
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

// narrow clears the bits of little-endian voxels that do not count, and extends the sign.
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
