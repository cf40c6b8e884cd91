package filesource

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
)

func folder(t testing.TB) string {
	dir := t.TempDir()
	for i := range 30 {
		name := filepath.Join(dir, []string{"", "a", "b/c"}[i%3], fmt.Sprintf("%02d.bin", i))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, bytes.Repeat([]byte{byte(i)}, i*i*13), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func opener(path string) drivertest.Open {
	return func(t testing.TB) driver.Source {
		s, err := Open(t.Context(), path, path)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

func TestConformance(t *testing.T) { drivertest.Run(t, opener(folder(t))) }

func BenchmarkFiles(b *testing.B) { drivertest.Bench(b, opener(folder(b))) }

func TestOrderAndChange(t *testing.T) {
	dir := folder(t)
	s := opener(dir)(t).(*source)
	if a, b, c := s.Path(0), s.Path(10), s.Path(29); a != "00.bin" || b != "a/01.bin" || c != "b/c/29.bin" {
		t.Errorf("the order is %s, %s, %s", a, b, c)
	}
	if err := os.Truncate(filepath.Join(dir, "03.bin"), 5); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "06.bin")); err != nil {
		t.Fatal(err)
	}
	buf := driver.Buffer{Records: make([]driver.Record, 4), Alloc: func(n int) ([]byte, error) { return make([]byte, n), nil }}
	for i := range buf.Records {
		buf.Records[i].Values = make([]driver.Value, 1)
	}
	if err := s.Read(t.Context(), []int64{0, 1, 2, 3}, &buf); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"", "03.bin: changed since", "06.bin: changed since the folder was listed: the file is gone", ""} {
		if err := buf.Records[i].Err; err == nil && want != "" || err != nil && (want == "" || !strings.Contains(err.Error(), want)) {
			t.Errorf("record %d: got %v, want %q", i, err, want)
		}
	}
}
