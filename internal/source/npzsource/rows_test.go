package npzsource

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/npy"
	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/driver"
)

// array is an array to write. Its bytes count up from the number of the array.
type array struct {
	name  string
	descr string // "" for float32
	shape []int64
}

// writeNPZ writes a .npz file and returns its path.
func writeNPZ(t testing.TB, method uint16, arrays ...array) string {
	t.Helper()
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	for i, a := range arrays {
		n := int64(4)
		b := npy.AppendHeader(nil, driver.Float32, a.shape)
		if a.descr != "" {
			if a.descr[0] == '|' {
				n = 1
			}
			b = bytes.Replace(b, []byte("'<f4'"), fmt.Appendf(nil, "%-5s", "'"+a.descr+"'"), 1)
		}
		for _, side := range a.shape {
			n *= side
		}
		for k := range n {
			b = append(b, byte(k+int64(i)))
		}
		w, err := z.CreateHeader(&zip.FileHeader{Name: a.name, Method: method})
		if err == nil {
			_, err = w.Write(b)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "set.npz")
	if err := os.WriteFile(name, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

var methods = map[string]uint16{"stored": zip.Store, "deflated": zip.Deflate}

func TestLayouts(t *testing.T) {
	rows := func(name string, shape ...int64) array { return array{name: name + ".npy", shape: shape} }
	mnist := []array{rows("x_train", 12, 4), rows("y_train", 12), rows("x_test", 5, 4), rows("y_test", 5)}
	for name, c := range map[string]struct {
		arrays []array
		query  string
		split  string
		want   string // records and fields, or the error
	}{
		"table":             {[]array{rows("x", 7, 3, 2), rows("y", 7)}, "", "", "7 x[3 2] y[]"},
		"one array":         {[]array{rows("arr_0", 7, 3)}, "", "", "7 arr_0[3]"},
		"names of classes":  {[]array{rows("x", 7, 3), rows("y", 7), rows("names", 2), rows("mean")}, "", "", "7 x[3] y[]"},
		"one sample":        {[]array{rows("image", 9, 5), rows("label")}, "", "", "1 image[9 5] label[]"},
		"boxes of a sample": {[]array{rows("image", 9, 5), rows("boxes", 3, 4), rows("labels", 3)}, "", "", "1 image[9 5] boxes[3 4] labels[3]"},
		"columns":           {[]array{rows("image", 9, 5), rows("boxes", 3, 4), rows("labels", 3)}, "b=boxes&labels", "", "3 b[4] labels[]"},
		"train":             {mnist, "", "train", "12 x[4] y[]"},
		"test":              {mnist, "", "Test", "5 x[4] y[]"},
		"no split":          {mnist, "", "", "it has the splits train and test: choose one, such as 'URL?split=train'"},
		"unknown split":     {mnist, "", "val", `it has no split "val", only train and test`},
		"column of a split": {mnist, "image=x", "test", "5 image[4]"},
		"whole names":       {mnist, "image=x_test&label=y_test", "", "5 image[4] label[]"},
		"one split":         {[]array{rows("X_train", 12, 4), rows("Y_train", 12)}, "", "", "12 X[4] Y[]"},
		"medmnist":          {[]array{rows("train_images", 8, 4), rows("train_labels", 8, 1), rows("val_images", 3, 4), rows("val_labels", 3, 1)}, "", "validation", "3 images[4] labels[1]"},
		"bare splits":       {[]array{rows("train", 8, 4), rows("test", 3, 4)}, "", "test", "3 data[4]"},
		"test has no y":     {[]array{rows("x_train", 8, 4), rows("y_train", 8), rows("x_test", 3, 4)}, "", "test", "3 x[4]"},
		"masks of a graph":  {[]array{rows("x", 8, 4), rows("y", 8), rows("train_mask", 8), rows("test_mask", 8)}, "", "", "8 x[4] y[] train_mask[] test_mask[]"},
		"objects":           {[]array{rows("x", 7, 3), {"y.npy", "|O", []int64{7}}}, "", "", "7 x[3]"},
		"objects by name":   {[]array{rows("x", 7, 3), {"y.npy", "|O", []int64{7}}}, "x&y", "", `"y" holds Python objects`},
		"big-endian":        {[]array{{"x.npy", ">i4", []int64{7}}}, "", "", "7 x[]"},
	} {
		for method, m := range methods {
			t.Run(name+" "+method, func(t *testing.T) {
				file := writeNPZ(t, m, c.arrays...)
				opt := &Options{Split: c.split}
				if c.query != "" {
					var err error
					if opt.Columns, err = column.ParseQuery(c.query); err != nil {
						t.Fatal(err)
					}
				}
				s, err := Open(t.Context(), "URL", localstore.New(file), opt)
				if err != nil {
					if !strings.Contains(err.Error(), c.want) {
						t.Errorf("got %v, want %s", err, c.want)
					}
					return
				}
				defer s.Close()
				got := fmt.Sprint(s.Info().Len)
				for _, f := range s.Info().Fields {
					got += fmt.Sprintf(" %s%v", f.Name, f.Shape)
				}
				if got != c.want {
					t.Errorf("got %s, want %s", got, c.want)
				}
				if r := readOne(t, s, s.Info().Len-1); r.Err != nil {
					t.Error(r.Err)
				}
			})
		}
	}
}

// The files of a folder are samples even if they look like tables, unless columns are requested.
func TestFolderOfTables(t *testing.T) {
	dir := filepath.Dir(writeNPZ(t, zip.Store, array{name: "x.npy", shape: []int64{4, 3}}, array{name: "y.npy", shape: []int64{4}}))
	b, err := os.ReadFile(filepath.Join(dir, "set.npz"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "tes.npz"), b, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	if s := opener(dir)(t); s.Info().Len != 2 {
		t.Errorf("%d records, want 2", s.Info().Len)
	}
	columns, err := column.ParseQuery("x&y")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), dir, localstore.New(dir), &Options{Columns: columns})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.Info().Len != 8 {
		t.Errorf("%d records, want 8", s.Info().Len)
	}
	if r := readOne(t, s, 5); r.Err != nil || r.Values[0].Bytes[0] != 12 {
		t.Errorf("%+v", r)
	}
}

func TestBadTables(t *testing.T) {
	file := writeNPZ(t, zip.Deflate, array{name: "x.npy", shape: []int64{400, 300}})
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(whole)
	flipped[len(whole)/2] ^= 1
	// A few hundred bytes that claim to inflate to 800 MB.
	const rows = 200 << 20
	var data, bomb bytes.Buffer
	d, err := flate.NewWriter(&data, flate.BestCompression)
	if err == nil {
		_, err = d.Write(append(npy.AppendHeader(nil, driver.Float32, []int64{rows}), make([]byte, 1<<18)...))
	}
	if err == nil {
		err = d.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	z := zip.NewWriter(&bomb)
	w, err := z.CreateRaw(&zip.FileHeader{Name: "x.npy", Method: zip.Deflate, CompressedSize64: uint64(data.Len()), UncompressedSize64: 128 + 4*rows})
	if err == nil {
		_, err = w.Write(data.Bytes())
	}
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		b    []byte
		want string
	}{
		"flipped": {flipped, `set.npz: "x": it is damaged`},
		"cut":     {whole[:len(whole)-9], "not a .npz file that can be read"},
		"bomb":    {bomb.Bytes(), "bytes cannot inflate to"},
		"text":    {[]byte("not a zip file at all"), "not a .npz file that can be read"},
	} {
		if err := os.WriteFile(file, c.b, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(t.Context(), "URL", localstore.New(file), nil); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "set.npz") {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

func FuzzRows(f *testing.F) {
	for _, m := range methods {
		b, err := os.ReadFile(writeNPZ(f, m, array{name: "x_train.npy", shape: []int64{3, 4}}, array{"y_test.npy", "|u1", []int64{3}}))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	name := filepath.Join(f.TempDir(), "x.npz")
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := os.WriteFile(name, b, 0o644); err != nil {
			t.Fatal(err)
		}
		for _, split := range []string{"", "train"} {
			if s, err := Open(t.Context(), name, localstore.New(name), &Options{Split: split}); err == nil {
				if s.Info().Len < 1<<20 {
					_ = readOne(t, s, s.Info().Len-1)
				}
				_ = s.Close()
			}
		}
	})
}
