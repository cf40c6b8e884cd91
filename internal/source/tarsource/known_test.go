package tarsource

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stokerdata/stoker/internal/cache"
	"github.com/stokerdata/stoker/internal/source/formattest"
)

// A compressed file is scanned only once, as long as the file does not change.
func TestKnownFiles(t *testing.T) {
	t.Setenv(cache.Variable, t.TempDir())
	rng := rand.New(rand.NewPCG(1, 2))
	var members []member
	for i := range 37 {
		b := make([]byte, 30_000)
		for k := range b {
			b[k] = byte(rng.Uint32())
		}
		members = append(members, member{fmt.Sprintf("%03d.bin", i), b}, member{fmt.Sprintf("%03d.cls", i), fmt.Append(nil, i%7)})
	}
	plain := formattest.Tar(t, members...)
	uncompressed, err := open(t, put(t, plain), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer uncompressed.Close()
	for name, b := range map[string][]byte{"x.tar.gz": gz(plain, 400_000), "x.tar.zst": zst(plain, 400_000)} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), name)
			if err := os.WriteFile(path, b, 0o644); err != nil {
				t.Fatal(err)
			}
			for again := range 2 {
				s, err := open(t, path, nil)
				if err != nil {
					t.Fatal(err)
				}
				if again > 0 {
					equal(t, uncompressed, s)
				}
				s.Close()
			}
			// A file that was changed is scanned again, also if its modification time was restored.
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			damaged := append([]byte(nil), b...)
			clear(damaged[len(b)/2:][:1000])
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.Write(damaged); err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(path, info.ModTime(), info.ModTime()); err != nil {
				t.Fatal(err)
			}
			if s, err := open(t, path, nil); err == nil {
				s.Close()
				t.Error("a file that was changed is not gone through")
			}
		})
	}
}
