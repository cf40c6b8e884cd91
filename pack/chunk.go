package pack

import (
	"encoding/binary"
	"math"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/stokerdata/stoker/internal/arrowipc"
	"github.com/stokerdata/stoker/source/driver"
)

// value is the stored form of a field of a record, on its way into a chunk.
type value struct {
	driver.Value
	depth int32 // bits per channel of an image
	path  string
	exif  []byte
	icc   []byte
	// fromW and fromH are the size of an image or mask before it was resized, 0 when it was
	// not made into pixels.
	fromW, fromH int32
	// notDCT is the reason why a JPEG was kept although dct was requested.
	notDCT string
	// Statistics of the elements, and the number of pixels of each class of a mask.
	ints    *driver.IntStats
	floats  *driver.FloatStats
	classes map[int64]int64
}

// from returns the size of an image or mask before it was resized.
func (v *value) from() (w, h int32) {
	if v.fromW > 0 {
		return v.fromW, v.fromH
	}
	return v.Width, v.Height
}

// record is one record on its way into a chunk.
type record struct {
	path   string
	values []value
}

// bytes returns the size of the record in a chunk, without the parts of fixed size.
func (r *record) bytes() int64 {
	n := int64(len(r.path))
	for i := range r.values {
		v := &r.values[i]
		n += int64(len(v.Bytes) + len(v.path) + len(v.exif) + len(v.icc))
	}
	return n
}

// maxChunkRows limits a chunk in addition to its size in bytes.
const maxChunkRows = 1 << 16

// Values of up to inlineBytes per record are stored in the head of a chunk, so they are read and cached with it. This
// holds while the head is small compared with the rest.
const (
	inlineBytes = 64
	inlineShare = 16
)

// chunkBuilder collects records until a chunk is full. The end of a chunk depends only on its own records, so an
// interrupted run can resume at any chunk with the same result.
type chunkBuilder struct {
	sch    *schema
	data   []arrowipc.LeafData
	target int64
	rows   int
	size   int64
	stats  []driver.FieldStats
}

func newChunkBuilder(sch *schema, target int64) *chunkBuilder {
	b := &chunkBuilder{sch: sch, data: make([]arrowipc.LeafData, len(sch.leaves)), target: target}
	b.reset()
	return b
}

func (b *chunkBuilder) reset() {
	b.rows, b.size = 0, 0
	b.stats = make([]driver.FieldStats, len(b.sch.fields))
	for i := range b.data {
		d := &b.data[i]
		if d.Values = d.Values[:0]; int64(cap(d.Values)) > 2*b.target {
			d.Values = nil // of a record that was larger than chunks are
		}
		if w := b.sch.leaves[i].OffsetWidth; w > 0 {
			d.Offsets = append(d.Offsets[:0], make([]byte, w)...)
		}
	}
}

// fits reports whether r belongs into the chunk that is being built. The first
// record always does.
func (b *chunkBuilder) fits(r *record) bool {
	return b.rows == 0 || b.size+r.bytes() <= b.target && b.rows < maxChunkRows
}

func (b *chunkBuilder) add(r *record) {
	b.rows++
	b.size += r.bytes()
	for i := range b.sch.leaves {
		l := &b.sch.leaves[i]
		if l.field < 0 {
			b.text(i, r.path)
			continue
		}
		b.put(i, l, &b.sch.fields[l.field], &r.values[l.field])
	}
	for i := range r.values {
		observe(&b.stats[i], &b.sch.fields[i], &r.values[i])
	}
}

func (b *chunkBuilder) put(i int, l *leaf, f *Field, v *value) {
	d := &b.data[i]
	switch l.role {
	case roleValue:
		switch f.Kind {
		case driver.KindLabel:
			switch f.DType {
			case driver.Uint8:
				d.Values = append(d.Values, byte(v.Int))
			case driver.Uint16:
				d.Values = binary.LittleEndian.AppendUint16(d.Values, uint16(v.Int))
			default:
				d.Values = binary.LittleEndian.AppendUint64(d.Values, uint64(v.Int))
			}
		case driver.KindInt:
			d.Values = binary.LittleEndian.AppendUint64(d.Values, uint64(v.Int))
		case driver.KindFloat:
			d.Values = binary.LittleEndian.AppendUint64(d.Values, math.Float64bits(v.Float))
		default:
			b.bytes(i, v.Bytes)
		}
	case rolePath:
		b.text(i, v.path)
	case roleCodec:
		d.Values = append(d.Values, byte(v.Codec))
	case roleWidth:
		d.Values = binary.LittleEndian.AppendUint32(d.Values, uint32(v.Width))
	case roleHeight:
		d.Values = binary.LittleEndian.AppendUint32(d.Values, uint32(v.Height))
	case roleChannels:
		d.Values = append(d.Values, byte(v.Channels))
	case roleDepth:
		d.Values = append(d.Values, byte(v.depth))
	case roleOrientation:
		d.Values = append(d.Values, byte(v.Orientation))
	case roleEXIF:
		b.bytes(i, v.exif)
	case roleICC:
		b.bytes(i, v.icc)
	case roleSum:
		d.Values = binary.LittleEndian.AppendUint32(d.Values, valueSum(v.Bytes))
	}
}

// valueSum returns the checksum of a value: the lower half of its XXH3-64.
func valueSum(b []byte) uint32 { return uint32(xxh3.Hash(b)) }

// bytes appends a value to a leaf and updates the offsets if the leaf has them.
func (b *chunkBuilder) bytes(i int, p []byte) {
	d, l := &b.data[i], &b.sch.leaves[i]
	d.Values = append(d.Values, p...)
	n := int64(len(d.Values)) / l.Width
	switch l.OffsetWidth {
	case 4:
		d.Offsets = binary.LittleEndian.AppendUint32(d.Offsets, uint32(n))
	case 8:
		d.Offsets = binary.LittleEndian.AppendUint64(d.Offsets, uint64(n))
	}
}

// text appends a path. Arrow's text is UTF-8; names on Linux are any bytes.
func (b *chunkBuilder) text(i int, s string) { b.bytes(i, []byte(strings.ToValidUTF8(s, "\uFFFD"))) }

// batch returns the chunk, and the zones for its leaves.
func (b *chunkBuilder) batch() (*arrowipc.Batch, []arrowipc.Zone) {
	zones := make([]arrowipc.Zone, len(b.data))
	bulk := int64(0)
	for i := range b.data {
		switch l := &b.sch.leaves[i]; {
		case l.inTail():
			zones[i] = arrowipc.Tail
		case b.sch.number(i):
			zones[i] = arrowipc.Head
		default:
			zones[i] = arrowipc.Bulk
			bulk += int64(len(b.data[i].Values))
		}
	}
	inline := int64(0)
	for i := range b.data {
		n := int64(len(b.data[i].Values))
		if zones[i] == arrowipc.Bulk && n <= inlineBytes*int64(b.rows) && (inline+n)*inlineShare <= bulk {
			zones[i] = arrowipc.Head
			inline += n
		}
	}
	return &arrowipc.Batch{Rows: b.rows, Leaves: b.data}, zones
}
