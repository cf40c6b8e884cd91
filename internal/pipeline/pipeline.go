package pipeline

import (
	"cmp"
	"context"
	"fmt"
	"runtime/pprof"
	"slices"
	"sync"
	"time"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/budget"
	"github.com/stokerdata/stoker/internal/fetch"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/kind"
	"github.com/stokerdata/stoker/internal/localcache"
	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/internal/source/wrap/cachedsource"
	"github.com/stokerdata/stoker/internal/source/wrap/joined"
	"github.com/stokerdata/stoker/internal/source/wrap/pooled"
	"github.com/stokerdata/stoker/internal/source/wrap/sequence"
	"github.com/stokerdata/stoker/internal/store/retry"
	"github.com/stokerdata/stoker/internal/transform"
	"github.com/stokerdata/stoker/source"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/view"
)

// Pipeline builds batches. Next is called by one goroutine at a time; the other methods may be called from any.
//
// Open sets the plan once: records, order, arrays, memory and caches. The rest changes while batches are built. Each
// subject has a type of its own in the file of its methods.
type Pipeline struct {
	cfg  Config
	info Info
	src  driver.Source

	records records    // how the records of src differ per epoch
	order   order      // which record comes when
	arrays  arrays     // what a batch contains
	memory  memoryPlan // how the memory is divided, and the ring
	caches  caches

	remote   bool // each read is a round trip to a server
	objects  *recordread.Objects
	fetch    *fetch.Fetcher
	alone    alone
	faults   faults
	feeders  Remote // servers that build batches, nil for none
	workers  workers
	ctx      context.Context
	stop     context.CancelFunc
	wg       sync.WaitGroup
	mu       sync.Mutex
	streams  streams // guarded by mu
	slots    slots   // guarded by mu
	counters counters
	closing  closing
}

// records tells how the records of the source differ per epoch.
type records struct {
	cut    map[int]bool // volume fields of which src returns only the needed part
	epochs bool         // the records of src differ per epoch, or only their numbers (driver.Epochs)
	differ bool         // the records differ
	// variants is the number of variants of each record in src; each epoch has one of them (driver.Varied).
	variants int
	// documents is the fingerprint of the documents of sequences.
	documents string
}

// closing makes Close run once.
type closing struct {
	once sync.Once
	err  error
}

// Open opens the source, compiles the transforms, plans the memory and makes
// the ring. It starts the goroutines of the stages; the first Start gives them
// work.
func Open(ctx context.Context, cfg Config) (*Pipeline, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	p := &Pipeline{cfg: cfg}
	p.counters.opened = time.Now()
	p.caches.kept.p = p
	if p.src, err = p.openSource(ctx, cfg.Source, p.caches.kept.options()); err != nil {
		return nil, err
	}
	if err := p.openCopy(ctx); err != nil {
		_ = p.src.Close() // the first error counts
		return nil, err
	}
	p.records.epochs = driver.EpochsOf(p.src)
	if !p.records.epochs {
		p.records.variants = driver.VariantsOf(p.src)
		p.records.epochs = p.records.variants > 1
	}
	p.records.differ = p.records.epochs
	if s, ok := p.src.(*joined.Source); ok {
		p.records.differ = s.Differ() // otherwise the numbers differ, and not the records
	}
	if err := p.open(ctx); err != nil {
		p.release()
		return nil, err
	}
	return p, nil
}

// openSource opens the records at a URL, as set in the configuration.
func (p *Pipeline) openSource(ctx context.Context, url string, cache *cachedsource.Options) (driver.Source, error) {
	cfg := &p.cfg
	var src driver.Source
	var err error
	if cfg.OpenSource != nil {
		if src, err = cfg.OpenSource(ctx, url); err == nil {
			src, err = viewOf(ctx, src, &cfg.View)
		}
	} else {
		opt := &source.Options{View: &cfg.View, Documents: cfg.Sequence != nil, Cache: cache, Memory: p.cfg.Memory, Connections: fetch.RemoteDepth, Mixed: cfg.Mix != nil,
			Pool: cfg.Sources, Rank: pooled.NoRank, Seed: cfg.Seed, Turned: cfg.ApplyOrientation}
		if cfg.WorldSize > 1 && !cfg.Share { // only ranks of one job have an engine in common without Share
			opt.Rank = cfg.Rank
		}
		if opt.Mixed && cfg.Sequence != nil {
			opt.Part = func(ctx context.Context, src driver.Source) (driver.Source, error) {
				s, err := p.sequences(ctx, src)
				if err != nil {
					return nil, err
				}
				return s, nil
			}
		}
		src, err = source.Open(ctx, url, opt)
	}
	if err == nil && cfg.Sequence != nil && cfg.Mix == nil {
		p.records.documents = src.Info().Fingerprint
		s, fails := p.sequences(ctx, src)
		if fails != nil {
			return nil, fails
		}
		plan := s.Plan()
		src, p.info.Sequences = s, &plan
	}
	if err != nil {
		return nil, err
	}
	// A client may request a record twice with different parts, and an order by windows reads whole chunks.
	if cfg.Order != OrderClient && cfg.Window <= 0 {
		src, p.records.cut = kind.CutVolumes(src, &kind.Request{Outputs: cfg.Outputs, Fields: cfg.Fields}, cfg.Seed)
	}
	driver.SeedOf(src, cfg.Seed)
	if cfg.ApplyOrientation {
		driver.ApplyOrientation(src)
	}
	return src, nil
}

// sequences replaces the documents of a source by sequences.
func (p *Pipeline) sequences(ctx context.Context, src driver.Source) (*sequence.Source, error) {
	c := p.cfg.Sequence
	s, err := sequence.Open(ctx, src, &sequence.Options{
		Length: c.Length, Packing: c.Packing, Fields: c.Fields, NoShift: c.NoShift, DType: driver.DType(c.DType), Pad: c.Pad,
		Shuffle: p.cfg.Shuffle, Seed: p.cfg.Seed,
	})
	if err != nil {
		_ = src.Close() // the first error counts
		return nil, err
	}
	return s, nil
}

// viewOf returns the selected part of a source that the caller has opened.
func viewOf(ctx context.Context, src driver.Source, spec *view.Spec) (driver.Source, error) {
	v, err := view.Open(ctx, src, spec, &view.Options{OpenSource: func(ctx context.Context, url string) (driver.Source, error) { return source.Open(ctx, url, nil) }})
	if err != nil {
		_ = src.Close() // the first error counts
	}
	return v, err
}

// open plans the batches of the source, and starts the workers.
func (p *Pipeline) open(ctx context.Context) error {
	info := p.src.Info()
	if err := p.planOrder(ctx, info); err != nil {
		return err
	}
	if err := p.planArrays(ctx, info); err != nil {
		return err
	}
	if p.cfg.OnError == OnErrorMark && slices.ContainsFunc(p.arrays.layout.Arrays, func(a item.Array) bool { return a.Ragged || a.Padded }) {
		return fmt.Errorf("on_error is %q, which rows of different lengths do not take", OnErrorMark)
	}
	plan, threads, err := p.planMemory(info)
	if err != nil {
		return err
	}
	if err := p.makeRing(plan); err != nil {
		return err
	}
	p.info = p.describe(info, plan, threads)
	if err := p.openBad(ctx); err != nil {
		return err
	}
	if err := p.openReads(ctx, plan, threads); err != nil {
		return err
	}
	if err := p.openWorkers(plan, threads); err != nil {
		return err
	}
	if err := p.openRemote(); err != nil {
		return err
	}
	p.caches.kept.open.Store(true)
	for _, w := range p.workers.list {
		p.spawn("decode", w.loop)
	}
	p.caches.disk.copyRest(p)
	return nil
}

// describe returns the description of the pipeline for its users.
func (p *Pipeline) describe(info *driver.Info, plan *budget.Plan, threads int) Info {
	cfg := &p.cfg
	return Info{
		URL: info.URL, Format: info.Format, Len: p.order.split.Len, Steps: p.steps(), Buckets: p.order.bucketInfo, Mix: p.info.Mix,
		BatchSize: cfg.BatchSize, Rank: cfg.Rank, WorldSize: cfg.WorldSize,
		Arrays: p.arrays.layout.Arrays, SlotBytes: p.arrays.layout.Bytes, Slots: plan.Slots,
		Classes: p.arrays.set.Classes(), Rates: p.arrays.set.Rates(), Fingerprint: info.Fingerprint, Identity: p.identity(info),
		Threads: threads, Memory: plan.Shares, Sequences: p.info.Sequences,
		Order: p.ordered(), Skipped: driver.GroupSkipped(p.src), BadFiles: info.BadFiles, Bad: info.BadTexts(),
	}
}

// openReads opens what reads records: the objects with their caches, the fetcher, and the reader of substitutes.
func (p *Pipeline) openReads(ctx context.Context, plan *budget.Plan, threads int) error {
	p.ctx, p.stop = context.WithCancel(retry.Watch(context.Background(), p.faults.answers.note))
	p.objects = recordread.NewObjects(p.src, &retry.Options{Retried: func(err error) {
		p.counters.retries.Add(1)
		p.faults.answers.note(err)
	}})
	p.objects.Decorate = p.cfg.Decorate
	if p.order.mix != nil {
		p.objects.Most = mixedFiles
	}
	disk := &p.caches.disk
	if err := p.openCaches(ctx, plan.Cache-int64(disk.buffers)*disk.largest); err != nil {
		return err
	}
	p.info.CacheNote = cmp.Or(p.caches.kept.noted(), disk.noted(), p.caches.ramNote)
	p.remote = p.overNetwork()
	p.fetch = fetch.New(p.fetchConfig(plan, threads))
	p.faults.outage.hold = p.fetch.Hold
	p.alone.most, p.alone.mem = plan.Alone, arena.NewBump(arena.NewBudget(plan.Alone), arena.PurposeRead)
	subs := &p.faults.substitutes
	subs.mem = arena.NewBump(arena.NewBudget(plan.Substitute), arena.PurposeRead)
	subs.reader = recordread.NewDirect(p.src, p.objects)
	subs.reader.Alloc, subs.reader.Want = subs.mem.Alloc, p.arrays.set.Fields()
	return nil
}

// fetchConfig returns what the fetcher reads, and its memory.
func (p *Pipeline) fetchConfig(plan *budget.Plan, threads int) fetch.Config {
	memory := plan.Window + plan.Lookahead + plan.Fetch + plan.Urgent
	c := fetch.Config{
		Source: p.src, Objects: p.objects, Fields: p.arrays.set.Fields(),
		Budget: arena.NewBudget(memory), Memory: memory, Urgent: plan.Urgent,
		MaxValue: p.memory.maxValue, Enough: p.memory.enough, Share: p.memory.part.Share, Workers: threads,
		Remote: p.remote, Mount: localcache.Mounted(p.src), Unproven: p.remote || p.cached(),
		Ahead: p.order.window == nil, Exact: p.keepsPart(),
		Context: context.WithoutCancel(p.ctx), Known: p.knownBad(),
	}
	if p.order.align != nil {
		c.FieldsOf = p.fieldsOf
	}
	if p.order.mix != nil && !p.remote {
		c.MostReads = mixedReads
	}
	return c
}

// spawn starts a goroutine that Close waits for, labelled for profiles.
func (p *Pipeline) spawn(stage string, f func()) {
	p.wg.Add(1)
	go func() {
		defer p.wg.Done()
		pprof.Do(p.ctx, pprof.Labels("stage", stage), func(context.Context) { f() })
	}()
}

// finishBatch runs the operations on whole batches, in the goroutine that did
// the batch's last group.
func (p *Pipeline) finishBatch(b *batch) {
	if b.err != nil || len(b.ids) == 0 && !b.rows.Ragged() {
		return
	}
	start := time.Now()
	if b.rows.Ragged() {
		if err := b.rows.Finish(); err != nil {
			p.batchFailed(b, 0, &RecordError{ID: p.number(b.ids[0]), Name: p.name(b.ids[0]), Reason: oneLine(err), Cause: err})
			return
		}
		p.counters.stage[stageCollate].addFor(time.Since(start), 0)
		start = time.Now()
	}
	if len(p.arrays.batchOps) == 0 || len(b.ids) == 0 {
		return
	}
	view := transform.Batch{Arrays: p.arrays.layout.Arrays, Slot: p.memory.ring.Slot(b.slot), Rows: len(b.ids), Full: p.cfg.BatchSize}
	if err := p.runBatchOps(b, &view); err != nil {
		p.batchFailed(b, 0, &RecordError{ID: p.number(b.ids[0]), Name: p.name(b.ids[0]), Reason: oneLine(err), Cause: err})
	}
	p.counters.stage[stageTransform].addFor(time.Since(start), 0)
}

func (p *Pipeline) runBatchOps(b *batch, view *transform.Batch) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = panicError("mixing a batch", r)
		}
	}()
	for i, op := range p.arrays.batchOps {
		r := transform.NewBatchRand(p.cfg.Seed, b.epoch, b.first, i)
		if err := op.ApplyBatch(&r, view); err != nil {
			return err
		}
	}
	return nil
}

// Info describes the pipeline.
func (p *Pipeline) Info() Info { return p.info }

// Config is the configuration in force, with defaults filled in.
func (p *Pipeline) Config() Config { return p.cfg }

// Ring is the memory of the batches.
func (p *Pipeline) Ring() *arena.Ring { return p.memory.ring }

// Close stops everything, waits for all goroutines and frees the memory with the ring: batches that are still held
// become invalid. A read that does not return delays Close.
func (p *Pipeline) Close() error {
	p.closing.once.Do(func() {
		p.mu.Lock()
		p.streams.closed = true
		p.stopLocked(p.streams.cur)
		p.mu.Unlock()
		p.closing.err = p.release()
	})
	return p.closing.err
}

// release undoes open, also a partial one.
func (p *Pipeline) release() error {
	if p.stop != nil {
		p.stop()
	}
	p.wg.Wait()
	for _, w := range p.workers.list {
		w.close()
	}
	p.memory.part.Close()
	limitHeap(-p.memory.heapScratch)
	p.memory.heapScratch = 0
	var err error
	if p.feeders != nil {
		err = p.feeders.Close()
	}
	if p.fetch != nil {
		p.fetch.Close()
		p.faults.substitutes.mem.Release()
		p.alone.mem.Release()
		err = cmp.Or(err, p.objects.Close())
	}
	if cerr := p.faults.repairs.close(); err == nil {
		err = cerr
	}
	if p.faults.bad != nil {
		err = cmp.Or(err, p.faults.uncached.close(), p.faults.bad.file.Close())
	}
	if p.caches.ram != nil {
		p.caches.ram.Close()
	}
	if cerr := p.caches.disk.close(); err == nil {
		err = cerr
	}
	if p.memory.ring != nil {
		if cerr := p.memory.ring.Close(); err == nil {
			err = cerr
		}
	}
	if cerr := p.src.Close(); err == nil {
		err = cerr
	}
	return err
}
