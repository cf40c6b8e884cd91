// Package tfrecordsource reads TFRecord files: each record is its bytes as they
// are (often a serialised tf.train.Example, which is not parsed), in the order of
// the files' paths and of the records in them.
//
// A TFRecord file has no index. Opening goes through the lengths of all records
// once, with the check of each length, and keeps 8 bytes per record. The
// checksum of a record's data is compared whenever it is read.
package tfrecordsource

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/internal/filelist"
)

// Field is the name of the one field.
const Field = "data"

const (
	// headerBytes are the length and its checksum, footerBytes the checksum of
	// the data.
	headerBytes = 12
	footerBytes = 4
	// MaxRecordBytes is the largest record.
	MaxRecordBytes = 1 << 31
	// window is how much is read at once while short records are counted;
	// records of more than farApart are counted header by header.
	window   = 256 << 10
	farApart = 32 << 10
	// piece is how much is read and checked at a time, so that the second look at
	// it finds it in the cache.
	piece = 256 << 10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// masked is the checksum that TFRecord files hold: CRC-32C, rotated and with a
// constant added, as tensorflow/core/lib/hash/crc32c.h defines it.
func masked(crc uint32) uint32 { return (crc>>15 | crc<<17) + 0xa282ead8 }

// Options change how files are read. Nil means the defaults.
type Options struct {
	// Threads bounds the files gone through at once, 0 for four per core.
	Threads int
}

type source struct {
	list *filelist.List
	pool *filelist.Pool
	info driver.Info
	// at are the offsets of all records and, behind those of each file, its end:
	// record id of file f is at[id+f] to at[id+f+1].
	at    []int64
	first []int64 // number of the first record of each file
}

// IsName says whether a path looks like a TFRecord file's: x.tfrecord,
// x.tfrecords, x.tfrecord-00001-of-00128, x.tfrec.
func IsName(path string) bool {
	name := path[strings.LastIndexByte(path, '/')+1:]
	return strings.Contains(name, ".tfrecord") || strings.HasSuffix(name, ".tfrec")
}

// IsFile says whether a file begins with a TFRecord's header.
func IsFile(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var b [headerBytes]byte
	if _, err := f.ReadAt(b[:], 0); err != nil {
		return false
	}
	_, err = parseHeader(b[:])
	return err == nil
}

// Open lists the TFRecord files below path, or takes the one file that it is,
// and goes through the lengths of their records.
func Open(ctx context.Context, url, path string, opt *Options) (driver.Source, error) {
	threads := 4 * runtime.GOMAXPROCS(0)
	if opt != nil && opt.Threads > 0 {
		threads = opt.Threads
	}
	list, err := filelist.Scan(ctx, path, IsName)
	if err != nil {
		return nil, err
	}
	if list.Len() == 0 {
		return nil, fmt.Errorf("no TFRecord file in %s: looked for names with .tfrecord in them", path)
	}
	offsets := make([][]int64, list.Len())
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(threads)
	for i := range offsets {
		g.Go(func() error {
			fd, err := list.Open(i)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			offsets[i], err = scan(gctx, filelist.ReaderAt{FD: fd, Size: list.Size(i)}, list.Size(i))
			var d *damage
			if errors.As(err, &d) {
				return fmt.Errorf("%s, byte %d: %w", list.FullPath(i), d.at, d.err)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	s := &source{list: list, pool: filelist.NewPool(list)}
	records, largest := int64(0), int64(0)
	for i, at := range offsets {
		s.first = append(s.first, records)
		s.at = append(s.at, at...)
		records += int64(len(at) - 1)
		for k := range at[1:] {
			largest = max(largest, at[k+1]-at[k]-headerBytes-footerBytes)
		}
		offsets[i] = nil
	}
	if records == 0 {
		return nil, fmt.Errorf("the TFRecord files in %s have no records", path)
	}
	s.info = driver.Info{
		URL: url, Format: "tfrecord", Len: records, Fingerprint: list.Fingerprint("tfrecord"),
		Fields: []driver.Field{{Name: Field, Kind: driver.KindBytes, MaxBytes: largest}},
	}
	return s, nil
}

// damage says at which byte a file is not what it should be.
type damage struct {
	at  int64
	err error
}

func (d *damage) Error() string { return fmt.Sprintf("byte %d: %v", d.at, d.err) }

func parseHeader(b []byte) (int64, error) {
	if b[0] == 0x1F && b[1] == 0x8B && b[2] == 8 {
		return 0, errors.New("the file is compressed with gzip, which cannot be read at random: decompress it")
	}
	n := binary.LittleEndian.Uint64(b)
	want := binary.LittleEndian.Uint32(b[8:])
	if got := masked(crc32.Checksum(b[:8], castagnoli)); got != want {
		return 0, fmt.Errorf("no TFRecord begins here: the checksum of the length is %08x, should be %08x", want, got)
	}
	if n > MaxRecordBytes {
		return 0, fmt.Errorf("a record of %d bytes is larger than the limit of %d", n, int64(MaxRecordBytes))
	}
	return int64(n), nil
}

// scan returns where the records of a file begin, and where the last one ends.
func scan(ctx context.Context, r interface {
	ReadAt(b []byte, off int64) (int, error)
}, size int64) ([]int64, error) {
	var offsets []int64
	buf := make([]byte, 0, window)
	var from int64 // of buf
	last := int64(0)
	at := int64(0)
	for at < size {
		if len(offsets)%1024 == 0 && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if size-at < headerBytes {
			return nil, &damage{at, fmt.Errorf("%d bytes are left behind the last record: the file is cut off", size-at)}
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

// place returns file and bytes of record id.
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
	return fmt.Sprintf("%s, record %d (byte %d)", s.list.FullPath(f), id-s.first[f], from-headerBytes)
}

// Sizes implements driver.Sizer.
func (s *source) Sizes(_ int, ids, sizes []int64) {
	for i, id := range ids {
		_, from, to := s.place(id)
		sizes[i] = to - from
	}
}

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
		f, from, to := s.place(id)
		b, err := buf.Take(k, 0, to-from)
		if err != nil {
			return fmt.Errorf("no memory for the %d bytes of record %d: %w", to-from, id, err)
		}
		if err := s.readRecord(f, from, b); err != nil {
			rec.Err = fmt.Errorf("%s, bytes %d to %d: %w", s.list.FullPath(f), from, to, err)
			continue
		}
		rec.Values[0] = driver.Value{Bytes: b}
	}
	return nil
}

// readRecord reads a record's data and compares it with the checksum behind it.
func (s *source) readRecord(file int, from int64, b []byte) error {
	fd, err := s.pool.Get(file)
	if err != nil {
		return err
	}
	defer s.pool.Put(file, fd)
	var foot [footerBytes]byte
	crc := uint32(0)
	for at := 0; at <= len(b); at += piece {
		part := b[at:min(at+piece, len(b))]
		if at+piece < len(b) {
			err = filelist.Pread(fd, part, from+int64(at))
		} else {
			err = readBoth(fd, part, foot[:], from+int64(at))
		}
		if err != nil {
			return err
		}
		crc = crc32.Update(crc, castagnoli, part)
		if at+piece >= len(b) {
			break
		}
	}
	if got, want := masked(crc), binary.LittleEndian.Uint32(foot[:]); got != want {
		if err := s.list.Check(file, fd); err != nil {
			return err
		}
		return fmt.Errorf("the record is damaged: its checksum is %08x, should be %08x", got, want)
	}
	return nil
}

// readBoth reads two neighbours with one call.
func readBoth(fd int, a, b []byte, off int64) error {
	n, err := unix.Preadv(fd, [][]byte{a, b}, off)
	if err == nil && n == len(a)+len(b) {
		return nil
	}
	if err := filelist.Pread(fd, a, off); err != nil {
		return err
	}
	return filelist.Pread(fd, b, off+int64(len(a)))
}

func (s *source) Close() error { return s.pool.Close() }

// AppendRecord appends a record with its header and checksums, as a TFRecord
// file has it.
func AppendRecord(out, data []byte) []byte {
	at := len(out)
	out = binary.LittleEndian.AppendUint64(out, uint64(len(data)))
	out = binary.LittleEndian.AppendUint32(out, masked(crc32.Checksum(out[at:], castagnoli)))
	out = append(out, data...)
	return binary.LittleEndian.AppendUint32(out, masked(crc32.Checksum(data, castagnoli)))
}
