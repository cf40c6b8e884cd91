// Package inorder is what sources share that can only be read in order, since some
// of their files are compressed: the places at which reading can begin, tokens, and
// the way through the files.
//
// Opening goes through each file once (Scanner), so that the number and the sizes of
// all records are known, and damage is found.
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

// apart is about how many bytes lie between two places, decompressed.
const apart = 4 << 20

// Place is where reading can begin: decompressing from byte At of the file on,
// record Record begins behind Skip bytes. That is byte Pos of what the file
// decompresses to.
type Place struct{ Record, At, Skip, Pos int64 }

// File is what is known of a file.
type File struct {
	Format  stream.Format
	Records int64
	// Places are in the order of their records; the first one is that of record 0.
	Places []Place
	// Window is the largest one that decompressing takes.
	Window int64
}

// Check says whether what is known of a file of a size can be so.
func (f *File) Check(size int64) error {
	bad := f.Records < 0 || f.Records > 0 && (len(f.Places) == 0 || f.Places[0].Record != 0) || f.Window < 0 || f.Window > stream.MaxWindow
	last := Place{Record: -1}
	for _, p := range f.Places {
		bad = bad || p.Record <= last.Record || p.At < last.At || p.At >= size || p.Skip < 0 || p.Pos < last.Pos || p.Skip > p.Pos
		last = p
	}
	if bad || last.Record > f.Records {
		return errors.New("its places make no sense")
	}
	return nil
}

// Plain appends a place of a file that is not compressed, when the last one is far
// enough away.
func (f *File) Plain(record, at int64) {
	if n := len(f.Places); n == 0 || at-f.Places[n-1].At >= apart {
		f.Places = append(f.Places, Place{Record: record, At: at, Pos: at})
	}
}

// Files are the files of a source.
type Files struct {
	List  *filelist.List
	Info  *driver.Info
	Files []File
	First []int64 // number of the first record of each file
	// Read reads record k of a file, which is in front of the run where k-1 was read
	// before. When it is wanted it goes into r.Rec. An error is that of the stream;
	// what concerns the record alone is r.Rec.Err.
	Read func(r *Run, file int, k int64, wanted bool) error
}

// Error is the failure of a record of a stream.
type Error struct {
	Record, At int64 // At is in what the stream decompresses to
	Err        error
}

func (e *Error) Error() string {
	return fmt.Sprintf("record %d (byte %d, decompressed): %v", e.Record, e.At, e.Err)
}

// Unwrap is the cause.
func (e *Error) Unwrap() error { return e.Err }

// Placed names the file where an error is one of a record, and not one of the
// store, which says what it read.
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

// Cut says what the end of a stream within something means.
func Cut(err error, what string) error {
	if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("what the file decompresses to ends within %s: it is cut off", what)
	}
	return err
}

// Discard reads n bytes to nowhere.
func Discard(r io.Reader, n int64, scratch []byte) error {
	for n > 0 {
		m, err := io.ReadFull(r, scratch[:min(n, int64(len(scratch)))])
		if n -= int64(m); err != nil {
			return err
		}
	}
	return nil
}

// Memory is for driver.Sequential.
func (s *Files) Memory() int64 {
	window := int64(0)
	for i := range s.Files {
		window = max(window, s.Files[i].Window)
	}
	return stream.Memory(window)
}

// Token is the number of the record and a checksum with the data that it is of.
func (s *Files) Token(id int64) string { return fmt.Sprintf("%d-%s", id, s.sum(id)) }

func (s *Files) sum(id int64) string {
	return fmt.Sprintf("%016x", xxh3.HashString(fmt.Sprintf("%s %s %d", s.Info.Format, s.Info.Fingerprint, id)))
}

// Record is the one that a token stands for.
func (s *Files) Record(token string) (int64, error) {
	if token == "" {
		return 0, nil
	}
	number, sum, _ := strings.Cut(token, "-")
	id, err := strconv.ParseInt(number, 10, 64)
	if err != nil || id < 0 || id > s.Info.Len || strconv.FormatInt(id, 10) != number || sum != s.sum(id) {
		return 0, fmt.Errorf("%.60q is no place in %s: it is damaged, or of data that was other than this", token, s.Info.URL)
	}
	return id, nil
}

// Records is that of driver.Sequential.
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

// Run is one call of Records.
type Run struct {
	In  *driver.InOrder
	Rec driver.Record

	s       *Files
	rd      stream.Reader
	base    int64 // of what the reader counts
	scratch [32 << 10]byte
	next    int64 // the record that is wanted
}

// Read implements io.Reader: it reads on in the file.
func (r *Run) Read(p []byte) (int, error) { return r.rd.Read(p) }

// Pos is where the run is in what the file decompresses to.
func (r *Run) Pos() int64 { return r.base + r.rd.Pos() }

// Skip goes over n bytes.
func (r *Run) Skip(n int64) error { return Discard(&r.rd, n, r.scratch[:]) }

// until is the first record behind those that are read from place p.
func (f *File) until(p int) int64 {
	if p+1 < len(f.Places) {
		return f.Places[p+1].Record
	}
	return f.Records
}

// file gives the records of file i that are wanted, from the place before the
// first one on.
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
			return nil // begin there
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err == nil {
		return nil
	}
	// Nothing between here and the next place can be had.
	for r.next < first+until {
		rec := r.next - first
		if err := r.give(r.next, Placed(r.s.List.Path(i), &Error{rec, r.Pos(), Cut(err, "it")})); err != nil {
			return err
		}
	}
	return nil
}

// give hands a record over.
func (r *Run) give(id int64, err error) error {
	r.Rec.ID, r.Rec.Err = id, err
	next, err := r.In.Record(&r.Rec)
	if err != nil {
		return err
	}
	if r.next = next; next <= id {
		return fmt.Errorf("internal error: record %d is wanted behind record %d", next, id)
	}
	return nil
}
