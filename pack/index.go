package pack

import (
	"fmt"
	"sync/atomic"

	"github.com/zeebo/xxh3"

	"github.com/stokerdata/stoker/internal/voxels"
	"github.com/stokerdata/stoker/source/driver"
)

// index has the data cached from the heads of chunks. A record takes no bytes for arrays (their offsets follow from
// the chunk's), four for a value of variable length, and zero to eight for a number.
type index struct {
	fields []fieldIndex
	// base has the offset of the values of each field in each chunk.
	base []uint32
	// held has the small values of a field that are stored in the head of a chunk. They stay in memory.
	held [][]byte
}

// fieldIndex is the index of a field.
type fieldIndex struct {
	field int
	leaf  int
	unit  int64 // bytes of a unit of the offsets, or of a row
	// number is true if the values are numbers, which are stored in num.
	number bool
	float  bool
	num    numbers
	// off has the ends of the values of a chunk, in units: those of row n of the pack, in chunk c, are off[n+c] and
	// off[n+c+1]. It is nil if all values have one size.
	off     []uint32
	varies  bool
	picture bool
	// volume is true if values are volumes. voxels is their layout.
	volume bool
	voxels voxels.Array
	// tail is true if the decoder of a value reads a few bytes past its end.
	tail bool
	// side has the numbers that describe a picture.
	side [sides]sidecar
	// sum has the checksums of values outside of heads, by row, from the leaf sumLeaf. checked has a bit for each row
	// that has been compared with its checksum.
	sumLeaf int
	sum     []uint32
	checked []uint32
}

// The positions in fieldIndex.side.
const (
	sideCodec = iota
	sideWidth
	sideHeight
	sideChannels
	sideDepth
	sideOrientation
	sides
)

// sidecar is a number that describes a picture.
type sidecar struct {
	leaf     int // -1 if there is none
	min, max int64
	what     string
	num      numbers
}

func newFieldIndexes(sch *schema) []fieldIndex {
	out := make([]fieldIndex, len(sch.fields))
	for i := range sch.fields {
		f := &sch.fields[i]
		leaf := sch.first[i]
		x := fieldIndex{
			field: i, leaf: leaf, unit: sch.leaves[leaf].Width, varies: sch.leaves[leaf].OffsetWidth > 0,
			number: sch.number(leaf), float: f.Kind == driver.KindFloat, picture: f.picture(),
			tail: f.Kind == driver.KindFrames,
		}
		if x.volume = f.Kind == driver.KindVolume; x.volume {
			x.voxels = voxels.Of(f.Shape, f.DType)
		}
		if im := f.Stats.Images; x.picture {
			lo, hi := codecRange(im)
			for k, c := range [sides]sidecar{
				sideCodec:       {leaf: int(roleCodec), min: lo, max: hi, what: "codec"},
				sideWidth:       {leaf: int(roleWidth), min: int64(im.MinWidth), max: int64(im.MaxWidth), what: "the width"},
				sideHeight:      {leaf: int(roleHeight), min: int64(im.MinHeight), max: int64(im.MaxHeight), what: "the height"},
				sideChannels:    {leaf: int(roleChannels), min: int64(im.MinChannels), max: int64(im.MaxChannels), what: "channels"},
				sideDepth:       {leaf: int(roleDepth), min: int64(im.MinDepth), max: int64(im.MaxDepth), what: "the depth"},
				sideOrientation: {leaf: int(roleOrientation), min: int64(im.MinTurned), max: int64(im.MaxTurned), what: "the orientation"},
			} {
				c.leaf = sch.find(i, role(c.leaf))
				x.side[k] = c
			}
		}
		x.sumLeaf = sch.find(i, roleSum)
		out[i] = x
	}
	return out
}

// codecRange returns the smallest and the largest number of a codec.
func codecRange(im *driver.ImageStats) (lo, hi int64) {
	lo = 255
	for _, c := range im.Codecs {
		lo, hi = min(lo, int64(c.Number)), max(hi, int64(c.Number))
	}
	return lo, hi
}

// allocate takes the memory of the index.
func (x *index) allocate(fields []Field, rows int64, chunks int) {
	x.base = make([]uint32, chunks*len(x.fields))
	x.held = make([][]byte, chunks*len(x.fields))
	for i := range x.fields {
		f := &x.fields[i]
		switch {
		case f.float:
			f.num = newNumbers(0, -1, rows) // all bits
		case f.number:
			s := fields[i].Stats.Ints
			f.num = newNumbers(s.Min, s.Max, rows)
		case f.varies:
			f.off = make([]uint32, rows+int64(chunks))
		}
		for k := range f.side {
			if c := &f.side[k]; f.picture && c.leaf >= 0 {
				c.num = newNumbers(c.min, c.max, rows)
			}
		}
		if !f.number {
			f.sum, f.checked = make([]uint32, rows), make([]uint32, (rows+31)/32)
		}
	}
}

// Learn implements driver.Indexer: b is the head of a chunk, or all of it.
func (r *Reader) Learn(e driver.Extent, b []byte) error {
	c := r.chunkAt(e.Object, e.Offset)
	if c < 0 || int64(len(b)) < r.chunks[c].head {
		return fmt.Errorf("internal error: %s has no chunk of %d bytes at byte %d of shard %d", r.opt.URL, len(b), e.Offset, e.Object)
	}
	mu := &r.locks[c%len(r.locks)]
	mu.Lock()
	defer mu.Unlock()
	if r.loaded[c].Load() {
		return nil
	}
	ref := &r.chunks[c]
	if r.opt.VerifyChunks {
		if int64(len(b)) != ref.bytes {
			return fmt.Errorf("internal error: %d bytes of %s", len(b), r.chunkPlace(c))
		}
		if got := Checksum(xxh3.Hash(b)); got != ref.sum {
			return driver.Damaged(fmt.Errorf("%s is damaged: checksum %016x, should be %016x", r.chunkPlace(c), uint64(got), uint64(ref.sum)))
		}
	}
	v, err := r.viewOf(c, b[:ref.head])
	if err != nil {
		return err
	}
	if err := v.index(); err != nil {
		return r.damaged(c, err)
	}
	r.loaded[c].Store(true)
	return nil
}

// check compares the value of a row with its checksum, the first time that the value is read from its own location.
// If once is true, the value is from another location and is always compared.
func (x *fieldIndex) check(row int64, b []byte, once bool) bool {
	if !once && x.known(row) {
		return true
	}
	if valueSum(b) != x.sum[row] {
		return false
	}
	if !once {
		atomic.OrUint32(&x.checked[row/32], uint32(1)<<(row%32))
	}
	return true
}

// known reports whether the value of a row was compared with its checksum.
func (x *fieldIndex) known(row int64) bool {
	return atomic.LoadUint32(&x.checked[row/32])&(1<<(row%32)) != 0
}

// index copies the data that reading needs into the flat arrays.
func (v *view) index() error {
	r := v.r
	first, rows := r.find.first[v.c], r.chunks[v.c].rows
	for i := range r.x.fields {
		x := &r.x.fields[i]
		for row := range rows {
			if err := v.checkRow(x, row); err != nil {
				return err
			}
		}
		if x.number {
			for row := range rows {
				x.num.set(first+row, v.int(x.leaf, row))
			}
			continue
		}
		p := &v.lay.Leaves[x.leaf]
		r.x.base[v.c*len(r.x.fields)+i] = uint32(p.Values.Off)
		if !r.sch.fields[i].file() && v.inHead(p.Values) {
			// Decoders read past the end of files, and held values have nothing after their end.
			r.x.held[v.c*len(r.x.fields)+i] = append([]byte{}, v.span(p.Values)...)
		}
		if x.varies {
			width := r.sch.leaves[x.leaf].OffsetWidth
			o, to := v.span(p.Offsets), x.off[first+int64(v.c):]
			for row := range rows + 1 {
				to[row] = uint32(offset(o, width, row))
			}
		}
		for row := range rows {
			x.sum[first+row] = uint32(v.int(x.sumLeaf, row))
		}
		for k := range x.side {
			for row := range rows {
				if c := &x.side[k]; x.picture && c.leaf >= 0 {
					c.num.set(first+row, v.int(c.leaf, row))
				}
			}
		}
	}
	return nil
}
