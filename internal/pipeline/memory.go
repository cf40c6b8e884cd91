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
		Prefetch: p.cfg.Prefetch, Lookahead: p.cfg.Lookahead, Substitutes: p.cfg.OnError == OnErrorSkip,
		Images: cost.Images, ValueBytes: cost.ValueBytes, UnplacedBytes: cost.UnplacedBytes, Held: driver.Held(p.src),
	}
	if src, ok := p.src.(driver.Sequential); ok {
		r.InOrder = src.Memory()
	}
	if r.Memory == 0 {
		free, err := proc.Live.FreeMemory()
		if err != nil {
			return nil, fmt.Errorf("finding out how much memory is free: %w; set memory", err)
		}
		// What is held is not free any more.
		r.Memory, r.Automatic, r.Engines = node.AutomaticMemory(free)+r.Held, true, node.Engines
	}
	return r, nil
}

// nearRing is the size up to which a ring is written through the caches, so that
// the trainer finds the batch there, and not past them.
const nearRing = 32 << 20
