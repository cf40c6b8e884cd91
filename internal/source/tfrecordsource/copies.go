package tfrecordsource

import (
	"math"
	"slices"

	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/internal/source/dynvalue"
	"github.com/stokerdata/stoker/source/driver"
)

// A large value of a record that goes into the batch as it stands is copied there while
// the record's checksum is made, so that its bytes come out of the memory once: first
// all records of a group are looked at, and their values given places; then all are
// copied. What the records say is believed only when their checksums are right.

// copied is a value that is copied to its place, n bytes from off on of record k of the
// group; without a place, the end of that record.
type copied struct {
	k, off, n int
	to        []byte
}

// copyFrom is the size from which a value is copied with the checksum.
var copyFrom = 4 << 10 // tests change it

// later says that the checksum of a record shall be compared while its values are
// copied, and is the record; nil where it is read as any.
func (w *scratch) later(s *examples) []byte {
	to := &w.to
	if to.Group.Place == nil {
		return nil
	}
	data := bare(to.Group, to.K)
	if len(data) < copyFrom {
		return nil
	}
	w.schema, w.begun, to.Place = s.schema, len(w.copies), w.hook
	return data
}

// place finds the place of a value that lies in the record at hand as it is.
func (w *scratch) place(field int, b []byte) []byte {
	switch w.schema.Fields[field].Kind {
	case driver.KindBytes, driver.KindArray, driver.KindRagged:
	default:
		return b // they are looked at
	}
	c := copied{k: w.to.K, off: w.at, n: len(b)}
	if c.n < copyFrom {
		return b
	}
	i := len(w.copies) // they are in the order of the record
	for i > w.begun && w.copies[i-1].off >= c.off {
		i--
	}
	if i > w.begun && w.copies[i-1].off+w.copies[i-1].n > c.off || i < len(w.copies) && w.copies[i].off < c.off+c.n {
		return b // of two fields that have one feature, one
	}
	if c.to = w.to.Group.Place(c.k, field, int64(c.n)); c.to == nil {
		return b
	}
	w.copies = slices.Insert(w.copies, i, c)
	return c.to
}

// end ends the copies of the record at hand, if it has any: none is made when it failed.
func (w *scratch) end(failed bool) {
	switch {
	case w.to.Place == nil:
	case failed:
		w.copies = w.copies[:w.begun]
	default:
		w.copies = append(w.copies, copied{k: w.to.K, off: w.view.Size})
	}
}

// copy copies the values of all records of a group, and compares their checksums.
func (s *examples) copy(g *driver.Group, w *scratch) {
	crc, at := uint32(0), 0
	for _, c := range w.copies {
		data := bare(g, c.k)
		crc = update(crc, data[at:c.off])
		if c.to == nil {
			s.compare(g, c.k, masked(crc))
			crc, at = 0, 0
			continue
		}
		crc, at = cdec.CopyCRC32C(c.to, data[c.off:c.off+c.n], crc), c.off+c.n
	}
}

// sizes are those of the values of features that are chosen as bytes, by record: a
// batch has room for each where it belongs, and none is moved when others are there.
type sizes map[string][]uint32

func newSizes(columns []column.Want, records int64) sizes {
	s := sizes{}
	for _, c := range columns {
		if c.Kind == driver.KindBytes && c.Name != column.Rest {
			s[c.From] = make([]uint32, records)
		}
	}
	return s
}

// set notes the size of a value. Goroutines note those of different records.
func (s sizes) set(name string, id int64, v *dynvalue.Value) {
	if of := s[name]; id < int64(len(of)) && v.Form == dynvalue.Bytes && v.Size <= math.MaxUint32 {
		of[id] = uint32(v.Size)
	}
}

// of are the sizes of the fields that have large values.
func (s sizes) of(schema *dynvalue.Schema) map[int][]uint32 {
	out := map[int][]uint32{}
	for i, f := range schema.Fields {
		if of := s[schema.Columns[i].From]; len(of) > 0 && f.Kind == driver.KindBytes && f.MaxBytes >= int64(copyFrom) {
			out[i] = of
		}
	}
	return out
}

// sized is the source of Examples with large values whose sizes are known.
type sized struct {
	*examples
	sizes map[int][]uint32 // by field
}

// Sizes implements driver.Sizer.
func (s *sized) Sizes(field int, ids, out []int64) bool {
	of, ok := s.sizes[field]
	if !ok {
		return false
	}
	for k, id := range ids {
		out[k] = int64(of[id])
	}
	return true
}
