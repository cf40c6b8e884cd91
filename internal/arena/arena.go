// Package arena allocates the memory that must not be on the Go heap: the ring of batch slots that trainers map, and
// the read buffers. It counts every byte by purpose against one budget, so that the engine stays within its limit.
// The garbage collector does not scan or free this memory.
package arena

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/budget"
	"github.com/stokerdata/stoker/internal/invariants"
)

// HugePage is the size and alignment of a huge page. Slots and large buffers
// are multiples of it, so that the kernel can back them with huge pages.
const HugePage = budget.HugePage

// Purpose is the use of off-heap memory.
type Purpose int

// The purposes.
const (
	// PurposeRing is the ring of batch slots.
	PurposeRing Purpose = iota
	// PurposeRead is for records that are read.
	PurposeRead
	// PurposeScratch is for whole images that workers keep between two steps.
	PurposeScratch
	numPurposes
)

// String returns the word used in statistics.
func (p Purpose) String() string {
	switch p {
	case PurposeRing:
		return "ring"
	case PurposeRead:
		return "read"
	case PurposeScratch:
		return "scratch"
	}
	return fmt.Sprintf("purpose(%d)", int(p))
}

// ErrBudget is returned when an allocation would pass the budget.
var ErrBudget = errors.New("memory budget is used up")

// Budget is an upper limit for off-heap memory, with the bytes in use by
// purpose. Its methods may be called from any goroutine.
type Budget struct {
	limit int64
	used  atomic.Int64
	by    [numPurposes]atomic.Int64
	peak  atomic.Int64
}

// NewBudget returns a budget of limit bytes.
func NewBudget(limit int64) *Budget { return &Budget{limit: limit} }

// Limit returns the limit in bytes.
func (b *Budget) Limit() int64 { return b.limit }

// Used returns the bytes in use for all purposes.
func (b *Budget) Used() int64 { return b.used.Load() }

// Peak returns the most bytes that were in use at one time.
func (b *Budget) Peak() int64 { return b.peak.Load() }

// UsedFor returns the bytes in use for one purpose.
func (b *Budget) UsedFor(p Purpose) int64 { return b.by[p].Load() }

// Reserve takes n bytes from the budget, or fails with ErrBudget and takes
// nothing.
func (b *Budget) Reserve(p Purpose, n int64) error {
	if n < 0 {
		return fmt.Errorf("arena: negative reservation %d", n)
	}
	used := b.used.Add(n)
	if used > b.limit {
		b.used.Add(-n)
		return ErrBudget
	}
	b.by[p].Add(n)
	for {
		peak := b.peak.Load()
		if used <= peak || b.peak.CompareAndSwap(peak, used) {
			return nil
		}
	}
}

// Return releases n bytes.
func (b *Budget) Return(p Purpose, n int64) {
	left, used := b.by[p].Add(-n), b.used.Add(-n)
	if invariants.Enabled && (n < 0 || left < 0 || used < 0) {
		invariants.Broken("%d bytes of %v were returned that nobody had reserved", n, p)
	}
}

// mapAnon maps n bytes of private zeroed memory; n is a multiple of the page
// size.
func mapAnon(n int) ([]byte, error) {
	m, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	if n >= HugePage {
		// A hint, without effect if huge pages are disabled.
		_ = unix.Madvise(m, unix.MADV_HUGEPAGE)
	}
	return m, nil
}

func roundUp(n, to int) int { return (n + to - 1) / to * to }
