package fetch

import (
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stokerdata/stoker/internal/arena"
)

// Pieces do not overlap and keep their bytes. Large pieces have the same offset within a page as their bytes have in
// the object, also pieces outside the region.
func TestMemoryLiesAsTheObjectDoes(t *testing.T) {
	m := newMemory(arena.NewBudget(8<<20), 4<<20)
	defer m.close()
	rng := rand.New(rand.NewPCG(1, 2))
	type piece struct {
		*block
		mark byte
	}
	var held []piece
	check := func(p piece) {
		t.Helper()
		for _, v := range p.b[:cap(p.b)] {
			if v != p.mark {
				t.Fatal("a piece is written to by who has another one")
			}
		}
	}
	outside := 0
	for i := range 2000 {
		n, off := 1+rng.IntN(300<<10), rng.Int64N(1<<40)
		if i%3 == 0 {
			n = 1 + rng.IntN(4096)
		}
		alloc := m.alloc
		if i%4 == 0 {
			alloc = m.allocBrief
		}
		bl, err := alloc(n, off)
		if err != nil {
			t.Fatal(err)
		}
		bl.refs = 1
		if len(bl.b) != n || bl.at >= 0 && int64(bl.n) != pieceBytes(int64(n)) {
			t.Fatalf("%d bytes: %d, of %d", n, len(bl.b), bl.n)
		}
		if bl.at < 0 {
			outside++
		}
		at := int64(uintptr(unsafe.Pointer(unsafe.SliceData(bl.b))))
		if n >= placeFrom && (at-off)%page != 0 {
			t.Fatalf("%d bytes at %d lie at %d", n, off, at)
		}
		p := piece{bl, byte(i)}
		for j := range bl.b {
			bl.b[j] = p.mark
		}
		held = append(held, p)
		for len(held) > 30 || len(held) > 0 && rng.IntN(3) == 0 {
			j := rng.IntN(len(held))
			check(held[j])
			m.release(held[j].block)
			held[j] = held[len(held)-1]
			held = held[:len(held)-1]
		}
	}
	for _, p := range held {
		check(p)
		m.release(p.block)
	}
	if len(m.free) != 1 || m.free[0] != (span{0, len(m.mem)}) {
		t.Errorf("not all came back: %v", m.free)
	}
	if outside == 0 {
		t.Error("the region has sufficed")
	}
}
