package cache

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/store/disk"
)

// chunksVariable makes this program cache chunks, see keepChunks.
const chunksVariable = "STOKER_TEST_CHUNKS"

// keepChunks reads chunks 0 to COUNT of SIZE bytes in an order of SEED through the cache DIR within LIMIT. Its argument
// is "DIR LIMIT SEED COUNT SIZE". It prints the outcome for each chunk.
func keepChunks(what string) {
	f := strings.Fields(what)
	var n [4]int64
	for i := range n {
		n[i], _ = strconv.ParseInt(f[i+1], 10, 64)
	}
	limit, seed, count, size := n[0], n[1], n[2], n[3]
	dir, err := At(f[0], limit)
	if err != nil {
		panic(err)
	}
	c, err := OpenChunks(dir, "far", func(why string) { fmt.Println("said", why) })
	if err != nil {
		panic(err)
	}
	p := make([]byte, size)
	for _, i := range rand.New(rand.NewPCG(uint64(seed), 0)).Perm(int(count)) {
		fmt.Println(useChunk(c, chunkOf(i, size), p), i)
	}
	if err := c.Close(); err != nil {
		panic(err)
	}
	fmt.Println("end")
}

// useChunk reads or caches a chunk, and returns which of them it did.
func useChunk(c disk.Shelf, k disk.Key, p []byte) string {
	for {
		if c.Read(k, p, 0) {
			if !bytes.Equal(p, bytesOf(k)) {
				return "wrong"
			}
			return "hit"
		}
		fill, there, err := c.Begin(context.Background(), k, "far/object")
		switch {
		case err != nil:
			panic(err)
		case fill != nil:
			fill.Keep(bytesOf(k))
			return "kept"
		case !there:
			return "full"
		}
	}
}

func chunkOf(i int, size int64) disk.Key {
	return disk.KeyOf(fmt.Sprintf("far/object %d", i%7), "v1", int64(i/7)*up(size, page), size)
}

// bytesOf returns the bytes of a chunk. They are random and repeat after a prime number of bytes, so that no bytes of
// another page or block are the same.
func bytesOf(k disk.Key) []byte {
	b := make([]byte, k.Size)
	rng := rand.NewPCG(k.Object, uint64(k.Off))
	n := min(len(b), 65_521)
	for i := 0; i < n; i += 8 {
		var v [8]byte
		binary.LittleEndian.PutUint64(v[:], rng.Uint64())
		copy(b[i:n], v[:])
	}
	for n < len(b) {
		n += copy(b[n:], b[:n])
	}
	return b
}

func openChunks(t testing.TB, dir *Dir) *Chunks {
	t.Helper()
	c, err := OpenChunks(dir, "far", func(why string) { t.Error(why) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// sizeOfFiles returns the size of a cache as seen from outside, without its management files.
func sizeOfFiles(t testing.TB, dir *Dir) (n int64) {
	t.Helper()
	err := filepath.WalkDir(dir.root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
		info, err := e.Info()
		if err != nil {
			return nil // it has just become another one
		}
		if _, ok := disk.ParseKey(e.Name()); ok {
			n += info.Size()
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Cached bytes equal the written bytes, at any offset in the object and in memory, also for a second Chunks and when
// they are read again.
func TestChunks(t *testing.T) {
	dir, err := At(t.TempDir(), 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	c := openChunks(t, dir)
	n := int64(0)
	for i, size := range []int64{1, 4095, 4096, 4097, blockBytes - 1, blockBytes, blockBytes + 1, bounceBytes, bounceBytes + 5, 3*bounceBytes + 12345, 1 << 20} {
		for _, off := range []int64{0, page, 64, 3*page + 100, page - 1} {
			k := disk.KeyOf(fmt.Sprint("object ", i), "v1", off, size)
			if c.Read(k, make([]byte, 1), 0) || c.Has(k) {
				t.Fatal("there is a chunk that nobody has kept")
			}
			if what := useChunk(c, k, make([]byte, size)); what != "kept" {
				t.Fatalf("%d bytes: %s", size, what)
			}
			n++
			again := openChunks(t, dir)
			readPlaces(t, k, c, again, again)
			// Without reads that bypass the system's cache.
			f, err := again.open.take(k, nil)
			if err != nil {
				t.Fatal(err)
			}
			file, err := os.Open(c.file(k))
			if err != nil {
				t.Fatal(err)
			}
			past := f.f.fd
			f.f.fd, f.f.direct = int(file.Fd()), false
			readPlaces(t, k, again)
			f.f.fd, f.f.direct = past, true
			_ = file.Close()
			again.open.giveBack(f)
		}
	}
	if st := c.Stats(); st.Chunks != n || st.Kept != n || st.Damaged != 0 {
		t.Errorf("%+v", st)
	}
	if got, want := dir.used(false), sizeOfFiles(t, dir); got != want {
		t.Errorf("%d bytes are counted, there are %d", got, want)
	}
	for _, e := range dir.List() {
		if e.Chunks != n || e.Bytes != dir.used(false) || e.Origin != "far" || !e.InUse {
			t.Errorf("%+v", e)
		}
	}
}

// readPlaces reads parts of a chunk into memory with the alignment of the object and with other alignments.
func readPlaces(t *testing.T, k disk.Key, from ...*Chunks) {
	t.Helper()
	want := bytesOf(k)
	size := k.Size
	mem := arena.Aligned(int(up(size, page))+3*page, page)
	fresh := bytes.Repeat([]byte{0xa5}, len(mem))
	for _, of := range from {
		for _, r := range [][2]int64{
			{0, size}, {size - 1, 1}, {size / 2, size - size/2}, {size / 3, size / 3}, {0, min(size, blockBytes)}, {size, 0}, {min(5, size), size - min(5, size)},
		} {
			for _, at := range []int64{page + (k.Off+r[0])%page, page, page + 1} {
				copy(mem, fresh)
				p := mem[at:][:r[1]:r[1]]
				if !of.Read(k, p, r[0]) || !bytes.Equal(p, want[r[0]:r[0]+r[1]]) || mem[at-1] != 0xa5 || mem[at+r[1]] != 0xa5 {
					t.Errorf("%d bytes at %d: those from %d to %d differ, or there are more", size, k.Off, r[0], r[0]+r[1])
				}
			}
		}
	}
}

// Old files without zeros at the beginning can still be read.
func TestChunksOfBefore(t *testing.T) {
	dir, err := At(t.TempDir(), 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	c := openChunks(t, dir)
	for _, size := range []int64{100, page, 100_000} {
		k := disk.KeyOf("old", "v1", 64, size)
		at0 := k // the same chunk at an offset without leading zeros
		at0.Off = 0
		useChunk(c, k, make([]byte, size))
		b := bytesOf(k)
		name := filepath.Join(t.TempDir(), "old")
		f, err := os.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := writeChunk(int(f.Fd()), false, at0, "far/object", b); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		old, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		tail := old[up(size, page):]
		binary.LittleEndian.PutUint64(tail[32:], uint64(k.Off))
		binary.LittleEndian.PutUint64(tail[248:], xxh3.Hash(tail[:248]))
		if err := os.WriteFile(c.file(k), old, 0o600); err != nil {
			t.Fatal(err)
		}
		c.open.forget(k)
		readPlaces(t, k, c, c)
	}
	if c.Stats().Damaged != 0 {
		t.Error("they are taken for damaged ones")
	}
}

// The checksum of a block is compared on its first read, and not again while the file is not touched.
func TestChecksumsAreComparedOnce(t *testing.T) {
	dir, err := At(t.TempDir(), 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	c := openChunks(t, dir)
	const size = 5 * blockBytes
	k := chunkOf(3, size)
	p := make([]byte, size)
	useChunk(c, k, p)
	if !c.Read(k, p[:10], 2*blockBytes-5) { // of the second and the third block
		t.Fatal("it is not there")
	}
	f, err := c.open.take(k, nil)
	if err != nil {
		t.Fatal(err)
	}
	f.f.sums[2] ^= 1
	f.f.sums[4] ^= 1
	c.open.giveBack(f)
	want := bytesOf(k)
	if !c.Read(k, p[:blockBytes], 2*blockBytes-100) || !bytes.Equal(p[:blockBytes], want[2*blockBytes-100:][:blockBytes]) {
		t.Error("a block is compared again")
	}
	if !c.Read(k, p[:10], 3*blockBytes) {
		t.Error("it is not there")
	}
	if f.f.read(p[:2*blockBytes], 3*blockBytes) != errChunk {
		t.Error("a block is not compared")
	}
	// After the file was touched, each read compares.
	if err := os.Chmod(c.file(k), 0o600); err != nil {
		t.Fatal(err)
	}
	if f.f.read(p[:10], 2*blockBytes) != errChunk {
		t.Error("the file has changed, and a block of it is not compared again")
	}
}

// A chunk that is damaged anywhere is never returned, and is cached again.
func TestDamagedChunks(t *testing.T) {
	dir, err := At(t.TempDir(), 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	c := openChunks(t, dir)
	const size = 100_000
	k := chunkOf(3, size)
	p := make([]byte, size)
	useChunk(c, k, p)
	whole, err := os.ReadFile(c.file(k))
	if err != nil {
		t.Fatal(err)
	}
	damage := map[string]func(b []byte) []byte{
		"cut short":     func(b []byte) []byte { return b[:len(b)-1] },
		"empty":         func([]byte) []byte { return nil },
		"longer":        func(b []byte) []byte { return append(b, 0) },
		"no page":       func(b []byte) []byte { return b[:page] },
		"all zero":      func(b []byte) []byte { clear(b); return b },
		"another chunk": func(b []byte) []byte { b[up(size, page)+8]++; return b },
	}
	for at := 0; at < size; at += 7001 {
		damage[fmt.Sprint("byte ", at)] = func(b []byte) []byte { b[at] ^= 1; return b }
	}
	for _, at := range []int{0, 4, 40, 48, 64, 248, 256, 256 + 8*6} {
		damage[fmt.Sprint("head ", at)] = func(b []byte) []byte { b[up(size, page)+int64(at)] ^= 1; return b }
	}
	n := int64(0)
	for name, f := range damage {
		for _, reopened := range []bool{false, true} {
			if err := os.WriteFile(c.file(k), f(slices.Clone(whole)), 0o600); err != nil {
				t.Fatal(err)
			}
			if reopened {
				c.open.forget(k)
			}
			// An open file has already read its checksums, so it does not notice that they are damaged.
			if what := useChunk(c, k, p); what != "kept" && (reopened || !strings.HasPrefix(name, "head") && name != "longer" && name != "another chunk") {
				t.Errorf("%s, opened again %v: %s", name, reopened, what)
			}
			n++
			if err := os.WriteFile(c.file(k), whole, 0o600); err != nil {
				t.Fatal(err)
			}
			_ = dir.setUsed(0, true) // the file was changed by the test
		}
	}
	if what := useChunk(c, k, p); what != "hit" {
		t.Errorf("%s", what)
	}
	if c.Stats().Damaged == 0 {
		t.Error("nothing was said to be damaged")
	}
	// Verify finds it without being asked for it.
	whole[5] ^= 1
	if err := os.WriteFile(c.file(k), whole, 0o600); err != nil {
		t.Fatal(err)
	}
	var bad []Damage
	_, chunks, _, err := dir.Verify(t.Context(), c.id, func(d Damage) { bad = append(bad, d) })
	if err != nil || chunks != 1 || len(bad) != 1 || !bad[0].Chunk || !strings.HasPrefix(bad[0].Record, "far/object, bytes ") {
		t.Errorf("%d chunks, %+v, %v", chunks, bad, err)
	}
	if c.Has(k) {
		t.Error("it is still there")
	}
}

// Several processes cache the same chunks concurrently. The limit is never exceeded, one process reads each chunk, and
// all processes see it.
func TestChunksOfManyProcesses(t *testing.T) {
	for _, limit := range []int64{1 << 30, 8 << 20} {
		root := t.TempDir()
		dir, err := At(root, limit)
		if err != nil {
			t.Fatal(err)
		}
		const count, size = 60, 300_000
		var wg sync.WaitGroup
		said := make([]map[string][]string, 3)
		for i := range said {
			said[i] = map[string][]string{}
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %d %d %d", chunksVariable, root, limit, i, count, size))
			cmd.Stderr = os.Stderr
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			wg.Go(func() {
				for in := bufio.NewScanner(out); in.Scan(); {
					what, n, _ := strings.Cut(in.Text(), " ")
					said[i][what] = append(said[i][what], n)
					if got := sizeOfFiles(t, dir); got > limit {
						t.Errorf("there are %d bytes, the limit is %d", got, limit)
					}
				}
				if err := cmd.Wait(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		kept := map[string]bool{}
		for i := range said {
			if len(said[i]["end"]) != 1 || len(said[i]["wrong"])+len(said[i]["said"]) > 0 {
				t.Fatalf("%v", said[i])
			}
			for _, n := range said[i]["kept"] {
				if kept[n] {
					t.Errorf("chunk %s was read twice", n)
				}
				kept[n] = true
			}
		}
		if room := min(int(limit/fileSize(size)), count); len(kept) != room {
			t.Errorf("%d chunks are kept, there is room for %d", len(kept), room)
		}
		if got, want := dir.used(false), sizeOfFiles(t, dir); got != want {
			t.Errorf("%d bytes are counted, there are %d", got, want)
		}
	}
}

// A process is killed repeatedly while it caches chunks. The limit is never exceeded. The next process uses complete
// chunks and caches damaged ones again. Nothing stays in the system's cache.
func TestKilledWhileFilling(t *testing.T) {
	const count, size = 200, 512 << 10
	kills := 100
	if testing.Short() {
		kills = 50
	}
	limit := 150 * fileSize(size)
	root := t.TempDir()
	dir, err := At(root, limit)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(5, 6))
	valid, again, inMemory := 0, 0, int64(0)
	broken := map[string]bool{} // damaged chunks that were not cached again yet
	for kill := range kills {
		whole := map[string]bool{} // the numbers of the chunks that are whole
		damage := kill%10 == 9
		for i := range count {
			k := chunkOf(i, size)
			name := k.String()
			path := filepath.Join(root, below, ID("far"), chunksName, folderOf(name), name)
			if damage && i > rng.IntN(count) {
				if f, err := os.OpenFile(path, os.O_RDWR, 0); err == nil {
					if _, err := f.WriteAt([]byte{1, 2, 3}, rng.Int64N(size-3)); err != nil {
						t.Fatal(err)
					}
					_ = f.Sync()
					_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
					_ = f.Close()
					broken[strconv.Itoa(i)] = true
					damage = false
				}
			}
			// Reading all of them each time would take too long.
			if info, err := os.Stat(path); err == nil && info.Size() == fileSize(size) && !broken[strconv.Itoa(i)] {
				whole[strconv.Itoa(i)] = true
			}
		}
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %d %d %d", chunksVariable, root, limit, kill, count, size))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines, stop := 0, 1+rng.IntN(6)
		for in := bufio.NewScanner(out); in.Scan(); {
			what, n, _ := strings.Cut(in.Text(), " ")
			if what == "end" {
				break
			}
			if whole[n] {
				valid++
				if what == "hit" {
					again++
				}
			}
			if broken[n] && what != "kept" && what != "full" {
				t.Errorf("chunk %s was damaged, and then: %s", n, what)
			}
			delete(broken, n)
			if what == "wrong" || what == "said" {
				t.Fatal(in.Text())
			}
			if what != "hit" {
				lines++
			}
			if lines == stop {
				_ = cmd.Process.Kill() // while it runs
				stop = -1
			}
		}
		_ = cmd.Wait()
		if got := sizeOfFiles(t, dir); got > limit {
			t.Fatalf("after %d kills there are %d bytes, the limit is %d", kill+1, got, limit)
		}
	}
	if valid < kills*kills/25 || again*100 < valid*99 {
		t.Errorf("of %d chunks that were whole %d were used again", valid, again)
	}
	_, chunks, _, err := dir.Verify(t.Context(), ID("far"), func(d Damage) { t.Logf("%v", d) })
	if err != nil || chunks < 140 {
		t.Errorf("%d chunks are left, %v", chunks, err)
	}
	// Files that were left behind do not take space forever.
	c := openChunks(t, dir)
	for i := range count {
		useChunk(c, chunkOf(i, size), make([]byte, size))
	}
	if got := c.Stats().Chunks; got != 150 {
		t.Errorf("%d chunks, and there is room for 150", got)
	}
	if got, want := dir.used(false), sizeOfFiles(t, dir); got != want {
		t.Errorf("%d bytes are counted, there are %d", got, want)
	}
	eachChunk(c.path, func(path string, _ disk.Key, _ int64) { inMemory += cachedBytes(t, path) })
	var fsys unix.Statfs_t
	if err := unix.Statfs(root, &fsys); err == nil && fsys.Type != unix.TMPFS_MAGIC && inMemory > 64<<20 {
		t.Errorf("%d bytes of the chunks are in the system's cache", inMemory)
	}
	t.Logf("%d of %d chunks used again, %d KiB in the system's cache", again, valid, inMemory>>10)
}

// cachedBytes returns how many bytes of a file are in the system's cache.
func cachedBytes(t *testing.T, path string) int64 {
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	n := int64(0)
	b := make([]byte, 1)
	for off := int64(0); off < info.Size(); off += page {
		if got, err := unix.Preadv2(int(f.Fd()), [][]byte{b}, off, unix.RWF_NOWAIT); err == nil && got == 1 {
			n += page
		} else if err != nil && err != unix.EAGAIN {
			t.Skipf("cannot see what is in the system's cache: %v", err)
		}
	}
	return n
}

// A claim that is given up does not block other processes, and its space is released.
func TestChunksGivenUp(t *testing.T) {
	dir, err := At(t.TempDir(), 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	a, b := openChunks(t, dir), openChunks(t, dir)
	k := chunkOf(1, 50_000)
	fill, _, err := a.Begin(t.Context(), k, "x")
	if err != nil || fill == nil {
		t.Fatal(err)
	}
	for _, c := range []*Chunks{a, b} { // the same process, and another one
		why := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(why)
		if _, _, err := c.Begin(ctx, k, "x"); !errors.Is(err, why) {
			t.Errorf("%v", err)
		}
	}
	var wg sync.WaitGroup
	for range 4 {
		for _, c := range []*Chunks{a, b} {
			wg.Go(func() {
				if what := useChunk(c, k, make([]byte, 50_000)); what == "full" {
					t.Error(what)
				}
			})
		}
	}
	fill.Drop()
	wg.Wait()
	if st := a.Stats(); st.Chunks != 1 || a.kept.Load()+b.kept.Load() != 1 {
		t.Errorf("%+v", st)
	}
	if dir.used(false) != fileSize(50_000) {
		t.Errorf("%d bytes are counted", dir.used(false))
	}
}

// Chunks of other versions are removed. Data that no job uses is removed if space is needed, but not data in use.
func TestChunksMakeRoom(t *testing.T) {
	const size = 100_000
	dir, err := At(t.TempDir(), 10*fileSize(size))
	if err != nil {
		t.Fatal(err)
	}
	c := openChunks(t, dir)
	p := make([]byte, size)
	old, now := disk.KeyOf("x", "1", 0, size), disk.KeyOf("x", "2", 0, size)
	for _, k := range []disk.Key{old, now, disk.KeyOf("y", "1", 0, size)} {
		useChunk(c, k, p)
	}
	if err := c.Forget(map[uint64][16]byte{now.Object: now.Version}); err != nil {
		t.Fatal(err)
	}
	if c.Has(old) || !c.Has(now) || c.Stats().Chunks != 2 || dir.used(false) != 2*fileSize(size) {
		t.Errorf("%+v", c.Stats())
	}
	other, err := OpenChunks(dir, "other", func(why string) { t.Error(why) })
	if err != nil {
		t.Fatal(err)
	}
	for i := range 8 {
		useChunk(other, chunkOf(i, size), p)
	}
	if what := useChunk(c, chunkOf(20, size), p); what != "full" {
		t.Errorf("%s, and all of it is in use", what)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	c.until.Store(0) // as if time had passed
	if what := useChunk(c, chunkOf(20, size), p); what != "kept" || dir.used(false) != 3*fileSize(size) {
		t.Errorf("%s, %d bytes", what, dir.used(false))
	}
	if err := dir.Remove(c.id); !errors.Is(err, ErrInUse) {
		t.Errorf("%v", err)
	}
}

// Names of files that are none of ours are left alone.
func FuzzChunkName(f *testing.F) {
	f.Add(chunkOf(3, 4096).String())
	f.Add("0-0-0-0")
	f.Add("")
	f.Fuzz(func(t *testing.T, name string) {
		if k, ok := disk.ParseKey(name); ok && (k.String() != name || k.Size < 0 || k.Off < 0) {
			t.Errorf("%q is taken for %+v", name, k)
		}
	})
}

// Reading a chunk file with any content returns the right bytes or an error.
func FuzzChunkFile(f *testing.F) {
	dir, err := At(f.TempDir(), 1<<30)
	if err != nil {
		f.Fatal(err)
	}
	c := openChunks(f, dir)
	k := chunkOf(1, 20_000)
	p := make([]byte, k.Size)
	useChunk(c, k, p)
	whole, err := os.ReadFile(c.file(k))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole, 0, byte(0))
	f.Add(whole[up(k.Size, page):], 3, byte(1))
	name := filepath.Join(f.TempDir(), "x")
	f.Fuzz(func(t *testing.T, b []byte, at int, flip byte) {
		if at >= 0 && at < len(b) {
			b[at] ^= flip
		}
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := openChunk(name, k)
		if err != nil {
			return
		}
		defer unix.Close(file.fd)
		for range 2 { // the second time without checksums
			clear(p)
			if file.read(p, 0) == nil && !bytes.Equal(p, bytesOf(k)) {
				t.Error("other bytes are given")
			}
		}
	})
}
