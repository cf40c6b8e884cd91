package tfrecordsource

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/stokerdata/stoker/internal/source/dynvalue"
	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/source/inorder"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// ordered is a source of files of which at least one is compressed: a driver.Sequential. It holds 4 bytes per
// record, and restart points.
type ordered struct {
	driver.InOrderOnly
	inorder.Files
	list   *filelist.List
	info   driver.Info
	sizes  [][]uint32       // of the records, by file
	schema *dynvalue.Schema // nil if records are bytes
	spare  sync.Pool        // memory for parsing
}

// orderedRecords is an ordered source whose records are bytes.
type orderedRecords struct{ *ordered }

// scanStream scans the records of a stream.
func scanStream(ctx context.Context, rd *inorder.Scanner, seen *seen) (sizes []uint32, err error) {
	var header [headerBytes]byte
	scratch := make([]byte, 32<<10)
	for {
		at := rd.Pos()
		fail := func(err error) ([]uint32, error) {
			if ctx.Err() != nil {
				return sizes, context.Cause(ctx)
			}
			return sizes, &inorder.Error{Record: int64(len(sizes)), At: at, Err: err}
		}
		n, err := rd.Read(header[:])
		if err == io.EOF {
			return sizes, nil
		}
		if err != nil {
			return fail(err)
		}
		rd.Mark(int64(len(sizes)), at)
		if _, err := io.ReadFull(rd, header[n:]); err != nil {
			return fail(inorder.Cut(err, "its header"))
		}
		length, err := parseHeader(header[:])
		if err != nil {
			return fail(err)
		}
		n = 0
		if seen.wants() {
			if n, err = seen.stream(rd, length); err != nil {
				return fail(inorder.Cut(err, fmt.Sprintf("its %d bytes", length)))
			}
		}
		if err := inorder.Discard(rd, length+footerBytes-int64(n), scratch); err != nil {
			return fail(inorder.Cut(err, fmt.Sprintf("its %d bytes", length)))
		}
		sizes = append(sizes, uint32(length))
	}
}

// newOrdered returns the source for files that are read in order.
func newOrdered(list *filelist.List, files []file, schema *dynvalue.Schema, name string) driver.Source {
	s := &ordered{list: list, schema: schema}
	s.Files = inorder.Files{List: list, Info: &s.info, Read: s.read}
	largest := int64(0)
	for i := range files {
		f := &files[i]
		if f.offsets != nil {
			f.plain()
		}
		f.Records = int64(len(f.sizes))
		s.First = append(s.First, s.info.Len)
		s.info.Len += f.Records
		if len(f.sizes) > 0 {
			largest = max(largest, int64(slices.Max(f.sizes)))
		}
		s.sizes = append(s.sizes, f.sizes)
		s.Files.Files = append(s.Files.Files, f.File)
	}
	s.info.Sequential = true
	if schema != nil {
		s.info.Fields = schema.Fields
		return s
	}
	s.info.Fields = []driver.Field{{Name: name, Kind: driver.KindBytes, MaxBytes: largest}}
	return orderedRecords{s}
}

// plain builds the index of an uncompressed file in the form of a stream's.
func (f *file) plain() {
	at := f.offsets
	f.offsets = nil
	for k := range at[1:] {
		f.sizes = append(f.sizes, uint32(at[k+1]-at[k]-headerBytes-footerBytes))
		f.Plain(int64(k), at[k])
	}
}

func (s *ordered) Info() *driver.Info { return &s.info }

func (s *ordered) Object(n int64) driver.Object { return s.list.Object(n, false) }

func (s *ordered) Close() error { return nil }

func (s *ordered) Name(id int64) string {
	if id < 0 || id >= s.info.Len {
		return fmt.Sprintf("%s, record %d", s.info.URL, id)
	}
	f := filelist.Find(s.First, id)
	return fmt.Sprintf("%s, record %d", s.list.Path(f), id-s.First[f])
}

// Sizes implements driver.Sizer.
func (s orderedRecords) Sizes(_ int, ids, sizes []int64) bool {
	for i, id := range ids {
		f := filelist.Find(s.First, id)
		sizes[i] = int64(s.sizes[f][id-s.First[f]])
	}
	return true
}

// read implements inorder.Files.Read.
func (s *ordered) read(r *inorder.Run, f int, k int64, wanted bool) error {
	var b [headerBytes]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return err
	}
	size := int64(s.sizes[f][k])
	switch n, err := parseHeader(b[:]); {
	case err != nil:
		return err
	case n != size:
		return fmt.Errorf("%w: a record had %d bytes, now it has %d", store.ErrChanged, size, n)
	}
	if !wanted {
		return r.Skip(size + footerBytes)
	}
	if s.schema != nil {
		return s.example(r, f, k, size)
	}
	data, err := r.In.Alloc(s.First[f]+k, 0, size)
	if err != nil {
		r.Rec.Err = err
		return r.Skip(size + footerBytes)
	}
	if r.Rec.Err, err = s.data(r, f, k, data); r.Rec.Err == nil {
		r.Rec.Values[0].Bytes = data
	}
	return err
}

// data reads a record into data. bad is the error for a wrong checksum.
func (s *ordered) data(r *inorder.Run, f int, k int64, data []byte) (bad, err error) {
	if _, err := io.ReadFull(r, data); err != nil {
		return nil, err
	}
	var b [footerBytes]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return nil, err
	}
	if got, want := checksum(data), binary.LittleEndian.Uint32(b[:]); got != want {
		return fmt.Errorf("%s, record %d: the record is damaged: the checksum is %08x, expected %08x", s.list.Path(f), k, got, want), nil
	}
	return nil, nil
}

// example parses the features of a record.
func (s *ordered) example(r *inorder.Run, f int, k, size int64) error {
	w, _ := s.spare.Get().(*scratch)
	if w == nil {
		w = &scratch{}
	}
	defer s.spare.Put(w)
	if int64(cap(w.record)) < size {
		w.record = make([]byte, size)
	}
	data := w.record[:size]
	bad, err := s.data(r, f, k, data)
	if r.Rec.Err = bad; bad != nil || err != nil {
		return err
	}
	id := s.First[f] + k
	w.view.All(data)
	r.Rec.Err = w.put(s.schema, &dynvalue.Sink{In: r.In, ID: id, Rec: &r.Rec}, nil)
	if r.Rec.Err != nil {
		r.Rec.Err = fmt.Errorf("%s: %w", s.Name(id), r.Rec.Err)
	}
	return nil
}
