package tarsource

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/npy"
	"github.com/stokerdata/stoker/internal/source/archive"
	"github.com/stokerdata/stoker/internal/source/formattest"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
	"github.com/stokerdata/stoker/store"
)

type member = formattest.Member

func put(t testing.TB, b []byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "x.tar")
	if err := os.WriteFile(name, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

func open(t testing.TB, path string, opt *archive.Options) (driver.Source, error) {
	return Open(t.Context(), path, localstore.New(path), opt)
}

func opener(path string) drivertest.Open {
	return drivertest.Opener(func(ctx context.Context) (driver.Source, error) {
		return Open(ctx, path, localstore.New(path), nil)
	})
}

func BenchmarkSamples(b *testing.B) { drivertest.Bench(b, opener(formattest.TarShards(b, 20))) }

// Opens 100,000 members of 1 KB.
func BenchmarkOpen(b *testing.B) {
	var all []member
	for i := range 50_000 {
		key := fmt.Sprintf("%06d", i)
		all = append(all, member{key + ".jpg", make([]byte, 1000)}, member{key + ".cls", []byte("1")})
	}
	name := put(b, formattest.Tar(b, all...))
	b.ResetTimer()
	for range b.N {
		opener(name)(b).Close()
	}
	b.ReportMetric(100_000*float64(b.N)/b.Elapsed().Seconds(), "members/s")
}

func TestSamples(t *testing.T) {
	s := opener(formattest.TarShards(t, 3))(t)
	info := s.Info()
	var fields []string
	for _, f := range info.Fields {
		fields = append(fields, fmt.Sprintf("%s:%s:%s%v", f.Name, f.Kind, f.DType, f.Shape))
	}
	want := "image:image:[] json:json:[] label:label:[] pair:array:uint8[3] pyd:bytes:[] walk:ragged:int16[2]"
	if got := strings.Join(fields, " "); got != want || info.Len != 30 || info.Format != "tar" {
		t.Fatalf("%d records of\n%s, want\n%s", info.Len, got, want)
	}
	for id := range info.Len {
		rec := &drivertest.Records(t, s, id)[0]
		if rec.Err != nil {
			t.Fatal(rec.Err)
		}
		in := formattest.Sample(int(id))
		for field, m := range map[int]int{0: 0, 1: 2, 4: 5} {
			if !bytes.Equal(rec.Values[field].Bytes, in[m].Body) {
				t.Errorf("record %d: %s is something else", id, in[m].Name)
			}
		}
		if rec.Values[2].Int != id%5 || rec.Values[3].Bytes[0] != byte(id) || len(rec.Values[5].Bytes) != 4*int(id%7) {
			t.Errorf("record %d: %+v", id, rec.Values)
		}
	}
	if got := s.Name(12); !strings.HasSuffix(got, "train-0001.tar, 000012.jpg (byte 232448)") {
		t.Error(got)
	}
	if got := s.(driver.Pather).Path(12, 1); got != "train-0001.tar/000012.json" {
		t.Error(got)
	}
}

// All encodings of names and sizes in tar files, written by package tar.
func TestNames(t *testing.T) {
	long := strings.Repeat("folder/", 40) + strings.Repeat("n", 120)
	for name, format := range map[string]tar.Format{"ustar": tar.FormatUSTAR, "gnu": tar.FormatGNU, "pax": tar.FormatPAX} {
		var out bytes.Buffer
		w := tar.NewWriter(&out)
		var want []string
		for i := range 20 {
			n := fmt.Sprintf("%s.%d.bin", long, i)
			if format == tar.FormatUSTAR {
				n = fmt.Sprintf("%s/%d.bin", strings.Repeat("n", 120), i)
			}
			want = append(want, n)
			body := bytes.Repeat([]byte{byte(i)}, i*300)
			if err := w.WriteHeader(&tar.Header{Name: n, Size: int64(len(body)), Format: format}); err != nil {
				t.Fatal(name, err)
			}
			_, _ = w.Write(body)
			_ = w.WriteHeader(&tar.Header{Name: "link", Linkname: n, Typeflag: tar.TypeLink})
			_ = w.WriteHeader(&tar.Header{Name: "folder/", Typeflag: tar.TypeDir})
		}
		w.Close()
		s := opener(put(t, out.Bytes()))(t)
		if s.Info().Len != 20 {
			t.Fatalf("%s: %d records", name, s.Info().Len)
		}
		for id, n := range want {
			rec := drivertest.Records(t, s, int64(id))[0]
			if rec.Err != nil || len(rec.Values[0].Bytes) != id*300 || s.(driver.Pather).Path(int64(id), 0) != n {
				t.Errorf("%s: record %d: %s, %v", name, id, s.Name(int64(id)), rec.Err)
			}
			if id > 0 && rec.Values[0].Bytes[0] != byte(id) {
				t.Errorf("%s: record %d differs", name, id)
			}
		}
	}
}

func TestDamage(t *testing.T) {
	whole := formattest.Tar(t, member{"a.txt", make([]byte, 1000)}, member{"b.txt", make([]byte, 50_000)}, member{"c.txt", make([]byte, 10)})
	flipped := bytes.Clone(whole)
	flipped[1536+3] ^= 1
	var gnu bytes.Buffer
	w := tar.NewWriter(&gnu)
	_ = w.WriteHeader(&tar.Header{Name: "huge.txt", Size: 1 << 50, Format: tar.FormatGNU})
	// GNU tar --sparse --format=pax writes this before a member.
	record := "22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n"
	sparse := formattest.Tar(t, member{"PaxHeaders/s", []byte(record)}, member{"GNUSparseFile.0/s", append([]byte("0\n"), make([]byte, 510)...)})
	sparse[156] = 'x'
	sum(sparse[:512])
	old := formattest.Tar(t, member{"s", make([]byte, 600)})
	old[156] = 'S'
	copy(old[257:], "ustar  \x00")
	sum(old[:512])
	for what, c := range map[string]struct {
		bytes []byte
		want  string
	}{
		"cut in content":   {whole[:1536+30_000], `x.tar, byte 1536: the member "b.txt" of 50000 bytes begins here, the file ends 30000 bytes later: it is cut off`},
		"cut in a header":  {whole[:1536+100], "x.tar, byte 1536: a member begins here, the file ends 100 bytes later: it is cut off"},
		"a header":         {flipped, "x.tar, byte 1536: expected the header of a member, the file is damaged: invalid tar header"},
		"something else":   {bytes.Repeat([]byte("no tar "), 200), "x.tar, byte 0: not a valid tar file"},
		"a huge member":    {gnu.Bytes(), `the member "huge.txt" of 1125899906842624 bytes begins here, the file ends 512 bytes later`},
		"bzip2":            {append([]byte("BZh9"), whole...), "x.tar: compression with bzip2 is not supported: unpack it with bunzip2, or compress it with gzip or zstd"},
		"xz":               {append([]byte("\xFD7zXZ\x00"), whole...), "unxz"},
		"empty":            {nil, "there are no files in it"},
		"no members":       {formattest.Tar(t), "there are no files in it"},
		"a sparse member":  {sparse, "is a sparse file, which is not read"},
		"an old sparse":    {old, "is a sparse file, which is not read"},
		"the same twice":   {formattest.Tar(t, member{"a.jpg", nil}, member{"a.cls", nil}, member{"a.jpg", nil}), `a.jpg: the sample "a" has two members .jpg`},
		"no array":         {formattest.Tar(t, member{"a.npy", []byte("hello")}), "x.tar, a.npy (byte 512): not a .npy file"},
		"most are missing": {formattest.Tar(t, member{"0.x", nil}, member{"0.y", nil}, member{"1.z", nil}, member{"1.v", nil}), "no member suffix"},
	} {
		if _, err := open(t, put(t, c.bytes), nil); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want %q", what, err, c.want)
		}
	}
	// The zero blocks at the end are often missing.
	s, err := open(t, put(t, whole[:len(whole)-1024]), nil)
	if err != nil || s.Info().Len != 3 {
		t.Errorf("without its end: %v", err)
	}
}

// sum writes the checksum of a header.
func sum(h []byte) {
	copy(h[148:156], "        ")
	n := 0
	for _, c := range h {
		n += int(c)
	}
	copy(h[148:], fmt.Sprintf("%06o\x00 ", n))
}

func TestBadValues(t *testing.T) {
	arr := func(dt driver.DType, shape ...int64) []byte {
		h := npy.AppendHeader(nil, dt, shape)
		n := int64(dt.Size())
		for _, side := range shape {
			n *= side
		}
		return append(h, make([]byte, n)...)
	}
	short := arr(driver.Uint8, 4)
	s, err := open(t, put(t, formattest.Tar(t,
		member{"0.cls", []byte("7")}, member{"0.npy", arr(driver.Uint8, 4)},
		member{"1.cls", []byte("cat")}, member{"1.npy", arr(driver.Uint8, 4)},
		member{"2.cls", bytes.Repeat([]byte("1"), 100)}, member{"2.npy", arr(driver.Uint8, 4)},
		member{"3.cls", []byte("3")}, member{"3.npy", arr(driver.Uint8, 2, 2)},
		member{"4.cls", []byte("+4")}, member{"4.npy", append([]byte("\x93NUMPZ"), short[6:]...)},
		member{"5.cls", []byte("99999999999999999999")}, member{"5.npy", arr(driver.Uint8, 4)},
	)), nil)
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range []string{"", `x.tar, 1.cls (byte 2560): expected an integer, got "cat"`, "2.cls (byte 4608): expected a number, got 100 bytes",
		"3.npy (byte 7680): it is uint8 of shape [2 2], but ", "4.npy (byte 9728): not a .npy file", `expected an integer, got "99999999999999999999"`} {
		rec := drivertest.Records(t, s, int64(id))[0]
		if want == "" && rec.Err != nil || want != "" && (rec.Err == nil || !strings.Contains(rec.Err.Error(), want)) {
			t.Errorf("record %d: %v, want %q", id, rec.Err, want)
		}
	}
	// An array of Python objects is never unpickled: its value is its bytes.
	object := bytes.Replace(arr(driver.Uint8, 1), []byte("'|u1'"), []byte("'|O' "), 1)
	s, err = open(t, put(t, formattest.Tar(t, member{"0.npy", object}, member{"0.cls", []byte("1")})), nil)
	if err != nil || s.Info().Fields[0].Kind != driver.KindBytes {
		t.Errorf("%v, %+v", err, s)
	} else if rec := drivertest.Records(t, s, 0)[0]; !bytes.Equal(rec.Values[0].Bytes, object) {
		t.Errorf("its bytes differ (%v)", rec.Err)
	}
}

// The archives keep the order in which they are named.
func TestNamed(t *testing.T) {
	s, err := open(t, formattest.TarShards(t, 3), &archive.Options{Names: []string{"train-0002.tar", "train-0000.tar"}})
	if err != nil || s.Info().Len != 20 || !strings.Contains(s.Name(0), "train-0002.tar, 000020.jpg") || !strings.Contains(s.Name(10), "train-0000.tar") {
		t.Errorf("%v, %s", err, s.Name(0))
	}
	if _, err := open(t, formattest.TarShards(t, 1), &archive.Options{Names: []string{"train-0001.tar"}}); !errors.Is(err, store.ErrNotExist) {
		t.Error(err)
	}
}

func FuzzScan(f *testing.F) {
	f.Add(formattest.Tar(f, formattest.Sample(1)...))
	f.Add(formattest.Tar(f, member{strings.Repeat("long/", 60) + "x.jpg", []byte("1")}, member{"d/", nil}, member{"é.txt", make([]byte, 600)}))
	var gnu bytes.Buffer
	w := tar.NewWriter(&gnu)
	_ = w.WriteHeader(&tar.Header{Name: strings.Repeat("x", 300), Size: 3, Format: tar.FormatGNU})
	_, _ = w.Write([]byte("abc"))
	f.Add(gnu.Bytes())
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte) {
		err := Scan(t.Context(), bytes.NewReader(b), int64(len(b)), func(m *archive.Member) error {
			if m.At < 512 || m.Size < 0 || m.Extent != m.Size || m.At+m.Size > int64(len(b)) {
				t.Fatalf("%+v of %d bytes", m, len(b))
			}
			return nil
		})
		if err != nil {
			return
		}
		name := filepath.Join(dir, "x.tar")
		if err := os.WriteFile(name, b, 0o644); err != nil {
			t.Fatal(err)
		}
		s, err := open(t, name, nil)
		if err != nil {
			if strings.Contains(err.Error(), "internal error") || !strings.Contains(err.Error(), "x.tar") {
				t.Fatal(err)
			}
			return
		}
		defer s.Close()
		for id := range min(s.Info().Len, 4) {
			if rec := drivertest.Records(t, s, id)[0]; rec.Err != nil && !strings.Contains(rec.Err.Error(), "x.tar") {
				t.Fatal(rec.Err)
			}
		}
	})
}
