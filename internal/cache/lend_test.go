package cache

import (
	"bytes"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/store/disk"
)

// lentTo reads part of a chunk until it is lent, or does not expect that.
func lentTo(c *Chunks, k disk.Key, off, n int64, expect bool) []byte {
	p, now := make([]byte, n), time.Now()
	for try := range 100 {
		if b := c.Lend(k, off, n, arena.Tail, now); b != nil || !expect && try == 3 {
			return b
		}
		if !c.Read(k, p, off) || !bytes.Equal(p, bytesOf(k)[off:off+n]) {
			return nil
		}
		now = now.Add(time.Second) // answers about residency are cached
		if try > 3 {
			time.Sleep(time.Millisecond) // the system reads by and by
		}
	}
	return nil
}

// Bytes that are read again are lent from the system's cache after StartLending, but only once their checksums were
// compared and while the file is untouched.
func TestLentChunks(t *testing.T) {
	dir, err := At(t.TempDir(), 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	const size = 5*blockBytes + 100
	c := openChunks(t, dir)
	k, gone := chunkOf(8, size), chunkOf(9, size)
	useChunk(c, k, make([]byte, size))
	useChunk(c, gone, make([]byte, size))
	if lentTo(c, k, 0, size, false) != nil {
		t.Error("it is lent, and nobody has asked for that")
	}
	f, err := os.Open(c.file(k))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := arena.MapFile(int(f.Fd()), fileBytes(k))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var fsys unix.Statfs_t
	for at := int64(0); at < fileBytes(k); at += page {
		if unix.Statfs(dir.root, &fsys) == nil && fsys.Type != unix.TMPFS_MAGIC && m.Resident(at, at+1, time.Now()) != nil {
			t.Errorf("the page at %d is in the system's cache", at)
		}
	}
	c.StartLending()
	want := bytesOf(k)
	for _, r := range [][2]int64{{0, size}, {100, 20_000}, {size - 5, 5}} {
		if b := lentTo(c, k, r[0], r[1], true); !bytes.Equal(b, want[r[0]:][:r[1]]) {
			t.Errorf("%d bytes from %d on: %d are lent, or others", r[1], r[0], len(b))
		}
	}
	for _, r := range [][2]int64{{-1, 5}, {0, 0}, {size, 1}, {size - 5, 6}, {0, 1 << 40}, {1 << 62, 1 << 62}} {
		if c.Lend(k, r[0], r[1], 0, time.Now()) != nil {
			t.Errorf("%d bytes from %d on are lent", r[1], r[0])
		}
	}

	// Another process finds all of it in the system's cache, but has verified nothing.
	again := openChunks(t, dir)
	again.StartLending()
	if !again.Read(k, make([]byte, 10), 0) {
		t.Fatal("it is not there")
	}
	later := time.Now().Add(time.Second)
	if !bytes.Equal(again.Lend(k, 0, 10, 0, later), want[:10]) || again.Lend(k, blockBytes-5, 10, 0, later) != nil {
		t.Error("lent is not what was compared")
	}
	if err := os.Chmod(c.file(k), 0o600); err != nil {
		t.Fatal(err)
	}
	if c.Lend(k, 0, 10, 0, later) != nil || again.Lend(k, 0, 10, 0, later) != nil {
		t.Error("it is lent although somebody has touched the file")
	}
	if p := make([]byte, size); !c.Read(k, p, 0) || !bytes.Equal(p, want) {
		t.Error("it is not read any more")
	}

	// A removed chunk is gone also if it was in memory, and it can be cached and lent again.
	if lentTo(c, gone, 0, 5000, true) == nil {
		t.Fatal("it is not lent")
	}
	if err := os.Truncate(c.file(gone), 0); err != nil || os.Remove(c.file(gone)) != nil {
		t.Fatal(err)
	}
	if c.Lend(gone, 0, 10, 0, time.Now()) != nil || c.Read(gone, make([]byte, 10), 0) {
		t.Error("it is still there")
	}
	if got := useChunk(c, gone, make([]byte, size)); got != "kept" {
		t.Errorf("then it is: %s", got)
	}
	if !bytes.Equal(lentTo(c, gone, 0, size, true), bytesOf(gone)) {
		t.Error("it is not lent anew")
	}
	if c.Stats().Damaged > 0 {
		t.Error("it is taken for damaged")
	}
}

// A damaged block is never lent, at any position.
func TestDamagedIsNotLent(t *testing.T) {
	dir, err := At(t.TempDir(), 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	c := openChunks(t, dir)
	const size = 3 * blockBytes
	k := chunkOf(3, size)
	useChunk(c, k, make([]byte, size))
	f, err := os.OpenFile(c.file(k), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte{1, 2, 3}, leadOf(k)+blockBytes+7); err != nil {
		t.Fatal(err)
	}
	c.StartLending()
	if b := lentTo(c, k, 0, size, false); b != nil || c.Stats().Damaged != 1 {
		t.Errorf("%d bytes are lent, %+v", len(b), c.Stats())
	}
}

// The number of files that stay open for lending is limited.
func TestLentFilesAreBounded(t *testing.T) {
	dir, err := At(t.TempDir(), 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	c := openChunks(t, dir)
	c.open.most = 4
	c.StartLending()
	lent := 0
	for round := range 3 {
		lent = 0
		for i := range 8 {
			k := chunkOf(i, 20_000)
			if round == 0 {
				useChunk(c, k, make([]byte, k.Size))
			}
			if b := lentTo(c, k, 0, k.Size, false); b != nil {
				lent++
				if !bytes.Equal(b, bytesOf(k)) {
					t.Errorf("chunk %d differs", i)
				}
			} else if p := make([]byte, k.Size); !c.Read(k, p, 0) || !bytes.Equal(p, bytesOf(k)) {
				t.Errorf("chunk %d is not read", i)
			}
		}
	}
	if lent > 2 || len(c.views) != 2 {
		t.Errorf("%d chunks are lent, %d files stay open", lent, len(c.views))
	}
}
