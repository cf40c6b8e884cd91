package stoker_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stokerdata/stoker"
	"github.com/stokerdata/stoker/internal/video/videotest"
	"github.com/stokerdata/stoker/source/drivertest"
)

// niftiFile returns a volume of 4 x 4 x 4 bytes.
func niftiFile() []byte {
	b := make([]byte, 352+64)
	le := binary.LittleEndian
	le.PutUint32(b, 348)
	for i, n := range []uint16{3, 4, 4, 4, 1, 1, 1, 1} {
		le.PutUint16(b[40+2*i:], n)
	}
	le.PutUint16(b[70:], 2)
	le.PutUint32(b[108:], math.Float32bits(352))
	copy(b[344:], "n+1\x00")
	return b
}

// A file that cannot be listed, opened or parsed is a bad record in each format: a loader fails and names the file,
// or replaces the record.
func TestBadFiles(t *testing.T) {
	image := []stoker.Output{{Name: "image", Ops: []stoker.Op{stoker.CenterCrop(8)}}}
	for name, c := range map[string]struct {
		make func(t *testing.T, dir string)
		url  string // after the folder
		bad  string
		opt  stoker.Options
	}{
		"images": {func(t *testing.T, dir string) {
			if err := writeImages(dir, 6); err != nil {
				t.Fatal(err)
			}
		}, "", "dark/x.jpg", stoker.Options{Outputs: image}},
		"video": {func(t *testing.T, dir string) {
			videotest.Write(t, filepath.Join(dir, "a/1.avi"), 12, 0)
			videotest.Write(t, filepath.Join(dir, "b/1.avi"), 12, 0)
		}, "?frames=4", "a/x.mkv", stoker.Options{Outputs: []stoker.Output{{Name: "frames", Ops: []stoker.Op{stoker.CenterCrop(8)}}}}},
		"frames": {func(t *testing.T, dir string) {
			videotest.Write(t, filepath.Join(dir, "a/1.avi"), 12, 0)
			videotest.Write(t, filepath.Join(dir, "b/1.avi"), 12, 0)
		}, "?as=images", "b/x.mp4", stoker.Options{Outputs: image}},
		"volumes": {func(t *testing.T, dir string) {
			drivertest.Put(t, dir, "a.nii", niftiFile())
			drivertest.Put(t, dir, "b.nii", niftiFile())
		}, "", "0.nii", stoker.Options{}},
		"patches": {func(t *testing.T, dir string) {
			drivertest.Put(t, dir, "a.nii", niftiFile())
			drivertest.Put(t, dir, "b.nii", niftiFile())
		}, "?patch=2", "0.nii", stoker.Options{}},
		"pairs of volumes": {func(t *testing.T, dir string) {
			for _, name := range []string{"x/a", "x/b", "x/c", "y/a", "y/b"} {
				drivertest.Put(t, dir, name+".nii", niftiFile())
			}
		}, "?image=x/*.nii&label=y/*.nii", "y/c.nii", stoker.Options{}},
	} {
		kinds := map[string]func(p string) error{
			"dangling": func(p string) error { return os.Symlink("nowhere", p) },
			"random":   func(p string) error { return os.WriteFile(p, []byte("not media at all"), 0o644) },
			"empty":    func(p string) error { return os.WriteFile(p, nil, 0o644) },
		}
		for kind, damage := range kinds {
			t.Run(name+"/"+kind, func(t *testing.T) {
				dir := t.TempDir()
				c.make(t, dir)
				bad := filepath.Join(dir, c.bad)
				if err := damage(bad); err != nil {
					t.Fatal(err)
				}
				opt := c.opt
				opt.BatchSize, opt.Limits.Memory = 1, 128<<20
				url := dir + c.url
				if strings.Contains(url, "&") {
					url = "pairs:" + url
				}
				for _, skip := range []bool{false, true} {
					opt.OnError.Skip = skip
					l, err := stoker.Open(t.Context(), url, &opt)
					if err != nil {
						t.Fatal(err)
					}
					batches, failed := 0, error(nil)
					for failed == nil {
						b, err := l.Next(context.Background())
						if err == io.EOF {
							break
						}
						if failed = err; err == nil {
							batches++
							b.Release()
						}
					}
					var re *stoker.RecordError
					n, first := l.Skipped()
					switch {
					case !skip && (!errors.As(failed, &re) || !strings.Contains(failed.Error(), bad)):
						t.Errorf("raised %v", failed)
					case skip && (failed != nil || int64(batches) != l.Records()):
						t.Errorf("%d of %d records, %v", batches, l.Records(), failed)
					case skip && (n != 1 || !strings.Contains(first[0].Error(), bad)):
						t.Errorf("%d skipped: %v", n, first)
					}
					if err := l.Close(); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
}
