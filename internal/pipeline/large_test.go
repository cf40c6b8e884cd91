package pipeline

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"image"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/source/sourcetest"
	"github.com/stokerdata/stoker/source/driver"
)

const bomb = 96 << 20

// withBomb calls add for 12 images; the one in the middle has bomb bytes, all zeros.
func withBomb(t *testing.T, add func(name string, size int64) (io.Writer, error)) {
	t.Helper()
	var small bytes.Buffer
	if err := png.Encode(&small, image.NewRGBA(image.Rect(0, 0, 20, 20))); err != nil {
		t.Fatal(err)
	}
	zeros := make([]byte, 1<<20)
	for i := range 12 {
		size := int64(small.Len())
		if i == 5 {
			size = bomb
		}
		w, err := add(fmt.Sprintf("%02d.png", i), size)
		if err == nil && i != 5 {
			_, err = w.Write(small.Bytes())
		}
		for n := 0; err == nil && i == 5 && n < bomb; n += len(zeros) {
			_, err = w.Write(zeros)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func bombZip(t *testing.T, out io.Writer) {
	w := zip.NewWriter(out)
	w.RegisterCompressor(zip.Deflate, func(to io.Writer) (io.WriteCloser, error) { return flate.NewWriter(to, flate.BestSpeed) })
	withBomb(t, func(name string, _ int64) (io.Writer, error) { return w.Create(name) })
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

func bombTar(t *testing.T, out io.Writer) {
	w := tar.NewWriter(out)
	withBomb(t, func(name string, size int64) (io.Writer, error) {
		return w, w.WriteHeader(&tar.Header{Name: name, Size: size, Mode: 0o600})
	})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// A value that is too large for the memory is a bad record. The others are read.
func TestOneValueIsTooLarge(t *testing.T) {
	for name, write := range map[string]func(t *testing.T, path string){
		"x.zip": func(t *testing.T, path string) { toFile(t, path, bombZip) },
		"x.tar": func(t *testing.T, path string) { toFile(t, path, bombTar) },
		"x.tar.gz": func(t *testing.T, path string) {
			toFile(t, path, func(t *testing.T, out io.Writer) {
				w, _ := gzip.NewWriterLevel(out, gzip.BestSpeed)
				bombTar(t, w)
				if err := w.Close(); err != nil {
					t.Fatal(err)
				}
			})
		},
		"folder": func(t *testing.T, path string) {
			if err := os.MkdirAll(path, 0o700); err != nil {
				t.Fatal(err)
			}
			withBomb(t, func(name string, size int64) (io.Writer, error) {
				f, err := os.Create(filepath.Join(path, name))
				if err != nil {
					return nil, err
				}
				t.Cleanup(func() { _ = f.Close() })
				if size == bomb {
					return io.Discard, f.Truncate(size)
				}
				return f, nil
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), name)
			write(t, path)
			cfg := Config{Source: path, BatchSize: 4, Threads: 2, Memory: 64 << 20, Outputs: imageOps(opRRC)}
			p := mustOpen(t, cfg)
			p.Start(item.Position{})
			take(t, p)
			_, err := p.Next(testContext(t))
			var bad *RecordError
			if !errors.As(err, &bad) || bad.ID != 5 || !strings.Contains(bad.Name, "05.png") || !strings.Contains(bad.Reason, "its 96 MiB do not fit") {
				t.Fatalf("error is %v", err)
			}
			if peak := p.Stats().MemoryPeak; peak > 64<<20 {
				t.Errorf("%d bytes were taken", peak)
			}
			cfg.OnError = OnErrorSkip
			batches, _ := epochs(t, started(t, cfg), 1)
			if idx := indexes(batches); !slices.Equal(idx, []int64{0, 1, 2, 3, 4, 6, 6, 7, 8, 9, 10, 11}) {
				t.Errorf("records %v", idx)
			}
			enough := regexp.MustCompile(`memory="(\d+)MiB" or more`).FindStringSubmatch(bad.Reason)
			if enough == nil {
				t.Fatalf("no hint: %s", bad.Reason)
			}
			mib, _ := strconv.ParseInt(enough[1], 10, 64)
			cfg.OnError, cfg.Memory = "", mib<<20
			p = started(t, cfg)
			take(t, p)
			if _, err = p.Next(testContext(t)); err == nil || strings.Contains(err.Error(), "do not fit") {
				t.Errorf("with %d MiB: %v", mib, err) // zeros are no image
			}
		})
	}
}

func toFile(t *testing.T, path string, write func(t *testing.T, out io.Writer)) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	write(t, f)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func started(t *testing.T, cfg Config) *Pipeline {
	t.Helper()
	p := mustOpen(t, cfg)
	p.Start(item.Position{})
	return p
}

// sizedImages is a source that reports a given size limit for its images.
type sizedImages struct {
	driver.Source
	bytes int64
}

func (s sizedImages) Info() *driver.Info {
	info := *s.Source.Info()
	info.Fields = slices.Clone(info.Fields)
	f := &info.Fields[0]
	f.MaxBytes, f.Width, f.Height = s.bytes, 0, 0
	return &info
}

func (s sizedImages) Sizes(_ int, ids, sizes []int64) bool {
	for i := range ids {
		sizes[i] = s.bytes
	}
	return true
}

// If most values are too large for the memory, opening the source reports that.
func TestAllValuesAreTooLarge(t *testing.T) {
	src := sizedImages{sourcetest.Raw(8, 16, 16, 3, 5), bomb}
	p, err := Open(context.Background(), Config{OpenSource: use(src), BatchSize: 4, Threads: 2, Memory: 64 << 20, OnError: OnErrorSkip, Outputs: imageOps(opRRC)})
	if err == nil {
		_ = p.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "the memory budget is 64 MiB, which is not enough") {
		t.Errorf("error is %v", err)
	}
}
