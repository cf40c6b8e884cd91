package arena

import (
	"os"

	"golang.org/x/sys/unix"
)

// Block is one growing piece of off-heap memory that is used again and again:
// scratch. It belongs to one goroutine at a time. The zero Block cannot be
// used; make one with NewBlock.
type Block struct {
	budget  *Budget
	purpose Purpose
	mem     []byte
}

// NewBlock returns an empty block that takes its memory from budget.
func NewBlock(budget *Budget, purpose Purpose) *Block {
	return &Block{budget: budget, purpose: purpose}
}

// Tail is the number of readable bytes after the end of the slices that Bytes and Buffer.Alloc return.
const Tail = 64

// Bytes returns n bytes, page aligned, not zeroed, followed by Tail readable bytes. If the block must grow, its
// contents are lost and slices from earlier calls become invalid.
func (b *Block) Bytes(n int) ([]byte, error) {
	if n+Tail > len(b.mem) {
		b.Free()
		// Grow in steps, so that slowly rising sizes do not map each time.
		step := 64 << 10
		if n >= HugePage {
			step = HugePage
		}
		size := roundUp(n+Tail+n/8, step)
		if err := b.budget.Reserve(b.purpose, int64(size)); err != nil {
			size = roundUp(n+Tail, 4096)
			if err := b.budget.Reserve(b.purpose, int64(size)); err != nil {
				return nil, err
			}
		}
		mem, err := mapAnon(size)
		if err != nil {
			b.budget.Return(b.purpose, int64(size))
			return nil, err
		}
		b.mem = mem
	}
	return b.mem[:n:n], nil
}

// Resize is like Bytes, but keeps the contents of the block.
func (b *Block) Resize(n int) ([]byte, error) {
	if b.mem == nil {
		return b.Bytes(n)
	}
	size := roundUp(n+Tail, 4096)
	if more := int64(size - len(b.mem)); more > 0 {
		if err := b.budget.Reserve(b.purpose, more); err != nil {
			return nil, err
		}
	} else {
		b.budget.Return(b.purpose, -more)
	}
	mem, err := unix.Mremap(b.mem, size, unix.MREMAP_MAYMOVE)
	if err != nil {
		b.budget.Return(b.purpose, int64(size-len(b.mem)))
		return nil, os.NewSyscallError("mremap", err)
	}
	b.mem = mem
	return b.mem[:n:n], nil
}

// Cap returns the bytes held.
func (b *Block) Cap() int { return len(b.mem) }

// Free releases the memory. The block can be used again.
func (b *Block) Free() {
	if b.mem == nil {
		return
	}
	n := int64(len(b.mem))
	// Unmapping the memory of mapAnon cannot fail.
	_ = unix.Munmap(b.mem)
	b.mem = nil
	b.budget.Return(b.purpose, n)
}
