package pipeline

import (
	"fmt"

	"github.com/stokerdata/stoker/internal/budget"
	"github.com/stokerdata/stoker/internal/proc"
)

// planMemory asks how the budget is shared out for what this pipeline does.
func (p *Pipeline) planMemory(node *budget.Node, threads int) (*budget.Plan, error) {
	cost := p.set.Cost()
	r := budget.Request{
		Memory: p.cfg.Memory, BatchSize: p.cfg.BatchSize, SlotBytes: p.layout.Bytes, Threads: threads,
		Prefetch: p.cfg.Prefetch, Lookahead: p.cfg.Lookahead, Substitutes: p.cfg.OnError == OnErrorSkip,
		Images: cost.Images, ValueBytes: cost.ValueBytes, UnplacedBytes: cost.UnplacedBytes,
	}
	if r.Memory == 0 {
		free, err := proc.Live.FreeMemory()
		if err != nil {
			return nil, fmt.Errorf("finding out how much memory is free: %w; set memory", err)
		}
		r.Memory, r.Automatic, r.Engines = node.AutomaticMemory(free), true, node.Engines
	}
	return budget.Make(&r)
}

// nearRing is the size up to which a ring is written through the caches, so that
// the trainer finds the batch there, and not past them.
const nearRing = 32 << 20
