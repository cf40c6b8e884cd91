package npzsource

import (
	"errors"
	"fmt"
	"slices"

	"github.com/stokerdata/stoker/source/driver"
)

// The directory of a file is at its end, and each array begins with a header. Both are read when
// the first record of the file is requested. Package zip gets the bytes that were read so far, and
// bytes that it lacks are requested, until it lacks none.

// look is a file whose array positions are not known yet.
type look struct {
	size  int64
	parts []part
	want  []driver.Extent
}

type part struct {
	at int64
	b  []byte
}

const (
	// tailBytes are read from the end of a file. Most directories fit in it.
	tailBytes = 4 << 10
	// headBytes are read at the start of an array, for its headers.
	headBytes = 512
	// maxLook limits the bytes of one file that are kept until its array positions are known.
	maxLook = 1 << 20
)

// errUnread is the error for bytes that were not read yet.
var errUnread = errors.New("not read yet")

// ReadAt implements io.ReaderAt.
func (l *look) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off > l.size || int64(len(p)) > l.size-off {
		return 0, errors.New("the file ends before that")
	}
	for _, have := range l.parts {
		if off >= have.at && off+int64(len(p)) <= have.at+int64(len(have.b)) {
			return copy(p, have.b[off-have.at:]), nil
		}
	}
	l.want = append(l.want, driver.Extent{Offset: off, Size: min(max(int64(len(p)), headBytes), l.size-off)})
	return 0, errUnread
}

// unread returns the extents to read next to find the arrays of file id.
func (s *source) unread(id int64) ([]driver.Extent, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.looks[id]
	if l == nil {
		size := s.list.Size(int(id))
		n := min(size, tailBytes)
		if n == 0 {
			return nil, fmt.Errorf("%s: not a .npz file that can be read: it is empty", s.list.Path(int(id)))
		}
		return []driver.Extent{{Object: id, Offset: size - n, Size: n}}, nil
	}
	out := slices.Clone(l.want)
	for i := range out {
		out[i].Object = id
	}
	return out, nil
}

// Learn implements driver.Indexer.
func (s *source) Learn(e driver.Extent, b []byte) error {
	id := e.Object
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.places[id].Load() != nil {
		return nil
	}
	l := s.looks[id]
	if l == nil {
		l = &look{size: s.list.Size(int(id))}
		s.looks[id] = l
	}
	have := int64(len(b))
	for _, p := range l.parts {
		have += int64(len(p.b))
	}
	places, err := []place(nil), fmt.Errorf("its directory has more than %d bytes", int64(maxLook))
	if have <= maxLook {
		l.parts = append(l.parts, part{e.Offset, slices.Clone(b)})
		l.want = l.want[:0]
		places, err = s.find(l)
		if err == errUnread {
			return nil
		}
	}
	delete(s.looks, id)
	if err != nil {
		return fmt.Errorf("%s: %w", s.list.Path(int(id)), err)
	}
	s.places[id].Store(&places)
	return nil
}

// find returns the positions of the arrays of a file, in the order of the fields.
func (s *source) find(l *look) ([]place, error) {
	members, err := readMembers(l, l.size, false)
	if err != nil {
		return nil, err
	}
	out := make([]place, len(s.info.Fields))
	for n := range s.info.Fields {
		want := &s.info.Fields[n]
		at := slices.IndexFunc(members, func(m member) bool { return m.field.Name == want.Name })
		if at < 0 {
			return nil, fmt.Errorf("it has no array %q, which %s has", want.Name, s.list.Path(0))
		}
		m := &members[at]
		out[n] = place{crc: m.file.CRC32, data: m.data, size: int64(m.file.CompressedSize64), head: m.head, deflated: m.field.DType == ""}
		if !out[n].deflated {
			if err := s.compare(want)(m.field.DType, m.field.Shape); err != nil {
				return nil, fmt.Errorf("array %q: %w", want.Name, err)
			}
		}
	}
	return out, nil
}
