package cifarsource

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/source/formattest/cifartest"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
)

var batch, meta, flat, folders, rows = cifartest.Batch, cifartest.Meta, cifartest.Flat, cifartest.Folders, cifartest.Row

func open(t testing.TB, dir string, opt *Options) driver.Source {
	t.Helper()
	s, err := Open(t.Context(), dir, localstore.New(dir), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func opener(dir string) drivertest.Open {
	return drivertest.Opener(func(ctx context.Context) (driver.Source, error) {
		return Open(ctx, dir, localstore.New(dir), nil)
	})
}

func BenchmarkBinary(b *testing.B) { drivertest.Bench(b, opener(folders(b)["10 binary"])) }

func TestRecords(t *testing.T) {
	for name, dir := range folders(t) {
		s := open(t, dir, nil)
		info := s.Info()
		fine := strings.HasPrefix(name, "100")
		if info.Len != 25 || len(info.Fields[1].Classes) != 10 || len(info.Fields) != 2 && !fine || fine && len(info.Fields[2].Classes) != 3 {
			t.Fatalf("%s: %+v", name, info)
		}
		// Strings of raw bytes are read in place.
		if there := info.Objects > 0; there != (strings.Contains(name, "binary") || strings.Contains(name, "2 of Python 2") || strings.Contains(name, "protocol 3")) {
			t.Errorf("%s: located is %v", name, there)
		}
		for _, r := range drivertest.Records(t, s, 0, 7, 24) {
			i := int(r.ID)
			if r.Err != nil || !bytes.Equal(r.Values[0].Bytes, rows(i)) || r.Values[1].Int != int64(i%10) || fine && r.Values[2].Int != int64(i%3) {
				t.Errorf("%s, record %d: %v", name, i, r.Err)
			}
		}
	}
}

func TestSplits(t *testing.T) {
	dir := drivertest.Folder(t, map[string][]byte{"data_batch_1.bin": flat(0, 2, false), "test_batch.bin": flat(0, 3, false), "test_batch": batch(0, 4, 2, 2, false)})
	for _, c := range []struct {
		opt  Options
		n    int64
		want string
	}{
		{Options{}, 0, "it has the splits train and test: choose one, such as 'DIR?split=train'"}, {Options{Split: "train"}, 2, ""}, {Options{Split: "test"}, 3, ""},
		{Options{File: "test_batch"}, 4, ""}, {Options{File: "data_batch_9"}, 0, "data_batch_9 is not a file of CIFAR"}, {Options{Split: "val"}, 0, `no split "val"`},
	} {
		s, err := Open(t.Context(), "DIR", localstore.New(dir), &c.opt)
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%+v: %v", c.opt, err)
			}
		} else if err != nil || s.Info().Len != c.n {
			t.Errorf("%+v: %v", c.opt, err)
		}
	}
}

func TestIs(t *testing.T) {
	for names, want := range map[string]bool{
		"data_batch_1 readme": true, "test_batch.bin": true, "meta test train": true, "test train": false, "train.bin val.bin": false,
		"fine_label_names.txt train.bin": true, "data_batch_10": false, "": false,
	} {
		if got := Is(strings.Fields(names), ""); got != want {
			t.Errorf("%s: %v", names, got)
		}
	}
	if !Is([]string{"data_batch_1"}, "data_batch_1") || Is([]string{"data_batch_1", "x"}, "x") {
		t.Error("single files")
	}
}

func TestBadFiles(t *testing.T) {
	good := batch(0, 4, 2, 2, false)
	change := func(old, new string) []byte { return bytes.Replace(good, []byte(old), []byte(new), 1) }
	size := string(binary.LittleEndian.AppendUint32([]byte("T"), 4*pixels))
	for _, c := range []struct {
		name, file string
		data       []byte
		want       string
	}{
		{"binary cut", "data_batch_1.bin", flat(0, 4, false)[:10000], "it has 10000 bytes, which is not a multiple of the record size 3073"},
		{"binary empty", "data_batch_1.bin", nil, "not a multiple"},
		{"cut", "data_batch_1", good[:4000], "the file ends 3"},
		{"cut later", "data_batch_1", good[:len(good)-20], "it is cut off"},
		{"empty", "data_batch_1", nil, "byte 0: not a supported pickle: the file is cut off"},
		{"text", "data_batch_1", []byte("yes"), `byte 0: not a supported pickle: unsupported opcode 0x79 ('y')`},
		{"system", "data_batch_1", []byte("cos\nsystem\n(S'true'\ntR."), `byte 0: not a supported pickle: it needs "os.system", but only NumPy arrays are supported: code in a pickle is never run`},
		{"eval", "data_batch_1", []byte("\x80\x02c__builtin__\neval\nq\x00"), `byte 2: not a supported pickle: it needs "__builtin__.eval"`},
		{"instance", "data_batch_1", []byte("(ios\nsystem\n."), "opcode 0x69"},
		{"protocol", "data_batch_1", []byte("\x80\x04."), "protocol 4 is not supported (supported: 0 to 3): write it again with pickle.dump(..., protocol=2)"},
		{"claim", "data_batch_1", change(size, "T\xff\xff\xff\xff"), "a string of 4294967295 bytes, the file ends"},
		{"rows", "data_batch_1", change("(K\x04M\x00\x0ct", "(K\x05M\x00\x0ct"), "it has 5 images and 4 labels"},
		{"short", "data_batch_1", bytes.Replace(good, []byte(size), append([]byte("T"), size[1]-1, size[2]-1, 0, 0), 1)[:2300], "cut off"},
		{"many", "data_batch_1", change("(K\x04M\x00\x0ct", "(J\xff\xff\xff\x7fM\x00\x0ct"), "of shape [2147483647 3072]"},
		{"type", "data_batch_1", change("U\x02u1", "U\x02f8"), `an array of "f8"`},
		{"label", "data_batch_1", change("U\x06labels", "U\x06lalels"), `it has no list "labels", only "batch_label", "lalels"`},
		{"negative", "data_batch_1", change("(K\x00K\x01", "(NK\x01"), "number 0 of its labels is not a class"},
		{"number", "data_batch_1", []byte("K\x01."), "it is not a dictionary"},
		{"memo", "data_batch_1", []byte("h\x05."), "memo key 5 does not exist"},
		{"stack", "data_batch_1", []byte("0."), "the stack is empty"},
		{"long", "data_batch_1", append(bytes.Repeat([]byte("N0"), maxOps/2), '.'), "more than 1048576 opcodes"},
		{"line", "data_batch_1", append([]byte("S'"), bytes.Repeat([]byte("x"), 200000)...), "a line does not end"},
		{"meta", "batches.meta", []byte("(dp0\nS'label_names'\ncposix\nsystem\n"), `"posix.system"`},
	} {
		files := map[string][]byte{"data_batch_1": good}
		if strings.HasSuffix(c.file, ".bin") {
			delete(files, "data_batch_1")
		}
		files[c.file] = c.data
		dir := drivertest.Folder(t, files)
		_, err := Open(t.Context(), "DIR", localstore.New(dir), nil)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), filepath.Join(dir, c.file)+": ") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	// A label without a name is an error of its record.
	data := flat(0, 4, false)
	data[2*binary10] = 11
	dir := drivertest.Folder(t, map[string][]byte{"data_batch_1.bin": data, "batches.meta.txt": []byte(cifartest.Names)})
	r := drivertest.Records(t, open(t, dir, nil), 1, 2)
	if r[0].Err != nil || r[1].Err == nil || !strings.Contains(r[1].Err.Error(), "data_batch_1.bin, image 2 (byte 6146): class number 11 of 10") {
		t.Errorf("%v, %v", r[0].Err, r[1].Err)
	}
}

// Each encoding of a string decodes to the original string.
func TestForms(t *testing.T) {
	all := make([]byte, 256*3)
	for i := range all {
		all[i] = byte(i)
	}
	for _, f := range []struct{ proto, python int }{{0, 2}, {2, 2}, {0, 3}, {2, 3}, {3, 3}} {
		for _, n := range []int{0, 1, 100, 255, 256, 768, 70000} {
			want := string(slices.Repeat(all, 100)[:n])
			p := &cifartest.Pickler{Proto: f.proto, Python: f.python}
			p.Str(want)
			p.WriteString(".")
			v, err := unpickle(bytes.NewReader(p.Bytes()), int64(p.Len()))
			if err != nil {
				t.Fatalf("%+v, %d bytes: %v", f, n, err)
			}
			got, ok := v.(string)
			if b, long := v.(blob); long {
				out := make([]byte, n)
				k, err := b.form.decode(out, io.NewSectionReader(bytes.NewReader(p.Bytes()), b.at, b.size))
				if b.form == raw {
					copy(out, p.Bytes()[b.at:b.at+b.size])
					k, err = n, nil
				}
				got, ok = string(out[:k]), err == nil
			}
			if !ok || got != want {
				t.Errorf("%+v, %d bytes: %T", f, n, v)
			}
		}
	}
	for _, c := range []struct {
		f    form
		text string
	}{
		{quoted, "x"}, {quoted, "'x"}, {quoted, `'\q'`}, {quoted, `'\x1'`}, {quoted, `'a'b`}, {quoted, ""}, {utf8Text, "\u0100"}, {utf8Text, "\xC3"}, {utf8Text, "\xFF"},
		{rawUnicode, `\u12`}, {rawUnicode, `\u0100`}, {utf8Text, strings.Repeat("x", 101)},
	} {
		if _, err := c.f.decode(make([]byte, 100), strings.NewReader(c.text)); err == nil {
			t.Errorf("%v, %q is read", c.f, c.text)
		}
	}
}

// No pickle makes the parser read outside of it, allocate much memory or run code.
func FuzzUnpickle(f *testing.F) {
	for _, c := range []struct{ proto, python int }{{0, 2}, {2, 2}, {0, 3}, {2, 3}, {3, 3}} {
		b := batch(0, 2, c.proto, c.python, true)
		f.Add(b[:600])
		f.Add(b[len(b)-800:])
		f.Add(meta(c.proto, c.python, map[string]int{"label_names": 3}))
		p := &cifartest.Pickler{Proto: c.proto, Python: c.python}
		p.Begin()
		p.Str("data")
		p.Pixels(2, "abc\\")
		p.WriteString("s.")
		f.Add(p.Bytes())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := unpickle(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			if strings.Contains(err.Error(), "\n") || !errors.Is(err, errPickle) {
				t.Fatalf("%q", err)
			}
			return
		}
		d, ok := v.(*dict)
		if !ok {
			return
		}
		_ = d.keyNames()
		for _, v := range d.values {
			a, ok := v.(*array)
			if !ok || a.data.short != nil {
				continue
			}
			if a.data.at < 0 || a.data.at+a.data.size > int64(len(b)) {
				t.Fatalf("data at %d to %d of %d bytes", a.data.at, a.data.at+a.data.size, len(b))
			}
			_, _ = a.data.form.decode(make([]byte, 100), bytes.NewReader(b[a.data.at:a.data.at+a.data.size]))
		}
	})
}

// Files with any content.
func FuzzOpen(f *testing.F) {
	f.Add(batch(0, 1, 2, 2, false), false)
	f.Add(batch(0, 1, 2, 2, true), true)
	f.Add(batch(0, 1, 0, 2, true), true)
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte, fine bool) {
		name := "data_batch_1"
		if fine {
			name = "train"
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
		s, err := Open(t.Context(), "DIR", localstore.New(dir), &Options{File: name})
		if err != nil {
			return
		}
		defer s.Close()
		for _, r := range drivertest.Records(t, s, 0, s.Info().Len-1) {
			if r.Err != nil || len(r.Values[0].Bytes) != pixels {
				t.Fatal(r.Err)
			}
		}
	})
}
