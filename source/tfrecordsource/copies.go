package tfrecordsource

import (
	"slices"

	"github.com/stokerdata/stoker/internal/cdec"
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
