package arena

import "github.com/stokerdata/stoker/internal/invariants"

// Bump allocates pieces of off-heap memory that are all released together, for example the read buffers of one group
// of records. It keeps its memory between uses. It belongs to one goroutine at a time.
type Bump struct {
	budget  *Budget
	purpose Purpose
	blocks  []*Block
	spare   []*Block // empty ones, so that steady use allocates nothing
	free    []byte   // rest of the last block
	used    int      // bytes handed out since Reset, with alignment
	want    int      // size of the next first block
	small   int      // uses in a row that needed little of the memory
	failed  bool
}

// NewBump returns an empty Bump that takes its memory from budget.
func NewBump(budget *Budget, purpose Purpose) *Bump {
	return &Bump{budget: budget, purpose: purpose}
}

const (
	bumpAlign = 64
	minChunk  = 256 << 10
)

// Alloc returns n bytes, 64-byte aligned, not zeroed, followed by Tail readable bytes. It fails with ErrBudget.
func (b *Bump) Alloc(n int) ([]byte, error) {
	if n < 0 {
		return nil, ErrBudget
	}
	need := roundUp(n+Tail, bumpAlign)
	if need < n {
		return nil, ErrBudget
	}
	if need > len(b.free) {
		if err := b.grow(need); err != nil {
			b.failed = true
			return nil, err
		}
	}
	p := b.free[:n:n]
	b.free = b.free[need:]
	b.used += need
	return p, nil
}

func (b *Bump) grow(need int) error {
	var blk *Block
	if k := len(b.spare); k > 0 {
		blk, b.spare = b.spare[k-1], b.spare[:k-1]
	} else {
		blk = NewBlock(b.budget, b.purpose)
	}
	size := max(need, minChunk)
	if len(b.blocks) == 0 {
		size = max(size, b.want)
	}
	mem, err := blk.Bytes(size)
	if err != nil && size > need {
		size = need
		mem, err = blk.Bytes(size)
	}
	if err != nil {
		b.spare = append(b.spare, blk)
		return err
	}
	b.blocks = append(b.blocks, blk)
	b.free = mem
	return nil
}

// Budget returns the budget that its memory is counted against.
func (b *Bump) Budget() *Budget { return b.budget }

// Failed reports whether an Alloc failed since Reset.
func (b *Bump) Failed() bool { return b.failed }

// Used returns the bytes handed out since Reset.
func (b *Bump) Used() int { return b.used }

// Cap returns the bytes of memory held.
func (b *Bump) Cap() int {
	n := 0
	for _, blk := range b.blocks {
		n += blk.Cap()
	}
	return n
}

// Reset releases all pieces. The memory is kept for the next use, as a single block, unless it has been far too large
// for a while.
func (b *Bump) Reset() {
	held := b.Cap()
	if b.used*4 < held && held > 4*minChunk {
		b.small++
	} else {
		b.small = 0
	}
	b.mangle()
	switch {
	case len(b.blocks) > 1:
		b.want = max(b.want, b.used+b.used/8)
		b.Release()
	case b.small > 16:
		b.want, b.small = b.used*2, 0
		b.Release()
	case len(b.blocks) == 1:
		b.free, _ = b.blocks[0].Bytes(b.blocks[0].Cap() - Tail)
	}
	b.used, b.failed = 0, false
}

// mangle overwrites the memory that Alloc returned.
func (b *Bump) mangle() {
	if invariants.Enabled && b.used > 0 {
		for _, blk := range b.blocks {
			invariants.Mangle(blk.mem)
		}
	}
}

// Release returns all memory to the budget.
func (b *Bump) Release() {
	for _, blk := range b.blocks {
		blk.Free()
	}
	b.spare = append(b.spare, b.blocks...)
	b.blocks, b.free, b.used = b.blocks[:0], nil, 0
}
