package pipeline

import (
	"fmt"
	"slices"

	"github.com/stokerdata/stoker/internal/budget"
	"github.com/stokerdata/stoker/internal/proc"
	"github.com/stokerdata/stoker/source/driver"
)

// memoryRequest returns the request by which the budget is divided.
func (p *Pipeline) memoryRequest(node *budget.Node, threads int) (*budget.Request, error) {
	cost := p.set.Cost()
	r := &budget.Request{
		Memory: p.cfg.Memory, BatchSize: p.cfg.BatchSize, SlotBytes: p.layout.Bytes, Threads: threads,
		Prefetch: p.cfg.Prefetch, Lookahead: p.cfg.Lookahead, Substitutes: p.cfg.OnError == OnErrorSkip && p.src.Info().Sequential,
		Images: cost.Images, ValueBytes: cost.ValueBytes, UnplacedBytes: cost.UnplacedBytes, Together: cost.Together,
	}
	if src, ok := driver.As[driver.Sequential](p.src); ok {
		r.InOrder = src.Memory()
	}
	if r.Memory == 0 {
		free, err := proc.Live.FreeMemory()
		if err != nil {
			return nil, fmt.Errorf("finding out how much memory is free: %w; set memory", err)
		}
		// Held memory is not free any more. The source's cache gets as much as reading, so that the rest of the machine
		// has its share.
		driver.Keep(p.src, free/8/int64(max(node.Engines, 1)))
		r.Held = driver.Held(p.src)
		r.Memory, r.Automatic, r.Engines = node.AutomaticMemory(free)+r.Held, true, node.Engines
		if p.cfg.Node != nil {
			r.Memory = p.part.Memory((&budget.Node{Engines: 1}).Automatic(free), node.Engines) + r.Held
		}
		r.Most = free / 2 / int64(max(node.Engines, 1))
		return p.bound(r), nil
	}
	p.keep(r)
	if b := p.bound(r); b != r {
		p.keep(b)
		return b, nil
	}
	return r, nil
}

// bound returns a request without memory for the largest values if there is memory for all others. A value that is too
// large for the memory is a bad record.
func (p *Pipeline) bound(r *budget.Request) *budget.Request {
	p.enough = func(need int64) int64 { return budget.ForValue(*r, need) }
	b, limit := budget.Bounded(r)
	if b == nil || b == r || p.usualBytes() > limit {
		return r // the user of the value reports the error
	}
	p.maxValue = limit
	return b
}

// mostSampled is the number of records that usualBytes samples.
const mostSampled = 4096

// usualBytes is the median of the sizes of records, of the field of the largest values; 0 if the source does not know
// them.
func (p *Pipeline) usualBytes() (usual int64) {
	sizer, ok := driver.As[driver.Sizer](p.src)
	if !ok {
		return 0
	}
	n := p.src.Info().Len
	ids := make([]int64, min(n, mostSampled))
	for i := range ids {
		ids[i] = int64(float64(i) * float64(n) / float64(len(ids)))
	}
	sizes := make([]int64, len(ids))
	for f, wanted := range p.set.Fields() {
		if wanted && sizer.Sizes(f, ids, sizes) {
			slices.Sort(sizes)
			usual = max(usual, sizes[(len(sizes)-1)/2])
		}
	}
	return usual
}

// keep lets a source cache unpacked data in a third of the memory, or in less if the rest would be too small.
func (p *Pipeline) keep(r *budget.Request) {
	for n := r.Memory / 3; ; n /= 2 {
		driver.Keep(p.src, n)
		r.Held = driver.Held(p.src)
		if _, err := budget.Make(r); err == nil || n == 0 {
			return // the user of the value reports the error
		}
	}
}

// nearRing is the largest ring that is written through the caches, so that the trainer finds the batch there.
const nearRing = 32 << 20
