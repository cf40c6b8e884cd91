package tfrecordsource

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"

	"github.com/zeebo/xxh3"

	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/internal/filelist"
	"github.com/stokerdata/stoker/source/internal/stream"
	"github.com/stokerdata/stoker/store"
)

// ordered is the source of files of which some are compressed: a
// driver.Sequential. Opening decompresses each file once, so that the number and
// the sizes of all records are known, and notes where decompressing can begin
// again.
type ordered struct {
	driver.InOrderOnly
	list  *filelist.List
	info  driver.Info
	files []file
	first []int64 // number of the first record of each file
	// window is the largest one that decompressing takes.
	window int64
}

// index is what is known of a file that is read in order: 4 bytes for each record,
// and some places.
type index struct {
	sizes  []uint32
	places []place
	window int64
}

// place is where reading can begin: decompressing from byte at of the file on, the
// record begins behind skip bytes.
type place struct{ record, at, skip int64 }

const (
	// apart is about how many bytes lie between two places, decompressed.
	apart = 4 << 20
	// largeWindow is from where on files are gone through one at a time.
	largeWindow = 8 << 20
	// maxStreams is how many files are gone through at a time.
	maxStreams = 16
)

// streamError is the failure of a record of a stream.
type streamError struct {
	record, at int64 // at is in what the stream decompresses to
	err        error
}

func (e *streamError) Error() string {
	return fmt.Sprintf("record %d (byte %d, decompressed): %v", e.record, e.at, e.err)
}

func (e *streamError) Unwrap() error { return e.err }

// placed names the file, and the record where it is its own failure and not one of
// the store, which says what it read.
func placed(path string, err error) error {
	var own *store.Error
	var s *streamError
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &s):
		return fmt.Errorf("%s, %w", path, err)
	}
	return err
}

// scanStream goes through the records of a stream.
func scanStream(ctx context.Context, read stream.ReadFunc, size int64, format stream.Format, large *sync.Mutex) (x index, err error) {
	var rd stream.Reader
	defer func() { rd.Close() }()
	rd.Open(ctx, read, size, format, 0)
	var header [headerBytes]byte
	scratch := make([]byte, 32<<10)
	locked := false
	for last := int64(0); ; {
		at := rd.Pos()
		fail := func(err error) (index, error) {
			if ctx.Err() != nil {
				return x, context.Cause(ctx)
			}
			return x, &streamError{int64(len(x.sizes)), at, err}
		}
		n, err := rd.Read(header[:])
		if err == io.EOF {
			x.window = rd.Window()
			return x, nil
		}
		if err != nil {
			return fail(err)
		}
		if rd.Window() > largeWindow && !locked {
			locked = true
			large.Lock()
			defer large.Unlock()
		}
		member, start := rd.Member()
		if k := len(x.places); k == 0 || member > x.places[k-1].at && at-last >= apart {
			x.places = append(x.places, place{int64(len(x.sizes)), member, at - start})
			last = at
		}
		if _, err := io.ReadFull(&rd, header[n:]); err != nil {
			return fail(cut(err, "its header"))
		}
		length, err := parseHeader(header[:])
		if err != nil {
			return fail(err)
		}
		if err := discard(&rd, length+footerBytes, scratch); err != nil {
			return fail(cut(err, fmt.Sprintf("its %d bytes", length)))
		}
		x.sizes = append(x.sizes, uint32(length))
	}
}

// cut says what the end of a stream within a record means.
func cut(err error, what string) error {
	if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("what the file decompresses to ends within %s: it is cut off", what)
	}
	return err
}

func discard(r io.Reader, n int64, scratch []byte) error {
	for n > 0 {
		m, err := io.ReadFull(r, scratch[:min(n, int64(len(scratch)))])
		if n -= int64(m); err != nil {
			return err
		}
	}
	return nil
}

// newOrdered is the source of files that are read in order.
func newOrdered(list *filelist.List, files []file) *ordered {
	s := &ordered{list: list, files: files}
	largest := int64(0)
	for i := range files {
		f := &files[i]
		if f.offsets != nil {
			f.plain()
		}
		s.first = append(s.first, s.info.Len)
		s.info.Len += int64(len(f.sizes))
		s.window = max(s.window, f.window)
		if len(f.sizes) > 0 {
			largest = max(largest, int64(slices.Max(f.sizes)))
		}
	}
	s.info.Sequential = true
	s.info.Fields = []driver.Field{{Name: Field, Kind: driver.KindBytes, MaxBytes: largest}}
	return s
}

// plain makes the index of a stream for a file that is not compressed.
func (f *file) plain() {
	at := f.offsets
	f.offsets = nil
	for k := range at[1:] {
		f.sizes = append(f.sizes, uint32(at[k+1]-at[k]-headerBytes-footerBytes))
		if n := len(f.places); n == 0 || at[k]-f.places[n-1].at >= apart {
			f.places = append(f.places, place{int64(k), at[k], 0})
		}
	}
}

func (s *ordered) Info() *driver.Info { return &s.info }

func (s *ordered) Object(n int64) driver.Object { return s.list.Object(n, false) }

func (s *ordered) Close() error { return nil }

func (s *ordered) Name(id int64) string {
	if id < 0 || id >= s.info.Len {
		return fmt.Sprintf("%s, record %d", s.info.URL, id)
	}
	f := filelist.Find(s.first, id)
	return fmt.Sprintf("%s, record %d", s.list.Path(f), id-s.first[f])
}

// Sizes implements driver.Sizer.
func (s *ordered) Sizes(_ int, ids, sizes []int64) bool {
	for i, id := range ids {
		f := filelist.Find(s.first, id)
		sizes[i] = int64(s.files[f].sizes[id-s.first[f]])
	}
	return true
}

// Memory implements driver.Sequential.
func (s *ordered) Memory() int64 { return stream.Memory(s.window) }

// Token is the number of the record and a checksum with the data that it is of.
func (s *ordered) Token(id int64) string { return fmt.Sprintf("%d-%s", id, s.sum(id)) }

func (s *ordered) sum(id int64) string {
	return fmt.Sprintf("%016x", xxh3.HashString(fmt.Sprintf("tfrecord %s %d", s.info.Fingerprint, id)))
}

func (s *ordered) record(token string) (int64, error) {
	if token == "" {
		return 0, nil
	}
	number, sum, _ := strings.Cut(token, "-")
	id, err := strconv.ParseInt(number, 10, 64)
	if err != nil || id < 0 || id > s.info.Len || strconv.FormatInt(id, 10) != number || sum != s.sum(id) {
		return 0, fmt.Errorf("%.60q is no place in %s: it is damaged, or of data that was other than this", token, s.info.URL)
	}
	return id, nil
}

// Records implements driver.Sequential.
func (s *ordered) Records(ctx context.Context, token string, in *driver.InOrder) error {
	id, err := s.record(token)
	if err != nil {
		return err
	}
	r := &run{s: s, in: in, scratch: make([]byte, 32<<10), rec: driver.Record{Values: make([]driver.Value, 1)}}
	defer r.rd.Close()
	for r.next = id; r.next < s.info.Len; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := r.file(ctx, filelist.Find(s.first, r.next)); err != nil {
			return err
		}
	}
	return nil
}

// run is one call of Records.
type run struct {
	s       *ordered
	in      *driver.InOrder
	rd      stream.Reader
	scratch []byte
	rec     driver.Record
	next    int64 // the record that is wanted
}

// until is the first record behind those that are read from place p.
func (x *index) until(p int) int64 {
	if p+1 < len(x.places) {
		return x.places[p+1].record
	}
	return int64(len(x.sizes))
}

// file gives the records of file i that are wanted, from the place before the
// first one on.
func (r *run) file(ctx context.Context, i int) error {
	f, first := &r.s.files[i], r.s.first[i]
	p := sort.Search(len(f.places), func(k int) bool { return first+f.places[k].record > r.next }) - 1
	at := f.places[p]
	until := f.until(p)
	read := func(ctx context.Context, b []byte, off int64) error { return r.in.Read(ctx, int64(i), b, off) }
	r.rd.Open(ctx, read, r.s.list.Size(i), f.format, at.at)
	err := discard(&r.rd, at.skip, r.scratch)
	for k := at.record; err == nil && k < int64(len(f.sizes)); k++ {
		if k == until {
			p++
			until = f.until(p)
		}
		wanted := first+k == r.next
		if err = r.record(first+k, int64(f.sizes[k]), wanted); err != nil || !wanted {
			continue
		}
		if err := r.give(first+k, r.rec.Err); err != nil {
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
		if err := r.give(r.next, placed(r.s.list.Path(i), &streamError{rec, r.rd.Pos(), cut(err, "it")})); err != nil {
			return err
		}
	}
	return nil
}

// give hands a record over.
func (r *run) give(id int64, err error) error {
	r.rec.ID, r.rec.Err = id, err
	next, err := r.in.Record(&r.rec)
	if err != nil {
		return err
	}
	if r.next = next; next <= id {
		return fmt.Errorf("internal error: record %d is wanted behind record %d", next, id)
	}
	return nil
}

// record reads the next record of the stream, into r.rec when it is wanted. Its
// error is that of the stream; what concerns the record alone is in r.rec.Err.
func (r *run) record(id, size int64, wanted bool) error {
	var b [headerBytes]byte
	if _, err := io.ReadFull(&r.rd, b[:]); err != nil {
		return err
	}
	switch n, err := parseHeader(b[:]); {
	case err != nil:
		return err
	case n != size:
		return fmt.Errorf("%w: a record of %d bytes was here, now it is one of %d", store.ErrChanged, size, n)
	}
	r.rec.Err = nil
	r.rec.Values[0] = driver.Value{}
	if !wanted {
		return discard(&r.rd, size+footerBytes, r.scratch)
	}
	data, err := r.in.Alloc(id, 0, size)
	if err != nil {
		r.rec.Err = err
		return discard(&r.rd, size+footerBytes, r.scratch)
	}
	if _, err := io.ReadFull(&r.rd, data); err != nil {
		return err
	}
	if _, err := io.ReadFull(&r.rd, b[:footerBytes]); err != nil {
		return err
	}
	if got, want := masked(crc32.Checksum(data, castagnoli)), binary.LittleEndian.Uint32(b[:]); got != want {
		f := filelist.Find(r.s.first, id)
		r.rec.Err = fmt.Errorf("%s, record %d: the record is damaged: its checksum is %08x, should be %08x", r.s.list.Path(f), id-r.s.first[f], got, want)
		return nil
	}
	r.rec.Values[0].Bytes = data
	return nil
}
