// Package npzsource reads NumPy's .npz files.
//
// One file whose arrays have the same first axis is a table: row i of each array is record
// i (rows.go). The files of a folder are samples: each file is one record, and its arrays
// are the fields. All files must have the arrays of the first one, with the same element
// types and shapes. Members may be stored (numpy.savez) or deflated
// (numpy.savez_compressed). A deflated member of a sample is inflated at each read.
//
// Files whose arrays differ in shape can be loaded as bytes: package filesource.
package npzsource

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/stokerdata/stoker/internal/npy"
	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/source/format"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// Limits of a file.
const (
	maxMembers   = 64
	maxFileBytes = 1 << 36
)

type source struct {
	list *filelist.List
	info driver.Info
	one  int // the file that defines the fields
	// places say where the arrays lie in each file, by file, in the order of
	// the fields, once that was learnt.
	places []atomic.Pointer[[]place]
	mu     sync.Mutex
	// looks are the files whose array positions are not known yet.
	looks map[int64]*look
}

// place is the position of an array in its file.
type place struct {
	deflated bool
	crc      uint32
	data     int64 // offset of the member
	size     int64 // stored size of the member in bytes
	head     int64 // size of the .npy header of a stored member
}

// Options configure Open.
type Options = format.Options

// Open opens a .npz file, or the .npz files in a folder.
func Open(ctx context.Context, url string, st store.Store, opt *Options) (driver.Source, error) {
	if opt == nil {
		opt = &Options{}
	}
	list, err := filelist.ScanRecords(ctx, st, func(name string) bool { return name == "" || strings.HasSuffix(name, ".npz") }, 0)
	if err != nil {
		return nil, err
	}
	if list.Len() == 0 {
		return nil, fmt.Errorf("no .npz file in %s", st)
	}
	if list.Name(0) == "" || len(opt.Columns) > 0 || opt.Split != "" {
		s, err := openRows(ctx, url, list, opt)
		if !errors.Is(err, errNoRows) {
			return s, err
		}
	}
	n := int64(list.Len())
	s := &source{
		list: list, places: make([]atomic.Pointer[[]place], n), looks: map[int64]*look{},
		info: driver.Info{URL: url, Format: "npz", Len: n, Objects: n, Fingerprint: list.Fingerprint("npz")},
	}
	files := filelist.PerFile{List: list, About: s.info}
	var members []member
	s.one, err = files.First(ctx, func(o store.Object) (err error) {
		members, err = readMembers(store.ReaderAt(ctx, o), o.Size(), true)
		return err
	})
	if err != nil {
		return nil, err
	}
	s.info = files.About
	for _, m := range members {
		s.info.Fields = append(s.info.Fields, m.field)
	}
	return s, nil
}

// member is one array of a file.
type member struct {
	field driver.Field
	file  *zip.File
	// data is the offset of a stored member. head is the size of its .npy header.
	data  int64
	head  int64
	bytes int64
}

// readMembers reads the directory of a .npz file and the headers of its arrays, in the order of the
// directory. Headers of deflated arrays need more than one read, so they are skipped unless inflate
// is set.
func readMembers(r io.ReaderAt, size int64, inflate bool) ([]member, error) {
	if size > maxFileBytes {
		return nil, fmt.Errorf("%d bytes are more than the limit of %d", size, int64(maxFileBytes))
	}
	z, err := zip.NewReader(r, size)
	if errors.Is(err, errUnread) {
		return nil, errUnread
	}
	if err != nil {
		return nil, fmt.Errorf("not a .npz file that can be read: %w", err)
	}
	if n := len(z.File); n == 0 || n > maxMembers {
		return nil, fmt.Errorf("not a .npz file that can be read: %d arrays, from 1 to %d can be loaded", n, maxMembers)
	}
	members := make([]member, 0, len(z.File))
	unread := false
	for _, f := range z.File {
		m, err := readMember(r, size, f, inflate)
		if errors.Is(err, errUnread) {
			unread = true // continue, so that the other arrays request their bytes
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("array %q: %w", f.Name, err)
		}
		for _, other := range members {
			if other.field.Name == m.field.Name {
				return nil, fmt.Errorf("two arrays are called %q", m.field.Name)
			}
		}
		members = append(members, m)
	}
	if unread {
		return nil, errUnread
	}
	return members, nil
}

func readMember(r io.ReaderAt, size int64, f *zip.File, inflate bool) (member, error) {
	name, ok := strings.CutSuffix(f.Name, ".npy")
	if !ok || name == "" || len(name) > 255 {
		return member{}, errors.New("it is not a .npy array; to load the files as bytes write files: before the path")
	}
	if name == "index" {
		name = "data" // batches call the record numbers index
	}
	if f.UncompressedSize64 > driver.MaxArrayBytes+1<<20 {
		return member{}, fmt.Errorf("%d bytes are more than the limit of %d", f.UncompressedSize64, driver.MaxArrayBytes)
	}
	m, head, err := head(r, size, f, inflate)
	m.field.Name = name
	if err != nil || head == nil {
		return m, err
	}
	h, err := npy.ParseHeader(head)
	if err != nil {
		return m, err
	}
	if h.Offset+h.Bytes != int64(f.UncompressedSize64) {
		return m, fmt.Errorf("a %s array of shape %v has %d bytes, the member has %d", h.DType, h.Shape, h.Bytes, int64(f.UncompressedSize64)-h.Offset)
	}
	m.field = driver.Field{Name: name, Kind: driver.KindArray, DType: h.DType}
	for _, n := range h.Shape {
		if n > math.MaxInt32 {
			return m, fmt.Errorf("its shape %v is too large", h.Shape)
		}
		m.field.Shape = append(m.field.Shape, int(n))
	}
	m.head, m.bytes = h.Offset, h.Bytes
	if _, err := driver.ArrayBytes(m.field.DType, m.field.Shape); err != nil {
		return m, err
	}
	return m, nil
}

// head returns the position of a member and the start of its array with the header. For a deflated
// array without inflate, the start is nil.
func head(r io.ReaderAt, size int64, f *zip.File, inflate bool) (m member, head []byte, err error) {
	m.file = f
	if f.Flags&1 != 0 {
		return m, nil, errors.New("it is encrypted")
	}
	at, err := f.DataOffset()
	if err != nil {
		return m, nil, err
	}
	if at < 0 || at > size || f.CompressedSize64 > uint64(size-at) || f.Method == zip.Store && f.CompressedSize64 != f.UncompressedSize64 {
		return m, nil, errors.New("it lies outside of the file: the file is cut off")
	}
	m.data = at
	switch f.Method {
	case zip.Store:
		head = make([]byte, min(int64(f.UncompressedSize64), 256))
		if _, err := r.ReadAt(head, at); err != nil {
			return m, nil, err
		}
		if n, err := npy.HeaderSize(head); err == nil && n > len(head) && n <= int(f.UncompressedSize64) {
			head = make([]byte, n)
			if _, err := r.ReadAt(head, at); err != nil {
				return m, nil, err
			}
		}
		return m, head, nil
	case zip.Deflate:
		if !inflate {
			return m, nil, nil
		}
		rc, err := f.Open()
		if err != nil {
			return m, nil, err
		}
		defer rc.Close()
		head, err = io.ReadAll(io.LimitReader(rc, min(int64(f.UncompressedSize64), 1<<17)))
		return m, head, err
	}
	return m, nil, fmt.Errorf("compression method %d is not supported: stored and deflated are", f.Method)
}

func (s *source) Info() *driver.Info { return &s.info }

func (s *source) Object(n int64) driver.Object { return s.list.Object(n, false) }

func (s *source) Name(id int64) string {
	if id < 0 || id >= s.info.Len {
		return fmt.Sprintf("%s, record %d", s.info.URL, id)
	}
	return s.list.Path(int(id))
}

// Path implements driver.Pather.
func (s *source) Path(id int64) string { return s.list.RelPath(int(id)) }

// Locate adds, for each array in the order of the fields, two extents for a stored array (header
// and elements) or one extent for a deflated array.
func (s *source) Locate(g *driver.Group) {
	for k, id := range g.IDs {
		if filelist.Has(g, k, &s.info) {
			if err := s.list.Bad.Of(int(id)); err != nil {
				g.Records[k].Err = filelist.Located(s.list.Path(int(id)), err)
			} else if p := s.places[id].Load(); p != nil {
				for n, at := range *p {
					if at.deflated {
						g.Extents = append(g.Extents, driver.Extent{Object: id, Offset: at.data, Size: at.size, Field: -1})
						continue
					}
					g.Extents = append(g.Extents,
						driver.Extent{Object: id, Offset: at.data, Size: at.head, Field: -1},
						driver.Extent{Object: id, Offset: at.data + at.head, Size: at.size - at.head, Field: int32(n)})
				}
			} else if e, err := s.unread(id); err != nil {
				g.Records[k].Err = err
			} else {
				for _, e := range e {
					g.Missing = append(g.Missing, driver.Missing{K: k, Extent: e})
				}
			}
		}
		g.Next()
	}
}

// Parse compares the checksums of stored arrays, and inflates deflated arrays.
func (s *source) Parse(g *driver.Group) error {
	for k, id := range g.IDs {
		rec := &g.Records[k]
		if rec.Err != nil {
			continue
		}
		extents, parts := g.Of(k)
		places := s.places[id].Load()
		if !fits(places, extents) {
			rec.Err = fmt.Errorf("%s: its directory was damaged when it was read", s.list.Path(int(id)))
			continue
		}
		for n, at := range *places {
			want := &s.info.Fields[n]
			var err error
			if !at.deflated {
				crc := crc32.Update(crc32.ChecksumIEEE(parts[0]), crc32.IEEETable, parts[1])
				rec.Values[n].Bytes = parts[1]
				parts = parts[2:]
				if crc != at.crc {
					err = fmt.Errorf("it is damaged: its checksum is %08x, should be %08x", crc, at.crc)
				}
			} else {
				size, _ := driver.ArrayBytes(want.DType, want.Shape) // the size was checked by Open
				b, aerr := g.Take(k, n, size)
				if aerr != nil {
					return fmt.Errorf("no memory for the %d bytes of array %q of %s: %w", size, want.Name, s.list.Path(int(id)), aerr)
				}
				err = inflate(b, parts[0], at.crc, s.compare(want))
				rec.Values[n].Bytes = b
				parts = parts[1:]
			}
			if err != nil {
				rec.Err = driver.Damaged(fmt.Errorf("%s: array %q: %w", s.list.Path(int(id)), want.Name, err))
				// The position may be wrong, so find it again for the next read.
				s.places[id].CompareAndSwap(places, nil)
				break
			}
		}
	}
	return nil
}

// fits reports whether places produced these extents. Another group may have dropped the places in
// the meantime.
func fits(places *[]place, extents []driver.Extent) bool {
	if places == nil {
		return false
	}
	for _, at := range *places {
		n := 2
		if at.deflated {
			n = 1
		}
		if len(extents) < n || extents[0].Offset != at.data || extents[n-1].Offset+extents[n-1].Size != at.data+at.size {
			return false
		}
		extents = extents[n:]
	}
	return len(extents) == 0
}

// compare returns a function that compares the header of an array with its field.
func (s *source) compare(want *driver.Field) func(t driver.DType, shape []int) error {
	return func(t driver.DType, shape []int) error {
		if t == want.DType && slices.Equal(shape, want.Shape) {
			return nil
		}
		return fmt.Errorf("it is %s of shape %v, that of %s is %s of shape %v; to load the files as bytes write files: before the path",
			t, shape, s.list.Path(s.one), want.DType, want.Shape)
	}
}

// inflate writes the elements of a deflated array into b.
func inflate(b, data []byte, want uint32, compare func(t driver.DType, shape []int) error) error {
	r := flate.NewReader(bytes.NewReader(data))
	defer r.Close()
	head := make([]byte, 16)
	if _, err := io.ReadFull(r, head); err != nil {
		return err
	}
	n, err := npy.HeaderSize(head)
	if err != nil {
		return err
	}
	if n > len(head) {
		head = append(head, make([]byte, n-len(head))...) // bounded by HeaderSize
		if _, err := io.ReadFull(r, head[16:]); err != nil {
			return err
		}
	}
	h, err := npy.ParseHeader(head)
	if err != nil {
		return err
	}
	shape := make([]int, len(h.Shape))
	for i, side := range h.Shape {
		shape[i] = int(min(side, math.MaxInt32))
	}
	if err := compare(h.DType, shape); err != nil {
		return err
	}
	if _, err := io.ReadFull(r, b); err != nil {
		return err
	}
	var end [1]byte
	if n, err := r.Read(end[:]); n != 0 || err != io.EOF {
		if err == nil || err == io.EOF {
			err = errors.New("it is longer than its header says")
		}
		return err
	}
	if crc := crc32.Update(crc32.ChecksumIEEE(head), crc32.IEEETable, b); crc != want {
		return fmt.Errorf("it is damaged: its checksum is %08x, should be %08x", crc, want)
	}
	return nil
}

func (s *source) Close() error { return nil }
