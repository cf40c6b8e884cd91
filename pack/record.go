package pack

import (
	"context"
	"fmt"
	"math"

	"github.com/stokerdata/stoker/internal/arrowipc"
	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// Record is one record as stored, with everything that the pack knows of it.
type Record struct {
	ID int64
	// Path is the original path of the record, or of its first field that has one.
	Path string
	// Values are all fields, in the order of the manifest.
	Values []Value
}

// Value is a field of a record.
type Value struct {
	// Field describes it.
	Field *Field
	driver.Value
	// Depth is the number of bits per channel of an image.
	Depth int32
	// Path is the original path of a value of a field of files.
	Path string
	// EXIF and ICC are set for images whose stored form cannot contain them, in packs made with metadata.
	EXIF, ICC []byte
}

// Image returns the first image of the record, nil if it has none.
func (rec *Record) Image() *Value { return rec.of(driver.KindImage) }

// Label returns the first label of the record, nil if it has none.
func (rec *Record) Label() *Value { return rec.of(driver.KindLabel) }

func (rec *Record) of(kind driver.Kind) *Value {
	for i := range rec.Values {
		if rec.Values[i].Field.Kind == kind {
			return &rec.Values[i]
		}
	}
	return nil
}

// Class returns the class name of a label, "" if it has none.
func (v *Value) Class() string {
	if v.Int >= 0 && v.Int < int64(len(v.Field.Classes)) {
		return v.Field.Classes[v.Int]
	}
	return ""
}

// Record reads record id. It is made for tools; loaders read through Locate and
// Parse.
func (r *Reader) Record(ctx context.Context, id int64) (*Record, error) {
	if id < 0 || id >= r.Len() {
		return nil, fmt.Errorf("%s has %d records, 0 to %d; there is no record %d", r.opt.URL, r.Len(), r.Len()-1, id)
	}
	return r.one(ctx, id, everything)
}

// Find implements driver.Finder.
func (r *Reader) Find(ctx context.Context, id int64) string {
	if id >= 0 && id < r.Len() {
		if rec, err := r.extras(ctx, id); err == nil && rec.Path != "" {
			return fmt.Sprintf("%s (%s)", rec.Path, r.Name(id))
		}
	}
	return r.Name(id)
}

// extras reads the parts of record id that a loader never reads: paths and metadata.
func (r *Reader) extras(ctx context.Context, id int64) (*Record, error) {
	return r.one(ctx, id, onlyTail)
}

// one reads a part of record id.
func (r *Reader) one(ctx context.Context, id int64, what part) (*Record, error) {
	c, row := r.row(id)
	o, v, err := r.openChunk(ctx, c, nil)
	if err != nil {
		return nil, err
	}
	defer o.Close()
	rec := &Record{}
	return rec, v.record(ctx, o, row, rec, what)
}

// openChunk opens the shard of chunk c and reads the chunk's head, into buf when
// that is large enough.
func (r *Reader) openChunk(ctx context.Context, c int, buf *[]byte) (store.Object, *view, error) {
	ref := &r.chunks[c]
	o, err := r.pool.Open(ctx, r.entries[ref.shard])
	if err != nil {
		return nil, nil, err
	}
	var head []byte
	if buf != nil {
		*buf = grow(*buf, int(ref.head))
		head = *buf
	} else {
		head = make([]byte, ref.head)
	}
	err = o.ReadAt(ctx, head, ref.offset)
	var v *view
	if err == nil {
		v, err = r.viewOf(c, head)
	}
	if err != nil {
		_ = o.Close()
		return nil, nil, err
	}
	return o, v, nil
}

// part selects the leaves that are read.
type part int

const (
	everything part = iota
	onlyTail
)

// record fills rec with a row; memory of the values in rec is used again.
func (v *view) record(ctx context.Context, o reader, row int64, rec *Record, what part) error {
	r := v.r
	rec.ID, _ = r.gone.record(r.find.first[v.c] + row)
	rec.Path = ""
	if len(rec.Values) != len(r.sch.fields) {
		rec.Values = make([]Value, len(r.sch.fields))
	}
	for i := range rec.Values {
		old := rec.Values[i].Bytes
		rec.Values[i] = Value{Field: &r.sch.fields[i]}
		rec.Values[i].Bytes = old[:0]
	}
	for i := range r.sch.leaves {
		l := &r.sch.leaves[i]
		if what == onlyTail && !l.inTail() {
			continue
		}
		if l.field < 0 {
			b, err := v.read(ctx, o, i, row, nil)
			if err != nil {
				return err
			}
			rec.Path = string(b)
			continue
		}
		if err := v.leaf(ctx, o, i, row, &rec.Values[l.field]); err != nil {
			return err
		}
	}
	for i := range rec.Values {
		if rec.Path == "" {
			rec.Path = rec.Values[i].Path
		}
	}
	return nil
}

// leaf reads a leaf of a row into the value that it belongs to.
func (v *view) leaf(ctx context.Context, o reader, leaf int, row int64, val *Value) (err error) {
	switch v.r.sch.leaves[leaf].role {
	case roleValue:
		switch {
		case val.Field.Kind == driver.KindFloat:
			val.Float = math.Float64frombits(uint64(v.int(leaf, row)))
		case v.r.sch.number(leaf):
			val.Int = v.int(leaf, row)
		default:
			val.Bytes, err = v.read(ctx, o, leaf, row, val.Bytes)
		}
	case rolePath:
		var b []byte
		b, err = v.read(ctx, o, leaf, row, nil)
		val.Path = string(b)
	case roleEXIF:
		val.EXIF, err = v.read(ctx, o, leaf, row, nil)
	case roleICC:
		val.ICC, err = v.read(ctx, o, leaf, row, nil)
	case roleCodec:
		val.Codec = driver.Codec(v.int(leaf, row))
	case roleWidth:
		val.Width = int32(v.int(leaf, row))
	case roleHeight:
		val.Height = int32(v.int(leaf, row))
	case roleChannels:
		val.Channels = int32(v.int(leaf, row))
	case roleDepth:
		val.Depth = int32(v.int(leaf, row))
	case roleOrientation:
		val.Orientation = int32(v.int(leaf, row))
	case roleSum:
		if !v.right && valueSum(val.Bytes) != uint32(v.int(leaf, row)) {
			return v.r.damaged(v.c, fmt.Errorf("row %d: field %q does not match its checksum", row, val.Field.Name))
		}
	}
	return err
}

// read reads a value of a leaf, into buf when that is large enough.
func (v *view) read(ctx context.Context, o reader, leaf int, row int64, buf []byte) ([]byte, error) {
	ref := &v.r.chunks[v.c]
	l, p := &v.r.sch.leaves[leaf], &v.lay.Leaves[leaf]
	var at, size int64
	if l.inTail() {
		b := make([]byte, 2*l.OffsetWidth)
		if err := o.ReadAt(ctx, b, ref.offset+p.Offsets.Off+l.OffsetWidth*row); err != nil {
			return nil, err
		}
		from, to := offset(b, l.OffsetWidth, 0), offset(b, l.OffsetWidth, 1)
		if from < 0 || to < from || to > p.Items {
			return nil, v.r.damaged(v.c, fmt.Errorf("%w: row %d of column %s", arrowipc.ErrFormat, row, l.Name))
		}
		at, size = p.Values.Off+from*l.Width, (to-from)*l.Width
	} else {
		at, size = v.value(leaf, row)
	}
	// Decoders read a few bytes past the end of their input.
	buf = grow(buf, int(size)+recordread.Tail)[:size]
	if size == 0 {
		return buf, nil
	}
	return buf, o.ReadAt(ctx, buf, ref.offset+at)
}
