package ioqueue

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/arena"
)

const page = 4096

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Many concurrent reads, more than the queue holds, return the right data. Reads that cannot be made fail, and
// nothing else does.
func TestQueue(t *testing.T) {
	q := New()
	if q == nil {
		t.Skip("the system has no queues of reads")
	}
	defer q.Close()
	const pages = 200
	want := make([]byte, pages*page)
	for i := range want {
		want[i] = byte(rand.Uint32())
	}
	name := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(name, want, 0o600); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_DIRECT, 0)
	if err != nil {
		t.Skipf("there are no reads past the system's cache here: %v", err)
	}
	defer unix.Close(fd)
	var wg sync.WaitGroup
	var read atomic.Int64
	for i := range 2 * mostQueued {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 0))
			mem := arena.Aligned(30*page, page)
			for range 20 {
				at := rng.IntN(pages)
				n := 1 + rng.IntN(min(28, pages-at))
				cut := rng.IntN(n + 1)
				to := [][]byte{mem[:cut*page], mem[(cut+1)*page : (n+1)*page]}
				got, ok := q.Read(fd, to, int64(at)*page)
				if !ok {
					continue // it was full
				}
				read.Add(1)
				if got != n*page || !bytes.Equal(append(bytes.Clone(to[0]), to[1]...), want[at*page:][:n*page]) {
					t.Errorf("%d bytes of %d pages at %d, or others", got, n, at)
				}
			}
			if _, ok := q.Read(-1, [][]byte{mem}, 0); ok {
				t.Error("a file that is not open is read")
			}
			if n, ok := q.Read(fd, [][]byte{mem}, pages*page); ok && n != 0 {
				t.Errorf("%d bytes after the end", n)
			}
		})
	}
	wg.Wait()
	if read.Load() == 0 {
		t.Error("the queue was never free")
	}
	if len(q.free) != mostQueued || q.submit || len(q.next) > 0 {
		t.Errorf("%d are free, %v, %d", len(q.free), q.submit, len(q.next))
	}
	if _, ok := q.Read(fd, make([][]byte, mostParts+1), 0); ok {
		t.Error("too many parts are taken")
	}
}
