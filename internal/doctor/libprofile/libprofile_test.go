package libprofile

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/proc"
)

func TestName(t *testing.T) {
	site := "/venv/lib/python3.11/site-packages"
	for file, want := range map[string]string{
		"/usr/lib/x86_64-linux-gnu/libz.so.1.2.13":                         "libz",
		"/usr/lib/x86_64-linux-gnu/libhdf5_serial.so.103.3.0":              "libhdf5",
		site + "/h5py.libs/libhdf5-346dfc7a.so.310.5.1":                    "libhdf5",
		site + "/pillow.libs/libjpeg-7a3d1f2b.so.62.4.0 (deleted)":         "libjpeg",
		site + "/PIL/_imaging.cpython-311-x86_64-linux-gnu.so":             "PIL",
		site + "/cv2/cv2.abi3.so":                                          "cv2",
		site + "/lmdb/cpython.cpython-311-x86_64-linux-gnu.so":             "lmdb",
		"/usr/lib/python3.11/lib-dynload/zlib.cpython-311-x86_64.so":       "zlib",
		"/usr/bin/python3.11":                                              Python,
		"/usr/lib/libpython3.12.so.1.0":                                    Python,
		"/usr/lib/x86_64-linux-gnu/libc.so.6":                              C,
		"[vdso]":                                                           C,
		"":                                                                 Made,
		"/opt/train":                                                       "train",
		site + "/torch/lib/libtorch_cpu.so":                                "libtorch_cpu",
		site + "/fast.cpython-311-x86_64-linux-gnu.so":                     "fast",
		site + "/opencv_python_headless.libs/libavcodec-402e4b05.so.59.37": "libavcodec",
	} {
		if got := Name(file); got != want {
			t.Errorf("%s: %s, want %s", file, got, want)
		}
	}
	for library, want := range map[string]string{"libjpeg": "decoding JPEG", "libz-ng": "inflating", "libz": "inflating (gzip, PNG, zip)", "libtorch_cpu": ""} {
		if got := Does(library); got != want {
			t.Errorf("%s does %q, want %q", library, got, want)
		}
	}
}

// ring makes a buffer of 64 bytes in which records begin at an offset.
func ring(at uint64, words ...uint64) []byte {
	b := make([]byte, 64)
	for i, w := range words {
		binary.NativeEndian.PutUint64(b[(at+8*uint64(i))%64:], w)
	}
	return b
}

func header(kind uint32, length uint16) uint64 {
	b := make([]byte, 8)
	binary.NativeEndian.PutUint32(b, kind)
	binary.NativeEndian.PutUint16(b[6:], length)
	return binary.NativeEndian.Uint64(b)
}

func TestRecords(t *testing.T) {
	sample := header(unix.PERF_RECORD_SAMPLE, sampleBytes)
	for _, c := range []struct {
		name       string
		buffer     []byte
		head, tail uint64
		want       []uint64
		after      uint64
	}{
		{"two", ring(0, sample, 7, sample, 8), 32, 0, []uint64{7, 8}, 32},
		{"round the end", ring(56, sample, 9), 72, 56, []uint64{9}, 72},
		{"one of another kind between", ring(0, header(unix.PERF_RECORD_LOST, 24), 1, 2, sample, 5), 40, 0, []uint64{5}, 40},
		{"half of one", ring(0, sample, 7), 12, 0, nil, 12},
		{"no length", ring(0, header(unix.PERF_RECORD_SAMPLE, 0), 7), 16, 0, nil, 16},
		{"more than there is room for", ring(0, sample, 7), 1 << 40, 0, nil, 1 << 40},
		{"a tail behind the head", ring(0, sample, 7), 8, 16, nil, 8},
	} {
		var got []uint64
		after := records(c.buffer, c.head, c.tail, func(a uint64) { got = append(got, a) })
		if !slices.Equal(got, c.want) || after != c.after {
			t.Errorf("%s: %v, tail %d; want %v, %d", c.name, got, after, c.want, c.after)
		}
	}
}

func FuzzRecords(f *testing.F) {
	f.Add(ring(0, header(unix.PERF_RECORD_SAMPLE, sampleBytes), 7), uint64(16), uint64(0))
	f.Fuzz(func(t *testing.T, buffer []byte, head, tail uint64) {
		if len(buffer) == 0 || len(buffer)%8 != 0 {
			return
		}
		if after := records(buffer, head, tail, func(uint64) {}); after > max(head, tail) {
			t.Errorf("tail %d behind head %d", after, head)
		}
	})
}

func TestLibrary(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "7"), 0o755); err != nil {
		t.Fatal(err)
	}
	maps := "2000-3000 r--p 00000000 08:01 5 /usr/lib/libz.so.1\n3000-5000 r-xp 00001000 08:01 5 /usr/lib/libz.so.1\n9000-a000 r-xp 0 00:00 0 \n"
	if err := os.WriteFile(filepath.Join(dir, "7", "maps"), []byte(maps), 0o600); err != nil {
		t.Fatal(err)
	}
	s := New(proc.FS{Proc: dir, Sys: dir})
	defer s.Close()
	for address, want := range map[uint64]string{0x3000: "libz", 0x4fff: "libz", 0x5000: "", 0x2000: "", 0x9800: Made, 0: ""} {
		if got := s.Library(7, address); got != want {
			t.Errorf("%x: %q, want %q", address, got, want)
		}
	}
	if got := s.Library(8, 0x3000); got != "" {
		t.Errorf("of a process that is not there: %q", got)
	}
}

// TestFollow samples this program itself, for as much CPU time as some samples take.
func TestFollow(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s := New(proc.Live)
	defer s.Close()
	tid := unix.Gettid()
	s.Follow(tid)
	s.Follow(tid)
	if err := s.Err(); err != nil {
		t.Skipf("the kernel does not allow it here: %v", err)
	}
	x := uint64(1)
	for end := proc.ThreadCPU() + 200_000_000; proc.ThreadCPU() < end; {
		for range 1 << 16 {
			x = x*6364136223846793005 + 1
		}
	}
	all, own := 0, 0
	s.Take(tid, func(address uint64) {
		all++
		if s.Library(os.Getpid(), address) == filepath.Base(os.Args[0]) {
			own++
		}
	})
	if all == 0 || own < all/2 {
		t.Errorf("%d samples, %d of them in this program (%d)", all, own, x)
	}
	s.Retain(func(int) bool { return false })
	s.Take(tid, func(uint64) { t.Error("a thread that is not followed") })
	s.Follow(1 << 30)
	if s.Err() != nil {
		t.Errorf("a thread that has ended: %v", s.Err())
	}
}
