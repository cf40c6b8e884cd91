package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/budget"
	"github.com/stokerdata/stoker/internal/fetch"
	"github.com/stokerdata/stoker/internal/pipeline"
	"github.com/stokerdata/stoker/internal/pread"
	"github.com/stokerdata/stoker/internal/proc"
	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/plan"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// blocks is a source that treats a file of ours, or an object of a server, as records of one size. The records are so
// far apart that no two are merged into one read, as in a set that is much larger than the readahead.
type blocks struct {
	info         driver.Info
	size, stride int64
	// remote is true if they are on another machine. The loader then starts with more reads.
	remote bool
	// read fills p from an offset, forget has the system forget a record.
	read   func(ctx context.Context, p []byte, off int64) error
	forget func(id int64)

	counting atomic.Bool
	mu       sync.Mutex
	lat      latencies
}

// apart is more than neighbours of one read may be, and whole pages everywhere.
const apart = 64 << 10

func newBlocks(total, size int64) *blocks {
	b := &blocks{size: size, stride: (size + 2*apart - 1) &^ (apart - 1)}
	b.info = driver.Info{
		URL: "a scratch file", Format: "blocks", Len: total / b.stride, Objects: 1,
		Fields: []driver.Field{{Name: "block", Kind: driver.KindBytes, MaxBytes: size}},
	}
	return b
}

func (b *blocks) Info() *driver.Info        { return &b.info }
func (b *blocks) Name(int64) string         { return b.info.URL }
func (b *blocks) Parse(*driver.Group) error { return nil }
func (b *blocks) Close() error              { return nil }
func (b *blocks) offset(id int64) int64     { return id * b.stride }
func (b *blocks) entry() store.Entry        { return store.Entry{Size: b.info.Len * b.stride, Version: "1"} }
func (b *blocks) Object(int64) driver.Object {
	return driver.Object{Store: blockStore{b}, Entry: b.entry(), Keep: true}
}

// ofFile makes the source read a file through the page cache.
func (b *blocks) ofFile(fd int) *blocks {
	b.forget = func(id int64) { _ = unix.Fadvise(fd, b.offset(id), b.size, unix.FADV_DONTNEED) }
	b.read = func(_ context.Context, p []byte, off int64) error {
		err := pread.Full(fd, p, off)
		if err == io.ErrUnexpectedEOF {
			return errors.New("the scratch file has become shorter")
		}
		return err
	}
	return b
}

func (b *blocks) Locate(g *driver.Group) {
	for k, id := range g.IDs {
		if g.Records[k].Err == nil {
			g.Extents = append(g.Extents, driver.Extent{Offset: b.offset(id), Size: b.size, Field: -1})
		}
		g.Next()
	}
}

// blockStore has the single file, as a store that cannot map it: each record is read, even if it is in memory.
type blockStore struct{ b *blocks }

func (s blockStore) Open(context.Context, string) (store.Object, error) { return blockObject(s), nil }
func (s blockStore) Stat(context.Context, string) (store.Entry, error)  { return s.b.entry(), nil }
func (s blockStore) List(context.Context, string, *store.ListOptions, func(store.Entry) error) error {
	return errors.ErrUnsupported
}
func (s blockStore) Path(string) string { return s.b.info.URL }
func (s blockStore) String() string     { return s.b.info.URL }
func (s blockStore) Close() error       { return nil }

type blockObject struct{ b *blocks }

func (o blockObject) Size() int64     { return o.b.entry().Size }
func (o blockObject) Version() string { return o.b.entry().Version }
func (o blockObject) Close() error    { return nil }

// ReadAt reads, and counts while counting is enabled.
func (o blockObject) ReadAt(ctx context.Context, p []byte, off int64) error {
	start := time.Now()
	if err := o.b.read(ctx, p, off); err != nil {
		return err
	}
	if o.b.counting.Load() {
		o.b.mu.Lock()
		o.b.lat.add(time.Since(start))
		o.b.mu.Unlock()
	}
	return nil
}

// asLoader measures for d how fast the loader reads records at random offsets. It uses the loader's own planning of
// reads (package fetch), which finds the number of reads in flight automatically. The first half of the time is for
// that and is not counted.
func (p *probe) asLoader(ctx context.Context, d time.Duration, b *blocks) (plan.ReadRate, error) {
	block, total := b.size, b.info.Len*b.stride
	r := plan.ReadRate{Block: block}
	if b.info.Len < 4*budget.GroupRows {
		return r, nil
	}
	memory, urgent, err := readMemory(p.m.MemoryFree, block)
	if err != nil {
		return r, err
	}
	// A small file must not fit into the readahead completely, because a record that is requested twice is then read
	// once.
	memory = min(memory, total/4)
	procs := runtime.GOMAXPROCS(0)
	pipeline.SpareProcs() // as the engine does
	defer runtime.GOMAXPROCS(procs)
	objects := recordread.NewObjects(b, nil)
	f := fetch.New(fetch.Config{
		Source: b, Objects: objects, Memory: memory + urgent, Urgent: urgent, Remote: b.remote, Budget: arena.NewBudget(memory + urgent),
	})
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	l := &loaderRun{f: f, b: b, objects: objects, failed: make(chan error, 1)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.run(ctx, d)
	}()
	timeout := time.NewTimer(d + hungRead)
	defer timeout.Stop()
	select {
	case <-done:
	case <-timeout.C:
		// Its goroutines cannot be stopped and are leaked.
		return r, fmt.Errorf("a read of %d bytes has been out for %v; the storage hangs", block, hungRead)
	}
	select {
	case err := <-l.failed:
		return r, fmt.Errorf("reading: %w", store.Cause(err))
	default:
	}
	r.Depth, r.Latency = l.depth, b.lat.summary()
	if l.records > 0 && l.seconds > 0 {
		r.IOPS = float64(l.records) / l.seconds
		r.Bandwidth = r.IOPS * float64(block)
		r.CPUSeconds = l.cpu.Seconds() / float64(l.records)
	}
	return r, nil
}

// readMemory returns the memory that an engine uses by default to read ahead records of block bytes.
func readMemory(free, block int64) (ahead, urgent int64, err error) {
	if free <= 0 {
		free = leastFree
	}
	node := budget.Node{Engines: 1}
	out, err := budget.Make(&budget.Request{
		Memory: node.AutomaticMemory(free), BatchSize: decodeBatch, SlotBytes: decodeBatch * 224 * 224 * 3, Threads: cores(),
		Images: []budget.Image{{MaxBytes: block}},
	})
	if err != nil {
		return 0, 0, err
	}
	return out.Lookahead + out.Fetch, out.Urgent, nil
}

// loaderRun is one measurement.
type loaderRun struct {
	f       *fetch.Fetcher
	b       *blocks
	objects *recordread.Objects
	failed  chan error
	done    atomic.Int64 // records

	records int64
	seconds float64
	cpu     time.Duration
	depth   int
}

// run reads for d, and then ends all that it has started.
func (l *loaderRun) run(ctx context.Context, d time.Duration) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var workers sync.WaitGroup
	for range cores() {
		workers.Go(func() { l.use(ctx, stop) })
	}
	workers.Go(func() {
		defer stop()
		l.count(ctx, d/2)
	})
	l.ask(ctx)
	workers.Wait()
	l.depth = l.f.Counters().Depth
	l.f.Close()
	_ = l.objects.Close()
}

// ask requests all records in a random order, repeatedly.
func (l *loaderRun) ask(ctx context.Context) {
	order := rand.Perm(int(l.b.info.Len))
	ids := make([]int64, budget.GroupRows)
	at := 0
	for n := int64(0); ctx.Err() == nil; n++ {
		for i := range ids {
			ids[i] = int64(order[at])
			at = (at + 1) % len(order)
		}
		for rest := ids; len(rest) > 0; {
			u, k := l.f.Locate(ctx, n, rest, false)
			for !l.f.Admit(u) {
				select {
				case <-l.f.Space():
				case <-ctx.Done():
					l.f.Drop(u)
					return
				}
			}
			l.f.Attach(u, nil, 0, nil)
			rest = rest[k:]
		}
	}
}

// use consumes the data like the loader's workers. It then drops the data from the cache, so that no record is in
// memory when it is requested again.
func (l *loaderRun) use(ctx context.Context, stop context.CancelFunc) {
	for {
		u := l.f.Pop()
		if u == nil {
			l.f.Dry()
			select {
			case <-l.f.Kick():
				continue
			case <-ctx.Done():
				return
			}
		}
		for k, id := range u.IDs {
			if err := u.Records[k].Err; err != nil && ctx.Err() == nil {
				select {
				case l.failed <- err:
				default:
				}
				stop()
			}
			l.b.forget(id)
		}
		l.done.Add(int64(len(u.IDs)))
		l.f.Done(u)
	}
}

// leastRecords is the minimum number of records to count, regardless of the time.
const leastRecords = 4 * budget.GroupRows

// count waits for one span of time and then counts records during a second one. If the machine is busy, it extends
// the second span until it can count enough.
func (l *loaderRun) count(ctx context.Context, span time.Duration) {
	wait := func(d time.Duration) bool {
		select {
		case <-time.After(d):
			return true
		case <-ctx.Done():
			return false
		}
	}
	if !wait(span) {
		return
	}
	l.b.counting.Store(true)
	records, cpu, start := l.done.Load(), proc.OwnCPU(), time.Now()
	for more := wait(span); more && l.done.Load()-records < leastRecords; {
		more = wait(10 * time.Millisecond)
	}
	l.b.counting.Store(false)
	l.records, l.cpu, l.seconds = l.done.Load()-records, proc.OwnCPU()-cpu, time.Since(start).Seconds()
}
