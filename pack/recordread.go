package pack

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/stokerdata/stoker/pack/internal/arrowipc"
	"github.com/stokerdata/stoker/source/driver"
)

// recordIndex is the index of a pack without images: nothing per record for
// arrays, whose places follow from the chunk's, 8 bytes for each number and for
// each value of bytes.
type recordIndex struct {
	// fields are what Read gives, in the order of Values: numbers, then arrays
	// and bytes. Text stays in the pack for other tools.
	fields []recordField
	// base is where the values of each column begin in each chunk.
	base []uint32
	cols int
}

type recordField struct {
	col   int
	kind  driver.Kind
	width int64    // of an array
	ints  []int64  // of numbers, by record
	start []uint32 // of bytes, by record, from the beginning of the chunk
	size  []uint32
}

func newRecordIndex(m *Manifest) *recordIndex {
	x := &recordIndex{cols: len(m.Fields)}
	cols := m.columns()
	for i := range m.Fields {
		if kind := driver.Kind(m.Fields[i].Kind); kind != driver.KindText {
			x.fields = append(x.fields, recordField{col: i, kind: kind, width: cols[i].Width()})
		}
	}
	return x
}

// allocate takes the memory of the index.
func (x *recordIndex) allocate(records int64, chunks int) {
	x.base = make([]uint32, chunks*x.cols)
	for i := range x.fields {
		switch f := &x.fields[i]; f.kind {
		case driver.KindLabel, driver.KindInt:
			f.ints = make([]int64, records)
		case driver.KindBytes:
			f.start, f.size = make([]uint32, records), make([]uint32, records)
		}
	}
}

// Fields are the fields of a record in the order in which Read gives them.
func (r *Reader) Fields() []Field {
	if r.recs == nil {
		return nil
	}
	var out []Field
	for i := range r.recs.fields {
		out = append(out, r.man.Fields[r.recs.fields[i].col])
	}
	return out
}

// checkRecords makes sure that the small columns and the offsets of the first
// large one are in the head.
func (v *view) checkRecords() error {
	r := v.r
	need := func(s arrowipc.Span) error {
		if s.Off+s.Len > int64(len(v.head)) {
			return fmt.Errorf("%w: a column ends behind the head", arrowipc.ErrFormat)
		}
		return nil
	}
	for i := range r.cols {
		first := r.bulk < 0 || i <= r.bulk
		if !first {
			break
		}
		if i != r.bulk {
			if err := need(v.lay.Values[i]); err != nil {
				return err
			}
		}
		if r.cols[i].OffsetWidth() == 0 {
			continue
		}
		if err := need(v.lay.Offsets[i]); err != nil {
			return err
		}
		if err := checkOffsets(&r.cols[i], v.span(v.lay.Offsets[i]), v.lay.Rows, v.lay.Values[i].Len); err != nil {
			return err
		}
	}
	return nil
}

func checkOffsets(c *arrowipc.Column, offsets []byte, rows int, valueBytes int64) error {
	if c.OffsetWidth() == 8 {
		return arrowipc.CheckLargeOffsets(offsets, rows, valueBytes)
	}
	return arrowipc.CheckOffsets(offsets, rows, valueBytes)
}

// offsets returns the checked offsets of a LargeBinary column, read from the
// shard when they are not in the head.
func (v *view) offsets(col int) ([]byte, error) {
	s := v.lay.Offsets[col]
	if col <= v.r.bulk {
		return v.span(s), nil
	}
	ref := &v.r.chunks[v.c]
	fd, err := v.r.fd(ref.shard)
	if err != nil {
		return nil, err
	}
	b := make([]byte, 8*(v.lay.Rows+1)) // the layout has checked that the chunk has as many
	if err := pread(fd, b, ref.offset+s.Off); err != nil {
		return nil, err
	}
	return b, arrowipc.CheckLargeOffsets(b, v.lay.Rows, v.lay.Values[col].Len)
}

// indexRecords copies what reading needs out of v.
func (r *Reader) indexRecords(c int, v *view) error {
	x := r.recs
	at := r.first[c]
	for i := range r.cols {
		off := v.lay.Values[i].Off
		if off > math.MaxUint32 {
			return fmt.Errorf("%w: column %s begins at %d", arrowipc.ErrFormat, r.cols[i].Name, off)
		}
		x.base[c*x.cols+i] = uint32(off)
	}
	for i := range x.fields {
		f := &x.fields[i]
		meta := &r.man.Fields[f.col]
		switch f.kind {
		case driver.KindLabel, driver.KindInt:
			for row := range r.chunks[c].rows {
				n := v.int64(f.col, row)
				if err := checkLabel(meta, row, n); err != nil {
					return err
				}
				f.ints[at+row] = n
			}
		case driver.KindBytes:
			offsets, err := v.offsets(f.col)
			if err != nil {
				return err
			}
			for row := range r.chunks[c].rows {
				if f.start[at+row], f.size[at+row], err = v.bytesAt(f.col, offsets, row); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// checkAllRecords checks the rows of a chunk without keeping an index.
func (v *view) checkAllRecords() error {
	for _, f := range v.r.recs.fields {
		meta := &v.r.man.Fields[f.col]
		switch f.kind {
		case driver.KindLabel, driver.KindInt:
			for row := range v.r.chunks[v.c].rows {
				if err := checkLabel(meta, row, v.int64(f.col, row)); err != nil {
					return err
				}
			}
		case driver.KindBytes:
			offsets, err := v.offsets(f.col)
			if err != nil {
				return err
			}
			for row := range v.r.chunks[v.c].rows {
				if _, _, err := v.bytesAt(f.col, offsets, row); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func checkLabel(f *Field, row, n int64) error {
	if f.Classes != nil && (n < 0 || n >= int64(len(f.Classes))) {
		return fmt.Errorf("%w: row %d has label %d of %d classes", arrowipc.ErrFormat, row, n, len(f.Classes))
	}
	return nil
}

// bytesAt returns where a value of a column of bytes begins in its chunk, and
// its size.
func (v *view) bytesAt(col int, offsets []byte, row int64) (start, size uint32, err error) {
	f := &v.r.man.Fields[col]
	base := uint64(v.lay.Values[col].Off)
	from, to := binary.LittleEndian.Uint64(offsets[8*row:]), binary.LittleEndian.Uint64(offsets[8*row+8:])
	if to-from > uint64(f.MaxBytes) || base+from > math.MaxUint32 {
		return 0, 0, fmt.Errorf("%w: row %d has %d bytes of %q, outside of the manifest's statistics", arrowipc.ErrFormat, row, to-from, f.Name)
	}
	return uint32(base + from), uint32(to - from), nil
}

// locateRecord appends where the values of a record lie, whose chunk c is loaded.
func (r *Reader) locateRecord(g *driver.Group, c int, id, row int64) {
	x := r.recs
	ref := &r.chunks[c]
	for i := range x.fields {
		f := &x.fields[i]
		switch f.kind {
		case driver.KindArray:
			g.Extents = append(g.Extents, driver.Extent{
				Object: int64(ref.shard), Offset: ref.offset + int64(x.base[c*x.cols+f.col]) + row*f.width, Size: f.width, Field: int32(i),
			})
		case driver.KindBytes:
			g.Extents = append(g.Extents, driver.Extent{
				Object: int64(ref.shard), Offset: ref.offset + int64(f.start[id]), Size: int64(f.size[id]), Field: int32(i),
			})
		}
	}
}

// parseRecord sets the values of a record.
func (r *Reader) parseRecord(values []driver.Value, parts [][]byte, id int64) {
	for i := range r.recs.fields {
		f := &r.recs.fields[i]
		switch f.kind {
		case driver.KindArray, driver.KindBytes:
			values[i].Bytes = parts[0]
			parts = parts[1:]
		default:
			values[i].Int = f.ints[id]
		}
	}
}

// Value is a field of a record of a pack without images.
type Value struct {
	// Field describes it; Kind, DType and Shape say what Bytes and Int are.
	Field *Field
	// Int is the value of a label or an int.
	Int int64
	// Bytes is the value of text, an array or bytes.
	Bytes []byte
}

// recordOf reads all fields of a row.
func (v *view) recordOf(row int64, rec *Record) error {
	r := v.r
	ref := &r.chunks[v.c]
	fd, err := r.fd(ref.shard)
	if err != nil {
		return err
	}
	*rec = Record{ID: r.first[v.c] + row, Label: -1}
	if r.col.path >= 0 {
		rec.Path = v.path(row)
	}
	for i := range r.man.Fields {
		f := &r.man.Fields[i]
		val := Value{Field: f}
		lay := v.lay.Values[i]
		switch driver.Kind(f.Kind) {
		case driver.KindText:
			start, size := v.value(i, row)
			val.Bytes = append([]byte{}, v.head[start:start+size]...)
		case driver.KindLabel, driver.KindInt:
			val.Int = v.int64(i, row)
		case driver.KindArray:
			w := r.cols[i].Width()
			val.Bytes = make([]byte, w)
			err = pread(fd, val.Bytes, ref.offset+lay.Off+row*w)
		case driver.KindBytes:
			var o []byte
			if o, err = v.offsets(i); err == nil {
				from, to := binary.LittleEndian.Uint64(o[8*row:]), binary.LittleEndian.Uint64(o[8*row+8:])
				val.Bytes = make([]byte, to-from)
				err = pread(fd, val.Bytes, ref.offset+lay.Off+int64(from))
			}
		}
		if err != nil {
			return fmt.Errorf("%s: field %q: %w", r.place(v.c, row), f.Name, err)
		}
		rec.Values = append(rec.Values, val)
	}
	return nil
}
