package zipsource

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/source/archive"
	"github.com/stokerdata/stoker/internal/source/formattest"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
)

type member = formattest.Member

func put(t testing.TB, b []byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "x.zip")
	if err := os.WriteFile(name, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

func open(t testing.TB, path string) (driver.Source, error) {
	return Open(t.Context(), path, localstore.New(path), nil)
}

func opener(path string) drivertest.Open {
	return drivertest.Opener(func(ctx context.Context) (driver.Source, error) {
		return Open(ctx, path, localstore.New(path), nil)
	})
}

var methods = map[string]uint16{"stored": zip.Store, "deflated": zip.Deflate}

func BenchmarkSamples(b *testing.B) {
	for name, method := range methods {
		b.Run(name, func(b *testing.B) {
			drivertest.Bench(b, opener(put(b, formattest.Zip(b, method, formattest.ZipSamples(200)...))))
		})
	}
}

func TestSamples(t *testing.T) {
	all := formattest.ZipSamples(25)
	for name, method := range methods {
		whole := formattest.Zip(t, method, all...)
		// Data before the zip file does not matter.
		for _, front := range []int{0, 1000} {
			s := opener(put(t, append(bytes.Repeat([]byte("#"), front), whole...)))(t)
			if f := s.Info().Fields; s.Info().Len != 25 || len(f) != 3 || f[0].Name != "image" || f[1].Name != "label" || f[2].Name != "text" {
				t.Fatalf("%s: %+v", name, s.Info())
			}
			for id := range 25 {
				rec := drivertest.Records(t, s, int64(id))[0]
				if rec.Err != nil {
					t.Fatal(rec.Err)
				}
				if !bytes.Equal(rec.Values[0].Bytes, all[4*id+1].Body) || rec.Values[1].Int != int64(id%4) || !bytes.Equal(rec.Values[2].Bytes, all[4*id+3].Body) {
					t.Errorf("%s: record %d differs", name, id)
				}
			}
			if got := s.Name(3); !strings.Contains(got, "x.zip, d/000003.jpg (byte ") {
				t.Error(got)
			}
		}
	}
}

// zip64 makes a zip file with one stored member and zip64 numbers.
func zip64(name string, body []byte, crc uint32) []byte {
	le := binary.LittleEndian
	b := []byte(localMagic)
	b = append(b, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	b = le.AppendUint32(b, crc)
	b = le.AppendUint32(le.AppendUint32(b, math.MaxUint32), math.MaxUint32)
	b = le.AppendUint16(le.AppendUint16(b, uint16(len(name))), 20)
	b = append(b, name...)
	b = le.AppendUint64(le.AppendUint64(append(b, 1, 0, 16, 0), uint64(len(body))), uint64(len(body)))
	b = append(b, body...)
	dir := len(b)
	b = append(b, entryMagic...)
	b = append(b, 45, 0, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	b = le.AppendUint32(b, crc)
	b = le.AppendUint32(le.AppendUint32(b, math.MaxUint32), math.MaxUint32)
	b = le.AppendUint16(le.AppendUint16(b, uint16(len(name))), 28)
	b = append(b, make([]byte, 10)...)
	b = le.AppendUint32(b, math.MaxUint32)
	b = append(b, name...)
	b = le.AppendUint64(le.AppendUint64(le.AppendUint64(append(b, 1, 0, 24, 0), uint64(len(body))), uint64(len(body))), 0)
	end := len(b)
	b = append(b, end64Magic...)
	b = le.AppendUint64(b, 44)
	b = append(b, make([]byte, 12)...)
	b = le.AppendUint64(le.AppendUint64(b, 1), 1)
	b = le.AppendUint64(le.AppendUint64(b, uint64(end-dir)), uint64(dir))
	b = append(b, locatorMagic...)
	b = le.AppendUint32(le.AppendUint64(le.AppendUint32(b, 0), uint64(end)), 1)
	b = append(b, endMagic...)
	b = append(b, make([]byte, 4)...)
	b = append(b, bytes.Repeat([]byte{0xFF}, 12)...)
	return append(b, 0, 0)
}

func TestZip64(t *testing.T) {
	b := zip64("a.txt", []byte("hello"), 0x3610a686)
	if z, err := zip.NewReader(bytes.NewReader(b), int64(len(b))); err != nil || len(z.File) != 1 || z.File[0].UncompressedSize64 != 5 {
		t.Fatalf("package zip reads something else: %v", err)
	}
	s := opener(put(t, b))(t)
	if rec := drivertest.Records(t, s, 0)[0]; rec.Err != nil || string(rec.Values[0].Bytes) != "hello" {
		t.Errorf("%q, %v", rec.Values[0].Bytes, rec.Err)
	}
}

func TestDamage(t *testing.T) {
	whole := formattest.Zip(t, zip.Deflate, formattest.ZipSamples(4)...)
	end := len(whole) - endBytes
	dir := int(u32(whole[end+16:]))
	change := func(at int, b ...byte) []byte {
		out := bytes.Clone(whole)
		copy(out[at:], b)
		return out
	}
	at := bytes.Index(whole[dir:], []byte("d/000000.jpg")) + dir - entryBytes
	for what, c := range map[string]struct {
		bytes []byte
		want  string
	}{
		"cut":                          {whole[:len(whole)-30], "it has no directory at its end"},
		"something else":               {[]byte("hello"), "x.zip, byte 5: it has no directory at its end"},
		"empty":                        {nil, "not a zip file"},
		"no members":                   {formattest.Zip(t, zip.Store), "there are no files in it"},
		"many members":                 {change(end+10, 0xFE, 0xFE), "is too small for 65278 members"},
		"a huge directory":             {change(end+12, 0xFE, 0xFE, 0xFE, 0x7E), "does not fit before its end record"},
		"one part of a split zip file": {change(end+4, 1, 0), "one part of a split zip file"},
		"an entry":                     {change(at, 'X'), fmt.Sprintf("x.zip, byte %d: expected an entry of the directory", at)},
		"a long name":                  {change(at+28, 0xFF, 0xFF), "its directory ends within an entry"},
		"encrypted":                    {change(at+8, 1), `the member "d/000000.jpg" is encrypted`},
		"another method":               {change(at+10, 93), `the member "d/000000.jpg" is compressed with method 93`},
		"outside":                      {change(at+42, 0, 0, 0, 0x70), `has offset 1879048192, outside of the file`},
		"a huge member":                {change(at+24, 0, 0, 0, 0x70), "cannot have 1879048192 bytes"},
		"a large member":               {change(at+20, 0, 0, 1, 0), "outside of the file"},
		"over another one":             {change(at+20, 0, 1, 0, 0), "the file is damaged"},
		"zip64 somewhere":              {zip64bad(), "invalid offset"},
		"zip64 else":                   {zip64bad2(), "expected the zip64 end record"},
		"one name twice":               {formattest.Zip(t, zip.Store, member{"a.jpg", nil}, member{"a.cls", nil}, member{"a.JPG", nil}), "has two members .jpg"},
		"no array in there":            {formattest.Zip(t, zip.Deflate, member{"a.npy", []byte("hello")}), "x.zip, a.npy (byte 0): not a .npy file"},
	} {
		if _, err := open(t, put(t, c.bytes)); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want %q", what, err, c.want)
		}
	}
	// Damage at a member concerns only its record.
	first := bytes.Index(whole, []byte("d/000000.jpg")) - localBytes
	for what, c := range map[string]struct {
		bytes []byte
		want  string
	}{
		"a header":    {change(first, 'X'), "x.zip, d/000000.jpg (byte "},
		"its length":  {change(first+28, 0xFF, 0xFF), "the header of the member is damaged"},
		"content":     {change(first+localBytes+12+2, 0xFF, 0xFF), "it is damaged"},
		"a checksum":  {change(at+16, 1), "it is damaged: the checksum is "},
		"a size less": {change(at+24, 1), "it is longer than the size in the directory"},
		"a size more": {change(at+24, 9), "it is damaged: unexpected EOF"},
	} {
		s, err := open(t, put(t, c.bytes))
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		r := drivertest.Records(t, s, 0, 1, 2, 3)
		if r[0].Err == nil || !strings.Contains(r[0].Err.Error(), c.want) || r[1].Err != nil || r[2].Err != nil || r[3].Err != nil {
			t.Errorf("%s: got %v, %v, want %q", what, r[0].Err, r[1].Err, c.want)
		}
	}
}

func zip64bad() []byte {
	b := zip64("a.txt", []byte("hello"), 0)
	copy(b[len(b)-endBytes-locatorBytes+8:], "\xFF\xFF\xFF\xFF")
	return b
}

func zip64bad2() []byte {
	b := zip64("a.txt", []byte("hello"), 0)
	b[len(b)-endBytes-locatorBytes+8] -= 4
	return b
}

func FuzzScan(f *testing.F) {
	for _, method := range methods {
		f.Add(formattest.Zip(f, method, formattest.ZipSamples(3)...))
	}
	f.Add(zip64("a.txt", []byte("hello"), 0x3610a686))
	f.Add(formattest.Zip(f, zip.Deflate, member{"cat/1.npy", []byte("\x93NUMPY")}, member{"x", nil}))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte) {
		err := scan(t.Context(), bytes.NewReader(b), int64(len(b)), func(m *archive.Member) error {
			if m.At < 0 || m.Size < 0 || m.Packed < 0 || m.Extent < localBytes+m.Packed || m.At+m.Extent > int64(len(b)) {
				t.Fatalf("%+v of %d bytes", m, len(b))
			}
			return nil
		})
		if err != nil {
			return
		}
		name := filepath.Join(dir, "x.zip")
		if err := os.WriteFile(name, b, 0o644); err != nil {
			t.Fatal(err)
		}
		s, err := open(t, name)
		if err != nil {
			if strings.Contains(err.Error(), "internal error") || !strings.Contains(err.Error(), "x.zip") {
				t.Fatal(err)
			}
			return
		}
		defer s.Close()
		for id := range min(s.Info().Len, 4) {
			if rec := drivertest.Records(t, s, id)[0]; rec.Err != nil && !strings.Contains(rec.Err.Error(), "x.zip") {
				t.Fatal(rec.Err)
			}
		}
	})
}
