package arena

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestBudget(t *testing.T) {
	b := NewBudget(100)
	if err := b.Reserve(PurposeRing, 60); err != nil {
		t.Fatal(err)
	}
	if err := b.Reserve(PurposeRead, 41); !errors.Is(err, ErrBudget) {
		t.Fatalf("error is %v", err)
	}
	if err := b.Reserve(PurposeRead, 40); err != nil {
		t.Fatal(err)
	}
	b.Return(PurposeRing, 60)
	if b.Used() != 40 || b.UsedFor(PurposeRead) != 40 || b.UsedFor(PurposeRing) != 0 || b.Peak() != 100 {
		t.Fatalf("used %d, read %d, ring %d, peak %d", b.Used(), b.UsedFor(PurposeRead), b.UsedFor(PurposeRing), b.Peak())
	}
	if b.Reserve(PurposeRead, -1) == nil {
		t.Fatal("a negative reservation was accepted")
	}
}

func TestRing(t *testing.T) {
	budget := NewBudget(8 << 20)
	r, err := NewRing(budget, 3, HugePage/2+1)
	if err != nil {
		t.Fatal(err)
	}
	if r.SlotStride() != HugePage || r.Bytes() != 3*HugePage || budget.UsedFor(PurposeRing) != 3*HugePage {
		t.Fatalf("stride %d, %d bytes, %d accounted", r.SlotStride(), r.Bytes(), budget.Used())
	}
	r.Prefault(1, 100, 5000)
	r.Prefault(2, -5, 1<<40)
	for k := range 3 {
		s := r.Slot(k)
		if len(s) != HugePage || cap(s) != HugePage {
			t.Fatalf("slot of %d bytes", len(s))
		}
		s[0], s[HugePage-1] = byte(k+1), byte(k+11)
	}
	// A trainer that maps the descriptor sees the same bytes, and the size cannot be changed.
	m, err := unix.Mmap(r.Fd(), 0, int(r.Bytes()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	if m[HugePage] != 2 || m[2*HugePage-1] != 12 {
		t.Fatal("another mapping sees other bytes")
	}
	if err := unix.Ftruncate(r.Fd(), 4096); err == nil {
		t.Fatal("the ring could be shrunk")
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if m[0] != 1 {
		t.Fatal("the trainer's mapping went with the ring")
	}
	if err := unix.Munmap(m); err != nil {
		t.Fatal(err)
	}
	if budget.Used() != 0 {
		t.Fatalf("%d bytes are still accounted", budget.Used())
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := NewRing(budget, 5, HugePage); !errors.Is(err, ErrBudget) {
		t.Fatalf("error is %v", err)
	}
	for _, bad := range [][2]int64{{0, 1}, {1, 0}, {1, 1 << 41}} {
		if _, err := NewRing(budget, int(bad[0]), bad[1]); err == nil {
			t.Fatalf("a ring of %d slots of %d bytes was made", bad[0], bad[1])
		}
	}
}

func TestBump(t *testing.T) {
	budget := NewBudget(2 << 20)
	b := NewBump(budget, PurposeRead)
	fill := func(sizes ...int) {
		t.Helper()
		var all [][]byte
		for i, n := range sizes {
			p, err := b.Alloc(n)
			if err != nil {
				t.Fatal(err)
			}
			if len(p) != n {
				t.Fatalf("%d bytes instead of %d", len(p), n)
			}
			for k := range p {
				p[k] = byte(i)
			}
			all = append(all, p)
		}
		for i, p := range all {
			for k := range p {
				if p[k] != byte(i) {
					t.Fatalf("piece %d was overwritten", i)
				}
			}
		}
	}
	fill(0, 1, 63, 64, 65, 1000, 300<<10, 200<<10)
	held := b.Cap()
	b.Reset()
	fill(300<<10, 200<<10, 1000)
	if b.Cap() > 2*held {
		t.Fatalf("%d bytes are held after a second use, %d before", b.Cap(), held)
	}
	b.Reset()
	if _, err := b.Alloc(3 << 20); !errors.Is(err, ErrBudget) || !b.Failed() {
		t.Fatalf("error is %v", err)
	}
	if _, err := b.Alloc(-1); err == nil {
		t.Fatal("a negative size was accepted")
	}
	b.Reset()
	if b.Failed() {
		t.Fatal("still failed after Reset")
	}
	b.Release()
	if budget.Used() != 0 {
		t.Fatalf("%d bytes are still accounted", budget.Used())
	}
	// Steady use allocates nothing.
	fill(1000, 400<<10)
	b.Reset()
	if n := testing.AllocsPerRun(100, func() {
		_, _ = b.Alloc(1000)
		_, _ = b.Alloc(400 << 10)
		b.Reset()
	}); n != 0 {
		t.Fatalf("%v allocations per use", n)
	}
	b.Release()
}

// After many small uses a buffer releases the memory of one large use.
func TestBumpShrinks(t *testing.T) {
	b := NewBump(NewBudget(64<<20), PurposeRead)
	if _, err := b.Alloc(32 << 20); err != nil {
		t.Fatal(err)
	}
	b.Reset()
	for range 40 {
		if _, err := b.Alloc(1000); err != nil {
			t.Fatal(err)
		}
		b.Reset()
	}
	if _, err := b.Alloc(1000); err != nil {
		t.Fatal(err)
	}
	if b.Cap() > 1<<20 {
		t.Fatalf("still holds %d bytes", b.Cap())
	}
	b.Release()
}

func TestBlock(t *testing.T) {
	budget := NewBudget(1 << 20)
	b := NewBlock(budget, PurposeScratch)
	p, err := b.Bytes(1000)
	if err != nil || len(p) != 1000 {
		t.Fatal(err)
	}
	p[0] = 7
	if q, _ := b.Bytes(10); q[0] != 7 {
		t.Fatal("the block moved without need")
	}
	if _, err := b.Bytes(2 << 20); !errors.Is(err, ErrBudget) {
		t.Fatalf("error is %v", err)
	}
	// A request that fits exactly must not fail because of the reserve for growing.
	if _, err := b.Bytes(1<<20 - 4096); err != nil {
		t.Fatal(err)
	}
	b.Free()
	b.Free()
	if budget.Used() != 0 {
		t.Fatalf("%d bytes are still accounted", budget.Used())
	}
}

func TestMapping(t *testing.T) {
	name := t.TempDir() + "/f"
	data := make([]byte, 3<<20+100)
	for i := range data {
		data[i] = byte(i * 7)
	}
	if err := os.WriteFile(name, data, 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := MapFile(int(f.Fd()), int64(len(data))+1); err == nil {
		t.Fatal("more than the file was mapped")
	}
	m, err := MapFile(int(f.Fd()), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2]int64{{0, 10}, {1<<20 - 5, 2<<20 + 5}, {3 << 20, 3<<20 + 100}} {
		if got := m.Resident(c[0], c[1], time.Now()); string(got) != string(data[c[0]:c[1]]) {
			t.Fatalf("bytes %d to %d: %d bytes", c[0], c[1], len(got))
		}
	}
	for _, c := range [][2]int64{{-1, 5}, {5, 5}, {0, 4 << 20}} {
		if m.Resident(c[0], c[1], time.Now()) != nil {
			t.Fatalf("bytes %d to %d were given out", c[0], c[1])
		}
	}
	if !m.glance(5, 9) || !m.glance(1<<20+5000, 2<<20) || !m.glance(3<<20, 3<<20+100) {
		t.Error("what was just read is not in memory")
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Madvise(m.mem, unix.MADV_DONTNEED); err != nil { // pages that are mapped stay
		t.Fatal(err)
	}
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
	// Not all file systems drop pages. A page that was dropped is not returned.
	if later := time.Now().Add(time.Hour); !m.glance(5000, 50_000) && m.Resident(5000, 50_000, later) != nil {
		t.Error("what is not in memory was given out")
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
}
