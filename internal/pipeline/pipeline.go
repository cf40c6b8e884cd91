package pipeline

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"runtime/pprof"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/budget"
	"github.com/stokerdata/stoker/internal/collate"
	"github.com/stokerdata/stoker/internal/fair"
	"github.com/stokerdata/stoker/internal/fetch"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/kind"
	"github.com/stokerdata/stoker/internal/localcache"
	"github.com/stokerdata/stoker/internal/proc"
	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/internal/sampler"
	"github.com/stokerdata/stoker/internal/source/wrap/cachedsource"
	"github.com/stokerdata/stoker/internal/source/wrap/joined"
	"github.com/stokerdata/stoker/internal/source/wrap/sequence"
	"github.com/stokerdata/stoker/internal/store/keep"
	"github.com/stokerdata/stoker/internal/store/retry"
	"github.com/stokerdata/stoker/internal/transform"
	"github.com/stokerdata/stoker/source"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/view"
)

// Pipeline builds batches. Next is called by one goroutine at a time; the other methods may be called from any.
type Pipeline struct {
	cfg    Config
	src    driver.Source
	cut    map[int]bool // volume fields of which src returns only the needed part
	epochs bool         // the records of src differ per epoch, or only their numbers (driver.Epochs)
	differ bool         // the records differ
	// variants is the number of variants of each record in src; each epoch has one of them (driver.Varied).
	variants int
	kept     keeping // of records in the cache
	info     Info
	// documents is the fingerprint of the documents of sequences.
	documents string
	split     sampler.Split
	layout    *collate.Layout
	// buckets are the buckets of the batches, nil for none.
	buckets    *sampler.Buckets
	bucketInfo *BucketInfo
	align      *aligned // of aligned ranks, nil for others
	// mix is the order of a mixture, nil for another one. mixed counts the records handed out, by dataset; mu guards it.
	mix   *mixing
	mixed []int64
	// window is the order by windows of chunks, nil for another one.
	window   *window
	orderWhy string     // if the order is automatic
	part     *fair.Part // of the engine, nil without limits
	ram      *keep.Kept // the memory cache of the data, nil for none
	ramNote  string
	disk     onDisk // the disk cache of the data
	// set builds the arrays of fields.
	set *kind.Set
	// batchOps run on complete batches.
	batchOps   []transform.BatchOp
	indexArray int

	groupRows     int
	remote        bool          // each read is a way to a server and back
	budget        *arena.Budget // ring
	large         *kind.Large
	workerScratch int64
	workerDecode  int64
	heapScratch   int64
	ring          *arena.Ring
	objects       *recordread.Objects
	fetch         *fetch.Fetcher
	workerParse   int64                  // memory per worker for data that sources unpack
	maxValue      int64                  // largest value for which there is memory, 0 for all of them
	enough        func(need int64) int64 // memory with which a larger one is read
	aloneMu       sync.Mutex
	alone         int64       // size of aloneMem
	aloneMem      *arena.Bump // of the record that needs more than a worker has
	subMu         sync.Mutex
	sub           *recordread.Reader // of records that take the place of bad ones, of a source that is read in order
	subMem        *arena.Bump
	subBad        [2]int64 // of a source that is read in order: records known to be bad
	repairs       repairs
	bad           *badSet
	drawn         bool // arrays are made with operations, which may use a part of a value
	prober        prober
	uncached      uncached
	answers       answers // to requests that failed
	outage        outage
	feeders       Remote // servers that build batches, nil for none

	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup
	// While records are found in memory, warm is set and groups go to the workers directly through memoryQ.
	memoryQ chan group
	warm    atomic.Bool
	orders  atomic.Int64
	free    chan int
	wake    chan struct{}
	workers []*worker

	mu      sync.Mutex
	closed  bool
	gen     uint64
	cur     *stream
	batches []batch
	held    heldTime

	opened                  time.Time
	stage                   [numStages]stageCounters
	nBatches, nRecords      atomic.Int64
	skipped, retries        atomic.Int64
	consumerWait, waitSince atomic.Int64
	closeOnce               sync.Once
	closeErr                error
}

// Open opens the source, compiles the transforms, plans the memory and makes
// the ring. It starts the goroutines of the stages; the first Start gives them
// work.
func Open(ctx context.Context, cfg Config) (*Pipeline, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	p := &Pipeline{cfg: cfg, opened: time.Now()}
	p.kept.p = p
	if p.src, err = p.openSource(ctx, cfg.Source, p.kept.options()); err != nil {
		return nil, err
	}
	if err := p.openCopy(ctx); err != nil {
		_ = p.src.Close() // the first error counts
		return nil, err
	}
	p.epochs = driver.EpochsOf(p.src)
	if !p.epochs {
		p.variants = driver.VariantsOf(p.src)
		p.epochs = p.variants > 1
	}
	p.differ = p.epochs
	if s, ok := p.src.(*joined.Source); ok {
		p.differ = s.Differ() // otherwise the numbers differ, and not the records
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
		opt := &source.Options{View: &cfg.View, Documents: cfg.Sequence != nil, Cache: cache, Memory: p.cfg.Memory, Connections: fetch.RemoteDepth, Mixed: cfg.Mix != nil}
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
		p.documents = src.Info().Fingerprint
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
		src, p.cut = kind.CutVolumes(src, &kind.Request{Outputs: cfg.Outputs, Fields: cfg.Fields}, cfg.Seed)
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

func (p *Pipeline) open(ctx context.Context) error {
	info := p.src.Info()
	if info.Len == 0 {
		return fmt.Errorf("%s holds no records", info.URL)
	}
	if info.Len < 0 || info.Len > sampler.MaxLen {
		return fmt.Errorf("%s says that it holds %d records, the limit is %d", info.URL, info.Len, int64(sampler.MaxLen))
	}
	cfg := &p.cfg
	if info.Sequential && cfg.Order == OrderClient {
		return fmt.Errorf("%s can only be read in order, since it is compressed, and the client is to say which records come: "+
			"make a pack of it (stoker pack)", info.URL)
	}
	if err := p.chooseOrder(info); err != nil {
		return err
	}
	if info.Sequential && cfg.Shuffle {
		return fmt.Errorf("%s can only be read in order, since it is compressed, and shuffle asks for another one: "+
			"make a pack of it (stoker pack) and shuffle that, or turn shuffle off", info.URL)
	}
	p.split = sampler.Split{Len: info.Len, Batch: cfg.BatchSize, Rank: cfg.Rank, World: cfg.WorldSize, DropLast: cfg.DropLast, Uneven: cfg.Uneven}
	if err := p.planMix(); err != nil {
		return err
	}
	if p.mix != nil {
		p.split.Len = p.mix.Len()
	}
	if int64(cfg.BatchSize)*int64(cfg.WorldSize) > sampler.MaxLen {
		return fmt.Errorf("batch_size x world_size is %d, the limit is %d", int64(cfg.BatchSize)*int64(cfg.WorldSize), int64(sampler.MaxLen))
	}
	p.split.InTurn = p.window != nil && !p.window.Whole()
	if err := p.planBuckets(ctx, info); err != nil {
		return err
	}
	if err := p.planAlign(ctx, info); err != nil {
		return err
	}
	if p.steps() == 0 && !cfg.DropLast {
		return fmt.Errorf("%s holds %d records, less than the %d ranks, and uneven=%q leaves them out: there would be no batch; "+
			"use uneven=%q, which repeats some", info.URL, p.split.Len, cfg.WorldSize, cfg.Uneven, sampler.Pad)
	}
	if p.steps() == 0 {
		return fmt.Errorf("%s holds %d records, less than one global batch of %d x %d, and drop_last leaves out the rest: there would be no batch; "+
			"lower batch_size or turn drop_last off", info.URL, p.split.Len, cfg.BatchSize, cfg.WorldSize)
	}
	if err := p.planArrays(ctx, info); err != nil {
		return err
	}
	if cfg.OnError == OnErrorMark && slices.ContainsFunc(p.layout.Arrays, func(a item.Array) bool { return a.Ragged || a.Padded }) {
		return fmt.Errorf("on_error is %q, which rows of different lengths do not take", OnErrorMark)
	}
	node := budget.NodeOf(cfg.LocalWorldSize, os.Getenv, func() int {
		return int(proc.Live.LauncherCores(cfg.Trainer, budget.LauncherVariables))
	})
	p.part = partOf(cfg)
	threads := cfg.Threads
	if threads == 0 {
		threads = node.Threads(cores)
		if cfg.Node != nil {
			threads = cores // which the pipelines of the engine take in turns
		}
		if limit := coreLimit(cfg); limit > 0 {
			threads = min(threads, int(math.Ceil(limit)))
		}
	}
	request, err := p.memoryRequest(&node, threads)
	if err != nil {
		return err
	}
	request.Cache = p.ramWanted(info)
	if request.Automatic { // which was chosen without it
		request.Memory += request.Cache
	}
	p.disk.wanted(p, info, request)
	plan, err := p.share(request)
	if err != nil {
		return err
	}
	p.part.Took(request.Memory)
	p.groupRows = plan.GroupRows
	p.budget = arena.NewBudget(plan.Ring)
	p.workerScratch = plan.WorkerScratch
	p.workerDecode = plan.WorkerDecode
	p.large = kind.NewLarge(plan.Large, func(need int64) int64 { return budget.ForImage(*request, need) })
	if p.ring, err = arena.NewRing(p.budget, plan.Slots, p.layout.Bytes); err != nil {
		return fmt.Errorf("making the ring of batches: %w", err)
	}
	p.info = Info{
		URL: info.URL, Format: info.Format, Len: p.split.Len, Steps: p.steps(), Buckets: p.bucketInfo, Mix: p.info.Mix,
		BatchSize: cfg.BatchSize, Rank: cfg.Rank, WorldSize: cfg.WorldSize,
		Arrays: p.layout.Arrays, SlotBytes: p.layout.Bytes, Slots: plan.Slots,
		Classes: p.set.Classes(), Rates: p.set.Rates(), Fingerprint: info.Fingerprint, Identity: p.identity(info), Threads: threads, Memory: plan.Shares, Sequences: p.info.Sequences,
		Order: p.ordered(), Skipped: driver.GroupSkipped(p.src), BadFiles: info.BadFiles, Bad: info.BadTexts(),
	}
	p.batches = make([]batch, plan.Slots)
	p.free = make(chan int, plan.Slots)
	for i := range p.batches {
		p.batches[i] = batch{slot: i, fresh: true, ids: make([]int64, cfg.BatchSize), bad: make([]RecordError, 0, 4), p: p, rows: p.layout.NewBatch()}
		p.batches[i].rows.Near = p.ring.Bytes() <= nearRing
		p.free <- i
	}
	if err := p.openBad(ctx); err != nil {
		return err
	}
	p.drawn = slices.ContainsFunc(cfg.Outputs, func(o transform.Output) bool { return len(o.Ops) > 0 })
	p.ctx, p.stop = context.WithCancel(retry.Watch(context.Background(), p.answers.note))
	p.objects = recordread.NewObjects(p.src, &retry.Options{Retried: func(err error) {
		p.retries.Add(1)
		p.answers.note(err)
	}})
	p.objects.Decorate = cfg.Decorate
	if p.mix != nil {
		p.objects.Most = mixedFiles
	}
	if err := p.caches(ctx, plan.Cache-int64(p.disk.buffers)*p.disk.largest); err != nil {
		return err
	}
	p.info.CacheNote = cmp.Or(p.kept.noted(), p.disk.noted(), p.ramNote)
	want := p.set.Fields()
	p.remote = p.overNetwork()
	var fieldsOf func(id int64) []bool
	if p.align != nil {
		fieldsOf = p.fieldsOf
	}
	mostReads := 0
	if p.mix != nil && !p.remote {
		mostReads = mixedReads
	}
	p.fetch = fetch.New(fetch.Config{
		MostReads: mostReads,
		FieldsOf:  fieldsOf,
		Fields:    want,
		Source:    p.src, Objects: p.objects, Budget: arena.NewBudget(plan.Window + plan.Lookahead + plan.Fetch + plan.Urgent),
		Memory: plan.Window + plan.Lookahead + plan.Fetch + plan.Urgent, Urgent: plan.Urgent,
		MaxValue: p.maxValue, Enough: p.enough,
		Remote: p.remote, Unproven: p.remote || p.cached(), Mount: localcache.Mounted(p.src), Share: p.part.Share, Ahead: p.window == nil, Exact: p.keepsPart(), Context: context.WithoutCancel(p.ctx), Known: p.knownBad(),
	})
	p.outage.hold = p.fetch.Hold
	p.workerParse, p.alone = plan.WorkerParse, plan.Alone
	p.aloneMem = arena.NewBump(arena.NewBudget(plan.Alone), arena.PurposeRead)
	p.subMem = arena.NewBump(arena.NewBudget(plan.Substitute), arena.PurposeRead)
	p.sub = recordread.NewReader(p.src, p.objects)
	p.sub.Alloc, p.sub.Want = p.subMem.Alloc, want
	p.memoryQ = make(chan group, 2*threads)
	p.wake = make(chan struct{}, 1)
	p.heapScratch = plan.Scratch + plan.InOrder
	limitHeap(p.heapScratch)
	for range threads {
		w, err := p.newWorker()
		if err != nil {
			return err
		}
		p.workers = append(p.workers, w)
	}
	if err := p.openRemote(); err != nil {
		return err
	}
	p.kept.open.Store(true)
	for _, w := range p.workers {
		p.spawn("decode", w.loop)
	}
	p.disk.copyRest(p)
	return nil
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
		p.stage[stageCollate].addFor(time.Since(start), 0)
		start = time.Now()
	}
	if len(p.batchOps) == 0 || len(b.ids) == 0 {
		return
	}
	view := transform.Batch{Arrays: p.layout.Arrays, Slot: p.ring.Slot(b.slot), Rows: len(b.ids), Full: p.cfg.BatchSize}
	if err := p.runBatchOps(b, &view); err != nil {
		p.batchFailed(b, 0, &RecordError{ID: p.number(b.ids[0]), Name: p.name(b.ids[0]), Reason: oneLine(err), Cause: err})
	}
	p.stage[stageTransform].addFor(time.Since(start), 0)
}

func (p *Pipeline) runBatchOps(b *batch, view *transform.Batch) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = panicError("mixing a batch", r)
		}
	}()
	for i, op := range p.batchOps {
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
func (p *Pipeline) Ring() *arena.Ring { return p.ring }

// Close stops everything, waits for all goroutines and frees the memory with the ring: batches that are still held
// become invalid. A read that does not return delays Close.
func (p *Pipeline) Close() error {
	p.closeOnce.Do(func() {
		p.mu.Lock()
		p.closed = true
		p.stopLocked(p.cur)
		p.mu.Unlock()
		p.closeErr = p.release()
	})
	return p.closeErr
}

// release undoes open, also a partial one.
func (p *Pipeline) release() error {
	if p.stop != nil {
		p.stop()
	}
	p.wg.Wait()
	for _, w := range p.workers {
		w.close()
	}
	p.part.Close()
	limitHeap(-p.heapScratch)
	p.heapScratch = 0
	var err error
	if p.feeders != nil {
		err = p.feeders.Close()
	}
	if p.fetch != nil {
		p.fetch.Close()
		p.subMem.Release()
		p.aloneMem.Release()
		err = cmp.Or(err, p.objects.Close())
	}
	if cerr := p.repairs.close(); err == nil {
		err = cerr
	}
	if p.bad != nil {
		err = cmp.Or(err, p.uncached.close(), p.bad.file.Close())
	}
	if p.ram != nil {
		p.ram.Close()
	}
	if cerr := p.disk.close(); err == nil {
		err = cerr
	}
	if p.ring != nil {
		if cerr := p.ring.Close(); err == nil {
			err = cerr
		}
	}
	if cerr := p.src.Close(); err == nil {
		err = cerr
	}
	return err
}
