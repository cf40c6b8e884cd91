// Package inorder is the shared part of sources that can only be read in order, because some of their files are
// compressed: the points where reading can start, resume tokens, and the loop over the files.
//
// Opening scans each file once (Scanner). So the number and the sizes of all records are known, and damage is found
// early.
package inorder

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sort"
	"strconv"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/source/stream"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// apart is the approximate distance of restart points, in decompressed bytes.
const apart = 4 << 20

// Place is a restart point: decompression starts at byte At of the file, and record Record begins after Skip
// decompressed bytes. Pos is the offset of the record in the whole decompressed file.
type Place struct{ Record, At, Skip, Pos int64 }

// File is the index of a file.
type File struct {
	Format  stream.Format
	Records int64
	// Places are sorted by record. The first one is for record 0.
	Places []Place
	// Window is the largest window needed to decompress.
	Window int64
}

// Check returns an error if the index is not consistent with a file of this size.
func (f *File) Check(size int64) error {
	bad := f.Records < 0 || f.Records > 0 && (len(f.Places) == 0 || f.Places[0].Record != 0) || f.Window < 0 || f.Window > stream.MaxWindow
	last := Place{Record: -1}
	for _, p := range f.Places {
		bad = bad || p.Record <= last.Record || p.At < last.At || p.At >= size || p.Skip < 0 || p.Pos < last.Pos || p.Skip > p.Pos
		last = p
	}
	if bad || last.Record > f.Records {
		return errors.New("its restart points are inconsistent")
	}
	return nil
}

// Plain appends a restart point of an uncompressed file if it is far enough from the last one.
func (f *File) Plain(record, at int64) {
	if n := len(f.Places); n == 0 || at-f.Places[n-1].At >= apart {
		f.Places = append(f.Places, Place{Record: record, At: at, Pos: at})
	}
}

// Files implements driver.Sequential for the files of a source.
type Files struct {
	List  *filelist.List
	Info  *driver.Info
	Files []File
	First []int64 // number of the first record of each file
	// Read reads record k of a file into r.Rec if it is wanted, and skips it otherwise. The run is at its start.
	// The returned error concerns the stream. Errors of the record alone go to r.Rec.Err.
	Read func(r *Run, file int, k int64, wanted bool) error
}

// Error is the error of a record of a stream.
type Error struct {
	Record, At int64 // At is an offset in the decompressed data
	Err        error
}

func (e *Error) Error() string {
	return fmt.Sprintf("record %d (byte %d, decompressed): %v", e.Record, e.At, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Placed adds the path of the file to the error of a record. Errors of the store already name the object.
func Placed(path string, err error) error {
	var own *store.Error
	var e *Error
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &e):
		return fmt.Errorf("%s, %w", path, err)
	}
	return err
}

// Cut returns the error for a stream that ends within what.
func Cut(err error, what string) error {
	if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("the decompressed data ends within %s: the file is cut off", what)
	}
	return err
}

// Discard skips n bytes of r.
func Discard(r io.Reader, n int64, scratch []byte) error {
	for n > 0 {
		m, err := io.ReadFull(r, scratch[:min(n, int64(len(scratch)))])
		if n -= int64(m); err != nil {
			return err
		}
	}
	return nil
}

// Memory implements driver.Sequential.
func (s *Files) Memory() int64 {
	window := int64(0)
	for i := range s.Files {
		window = max(window, s.Files[i].Window)
	}
	return stream.Memory(window)
}

// Token returns the resume token of a record: its number, and a checksum that ties it to the data.
func (s *Files) Token(id int64) string { return fmt.Sprintf("%d-%s", id, s.sum(id)) }

func (s *Files) sum(id int64) string {
	return fmt.Sprintf("%016x", xxh3.HashString(fmt.Sprintf("%s %s %d", s.Info.Format, s.Info.Fingerprint, id)))
}

// Record returns the record of a token.
func (s *Files) Record(token string) (int64, error) {
	if token == "" {
		return 0, nil
	}
	number, sum, _ := strings.Cut(token, "-")
	id, err := strconv.ParseInt(number, 10, 64)
	if err != nil || id < 0 || id > s.Info.Len || strconv.FormatInt(id, 10) != number || sum != s.sum(id) {
		return 0, fmt.Errorf("invalid resume token %.60q for %s: it is damaged or belongs to different data", token, s.Info.URL)
	}
	return id, nil
}

// Records implements driver.Sequential.
func (s *Files) Records(ctx context.Context, token string, in *driver.InOrder) error {
	id, err := s.Record(token)
	if err != nil {
		return err
	}
	r := &Run{In: in, s: s, Rec: driver.Record{Values: make([]driver.Value, len(s.Info.Fields))}}
	defer r.rd.Close()
	for r.next = id; r.next < s.Info.Len; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := r.file(ctx, filelist.Find(s.First, r.next)); err != nil {
			return err
		}
	}
	return nil
}

// Run is the state of one call of Records.
type Run struct {
	In  *driver.InOrder
	Rec driver.Record

	s       *Files
	rd      stream.Reader
	base    int64 // offset where the reader started
	scratch [32 << 10]byte
	next    int64 // next record to deliver
}

// Read implements io.Reader. It continues in the current file.
func (r *Run) Read(p []byte) (int, error) { return r.rd.Read(p) }

// Pos returns the position of the run in the decompressed file.
func (r *Run) Pos() int64 { return r.base + r.rd.Pos() }

// Skip skips n bytes.
func (r *Run) Skip(n int64) error { return Discard(&r.rd, n, r.scratch[:]) }

// until returns the first record after those that are read from restart point p.
func (f *File) until(p int) int64 {
	if p+1 < len(f.Places) {
		return f.Places[p+1].Record
	}
	return f.Records
}

// file delivers the wanted records of file i, from the last restart point before r.next on.
func (r *Run) file(ctx context.Context, i int) error {
	f, first := &r.s.Files[i], r.s.First[i]
	p := sort.Search(len(f.Places), func(k int) bool { return first+f.Places[k].Record > r.next }) - 1
	at := f.Places[p]
	until := f.until(p)
	read := func(ctx context.Context, b []byte, off int64) error { return r.In.Read(ctx, int64(i), b, off) }
	r.rd.Open(ctx, read, r.s.List.Size(i), f.Format, at.At)
	r.base = at.Pos - at.Skip
	err := r.Skip(at.Skip)
	for k := at.Record; err == nil && k < f.Records; k++ {
		if k == until {
			p++
			until = f.until(p)
		}
		wanted := first+k == r.next
		if wanted {
			r.Rec.Err = nil
			clear(r.Rec.Values)
		}
		if err = r.s.Read(r, i, k, wanted); err != nil || !wanted {
			continue
		}
		if err := r.give(first+k, r.Rec.Err); err != nil {
			return err
		}
		if r.next > first+k+1 && r.next >= first+until {
			return nil // continue from the next restart point
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err == nil {
		return nil
	}
	// No record up to the next restart point can be read.
	for r.next < first+until {
		rec := r.next - first
		if err := r.give(r.next, Placed(r.s.List.Path(i), &Error{rec, r.Pos(), Cut(err, "it")})); err != nil {
			return err
		}
	}
	return nil
}

// give passes a record to the caller.
func (r *Run) give(id int64, err error) error {
	r.Rec.ID, r.Rec.Err = id, err
	next, err := r.In.Record(&r.Rec)
	if err != nil {
		return err
	}
	if r.next = next; next <= id {
		return fmt.Errorf("internal error: record %d was requested after record %d", next, id)
	}
	return nil
}
