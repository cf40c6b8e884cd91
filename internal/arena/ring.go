package arena

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/budget"
)

// Ring is the memory of the batch slots: an anonymous memfd, mapped here and, through its descriptor, by the trainer.
// It has no name in any file system, so it disappears when both sides exit. Its size is sealed: neither side can
// shrink it while the other uses it.
type Ring struct {
	file   *os.File
	mem    []byte
	stride int
	slots  int
	budget *Budget
}

// NewRing makes a ring of slots that hold slotBytes each. Slots begin at
// multiples of budget.SlotStride. Nothing is backed by memory until Prefault or the
// first write.
func NewRing(limit *Budget, slots int, slotBytes int64) (*Ring, error) {
	if slots < 1 || slotBytes < 1 || slotBytes > 1<<40 {
		return nil, fmt.Errorf("arena: a ring of %d slots of %d bytes is out of range", slots, slotBytes)
	}
	stride := int(budget.SlotStride(slotBytes))
	size := int64(slots) * int64(stride)
	if err := limit.Reserve(PurposeRing, size); err != nil {
		return nil, err
	}
	r := &Ring{stride: stride, slots: slots, budget: limit}
	if err := r.open(size); err != nil {
		limit.Return(PurposeRing, size)
		return nil, err
	}
	return r, nil
}

func (r *Ring) open(size int64) error {
	var err error
	if r.file, err = MemFile("stoker-ring", size); err != nil {
		return err
	}
	r.mem, err = unix.Mmap(int(r.file.Fd()), 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		r.file.Close()
		return os.NewSyscallError("mmap", err)
	}
	_ = unix.Madvise(r.mem, unix.MADV_HUGEPAGE)
	return nil
}

// Prefault backs bytes [lo, hi) of slot k with memory, in one call instead of
// one page fault for each 4 KiB. It changes no byte, so others may write to
// the slot meanwhile. Kernels before 5.14 cannot; there the first writes fault.
func (r *Ring) Prefault(k int, lo, hi int64) {
	slot := r.Slot(k)
	page := int64(os.Getpagesize())
	lo, hi = max(lo, 0)/page*page, min((hi+page-1)/page*page, int64(len(slot)))
	if lo < hi {
		_ = unix.Madvise(slot[lo:hi], unix.MADV_POPULATE_WRITE)
	}
}

// Fd returns the descriptor to hand to a trainer. It stays owned by the ring.
func (r *Ring) Fd() int { return int(r.file.Fd()) }

// Bytes returns the size of the whole ring.
func (r *Ring) Bytes() int64 { return int64(r.slots) * int64(r.stride) }

// SlotStride returns the distance between slots.
func (r *Ring) SlotStride() int64 { return int64(r.stride) }

// Slots returns the number of slots.
func (r *Ring) Slots() int { return r.slots }

// Slot returns the memory of slot k.
func (r *Ring) Slot(k int) []byte {
	return r.mem[k*r.stride : (k+1)*r.stride : (k+1)*r.stride]
}

// Close unmaps the ring and closes its descriptor. A trainer that has mapped
// it keeps its mapping. Nobody may use the ring's slots any more.
func (r *Ring) Close() error {
	if r.mem == nil {
		return nil
	}
	err := unix.Munmap(r.mem)
	r.mem = nil
	r.budget.Return(PurposeRing, r.Bytes())
	if cerr := r.file.Close(); err == nil {
		err = cerr
	}
	return err
}
