package npysource

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/npy"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
	"github.com/stokerdata/stoker/store"
)

func write(t testing.TB, dtype driver.DType, shape []int64, dir ...string) string {
	t.Helper()
	b := npy.AppendHeader(nil, dtype, shape)
	n := int64(dtype.Size())
	for _, side := range shape {
		n *= side
	}
	for i := range n {
		b = append(b, byte(i*7+i>>8))
	}
	name := filepath.Join(dir...)
	if err := os.WriteFile(name, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

func opener(path string, opt *Options) drivertest.Open {
	return drivertest.Opener(func(ctx context.Context) (driver.Source, error) {
		return Open(ctx, path, localstore.New(path), opt)
	})
}

func BenchmarkWindows(b *testing.B) {
	drivertest.Bench(b, opener(write(b, driver.Uint16, []int64{4 << 20}, b.TempDir(), "t.npy"), &Options{Window: 1024}))
}

func TestRows(t *testing.T) {
	name := write(t, driver.Uint16, []int64{10_007}, t.TempDir(), "tokens.npy")
	s := opener(name, &Options{Window: 100})(t)
	defer s.Close()
	if info := s.Info(); info.Len != 100 || info.Fields[0].Name != "tokens" || info.Fields[0].Shape[0] != 100 {
		t.Fatalf("%+v", info)
	}
	recs := drivertest.Records(t, s, 7)
	file, _ := os.ReadFile(name)
	if want := file[len(file)-2*10_007+1400:][:200]; !bytes.Equal(recs[0].Values[0].Bytes, want) {
		t.Error("record 7 is something else")
	}
	if got := s.Name(7); !strings.HasSuffix(got, "tokens.npy, row 7 (byte 1528)") {
		t.Errorf("its name is %q", got)
	}
}

func TestRefused(t *testing.T) {
	dir := t.TempDir()
	put := func(name string, b []byte) string {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
		return filepath.Join(dir, name)
	}
	header := func(text string) []byte {
		b := append([]byte(npy.Magic), 1, 0)
		return append(binary.LittleEndian.AppendUint16(b, uint16(len(text))), text...)
	}
	good, _ := os.ReadFile(write(t, driver.Uint8, []int64{10}, t.TempDir(), "a.npy"))
	two := t.TempDir()
	write(t, driver.Uint8, []int64{10}, two, "a.npy")
	write(t, driver.Uint8, []int64{11}, two, "b.npy")
	for name, c := range map[string]struct {
		path string
		opt  *Options
		want string
	}{
		"cut off":     {put("1.npy", good[:len(good)-1]), nil, "but 9 follow the header: the file is cut off"},
		"no npy":      {put("2.npy", []byte("hello, this is text")), nil, "does not begin with"},
		"short":       {put("3.npy", good[:8]), nil, "does not begin with"},
		"object":      {put("4.npy", header("{'descr': '|O', 'fortran_order': False, 'shape': (3,), }")), nil, "which are not loaded"},
		"structured":  {put("5.npy", header("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,), }")), nil, "structured array"},
		"big-endian":  {put("6.npy", header("{'descr': '>f4', 'fortran_order': False, 'shape': (3,), }")), nil, "big-endian"},
		"fortran":     {put("7.npy", header("{'descr': '<f4', 'fortran_order': True, 'shape': (3, 3), }")), nil, "Fortran order"},
		"huge":        {put("8.npy", header("{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807, 9223372036854775807), }")), nil, "shape"},
		"empty":       {write(t, driver.Uint8, []int64{0, 4}, dir, "9.npy"), nil, "no rows"},
		"scalar":      {write(t, driver.Uint8, []int64{}, dir, "10.npy"), nil, "single number"},
		"window of 2": {write(t, driver.Uint8, []int64{4, 4}, dir, "11.npy"), &Options{Window: 2}, "one axis"},
		"too wide":    {write(t, driver.Uint8, []int64{40}, dir, "12.npy"), &Options{Window: 41}, "fewer than a window"},
		"lengths":     {two, nil, "has 11 rows and"},
		"nothing":     {t.TempDir(), nil, "no .npy file"},
	} {
		if _, err := Open(t.Context(), c.path, localstore.New(c.path), c.opt); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

// A file that changes while it is open is detected.
func TestChanged(t *testing.T) {
	name := write(t, driver.Uint8, []int64{100, 64}, t.TempDir(), "x.npy")
	src := opener(name, nil)(t).(*source)
	defer src.Close()
	if err := os.Truncate(name, 4000); err != nil {
		t.Fatal(err)
	}
	recs := drivertest.Records(t, src, 3, 90)
	if err := recs[1].Err; !errors.Is(err, store.ErrChanged) || !strings.Contains(err.Error(), "x.npy: it has changed since it was listed: it had 6528 bytes, now it has 4000") {
		t.Errorf("got %v and %v", recs[0].Err, recs[1].Err)
	}
}
