package fetch

import (
	"slices"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/invariants"
)

// memory is the destination of reads: one region that is divided first-fit. So the parts in use stay together at its
// beginning and in the processor's caches. The caller of each method holds the lock of the Fetcher.
//
// The Fetcher limits the memory in use (see Admit). If the region has no piece that is long enough, the piece is
// allocated outside it.
type memory struct {
	budget *arena.Budget
	size   int
	region *arena.Block
	mem    []byte
	free   []span // ascending, never touching
}

type span struct{ at, n int }

const (
	// pieceAlign keeps pieces on separate cache lines.
	pieceAlign = 64
	// Pieces of placeFrom bytes or more have the same offset from a multiple of page as their bytes have in the object.
	// Reads that bypass the system's cache then need no copy.
	placeFrom = 64 << 10
	page      = 4096
)

func newMemory(budget *arena.Budget, size int) *memory {
	return &memory{budget: budget, size: max(size&^4095, 4096) - arena.Tail} // with space for the tail that the mapping adds
}

// block is a piece of memory that extents share.
type block struct {
	b    []byte
	refs int
	at   int // in the region, or -1
	n    int
	own  *arena.Block // of a piece from outside the region
}

// alloc returns n bytes, followed by arena.Tail readable bytes, for the bytes at off in an object. It fails only if the
// system has no memory.
func (m *memory) alloc(n int, off int64) (*block, error) {
	if m.region == nil {
		m.region = arena.NewBlock(m.budget, arena.PurposeRead)
		mem, err := m.region.Bytes(m.size)
		if err != nil {
			m.region = nil
			return nil, err
		}
		m.mem, m.free = mem, append(m.free[:0], span{0, len(mem)})
	}
	need := int(pieceBytes(int64(n)))
	for i := range m.free {
		f := &m.free[i]
		if f.n < need {
			continue
		}
		from := f.at + behind(n, off, f.at)
		bl := &block{b: m.mem[from : from+n : from+n], at: f.at, n: need}
		f.at += need
		if f.n -= need; f.n == 0 {
			m.free = slices.Delete(m.free, i, i+1)
		}
		return bl, nil
	}
	return outside(n, off)
}

// allocBrief is alloc for a piece that is released soon. It takes the end of the region, so that long-lived pieces
// leave no gaps that are too short.
func (m *memory) allocBrief(n int, off int64) (*block, error) {
	need := int(pieceBytes(int64(n)))
	for i := len(m.free) - 1; i >= 0; i-- {
		f := m.free[i]
		at := (f.at + f.n - need) &^ (pieceAlign - 1)
		if at < f.at {
			continue
		}
		if rest := f.at + f.n - at - need; rest > 0 {
			m.free = slices.Insert(m.free, i+1, span{at + need, rest})
		}
		if m.free[i].n = at - f.at; at == f.at {
			m.free = slices.Delete(m.free, i, i+1)
		}
		from := at + behind(n, off, at)
		return &block{b: m.mem[from : from+n : from+n], at: at, n: need}, nil
	}
	return m.alloc(n, off)
}

// outside returns a piece outside the region.
func outside(n int, off int64) (*block, error) {
	need := int(pieceBytes(int64(n)))
	own := arena.NewBlock(arena.NewBudget(int64(need)*2+arena.HugePage), arena.PurposeRead)
	from := behind(n, off, 0)
	b, err := own.Bytes(from + n)
	if err != nil {
		return nil, err
	}
	return &block{b: b[from:], at: -1, own: own}, nil
}

// behind returns the distance from a position in the region to the start of n bytes that are at off in their object.
func behind(n int, off int64, place int) int {
	if n < placeFrom {
		return 0
	}
	return int((off - int64(place)) & (page - 1))
}

// release releases one use of a block.
func (m *memory) release(bl *block) {
	if bl.refs--; bl.refs > 0 {
		return
	}
	if invariants.Enabled {
		if bl.refs < 0 {
			invariants.Broken("a piece of %d bytes is released twice", bl.n)
		}
		invariants.Mangle(bl.b)
	}
	if bl.own != nil {
		bl.own.Free()
		return
	}
	i, _ := slices.BinarySearchFunc(m.free, bl.at, func(s span, at int) int { return s.at - at })
	before := i > 0 && m.free[i-1].at+m.free[i-1].n == bl.at
	after := i < len(m.free) && bl.at+bl.n == m.free[i].at
	switch {
	case before && after:
		m.free[i-1].n += bl.n + m.free[i].n
		m.free = slices.Delete(m.free, i, i+1)
	case before:
		m.free[i-1].n += bl.n
	case after:
		m.free[i].at, m.free[i].n = bl.at, m.free[i].n+bl.n
	default:
		m.free = slices.Insert(m.free, i, span{bl.at, bl.n})
	}
}

// close frees the region when no piece is in use.
func (m *memory) close() {
	if m.region != nil {
		m.region.Free()
		m.region, m.mem, m.free = nil, nil, nil
	}
}
