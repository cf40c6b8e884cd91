package filesource

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
	"github.com/stokerdata/stoker/store"
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
	return drivertest.Opener(func(ctx context.Context) (driver.Source, error) {
		return Open(ctx, path, localstore.New(path))
	})
}

func TestConformance(t *testing.T) { drivertest.Run(t, opener(folder(t))) }

func TestFaults(t *testing.T) {
	drivertest.Faults(t, localstore.New(folder(t)), false, func(ctx context.Context, st store.Store) (driver.Source, error) {
		return Open(ctx, "test", st)
	})
}

func BenchmarkFiles(b *testing.B) { drivertest.Bench(b, opener(folder(b))) }

func TestOrderAndChange(t *testing.T) {
	dir := folder(t)
	s := opener(dir)(t).(*source)
	if a, b, c := s.Path(0, 0), s.Path(10, 0), s.Path(29, 0); a != "00.bin" || b != "a/01.bin" || c != "b/c/29.bin" {
		t.Errorf("the order is %s, %s, %s", a, b, c)
	}
	if err := os.Truncate(filepath.Join(dir, "03.bin"), 5); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "06.bin")); err != nil {
		t.Fatal(err)
	}
	recs := drivertest.Records(t, s, 0, 1, 2, 3)
	for i, want := range []string{"", "03.bin: it has changed since", "06.bin: it has changed since it was listed: it is gone", ""} {
		if err := recs[i].Err; err == nil && want != "" || err != nil && (want == "" || !strings.Contains(err.Error(), want)) {
			t.Errorf("record %d: got %v, want %q", i, err, want)
		}
	}
}

func TestBadFiles(t *testing.T) {
	drivertest.BadFiles{
		Folder: folder(t), Name: "a/0.bin", Content: []byte("content"), Opaque: true,
		Open: func(ctx context.Context, st store.Store) (driver.Source, error) { return Open(ctx, "test", st) },
	}.Run(t)
}
