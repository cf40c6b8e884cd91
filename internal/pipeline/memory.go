package pipeline

import (
	"fmt"

	"github.com/stokerdata/stoker/internal/budget"
	"github.com/stokerdata/stoker/internal/proc"
	"github.com/stokerdata/stoker/source/driver"
)

// memoryRequest is what the budget is shared out for.
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
		// What is held is not free any more; what is to be kept takes as much as is read
		// with, so that the rest of the machine has its part.
		driver.Keep(p.src, free/8/int64(max(node.Engines, 1)))
		r.Held = driver.Held(p.src)
		r.Memory, r.Automatic, r.Engines = node.AutomaticMemory(free)+r.Held, true, node.Engines
		return r, nil
	}
	p.keep(r)
	return r, nil
}

// keep lets a source keep a third of the memory of what it unpacks, or less where the
// rest would be too little.
func (p *Pipeline) keep(r *budget.Request) {
	for n := r.Memory / 3; ; n /= 2 {
		driver.Keep(p.src, n)
		r.Held = driver.Held(p.src)
		if _, err := budget.Make(r); err == nil || n == 0 {
			return // what is wrong then is for the one who uses it to say
		}
	}
}

// nearRing is the size up to which a ring is written through the caches, so that
// the trainer finds the batch there, and not past them.
const nearRing = 32 << 20
