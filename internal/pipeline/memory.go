package pipeline

import (
	"fmt"
	"math"
	"os"
	"slices"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/budget"
	"github.com/stokerdata/stoker/internal/fair"
	"github.com/stokerdata/stoker/internal/kind"
	"github.com/stokerdata/stoker/internal/proc"
	"github.com/stokerdata/stoker/source/driver"
)

// memoryPlan is the division of the memory: the ring, and the parts of workers and large values.
type memoryPlan struct {
	part   *fair.Part    // of the engine, nil without limits
	budget *arena.Budget // of the ring
	ring   *arena.Ring
	large  *kind.Large
	// groupRows is the number of records that a worker builds at a time.
	groupRows int
	// workerScratch, workerDecode and workerParse are the bytes of each worker. workerParse is for data that sources
	// unpack.
	workerScratch, workerDecode, workerParse int64
	heapScratch                              int64
	maxValue                                 int64                  // largest value for which there is memory, 0 for all of them
	enough                                   func(need int64) int64 // memory with which a larger one is read
}

// planMemory divides the memory, and returns the division and the number of threads.
func (p *Pipeline) planMemory(info *driver.Info) (*budget.Plan, int, error) {
	cfg, m := &p.cfg, &p.memory
	node := budget.NodeOf(cfg.LocalWorldSize, os.Getenv, func() int {
		return int(proc.Live.LauncherCores(cfg.Trainer, budget.LauncherVariables))
	})
	m.part = partOf(cfg)
	threads := threadsOf(cfg, &node)
	request, err := p.memoryRequest(&node, threads)
	if err != nil {
		return nil, 0, err
	}
	request.Cache = p.ramWanted(info)
	if request.Automatic { // which was chosen without it
		request.Memory += request.Cache
	}
	p.caches.disk.wanted(p, info, request)
	plan, err := p.share(request)
	if err != nil {
		return nil, 0, err
	}
	m.part.Took(request.Memory)
	m.groupRows = plan.GroupRows
	m.workerScratch, m.workerDecode, m.workerParse = plan.WorkerScratch, plan.WorkerDecode, plan.WorkerParse
	m.large = kind.NewLarge(plan.Large, func(need int64) int64 { return budget.ForImage(*request, need) })
	return plan, threads, nil
}

// threadsOf returns the number of threads that build rows.
func threadsOf(cfg *Config, node *budget.Node) int {
	if cfg.Threads != 0 {
		return cfg.Threads
	}
	threads := node.Threads(cores)
	if cfg.Node != nil && node.Engines <= 1 {
		threads = cores // which the pipelines of the engine take in turns; ranks have their part as with an engine each
	}
	if limit := coreLimit(cfg); limit > 0 {
		threads = min(threads, int(math.Ceil(limit)))
	}
	return threads
}

// makeRing makes the ring of batches.
func (p *Pipeline) makeRing(plan *budget.Plan) error {
	m := &p.memory
	m.budget = arena.NewBudget(plan.Ring)
	var err error
	if m.ring, err = arena.NewRing(m.budget, plan.Slots, p.arrays.layout.Bytes); err != nil {
		return fmt.Errorf("making the ring of batches: %w", err)
	}
	p.slots.batches = make([]batch, plan.Slots)
	p.slots.free = make(chan int, plan.Slots)
	for i := range p.slots.batches {
		b := &p.slots.batches[i]
		*b = batch{slot: i, fresh: true, ids: make([]int64, p.cfg.BatchSize), bad: make([]RecordError, 0, 4), p: p, rows: p.arrays.layout.NewBatch()}
		b.rows.Near = m.ring.Bytes() <= nearRing
		p.slots.free <- i
	}
	return nil
}

// memoryRequest returns the request by which the budget is divided.
func (p *Pipeline) memoryRequest(node *budget.Node, threads int) (*budget.Request, error) {
	cost := p.arrays.set.Cost()
	r := &budget.Request{
		Memory: p.cfg.Memory, BatchSize: p.cfg.BatchSize, SlotBytes: p.arrays.layout.Bytes, Threads: threads,
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
			r.Memory = p.memory.part.Memory((&budget.Node{Engines: 1}).Automatic(free), node.Engines) + r.Held
			// A rank has at least what it needs and would have with an engine of its own.
			if _, err := budget.Make(r); err != nil && node.Engines > 1 {
				r.Memory = max(r.Memory, node.AutomaticMemory(free)+r.Held)
			}
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
	p.memory.enough = func(need int64) int64 { return budget.ForValue(*r, need) }
	b, limit := budget.Bounded(r)
	if b == nil || b == r || p.usualBytes() > limit {
		return r // the user of the value reports the error
	}
	p.memory.maxValue = limit
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
	for f, wanted := range p.arrays.set.Fields() {
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
