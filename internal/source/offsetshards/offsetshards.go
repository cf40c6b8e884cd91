// Package offsetshards is the shared part of the sources for MDS and LitData. In both, a file begins with the
// number of its records and the offsets of all records, and an index next to the files lists them. Each format
// decodes the values of a record on its own.
package offsetshards

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/internal/source/dynvalue"
	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/source/indexcache"
	"github.com/stokerdata/stoker/internal/source/inorder"
	"github.com/stokerdata/stoker/internal/source/stream"
	"github.com/stokerdata/stoker/source/driver"
)

// MaxIndex is the size limit of an index.
const MaxIndex = 256 << 20

// Set describes the shards of a data set.
type Set struct {
	URL, Format string
	// List has the files, Records the number of records in each file.
	List    *filelist.List
	Records []int64
	// Columns are the names of the values of a record, in order. Wanted are the columns that become fields, nil for
	// all.
	Columns []string
	Wanted  []column.Want
	// Split decodes a record, w.View, and passes each value and its column number to emit. A value is valid until
	// emit returns. Split omits columns for which Skips is true. If w.Head is set, the values are only for
	// dynvalue.Column.Add.
	Split func(w *Work, emit func(column int, v *dynvalue.Value) error) error
	// Framed is true if files may have their records in frames (framed.go).
	Framed bool
}

// Work is the state of one goroutine that splits records.
type Work struct {
	View dynvalue.View
	Head bool
	// Spare is memory for values.
	Spare []byte
	Sizes []byte
	// Inflated is memory for decompressed records.
	Inflated []byte
	Shape    []int

	skip   []bool
	record []byte
}

// NewWork returns a Work for records of so many columns. It skips none of them.
func NewWork(columns int) *Work { return &Work{skip: make([]bool, columns)} }

// Skips reports whether a column is not needed.
func (w *Work) Skips(column int) bool { return w.skip[column] }

// Name returns the path of a file named in an index, which must be in the folder of the index or below.
func Name(dir, name string) (string, error) {
	if name == "" || strings.ContainsAny(name, "\\\x00") || path.IsAbs(name) || path.Clean(name) != name || strings.HasPrefix(name, "..") {
		return "", fmt.Errorf("invalid file name %.80q: expected a path below the folder of the index", name)
	}
	return path.Join(dir, name), nil
}

// shard is the index of a file.
type shard struct {
	inorder.File
	at []uint32 // offsets of its records, and its end
}

// source is the common part of random and in-order sources.
type source struct {
	set    Set
	info   driver.Info
	first  []int64 // number of the first record of each file
	shards []shard
	schema *dynvalue.Schema
	by     [][]int // fields, by column
	spare  sync.Pool
}

// Open scans all records.
func Open(ctx context.Context, set *Set) (driver.Source, error) {
	s := &source{set: *set, info: driver.Info{URL: set.URL, Format: set.Format, Objects: int64(set.List.Len())}}
	s.shards = make([]shard, set.List.Len())
	for _, n := range set.Records {
		s.first = append(s.first, s.info.Len)
		s.info.Len += n
	}
	if s.info.Len == 0 {
		return nil, fmt.Errorf("%s has no records", set.List.Store)
	}
	known := indexcache.New(set.List, slices.Concat([]string{set.Format, dynvalue.Version, column.Query(set.Wanted...)}, set.Columns)...)
	threads := runtime.GOMAXPROCS(0)
	looks := make(chan *looker, threads)
	for range threads {
		looks <- s.newLooker()
	}
	lim := inorder.NewLimits()
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(threads)
	for i := range s.shards {
		g.Go(func() error {
			l := <-looks
			defer func() { looks <- l }()
			return l.shard(gctx, i, lim, known)
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	all := dynvalue.NewColumns(set.Wanted, false)
	for range threads {
		l := <-looks
		all.Merge(l.columns)
	}
	var err error
	if s.schema, err = all.Schema(set.Columns); err != nil {
		return nil, fmt.Errorf("%s: %w", set.List.Store, err)
	}
	s.info.Fields = s.schema.Fields
	for _, name := range set.Columns {
		s.by = append(s.by, s.schema.Of([]byte(name)))
	}
	s.info.Fingerprint = set.List.Fingerprint(append([]string{set.Format}, s.schema.Fingerprint()...)...)
	if slices.ContainsFunc(s.shards, func(f shard) bool { return f.Format != stream.Plain }) {
		return newOrdered(s), nil
	}
	return s, nil
}

// looker scans records, in one goroutine.
type looker struct {
	s       *source
	columns *dynvalue.Columns
	by      []*column.Seen
	w       Work
}

func (s *source) newLooker() *looker {
	l := &looker{s: s, columns: dynvalue.NewColumns(s.set.Wanted, false)}
	l.w.Head = true
	for _, name := range s.set.Columns {
		c := l.columns.Of([]byte(name))
		l.by = append(l.by, c)
		l.w.skip = append(l.w.skip, c == nil)
	}
	return l
}

// look adds a record.
func (l *looker) look(i, k int) error {
	l.columns.Records++
	err := l.s.set.Split(&l.w, func(column int, v *dynvalue.Value) error {
		dynvalue.Add(l.by[column], v)
		return nil
	})
	var failed *dynvalue.ReadError
	switch {
	case errors.As(err, &failed):
		return failed.Err
	case err != nil:
		return fmt.Errorf("%s: %w", l.s.Name(l.s.first[i]+int64(k)), err)
	}
	return nil
}

// shard scans a file.
func (l *looker) shard(ctx context.Context, i int, lim *inorder.Limits, known *indexcache.Files) error {
	list, f := l.s.set.List, &l.s.shards[i]
	o, err := list.Open(ctx, i)
	if err != nil {
		return err
	}
	defer o.Close()
	head := make([]byte, min(o.Size(), framedHeader))
	if err := o.ReadAt(ctx, head, 0); err != nil {
		return err
	}
	if l.s.set.Framed && isFramed(head) {
		return l.once(ctx, i, o, known, func(l *looker) error { return l.framed(ctx, i, o, head, lim) })
	}
	// The first four bytes are the number of records. If they equal the number in the index, they are not the magic
	// number of a compressed stream.
	if f.Format = stream.Detect(head[:min(len(head), stream.HeadBytes)]); f.Format != stream.Plain && (len(head) < 4 || int64(binary.LittleEndian.Uint32(head)) != l.s.set.Records[i]) {
		return l.once(ctx, i, o, known, func(l *looker) error {
			rd, err := lim.Scan(ctx, o.ReadAt, o.Size(), f.Format, 0)
			if err != nil {
				return err
			}
			defer rd.Close()
			return l.stream(ctx, i, rd)
		})
	}
	f.Format = stream.Plain
	n := l.s.set.Records[i]
	if size := headerSize(n); size > o.Size() {
		return fmt.Errorf("%s: %d bytes are too few for the offsets of %d records: it is cut off, or does not belong to this data set", list.Path(i), o.Size(), n)
	}
	b := make([]byte, headerSize(n))
	if err := o.ReadAt(ctx, b, 0); err != nil {
		return err
	}
	if f.at, err = offsets(b, n, o.Size()); err != nil {
		return fmt.Errorf("%s: %w", list.Path(i), err)
	}
	f.Records = n
	extent := func(k int) (off, size int64) { return int64(f.at[k]), int64(f.at[k+1] - f.at[k]) }
	return dynvalue.Look(ctx, o, int(n), extent, &l.w.View, func(k int) error { return l.look(i, k) })
}

// headerSize is the size of the header of a file with n records.
func headerSize(n int64) int64 { return 4 * (n + 2) }

// offsets parses the offsets of n records and the end of the last one, in a file of size bytes.
func offsets(b []byte, n, size int64) ([]uint32, error) {
	if got := int64(binary.LittleEndian.Uint32(b)); got != n {
		return nil, fmt.Errorf("its header has %d records, but the index %d", got, n)
	}
	at := make([]uint32, n+1)
	for k := range at {
		at[k] = binary.LittleEndian.Uint32(b[4*(k+1):])
		if k == 0 && int64(at[0]) < headerSize(n) || k > 0 && at[k] < at[k-1] || int64(at[k]) > size {
			return nil, fmt.Errorf("byte %d: record %d begins at byte %d of %d: it is damaged or cut off", 4*(k+1), k, at[k], size)
		}
	}
	return at, nil
}

func (s *source) Info() *driver.Info { return &s.info }

func (s *source) Object(n int64) driver.Object { return s.set.List.Object(n, true) }

func (s *source) Close() error { return nil }

func (s *source) Name(id int64) string {
	if id < 0 || id >= s.info.Len {
		return fmt.Sprintf("%s, record %d", s.info.URL, id)
	}
	i := filelist.Find(s.first, id)
	return fmt.Sprintf("%s, record %d", s.set.List.Path(i), id-s.first[i])
}

func (s *source) Locate(g *driver.Group) {
	filelist.Locate(g, &s.info, func(_ int, id int64) {
		i := filelist.Find(s.first, id)
		at := s.shards[i].at[id-s.first[i]:]
		g.Extents = append(g.Extents, driver.Extent{Object: int64(i), Offset: int64(at[0]), Size: int64(at[1] - at[0]), Field: -1, Tail: true})
	})
}

// Parse extracts the values of records.
func (s *source) Parse(g *driver.Group) error {
	w := s.work(g.Want)
	defer s.free(w)
	to := dynvalue.Sink{Group: g}
	for k, id := range g.IDs {
		rec := &g.Records[k]
		if rec.Err != nil {
			continue
		}
		_, parts := g.Of(k)
		w.View.All(parts[0])
		to.K, to.Rec = k, rec
		if err := s.put(w, &to, g.Want); err != nil {
			var m *driver.MemoryError
			if errors.As(err, &m) {
				return fmt.Errorf("no memory for %s: %w", s.Name(id), m.Err)
			}
			rec.Err = fmt.Errorf("%s: %w", s.Name(id), err)
		}
	}
	return nil
}

func (s *source) work(want []bool) *Work {
	w, _ := s.spare.Get().(*Work)
	if w == nil {
		w = NewWork(len(s.by))
	}
	for c, fields := range s.by {
		w.skip[c] = !slices.ContainsFunc(fields, func(f int) bool { return want == nil || want[f] })
	}
	return w
}

func (s *source) free(w *Work) {
	w.View.All(nil) // must not keep memory of the group
	s.spare.Put(w)
}

// put sets the values of a record.
func (s *source) put(w *Work, to *dynvalue.Sink, want []bool) error {
	return s.set.Split(w, func(column int, v *dynvalue.Value) error {
		for _, f := range s.by[column] {
			if want != nil && !want[f] {
				continue
			}
			if err := s.schema.Put(to, f, v); err != nil {
				return err
			}
		}
		return nil
	})
}

// ordered is a source of which at least one file is compressed.
type ordered struct {
	driver.InOrderOnly
	inorder.Files
	s *source
}

func newOrdered(s *source) *ordered {
	o := &ordered{s: s}
	s.info.Sequential = true
	o.Files = inorder.Files{List: s.set.List, Info: &s.info, First: s.first, Read: o.read}
	for i := range s.shards {
		f := &s.shards[i]
		if f.Format == stream.Plain {
			for k := range f.Records {
				f.Plain(k, int64(f.at[k]))
			}
		}
		o.Files.Files = append(o.Files.Files, f.File)
	}
	return o
}

func (o *ordered) Info() *driver.Info { return o.s.Info() }

func (o *ordered) Object(n int64) driver.Object { return o.s.set.List.Object(n, false) }

func (o *ordered) Name(id int64) string { return o.s.Name(id) }

func (o *ordered) Close() error { return nil }

// stream scans a compressed file.
func (l *looker) stream(ctx context.Context, i int, rd *inorder.Scanner) error {
	f, n := &l.s.shards[i], l.s.set.Records[i]
	b, err := readAll(rd, nil, headerSize(n))
	if err == nil {
		if f.at, err = offsets(b, n, 1<<32); err == nil {
			err = inorder.Discard(rd, int64(f.at[0])-headerSize(n), make([]byte, 32<<10))
		}
	}
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return &inorder.Error{At: rd.Pos(), Err: inorder.Cut(err, "the offsets of its records")}
	}
	return l.records(ctx, i, rd)
}

// readAll reads size bytes into b.
func readAll(rd io.Reader, b []byte, size int64) ([]byte, error) {
	const step = 1 << 20 // allocate stepwise: the size is not trusted
	for b = b[:0]; int64(len(b)) < size; {
		at := len(b)
		b = slices.Grow(b, int(min(step, size-int64(at))))
		b = b[:min(int64(cap(b)), size)]
		if _, err := io.ReadFull(rd, b[at:]); err != nil {
			return b, err
		}
	}
	return b, nil
}

// records scans the records of a stream that is at the first one.
func (l *looker) records(ctx context.Context, i int, rd *inorder.Scanner) error {
	f, n := &l.s.shards[i], l.s.set.Records[i]
	k := int64(0)
	fail := func(err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return &inorder.Error{Record: k, At: rd.Pos(), Err: inorder.Cut(err, "it")}
	}
	for ; k < n; k++ {
		rd.Mark(k, int64(f.at[k]))
		var err error
		if l.w.record, err = readAll(rd, l.w.record, int64(f.at[k+1]-f.at[k])); err != nil {
			return fail(err)
		}
		l.w.View.All(l.w.record)
		if err := l.look(i, int(k)); err != nil {
			return err
		}
	}
	f.File = rd.File()
	f.Records = n
	// Read on after the last record, so that the checksum of the stream is verified.
	scratch := make([]byte, 32<<10)
	for {
		if _, err := rd.Read(scratch); err == io.EOF {
			return nil
		} else if err != nil {
			return fail(err)
		}
	}
}

// read implements inorder.Files.Read.
func (o *ordered) read(r *inorder.Run, i int, k int64, wanted bool) error {
	s := o.s
	size := int64(s.shards[i].at[k+1] - s.shards[i].at[k])
	if !wanted {
		return r.Skip(size)
	}
	w := s.work(nil)
	defer s.free(w)
	w.record = slices.Grow(w.record[:0], int(size))[:size]
	if _, err := io.ReadFull(r, w.record); err != nil {
		return err
	}
	w.View.All(w.record)
	id := s.first[i] + k
	if err := s.put(w, &dynvalue.Sink{In: r.In, ID: id, Rec: &r.Rec}, nil); err != nil {
		r.Rec.Err = fmt.Errorf("%s: %w", s.Name(id), err)
	}
	return nil
}
