package tfrecordsource

import (
	"bytes"
	"context"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/source/formattest"
	"github.com/stokerdata/stoker/internal/source/inorder"
	"github.com/stokerdata/stoker/internal/source/stream"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
	"github.com/stokerdata/stoker/store"
	"github.com/stokerdata/stoker/store/storetest"
)

var gz, zst = formattest.Gzip, formattest.Zstd

func write(t testing.TB, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// Each record equals the one in the uncompressed files.
func TestOrderedRecords(t *testing.T) {
	plain, sizes := folder(t)
	dir := formattest.Compressed(t, plain)
	s := opener(dir)(t)
	defer s.Close()
	if info := s.Info(); info.Len != int64(len(sizes)) || !info.Sequential || info.Fields[0].MaxBytes != 3*piece+7 {
		t.Fatalf("%+v", info)
	}
	for id, size := range sizes {
		rec := &drivertest.Records(t, s, int64(id))[0]
		if rec.Err != nil {
			t.Fatal(rec.Err)
		}
		if want := content(id/12, id%12, int(size)); !bytes.Equal(rec.Values[0].Bytes, want) {
			t.Errorf("record %d is something else", id)
		}
	}
}

func crcOf(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// Restart points are found and used: the data before them is not read.
func TestOrderedPlaces(t *testing.T) {
	if testing.Short() {
		t.Skip("compresses 80 MiB; reads of several at once are in the table of formats as well")
	}
	var whole []byte
	const each, records = 1 << 20, 40
	for i := range records {
		whole = AppendRecord(whole, content(1, i, each))
	}
	for name, b := range map[string][]byte{"x.tfrecord.gz": gz(whole, 3<<20+5), "x.tfrecord.zst": zst(whole, 3<<20+5)} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, name), b)
		s := opener(dir)(t).(orderedRecords)
		if n := len(s.Files.Files[0].Places); n < 5 || n > 14 {
			t.Errorf("%s: %d places: %v", name, n, s.Files.Files[0].Places)
		}
		var mu sync.Mutex
		from := int64(len(b))
		var got []byte
		err := s.Records(t.Context(), s.Token(30), &driver.InOrder{
			Read: func(ctx context.Context, object int64, p []byte, off int64) error {
				mu.Lock()
				from = min(from, off)
				mu.Unlock()
				copy(p, b[off:])
				return nil
			},
			Alloc: func(_ int64, _ int, n int64) ([]byte, error) { return make([]byte, n), nil },
			Record: func(rec *driver.Record) (int64, error) {
				if rec.Err != nil {
					t.Error(rec.Err)
				}
				got = append([]byte{}, rec.Values[0].Bytes...)
				return s.Info().Len, nil
			},
		})
		if err != nil || !bytes.Equal(got, content(1, 30, each)) {
			t.Errorf("%s: record 30: %v", name, err)
		}
		if from < 24<<20 {
			t.Errorf("%s: record 30 of 40, of a MiB each, is read from byte %d on", name, from)
		}
		s.Close()
	}
}

func TestOrderedDamage(t *testing.T) {
	var whole []byte
	for i := range 5 {
		whole = AppendRecord(whole, content(0, i, 1000))
	}
	long := bytes.Clone(whole)
	long = append(long, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0) // 4 GiB, with a checksum
	head := AppendRecord(nil, nil)[:0]
	head = append(head, 0, 0, 0, 0, 1, 0, 0, 0)
	sum := masked(crcOf(head))
	long = append(long[:len(whole)], append(head, byte(sum), byte(sum>>8), byte(sum>>16), byte(sum>>24))...)
	flipped := gz(whole)
	flipped[len(flipped)-6] ^= 1
	window := []byte{0x28, 0xB5, 0x2F, 0xFD, 0x00, 0xA0, 1, 0, 0}
	for what, c := range map[string]struct {
		name  string
		bytes []byte
		want  string
	}{
		"cut":             {"x.tfrecord.gz", gz(whole)[:3000], "x.tfrecord.gz, record 2 (byte 2032, decompressed): the compressed data ends before its end: it is cut off"},
		"cut zstd":        {"x.tfrecord.zst", zst(whole)[:3000], "x.tfrecord.zst, record 0 (byte 0, decompressed): the compressed data ends before its end: it is cut off"},
		"content cut":     {"x.tfrecord.gz", gz(whole[:3000]), "x.tfrecord.gz, record 2 (byte 2032, decompressed): the decompressed data ends within its 1000 bytes: the file is cut off"},
		"header cut":      {"x.tfrecord.gz", gz(whole[:1020]), "x.tfrecord.gz, record 1 (byte 1016, decompressed): the decompressed data ends within its header"},
		"trailing":        {"x.tfrecord.gz", append(gz(whole), "garbage"...), "x.tfrecord.gz, record 5 (byte 5080, decompressed): unknown bytes after the compressed data (at byte "},
		"trailing zstd":   {"x.tfrecord.zst", append(zst(whole), "garbage"...), "x.tfrecord.zst, record 5 (byte 5080, decompressed): unknown bytes after the compressed data"},
		"checksum":        {"x.tfrecord.gz", flipped, "its checksum is wrong"},
		"long record":     {"x.tfrecord.gz", gz(long), "x.tfrecord.gz, record 5 (byte 5080, decompressed): the record has 4294967296 bytes, the limit is 2147483648"},
		"no records":      {"x.tfrecord.gz", gz([]byte("hello hello hello")), "x.tfrecord.gz, record 0 (byte 0, decompressed): expected a TFRecord"},
		"gzip of gzip":    {"x.tfrecord.gz", gz(gz(whole)), "expected a TFRecord"},
		"empty":           {"x.tfrecord.gz", gz(nil), "have no records"},
		"only a head":     {"x.tfrecord.gz", gz(whole)[:5], "it is cut off"},
		"large window":    {"x.tfrecord.zst", window, "a window of 1024 MiB, the limit is 128 MiB: compress it without --long"},
		"with dictionary": {"x.tfrecord.zst", []byte{0x28, 0xB5, 0x2F, 0xFD, 0x01, 0, 1, 0, 0}, "a zstd dictionary"},
	} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, c.name), c.bytes)
		_, err := Open(t.Context(), dir, localstore.New(dir), nil)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want %q", what, err, c.want)
		}
	}
}

// A resume token is only valid for its data.
func TestTokens(t *testing.T) {
	plain, _ := folder(t)
	dir := formattest.Compressed(t, plain)
	s := opener(dir)(t).(orderedRecords)
	defer s.Close()
	info := s.info
	info.Fingerprint = "another"
	other := s.Files
	other.Info = &info
	for _, token := range []string{other.Token(3), s.Token(3)[1:], s.Token(3) + "0", "4" + s.Token(3)[1:], "0" + s.Token(3), "-1-", "x"} {
		if _, err := s.Record(token); err == nil || !strings.Contains(err.Error(), "invalid resume token") {
			t.Errorf("%q is taken: %v", token, err)
		}
	}
	for _, id := range []int64{0, 3, s.Info().Len} {
		if got, err := s.Record(s.Token(id)); err != nil || got != id {
			t.Errorf("token of %d: %d, %v", id, got, err)
		}
	}
}

func FuzzOrdered(f *testing.F) {
	var b []byte
	for i := range 4 {
		b = AppendRecord(b, content(0, i, 10*i))
	}
	for _, p := range [][]byte{gz(b), zst(b), gz(b, 20), zst(b, 20), b} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		read := func(_ context.Context, p []byte, off int64) error {
			copy(p, b[off:])
			return nil
		}
		format := stream.Detect(b)
		rd, err := inorder.NewLimits().Scan(t.Context(), read, int64(len(b)), format, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer rd.Close()
		sizes, err := scanStream(t.Context(), rd, newSeen(nil))
		if err != nil {
			var at *inorder.Error
			if !errors.As(err, &at) || at.Record != int64(len(sizes)) || strings.Contains(err.Error(), "\n") {
				t.Fatalf("%v", err)
			}
			return
		}
		list := &filelist.List{Store: storetest.NewMemory(nil)}
		list.Add(store.Entry{Name: "x", Size: int64(len(b))})
		s := newOrdered(list, []file{{sizes: sizes, File: rd.File()}}, nil, Field).(orderedRecords)
		for _, id := range []int64{0, s.info.Len / 2} {
			err := s.Records(t.Context(), s.Token(id), &driver.InOrder{
				Read: func(ctx context.Context, _ int64, p []byte, off int64) error { return read(ctx, p, off) },
				Alloc: func(_ int64, _ int, n int64) ([]byte, error) {
					if n > int64(s.info.Fields[0].MaxBytes) {
						t.Fatalf("%d bytes", n)
					}
					return make([]byte, n), nil
				},
				Record: func(rec *driver.Record) (int64, error) {
					if rec.ID != id {
						t.Fatalf("record %d instead of %d", rec.ID, id)
					}
					id++
					return id, nil
				},
			})
			if err != nil || id != s.info.Len {
				t.Fatalf("%d of %d records: %v", id, s.info.Len, err)
			}
		}
	})
}
