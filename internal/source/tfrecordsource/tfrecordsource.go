// Package tfrecordsource reads TFRecord files, in the order of the paths and of the records. If the records are
// serialised tf.train.Examples or SequenceExamples, their features are fields (example.go). Otherwise a record is
// its bytes.
//
// A TFRecord file has no index. Opening scans the lengths of all records, verifies the checksum of each length, and
// holds 8 bytes per record. Then it scans the features of all records (infer.go). It reads only as much of a record
// as needed, for example the beginning of an image. The checksum of a record's data is verified at each read.
//
// If a file is compressed with gzip or zstd, the source can only be read in order (ordered.go).
package tfrecordsource

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/internal/source/dynvalue"
	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/source/format"
	"github.com/stokerdata/stoker/internal/source/indexcache"
	"github.com/stokerdata/stoker/internal/source/inorder"
	"github.com/stokerdata/stoker/internal/source/stream"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// Field is the name of the field if records are bytes.
const Field = "data"

const (
	// A header is the length and its checksum, a footer the checksum of the data.
	headerBytes = 12
	footerBytes = 4
	// MaxRecordBytes is the size limit of a record.
	MaxRecordBytes = 1 << 31
	// window is the read size while short records are scanned. After a record of more than farApart bytes only the
	// next header is read.
	window   = 256 << 10
	farApart = 32 << 10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// masked returns the checksum in TFRecord's form: CRC-32C, rotated and with a constant added. See
// tensorflow/core/lib/hash/crc32c.h.
func masked(crc uint32) uint32 { return (crc>>15 | crc<<17) + 0xa282ead8 }

// ahead is the number of bytes that are prefetched for a checksum.
const ahead = 4 << 10

// checksum returns the masked checksum of b. crc32 works at three positions, which the processor prefetches too
// late. Touching each cache line before makes it more than twice as fast for bytes that are not in a cache.
func checksum(b []byte) uint32 { return masked(update(0, b)) }

// update continues an unmasked checksum.
func update(crc uint32, b []byte) uint32 {
	touch(b[:min(ahead, len(b))])
	for len(b) > 0 {
		n := min(ahead, len(b))
		touch(b[n:min(2*n, len(b))])
		crc = crc32.Update(crc, castagnoli, b[:n])
		b = b[n:]
	}
	return crc
}

// touch reads a byte of each cache line of b.
//
//go:noinline
func touch(b []byte) (x byte) {
	for i := 0; i < len(b); i += 64 {
		x |= b[i]
	}
	return x
}

// Options configure Open.
type Options = format.Options

// source has the offsets of records in uncompressed files.
type source struct {
	list *filelist.List
	info driver.Info
	// at has the offsets of all records and, after those of each file, the file's end: record id of file f is
	// at[id+f] to at[id+f+1].
	at    []int64
	first []int64 // number of the first record of each file
}

// records is a source of records that are bytes.
type records struct{ *source }

// IsName reports whether a path has the name of a TFRecord file: x.tfrecord, x.tfrecords,
// x.tfrecord-00001-of-00128, x.tfrec, x.tfrecord.gz.
func IsName(path string) bool {
	name := path[strings.LastIndexByte(path, '/')+1:]
	return strings.Contains(name, ".tfrec")
}

// IsFile reports whether an object, or the data that it decompresses to, begins with a TFRecord header.
func IsFile(ctx context.Context, st store.Store, name string) bool {
	o, err := st.Open(ctx, name)
	if err != nil {
		return false
	}
	defer o.Close()
	format, err := formatOf(ctx, o)
	if err != nil {
		return false
	}
	var rd stream.Reader
	defer rd.Close()
	rd.Open(ctx, o.ReadAt, o.Size(), format, 0)
	var b [headerBytes]byte
	if _, err := io.ReadFull(&rd, b[:]); err != nil {
		return false
	}
	_, err = parseHeader(b[:])
	return err == nil
}

// formatOf detects how an object is compressed.
func formatOf(ctx context.Context, o store.Object) (stream.Format, error) {
	var head [headerBytes]byte
	n := min(o.Size(), headerBytes)
	if err := o.ReadAt(ctx, head[:n], 0); err != nil {
		return 0, err
	}
	if n == headerBytes {
		if _, err := parseHeader(head[:]); err == nil {
			return stream.Plain, nil // a length can look like the magic number of gzip
		}
	}
	return stream.Detect(head[:n]), nil
}

// Open lists the TFRecord files of st (or takes the single file that st is) and scans their records. A single column of
// kind bytes whose name is not a feature selects the whole records as bytes.
func Open(ctx context.Context, url string, st store.Store, opt *Options) (driver.Source, error) {
	threads := 4 * runtime.GOMAXPROCS(0)
	if opt != nil && opt.Threads > 0 {
		threads = opt.Threads
	}
	list, err := filelist.Scan(ctx, st, func(name string) bool { return name == "" || IsName(name) }, 0)
	if err != nil {
		return nil, err
	}
	if list.Len() == 0 {
		return nil, fmt.Errorf("no TFRecord file in %s: expected names that contain .tfrec", st)
	}
	files := make([]file, list.Len())
	var columns []column.Want
	if opt != nil {
		columns = opt.Columns
	}
	l := &looks{list: list, lim: inorder.NewLimits(), columns: columns, known: indexcache.New(list, "tfrecord", dynvalue.Version, column.Query(columns...))}
	err = parallel(ctx, threads, len(files), func(ctx context.Context, i int) (err error) {
		files[i], err = l.file(ctx, i)
		return err
	})
	if err != nil {
		return nil, err
	}
	inOrder := slices.ContainsFunc(files, func(f file) bool { return f.Format != stream.Plain })
	seen, err := lookInto(ctx, list, files, columns)
	if err != nil {
		return nil, err
	}
	schema, name, err := seen.schema(list, columns)
	if err != nil {
		return nil, err
	}
	of := []string{"tfrecord"}
	if schema != nil {
		of = append(of, schema.Fingerprint()...)
	}
	var s driver.Source
	switch {
	case inOrder:
		s = newOrdered(list, files, schema, name)
	case schema != nil:
		e := &examples{source: newSource(list, files, name), schema: schema}
		e.info.Fields = schema.Fields
		s = e
		if sizes := seen.sizes.of(schema); len(sizes) > 0 {
			s = &sized{examples: e, sizes: sizes}
		}
	default:
		s = records{newSource(list, files, name)}
	}
	info := s.Info()
	if info.Len == 0 {
		return nil, fmt.Errorf("the TFRecord files in %s have no records", st)
	}
	info.URL, info.Format, info.Objects, info.Fingerprint = url, "tfrecord", int64(list.Len()), list.Fingerprint(of...)
	return s, nil
}

// parallel calls f for the numbers below n, with at most threads goroutines.
func parallel(ctx context.Context, threads, n int, f func(ctx context.Context, i int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(threads)
	for i := range n {
		g.Go(func() error { return f(ctx, i) })
	}
	return g.Wait()
}

// file is the index of a file.
type file struct {
	// For an uncompressed file: the offsets of its records, and its end.
	offsets []int64
	// For a compressed file: the sizes of its records, and its restart points.
	sizes []uint32
	inorder.File
	// seen are the statistics of the records of a compressed file.
	seen *seen
}

// looks scans files.
type looks struct {
	list    *filelist.List
	lim     *inorder.Limits
	columns []column.Want
	known   *indexcache.Files
}

// file scans a file, unless its index is cached.
func (l *looks) file(ctx context.Context, i int) (f file, err error) {
	list := l.list
	o, err := list.Open(ctx, i)
	if err != nil {
		return f, err
	}
	defer o.Close()
	if f.Format, err = formatOf(ctx, o); err != nil {
		return f, err
	}
	if f.Format != stream.Plain {
		if known, ok := l.recall(ctx, i, f.Format); ok {
			return known, store.Check(ctx, o)
		}
		rd, err := l.lim.Scan(ctx, o.ReadAt, o.Size(), f.Format, 0)
		if err != nil {
			return f, err
		}
		defer rd.Close()
		f.seen = newSeen(l.columns)
		if f.sizes, err = scanStream(ctx, rd, f.seen); err != nil {
			return f, inorder.Placed(list.Path(i), err)
		}
		f.File = rd.File()
		if err := store.Check(ctx, o); err != nil {
			return f, err
		}
		l.remember(ctx, i, &f)
		return f, nil
	}
	f.offsets, err = scan(ctx, store.ReaderAt(ctx, o), list.Size(i))
	var d *damage
	if errors.As(err, &d) {
		return f, fmt.Errorf("%s, byte %d: %w", list.Path(i), d.at, d.err)
	}
	return f, err
}

// newSource returns the source for uncompressed files.
func newSource(list *filelist.List, files []file, name string) *source {
	s := &source{list: list}
	records, largest := int64(0), int64(0)
	for i := range files {
		at := files[i].offsets
		s.first = append(s.first, records)
		s.at = append(s.at, at...)
		records += int64(len(at) - 1)
		for k := range at[1:] {
			largest = max(largest, at[k+1]-at[k]-headerBytes-footerBytes)
		}
		files[i].offsets = nil
	}
	s.info = driver.Info{Len: records, Fields: []driver.Field{{Name: name, Kind: driver.KindBytes, MaxBytes: largest}}}
	return s
}

// damage is an error with its offset.
type damage struct {
	at  int64
	err error
}

func (d *damage) Error() string { return fmt.Sprintf("byte %d: %v", d.at, d.err) }

func parseHeader(b []byte) (int64, error) {
	n := binary.LittleEndian.Uint64(b)
	want := binary.LittleEndian.Uint32(b[8:])
	if got := masked(crc32.Checksum(b[:8], castagnoli)); got != want {
		return 0, fmt.Errorf("expected a TFRecord: the checksum of its length is %08x, expected %08x", want, got)
	}
	if n > MaxRecordBytes {
		return 0, fmt.Errorf("the record has %d bytes, the limit is %d", n, int64(MaxRecordBytes))
	}
	return int64(n), nil
}

// scan returns the offsets of the records of a file, and the end of the last one.
func scan(ctx context.Context, r interface {
	ReadAt(b []byte, off int64) (int, error)
}, size int64) ([]int64, error) {
	var offsets []int64
	buf := make([]byte, 0, window)
	var from int64 // offset of buf
	last := int64(0)
	at := int64(0)
	for at < size {
		if len(offsets)%1024 == 0 && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if size-at < headerBytes {
			return nil, &damage{at, fmt.Errorf("%d bytes are left after the last record: the file is cut off", size-at)}
		}
		if at < from || at+headerBytes > from+int64(len(buf)) {
			n := int64(window)
			if last > farApart {
				n = headerBytes
			}
			buf, from = buf[:min(n, size-at)], at
			if _, err := r.ReadAt(buf, at); err != nil {
				return nil, &damage{at, err}
			}
		}
		n, err := parseHeader(buf[at-from:][:headerBytes])
		if err != nil {
			return nil, &damage{at, err}
		}
		if n > size-at-headerBytes-footerBytes {
			return nil, &damage{at, fmt.Errorf("a record of %d bytes begins here, the file ends %d bytes later: it is cut off", n, size-at)}
		}
		offsets = append(offsets, at)
		last = n
		at += headerBytes + n + footerBytes
	}
	return append(offsets, at), nil
}

func (s *source) Info() *driver.Info { return &s.info }

// place returns the file of record id and the range of its bytes.
func (s *source) place(id int64) (file int, from, to int64) {
	file = filelist.Find(s.first, id)
	i := id + int64(file)
	return file, s.at[i] + headerBytes, s.at[i+1] - footerBytes
}

func (s *source) Name(id int64) string {
	if id < 0 || id >= s.info.Len {
		return fmt.Sprintf("%s, record %d", s.info.URL, id)
	}
	f, from, _ := s.place(id)
	return fmt.Sprintf("%s, record %d (byte %d)", s.list.Path(f), id-s.first[f], from-headerBytes)
}

// Sizes implements driver.Sizer.
func (s records) Sizes(_ int, ids, sizes []int64) bool {
	for i, id := range ids {
		_, from, to := s.place(id)
		sizes[i] = to - from
	}
	return true
}

func (s *source) Object(n int64) driver.Object { return s.list.Object(n, true) }

func (s *source) Locate(g *driver.Group) {
	filelist.Locate(g, &s.info, func(_ int, id int64) {
		f, from, to := s.place(id)
		g.Extents = append(g.Extents, driver.Extent{Object: int64(f), Offset: from, Size: to - from + footerBytes, Field: -1})
	})
}

// Parse verifies the checksum of each record.
func (s records) Parse(g *driver.Group) error {
	for k := range g.IDs {
		if rec := &g.Records[k]; rec.Err == nil {
			rec.Values[0].Bytes = s.data(g, k)
		}
	}
	return nil
}

// data returns record k of a group if its checksum is correct. Otherwise it returns nil and sets the record's Err.
func (s *source) data(g *driver.Group, k int) []byte {
	data := bare(g, k)
	if !s.compare(g, k, checksum(data)) {
		return nil
	}
	return data
}

// bare returns record k of a group without its checksum.
func bare(g *driver.Group, k int) []byte {
	_, parts := g.Of(k)
	n := len(parts[0]) - footerBytes
	return parts[0][:n:n]
}

// compare reports whether the checksum of record k of a group is correct. If not, it sets the record's Err.
func (s *source) compare(g *driver.Group, k int, got uint32) bool {
	_, parts := g.Of(k)
	want := binary.LittleEndian.Uint32(parts[0][len(parts[0])-footerBytes:])
	if got == want {
		return true
	}
	f, from, to := s.place(g.IDs[k])
	g.Records[k].Err = driver.Damaged(fmt.Errorf("%s, bytes %d to %d: the record is damaged: the checksum is %08x, expected %08x",
		s.list.Path(f), from, to, got, want))
	return false
}

func (s *source) Close() error { return nil }

// AppendRecord appends a record in TFRecord's format, with its header and checksums.
func AppendRecord(out, data []byte) []byte {
	at := len(out)
	out = binary.LittleEndian.AppendUint64(out, uint64(len(data)))
	out = binary.LittleEndian.AppendUint32(out, masked(crc32.Checksum(out[at:], castagnoli)))
	out = append(out, data...)
	return binary.LittleEndian.AppendUint32(out, masked(crc32.Checksum(data, castagnoli)))
}
