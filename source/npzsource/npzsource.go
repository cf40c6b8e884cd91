// Package npzsource reads a folder of NumPy's .npz files: each file is one
// record, its members are arrays of the record. All files must have the members
// of the first one, with the same element types and shapes. Members may be stored
// (numpy.savez) or deflated (numpy.savez_compressed), which costs inflating them
// at each read.
//
// Files whose arrays differ in shape can be loaded as bytes: package filesource.
package npzsource

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/npy"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/internal/filelist"
)

// Limits of a file.
const (
	maxMembers   = 64
	maxFileBytes = 1 << 36
	// piece is how much is read and checked at a time, so that the second look at
	// it finds it in the cache.
	piece = 256 << 10
)

type source struct {
	list *filelist.List
	info driver.Info
}

// Open lists the .npz files below path, or takes the one file that it is, and
// reads the headers of the first one.
func Open(ctx context.Context, url, path string) (driver.Source, error) {
	list, err := filelist.Scan(ctx, path, func(p string) bool { return strings.HasSuffix(p, ".npz") })
	if err != nil {
		return nil, err
	}
	if list.Len() == 0 {
		return nil, fmt.Errorf("no .npz file in %s", path)
	}
	s := &source{list: list, info: driver.Info{URL: url, Format: "npz", Len: int64(list.Len()), Fingerprint: list.Fingerprint("npz")}}
	fd, err := list.Open(0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	members, err := readMembers(filelist.ReaderAt{FD: fd, Size: list.Size(0)}, list.Size(0))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", list.FullPath(0), err)
	}
	for _, m := range members {
		s.info.Fields = append(s.info.Fields, m.field)
	}
	return s, nil
}

// member is one array of a file.
type member struct {
	field driver.Field
	file  *zip.File
	// data is where the bytes of a stored member begin, head the size of the
	// .npy header in front of the elements.
	data  int64
	head  int64
	bytes int64
}

// readMembers reads the directory of a .npz file and the headers of its arrays,
// in the order of the directory.
func readMembers(r io.ReaderAt, size int64) ([]member, error) {
	if size > maxFileBytes {
		return nil, fmt.Errorf("%d bytes are more than the limit of %d", size, int64(maxFileBytes))
	}
	z, err := zip.NewReader(r, size)
	if err != nil {
		return nil, fmt.Errorf("not a .npz file that can be read: %w", err)
	}
	if n := len(z.File); n == 0 || n > maxMembers {
		return nil, fmt.Errorf("not a .npz file that can be read: %d arrays, from 1 to %d can be loaded", n, maxMembers)
	}
	members := make([]member, 0, len(z.File))
	for _, f := range z.File {
		m, err := readMember(r, size, f)
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
	return members, nil
}

func readMember(r io.ReaderAt, size int64, f *zip.File) (member, error) {
	m := member{file: f}
	name, ok := strings.CutSuffix(f.Name, ".npy")
	if !ok || name == "" || len(name) > 255 {
		return m, errors.New("it is no .npy array; to load the files as bytes write files: in front of the path")
	}
	if name == "index" {
		name = "data" // batches call the record numbers index
	}
	if f.Flags&1 != 0 {
		return m, errors.New("it is encrypted")
	}
	if f.UncompressedSize64 > driver.MaxArrayBytes+1<<20 {
		return m, fmt.Errorf("%d bytes are more than the limit of %d", f.UncompressedSize64, driver.MaxArrayBytes)
	}
	var head []byte
	switch f.Method {
	case zip.Store:
		at, err := f.DataOffset()
		if err != nil {
			return m, err
		}
		if f.CompressedSize64 != f.UncompressedSize64 || at < 0 || at > size || int64(f.UncompressedSize64) > size-at {
			return m, errors.New("it lies outside of the file: the file is cut off")
		}
		m.data = at
		head = make([]byte, min(int64(f.UncompressedSize64), 256))
		if _, err := r.ReadAt(head, at); err != nil {
			return m, err
		}
		if n, err := npy.HeaderSize(head); err == nil && n > len(head) && n <= int(f.UncompressedSize64) {
			head = make([]byte, n)
			if _, err := r.ReadAt(head, at); err != nil {
				return m, err
			}
		}
	case zip.Deflate:
		rc, err := f.Open()
		if err != nil {
			return m, err
		}
		head, err = io.ReadAll(io.LimitReader(rc, min(int64(f.UncompressedSize64), 1<<17)))
		rc.Close()
		if err != nil {
			return m, err
		}
	default:
		return m, fmt.Errorf("compression method %d is not supported: stored and deflated are", f.Method)
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

func (s *source) Info() *driver.Info { return &s.info }

func (s *source) Name(id int64) string {
	if id < 0 || id >= s.info.Len {
		return fmt.Sprintf("%s, record %d", s.info.URL, id)
	}
	return s.list.FullPath(int(id))
}

// Path implements driver.Pather.
func (s *source) Path(id int64) string { return s.list.Path(int(id)) }

// errAlloc marks a failure of the caller's memory: it is not the file's.
var errAlloc = errors.New("no memory")

func (s *source) Read(ctx context.Context, ids []int64, buf *driver.Buffer) error {
	if len(buf.Records) != len(ids) {
		return fmt.Errorf("read of %d records into a buffer of %d", len(ids), len(buf.Records))
	}
	for k, id := range ids {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		rec := &buf.Records[k]
		rec.ID, rec.Err = id, nil
		if id < 0 || id >= s.info.Len {
			rec.Err = fmt.Errorf("record %d is outside of the %d records of %s", id, s.info.Len, s.info.URL)
			continue
		}
		err := s.readFile(ctx, k, int(id), buf)
		switch {
		case errors.Is(err, errAlloc):
			return err
		case err != nil && ctx.Err() != nil:
			return context.Cause(ctx)
		default:
			rec.Err = err
		}
	}
	return nil
}

func (s *source) readFile(ctx context.Context, k, i int, buf *driver.Buffer) error {
	fd, err := s.list.Open(i)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := s.readArrays(ctx, k, i, fd, buf); err != nil {
		return fmt.Errorf("%s: %w", s.list.FullPath(i), err)
	}
	return s.list.Check(i, fd)
}

func (s *source) readArrays(ctx context.Context, k, i, fd int, buf *driver.Buffer) error {
	size := s.list.Size(i)
	members, err := readMembers(filelist.ReaderAt{FD: fd, Size: size}, size)
	if err != nil {
		return err
	}
	for n := range s.info.Fields {
		want := &s.info.Fields[n]
		at := slices.IndexFunc(members, func(m member) bool { return m.field.Name == want.Name })
		if at < 0 {
			return fmt.Errorf("it has no array %q, which %s has", want.Name, s.list.FullPath(0))
		}
		m := &members[at]
		if m.field.DType != want.DType || !slices.Equal(m.field.Shape, want.Shape) {
			return fmt.Errorf("array %q is %s of shape %v, that of %s is %s of shape %v; to load the files as bytes write files: in front of the path",
				want.Name, m.field.DType, m.field.Shape, s.list.FullPath(0), want.DType, want.Shape)
		}
		b, err := buf.Take(k, n, m.bytes)
		if err != nil {
			return fmt.Errorf("%w for the %d bytes of array %q: %w", errAlloc, m.bytes, want.Name, err)
		}
		if m.file.Method == zip.Store {
			err = m.readStored(ctx, fd, b)
		} else {
			err = m.inflate(b)
		}
		if err != nil {
			return fmt.Errorf("array %q: %w", want.Name, err)
		}
		buf.Records[k].Values[n] = driver.Value{Bytes: b}
	}
	return nil
}

// readStored reads a stored array and compares its checksum.
func (m *member) readStored(ctx context.Context, fd int, b []byte) error {
	head := make([]byte, m.head)
	if err := filelist.Pread(fd, head, m.data); err != nil {
		return err
	}
	crc := crc32.ChecksumIEEE(head)
	for at := 0; at < len(b); at += piece {
		if err := ctx.Err(); err != nil {
			return err
		}
		part := b[at:min(at+piece, len(b))]
		if err := filelist.Pread(fd, part, m.data+m.head+int64(at)); err != nil {
			return err
		}
		crc = crc32.Update(crc, crc32.IEEETable, part)
	}
	if crc != m.file.CRC32 {
		return fmt.Errorf("it is damaged: its checksum is %08x, should be %08x", crc, m.file.CRC32)
	}
	return nil
}

// inflate reads a deflated array; package zip compares its checksum.
func (m *member) inflate(b []byte) error {
	rc, err := m.file.Open()
	if err != nil {
		return err
	}
	defer rc.Close()
	if _, err := io.CopyN(io.Discard, rc, m.head); err != nil {
		return err
	}
	if _, err := io.ReadFull(rc, b); err != nil {
		return err
	}
	var end [1]byte
	if n, err := rc.Read(end[:]); n != 0 || err != io.EOF {
		if err == nil || err == io.EOF {
			err = errors.New("it is longer than its header says")
		}
		return err
	}
	return nil
}

func (s *source) Close() error { return nil }
