package pipeline

import (
	"fmt"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/source/driver"
)

// memoryPlan is MemoryPlan with what follows from it.
type memoryPlan struct {
	MemoryPlan
	slots     int
	readers   int
	buffers   int
	groupRows int
	// workerScratch is the part of Scratch that each worker has.
	workerScratch int64
}

const (
	// minSlots: one batch that the trainer works on, one that it is about to
	// take (the loop variable still holds the old one) and one being made.
	minSlots     = 3
	defaultSlots = 6
	// smallSlots or more for batches that take a few huge pages only; for tiny
	// ones, which are made and used up faster than processes wake each other, as
	// many as make smallRing.
	smallSlots = 8
	maxSlots   = 32
	smallBatch = 8 << 20
	smallRing  = 24 << 20

	// A ring of up to this size is written through the caches.
	nearRing = 32 << 20

	// Records per group: enough that a call into C, a channel send and a lock
	// cost nothing per record, few enough that a batch keeps all cores busy.
	// Calls into C of more than 10 ms would wake the runtime's monitor (procs.go).
	maxGroupRows = 8
	// Small raw records go in larger groups, of up to groupBytes.
	maxSmallGroupRows = 256
	groupBytes        = 1 << 20

	// Reads in flight: what a disk needs to deliver all it can. The number does
	// not follow the threads, so that memory does not either.
	fewReaders, manyReaders = 6, 8
	manyThreads             = 16

	minRead, maxRead = 8 << 20, 256 << 20

	// Scratch of each worker, when pixels are kept there between steps as a
	// rule and when only as an exception. An image that needs more gets it
	// from the large scratch, of which there is one, one image at a time.
	workerScratch    = 6 << 20
	workerFewScratch = 256 << 10
	minLargeScratch  = 4 << 20
	maxLargeScratch  = 256 << 20
)

// planMemory shares the budget out: first what the least number of slots,
// reads and scratch need, then more slots. A prefetch that was asked for holds
// or is refused, never lowered.
func (p *Pipeline) planMemory(info *driver.Info, threads int) (*memoryPlan, error) {
	budget := p.cfg.Memory
	automatic := budget == 0
	if automatic {
		free, err := arena.FreeMemory()
		if err != nil {
			return nil, fmt.Errorf("finding out how much memory is free: %w; set memory", err)
		}
		budget = free / 4
	}
	plan := &memoryPlan{readers: fewReaders}
	if threads > manyThreads {
		plan.readers = manyReaders
	}
	plan.Budget = budget
	stride := arena.SlotStride(p.layout.Bytes)

	want := defaultSlots
	if stride <= smallBatch {
		want = int(clamp(smallRing/stride, smallSlots, maxSlots))
	}
	if p.cfg.Prefetch > 0 {
		want = max(p.cfg.Prefetch+2, minSlots)
	}
	plan.groupRows = p.planGroup(info, threads, want)
	// A buffer for each reader, one for each worker and some that wait.
	plan.buffers = max(threads, 8) + plan.readers

	leastRead := int64(minRead)
	for _, o := range p.outputs {
		f := &info.Fields[o.field]
		leastRead = max(leastRead, f.MaxBytes+f.MaxBytes/8+1<<20)
	}
	leastRead = max(leastRead, p.unplacedBytes(info)+1<<20)
	plan.workerScratch = workerFewScratch
	for _, o := range p.outputs {
		if o.prog.NeedsScratch() || o.shared >= 0 {
			plan.workerScratch = workerScratch
		}
	}
	leastScratch := int64(threads)*plan.workerScratch + minLargeScratch
	least := minSlots*stride + leastRead + leastScratch
	from := "the memory budget"
	if automatic {
		from = "a quarter of the free memory"
	}
	if budget < least {
		return nil, fmt.Errorf("%s is %d MiB, too little: %d batches of %d MiB, %d MiB to read into and %d MiB of scratch need %d MiB; "+
			"set memory to that or more, or lower batch_size",
			from, budget>>20, minSlots, stride>>20, leastRead>>20, leastScratch>>20, mib(least))
	}
	plan.Read = clamp(budget/4, leastRead, max(maxRead, leastRead))
	plan.Scratch = leastScratch - minLargeScratch + p.largeScratch(info, budget/8)
	// Slots that were asked for by number come before reads and scratch beyond the least.
	slots := int64(minSlots)
	if p.cfg.Prefetch > 0 {
		slots = int64(want)
	}
	if budget-plan.Read-plan.Scratch < slots*stride {
		plan.Read, plan.Scratch = leastRead, leastScratch
	}
	if fit := (budget - plan.Read - plan.Scratch) / stride; fit < slots {
		return nil, fmt.Errorf("prefetch is %d, too many for %s of %d MiB: %d batches of %d MiB, %d MiB to read into and %d MiB of scratch need %d MiB; "+
			"set memory to that or more, or prefetch to %d or less",
			p.cfg.Prefetch, from, budget>>20, slots, mib(stride), mib(leastRead), mib(leastScratch), mib(slots*stride+leastRead+leastScratch), fit-2)
	}
	plan.slots = int(min(int64(want), (budget-plan.Read-plan.Scratch)/stride))
	plan.Ring = int64(plan.slots) * stride
	return plan, nil
}

// largeScratch is the scratch for the largest image: three copies of it, as far
// as the source knows its size and the share of the budget allows.
func (p *Pipeline) largeScratch(info *driver.Info, share int64) int64 {
	need := int64(0)
	for _, o := range p.outputs {
		f := &info.Fields[o.field]
		w, h := int64(max(f.Width, f.MaxWidth)), int64(max(f.Height, f.MaxHeight))
		if w == 0 || h == 0 {
			need = maxLargeScratch
		} else {
			need = max(need, 3*3*w*h+1<<20)
		}
	}
	return clamp(min(need, share), minLargeScratch, maxLargeScratch)
}

// planGroup chooses how many records make a group.
func (p *Pipeline) planGroup(info *driver.Info, threads, slots int) int {
	rows := maxGroupRows
	if p.small(info) > 0 {
		rows = int(clamp(groupBytes/p.small(info), maxGroupRows, maxSmallGroupRows))
	}
	if n := p.valueBytes(); n > 0 {
		rows = min(rows, int(clamp(groupBytes/n, 1, maxSmallGroupRows)))
	}
	// Two groups for each worker among the batches under way.
	rows = min(rows, max(p.cfg.BatchSize*slots/(2*threads), 1))
	return min(rows, p.cfg.BatchSize)
}

// small returns the bytes of a record when all of its images are raw and of one
// size, else 0.
func (p *Pipeline) small(info *driver.Info) int64 {
	total := int64(64)
	for _, o := range p.outputs {
		f := &info.Fields[o.field]
		if f.Width == 0 || f.Height == 0 {
			return 0
		}
		total += int64(f.Width) * int64(f.Height) * 3
	}
	return total
}

// gather copies rows into a batch: through the caches when they hold the whole
// ring, so that the trainer finds the batch there, else past them.
func (p *Pipeline) gather(dst []byte, rows [][]byte, rowBytes int) {
	if p.ring.Bytes() <= nearRing {
		cdec.GatherNear(dst, rows, rowBytes)
	} else {
		cdec.Gather(dst, rows, rowBytes)
	}
}

func clamp(v, lo, hi int64) int64 { return max(lo, min(v, hi)) }

func mib(n int64) int64 { return (n + 1<<20 - 1) >> 20 }
