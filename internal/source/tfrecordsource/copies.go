package tfrecordsource

import (
	"math"
	"slices"

	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/internal/source/dynvalue"
	"github.com/stokerdata/stoker/source/driver"
)

// A large value that goes into the batch unchanged is copied there while the checksum of its record is computed, so
// that its bytes are read from memory only once. First all records of a group are parsed and their values get
// places in the batch. Then all values are copied. Until its checksum is verified, no value of a record is used.

// copied is a value that is copied to its place: n bytes from off on of record k of the group. If to is nil, it
// marks the end of the record.
type copied struct {
	k, off, n int
	to        []byte
}

// copyFrom is the size from which values are copied together with the checksum.
var copyFrom = 4 << 10 // tests change it

// later returns the record if its checksum is verified while its values are copied, and nil if the record is
// verified before it is parsed.
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

// place reserves the place of a value that is stored unchanged in the current record, and returns it.
func (w *scratch) place(field int, b []byte) []byte {
	switch w.schema.Fields[field].Kind {
	case driver.KindBytes, driver.KindArray, driver.KindRagged:
	default:
		return b // these are parsed
	}
	c := copied{k: w.to.K, off: w.at, n: len(b)}
	if c.n < copyFrom {
		return b
	}
	i := len(w.copies) // copies are sorted by offset
	for i > w.begun && w.copies[i-1].off >= c.off {
		i--
	}
	if i > w.begun && w.copies[i-1].off+w.copies[i-1].n > c.off || i < len(w.copies) && w.copies[i].off < c.off+c.n {
		return b // two fields of the same feature: copy one of them
	}
	if c.to = w.to.Group.Place(c.k, field, int64(c.n)); c.to == nil {
		return b
	}
	w.copies = slices.Insert(w.copies, i, c)
	return c.to
}

// end ends the copies of the current record. If the record failed, they are dropped.
func (w *scratch) end(failed bool) {
	switch {
	case w.to.Place == nil:
	case failed:
		w.copies = w.copies[:w.begun]
	default:
		w.copies = append(w.copies, copied{k: w.to.K, off: w.view.Size})
	}
}

// copy copies the values of all records of a group and verifies the checksums.
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

// sizes are the sizes of bytes features, by record. With them a batch reserves the exact space for each value, and
// no value moves later.
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

// set notes the size of a value. It may be called concurrently for different records.
func (s sizes) set(name string, id int64, v *dynvalue.Value) {
	if of := s[name]; id < int64(len(of)) && v.Form == column.Bytes && v.Size <= math.MaxUint32 {
		of[id] = uint32(v.Size)
	}
}

// of returns the sizes of the fields with large values.
func (s sizes) of(schema *dynvalue.Schema) map[int][]uint32 {
	out := map[int][]uint32{}
	for i, f := range schema.Fields {
		if of := s[schema.Columns[i].From]; len(of) > 0 && f.Kind == driver.KindBytes && f.MaxBytes >= int64(copyFrom) {
			out[i] = of
		}
	}
	return out
}

// sized is a source of Examples with large values of known sizes.
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
