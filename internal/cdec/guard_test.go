package cdec

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/item"
)

// mapped maps a file of n bytes and then truncates it after the first page.
func mapped(t *testing.T, n int) []byte {
	name := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(name, make([]byte, n), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mem, err := unix.Mmap(int(f.Fd()), 0, n, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(mem) })
	if err := f.Truncate(4096); err != nil {
		t.Fatal(err)
	}
	return mem
}

// If a page of a mapped file is gone, only the call that reads it fails.
func TestPagesThatAreGone(t *testing.T) {
	mem := mapped(t, 1<<20)
	dst := make([]byte, 1<<20)
	for range 3 {
		for _, read := range []func(){
			func() { _, _, _ = Inflate(dst, mem[4096:]) },
			func() { Unshuffle(dst, mem, 4) },
			func() { CopyCRC32C(dst, mem, 0) },
			func() {
				v := Voxels{DType: item.U8, Src: mem, Channels: 1, Plane: 1 << 20, Size: [3]int{1, 1, 1 << 20}, Hi: [3]int{1, 1, 1 << 20}, Step: [3]int{0, 0, 1}}
				v.Floats(make([]float32, 1<<20))
			},
		} {
			func() {
				defer func() {
					if err, ok := recover().(error); !ok || !errors.Is(err, ErrUnreadable) {
						t.Errorf("read: %v", err)
					}
				}()
				read()
			}()
		}
		for _, gather := range []func([]byte, [][]byte, int){Gather, GatherNear} {
			func() {
				defer func() {
					if err, ok := recover().(error); !ok || !errors.Is(err, ErrUnreadable) {
						t.Errorf("gather: %v", err)
					}
				}()
				gather(dst, [][]byte{mem[:1<<19], mem[1<<19:]}, 1<<19)
			}()
		}
		d, err := NewDecoder()
		if err != nil {
			t.Fatal(err)
		}
		jpeg, err := EncodeJPEG(noisy(rand.New(rand.NewPCG(1, 1)), 64*48*3), 64, 48, 3, EncodeOptions{HSamp: 2, VSamp: 2})
		if err != nil {
			t.Fatal(err)
		}
		jpeg = append(jpeg, make([]byte, 64)...)[:len(jpeg)] // decoders read past the end
		jobs := []Job{rawJob(mem[:256*256*3], dst), rawJob(make([]byte, 256*256*3), dst), jpegJob(jpeg, dst)}
		d.Run(jobs)
		if !errors.Is(jobs[0].Err, ErrUnreadable) || jobs[1].Err != nil || jobs[2].Err != nil {
			t.Errorf("jobs: %v, %v, %v", jobs[0].Err, jobs[1].Err, jobs[2].Err)
		}
		// A JPEG whose end is missing, and then a good one with the same decoder.
		copy(dst, jpeg)
		gone := mapped(t, 1<<20)
		jobs = []Job{jpegJob(gone, dst), jpegJob(jpeg, dst)}
		d.Run(jobs)
		if jobs[0].Err == nil || jobs[1].Err != nil {
			t.Errorf("jobs: %v, %v", jobs[0].Err, jobs[1].Err)
		}
		d.Close()
	}
	// Faults in Go code are handled by Go's runtime, as before.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() == nil {
			t.Error("Go code read a page that is not there")
		}
	}()
	dst[0] = mem[1<<19]
}

func rawJob(src, dst []byte) Job {
	return Job{Format: FormatRGB, Src: src, Width: 256, Height: 256, Store: item.Store{DType: item.U8, Layout: item.NHWC, Channels: 3}, Dst: dst[:64*64*3],
		Geom: item.Geometry{Box: item.Rect{W: 256, H: 256}, ResizeW: 64, ResizeH: 64, Window: item.Rect{W: 64, H: 64}, Filter: item.Bilinear}}
}

func jpegJob(src, dst []byte) Job {
	j := rawJob(src, dst)
	j.Format = FormatJPEG
	j.Geom.Box = item.Rect{W: 64, H: 48}
	return j
}
