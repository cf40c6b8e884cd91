package tarsource

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/stokerdata/stoker/internal/npy"
	"github.com/stokerdata/stoker/internal/source/archive"
	"github.com/stokerdata/stoker/internal/source/formattest"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
)

var gz, zst = formattest.Gzip, formattest.Zstd

// equal compares everything that two sources return.
func equal(t *testing.T, a, b driver.Source) {
	t.Helper()
	ia, ib := *a.Info(), *b.Info()
	if !ib.Sequential || ia.Sequential {
		t.Fatal("which of the two is compressed?")
	}
	ia.URL, ia.Fingerprint, ia.Sequential = ib.URL, ib.Fingerprint, true
	if !reflect.DeepEqual(ia, ib) {
		t.Fatalf("%+v\n%+v", ia, ib)
	}
	skippedA, skippedB := a.(driver.Skipper).Skipped(), b.(driver.Skipper).Skipped()
	if len(skippedA) != len(skippedB) {
		t.Errorf("%v, %v", skippedA, skippedB)
	}
	for id := range ia.Len {
		x, y := drivertest.Records(t, a, id)[0], drivertest.Records(t, b, id)[0]
		if x.Err != nil || y.Err != nil {
			ex, ey := fmt.Sprint(x.Err), fmt.Sprint(y.Err)
			if x.Err == nil || y.Err == nil || ex[strings.LastIndex(ex, ": "):] != ey[strings.LastIndex(ey, ": "):] {
				t.Errorf("record %d: %v, %v", id, x.Err, y.Err)
			}
			continue
		}
		for f := range x.Values {
			v, w := &x.Values[f], &y.Values[f]
			if !bytes.Equal(v.Bytes, w.Bytes) || v.Int != w.Int {
				t.Errorf("record %d, field %s is something else", id, ia.Fields[f].Name)
			}
		}
	}
}

// Compressed shards give the same records as uncompressed ones.
func TestOrderedRecords(t *testing.T) {
	plain := formattest.TarShards(t, 5)
	equal(t, opener(plain)(t), opener(formattest.Compressed(t, plain))(t))
}

// Other layouts, with skipped members and damaged values.
func TestOrderedLayouts(t *testing.T) {
	array := func(n int64) []byte {
		return append(npy.AppendHeader(nil, driver.Uint8, []int64{n}), make([]byte, n)...)
	}
	for name, members := range map[string][]member{
		"class folders": {{"p/a/1.jpg", []byte("one")}, {"p/b/2.png", make([]byte, 9000)}, {"p/readme", []byte("x")}, {"p/a/3.jpg", nil}},
		"any":           {{"a", []byte("one")}, {"b.x", make([]byte, 9000)}, {"c.y", nil}},
		"samples": {
			{"__meta__", []byte("x")}, {"0.cls", []byte("7")}, {"0.npy", array(4)}, {"1.npy", array(4)}, {"1.cls", []byte("cat")},
			{"2.cls", []byte("1")}, {"3.cls", bytes.Repeat([]byte("1"), 100)}, {"3.npy", array(4)}, {"4.cls", []byte("3")}, {"4.npy", array(5)},
			{"5.npy", []byte("\x93NUMPY\x01\x00\x40\x00")}, {"5.cls", []byte("5")}, {"6.npy", nil}, {"6.cls", []byte("6")}, {"7.cls", []byte("7")}, {"7.npy", array(4)},
		},
		"masks": {{"0.jpg", []byte("x")}, {"0.seg.png", []byte("none")}, {"1.jpg", []byte("x")}, {"1.seg.png", []byte("none")}},
	} {
		b := formattest.Tar(t, members...)
		for _, n := range []int{0, 700} {
			t.Run(fmt.Sprintf("%s %d", name, n), func(t *testing.T) {
				equal(t, opener(put(t, b))(t), opener(put(t, gz(b, n)))(t))
				equal(t, opener(put(t, b))(t), opener(put(t, zst(b, n)))(t))
			})
		}
	}
}

// Restart points are found and used: the data before them is not read.
func TestOrderedPlaces(t *testing.T) {
	if testing.Short() {
		t.Skip("compresses 80 MiB; reads of several at once are in the table of formats as well")
	}
	var all []member
	body := func(i int) []byte { return bytes.Repeat([]byte{byte(i), 1, byte(i >> 1), 7}, 1<<18) }
	for i := range 40 {
		all = append(all, member{fmt.Sprintf("%d.bin", i), body(i)}, member{fmt.Sprintf("%d.cls", i), []byte("1")})
	}
	for name, b := range map[string][]byte{"gzip": gz(formattest.Tar(t, all...), 3<<20+5), "zstd": zst(formattest.Tar(t, all...), 3<<20+5)} {
		s := opener(put(t, b))(t).(driver.Sequential)
		from := int64(len(b))
		var mu sync.Mutex // guards against concurrent reads
		next := s.Info().Len
		err := s.Records(t.Context(), s.Token(30), &driver.InOrder{
			Read: func(_ context.Context, _ int64, p []byte, off int64) error {
				mu.Lock()
				from = min(from, off)
				mu.Unlock()
				copy(p, b[off:])
				return nil
			},
			Alloc: func(_ int64, _ int, n int64) ([]byte, error) { return make([]byte, n), nil },
			Record: func(rec *driver.Record) (int64, error) {
				if rec.ID != 30 || rec.Err != nil || !bytes.Equal(rec.Values[0].Bytes, body(30)) {
					t.Errorf("%s: record %d: %v", name, rec.ID, rec.Err)
				}
				return next, nil
			},
		})
		if err != nil || from < int64(len(b))/2 {
			t.Errorf("%s: record 30 of 40 is read from byte %d of %d on: %v", name, from, len(b), err)
		}
	}
}

func TestOrderedDamage(t *testing.T) {
	plain := formattest.Tar(t, member{"a.txt", make([]byte, 1000)}, member{"b.txt", bytes.Repeat([]byte("content"), 7000)}, member{"c.txt", make([]byte, 10)})
	header := bytes.Clone(plain)
	header[1536+3] ^= 1
	flipped := gz(plain)
	flipped[len(flipped)-6] ^= 1
	huge := formattest.Tar(t, member{"a.txt", nil})
	copy(huge[124:], "\x80\x00\x00\x00\x7f\xff\xff\xff\xff\xff\xff\xff")
	sum(huge[:512])
	for what, c := range map[string]struct {
		bytes []byte
		want  string
	}{
		"cut":             {gz(plain)[:100], "x.tar: the compressed data ends before its end: it is cut off (at byte 100 of the file)"},
		"cut zstd":        {zst(plain)[:30], "x.tar: the compressed data ends before its end: it is cut off"},
		"content cut":     {gz(plain[:2048+30_000]), `x.tar, byte 32048, decompressed: the decompressed data ends within the member "b.txt": the file is cut off`},
		"header cut":      {gz(plain[:1536+100]), "x.tar, byte 1536, decompressed: a member begins here, the decompressed data ends there: it is cut off"},
		"a header":        {zst(header), "x.tar, byte 1536, decompressed: expected the header of a member, the file is damaged: invalid tar header"},
		"something else":  {gz(bytes.Repeat([]byte("no tar "), 200)), "x.tar, byte 0, decompressed: not a valid tar file"},
		"checksum":        {flipped, "x.tar: the compressed data is damaged: its checksum is wrong"},
		"trailing":        {append(gz(plain), "garbage"...), "x.tar: unknown bytes after the compressed data (at byte "},
		"gzip of gzip":    {gz(gz(plain)), "x.tar, byte 0, decompressed: a member begins here, the decompressed data ends there"},
		"a huge member":   {gz(huge), "the file is damaged"},
		"no gzip":         {append([]byte{0x1F, 0x8B, 8}, plain...), "x.tar: the compressed data is damaged"},
		"empty":           {gz(nil), "there are no files in it"},
		"large window":    {[]byte{0x28, 0xB5, 0x2F, 0xFD, 0x00, 0xA0, 1, 0, 0}, "a window of 1024 MiB, the limit is 128 MiB: compress it without --long"},
		"no array":        {gz(formattest.Tar(t, member{"a.npy", []byte("hello")})), "x.tar, a.npy (byte 512, decompressed): not a .npy file"},
		"without its end": {gz(plain[:1536]), ""},
	} {
		s, err := open(t, put(t, c.bytes), nil)
		if c.want == "" {
			if err != nil || s.Info().Len != 1 {
				t.Errorf("%s: %v", what, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want %q", what, err, c.want)
		}
	}
}

func FuzzOrdered(f *testing.F) {
	b := formattest.Tar(f, formattest.Sample(1)...)
	two := formattest.Tar(f, append(formattest.Sample(2), formattest.Sample(3)...)...)
	for _, p := range [][]byte{gz(b), zst(b), gz(two, 700), zst(two, 700)} {
		f.Add(p, uint8(0))
	}
	f.Add(b, uint8(1))
	f.Add(two, uint8(2))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte, how uint8) {
		switch how % 3 {
		case 1: // the decompressed data is damaged
			b = gz(b)
		case 2:
			b = zst(b, 700)
		}
		name := filepath.Join(dir, "x.tar")
		if err := os.WriteFile(name, b, 0o644); err != nil {
			t.Fatal(err)
		}
		s, err := open(t, name, &archive.Options{Threads: 1})
		if err != nil {
			if strings.Contains(err.Error(), "internal error") || !strings.Contains(err.Error(), "x.tar") || strings.Contains(err.Error(), "\n") {
				t.Fatal(err)
			}
			return
		}
		defer s.Close()
		for _, id := range []int64{0, s.Info().Len / 2} {
			if rec := drivertest.Records(t, s, id)[0]; rec.Err != nil && !strings.Contains(rec.Err.Error(), "x.tar") {
				t.Fatal(rec.Err)
			}
		}
	})
}
