package pipeline

import (
	"fmt"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/budget"
	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/source/driver"
)

// planMemory asks how the budget is shared out for what this pipeline does.
func (p *Pipeline) planMemory(info *driver.Info, threads int) (*budget.Plan, error) {
	r := budget.Request{
		Memory: p.cfg.Memory, BatchSize: p.cfg.BatchSize, SlotBytes: p.layout.Bytes, Threads: threads,
		Prefetch: p.cfg.Prefetch, Lookahead: p.cfg.Lookahead, Substitutes: p.cfg.OnError == OnErrorSkip,
		ValueBytes: p.valueBytes(), UnplacedBytes: p.unplacedBytes(info),
	}
	if r.Memory == 0 {
		free, err := arena.FreeMemory()
		if err != nil {
			return nil, fmt.Errorf("finding out how much memory is free: %w; set memory", err)
		}
		r.Memory, r.Automatic = free/budget.AutomaticShare, true
	}
	for _, o := range p.outputs {
		f := &info.Fields[o.field]
		r.Images = append(r.Images, budget.Image{
			MaxBytes: f.MaxBytes, Width: int64(f.Width), Height: int64(f.Height), MaxWidth: int64(f.MaxWidth), MaxHeight: int64(f.MaxHeight),
			Kept: o.prog.NeedsScratch() || o.shared >= 0,
		})
	}
	return budget.Make(&r)
}

// nearRing is the size up to which a ring is written through the caches.
const nearRing = 32 << 20

// gather copies rows into a batch: through the caches when they hold the whole
// ring, so that the trainer finds the batch there, else past them.
func (p *Pipeline) gather(dst []byte, rows [][]byte, rowBytes int) {
	if p.ring.Bytes() <= nearRing {
		cdec.GatherNear(dst, rows, rowBytes)
	} else {
		cdec.Gather(dst, rows, rowBytes)
	}
}
