// Package fetch reads the bytes of records before they are needed. It locates the records that come next and reads them
// ahead, within a memory budget. It joins neighbours into one read, runs as many reads at a time as pay, and releases
// the records in the order of need.
//
// Read in this order: Unit (a group of records), Fetcher.Admit (queues the reads of a unit), issue.go (chooses the next
// read) and finish.go (delivers what was read). Then the tuners: window.go (memory for units ahead), depth.go (the number
// of concurrent reads), gap.go and readahead.go (bytes that a read takes in addition) and hedge.go (repeats late reads).
package fetch

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/internal/units"
	"github.com/stokerdata/stoker/source/driver"
)

// Config sets what to read and the limits.
type Config struct {
	Source  driver.Source
	Objects *recordread.Objects
	// Memory is the number of bytes that may be read ahead, taken from Budget. Urgent is the part of Memory that is
	// reserved for reads that could not be planned. Those are records that have left the memory, or whose index had to
	// be read first.
	Memory, Urgent int64
	// Want selects the fields, nil for all.
	Fields []bool
	// FieldsOf selects the fields of a group by its first record; nil means Fields for all of them.
	FieldsOf func(id int64) []bool
	// MostReads limits the concurrent reads of local files, each of which takes a thread. Late reads and their
	// repetitions count. 0 is the default.
	MostReads int
	// Remote reports that the store is remote: each read is a round trip. Many reads are then tried from the beginning.
	Remote bool
	// Share returns this fetcher's part of the concurrent reads of its engine, and of the memory for local records that
	// are read ahead. 1 is all. Nil means 1.
	Share func() float64
	// Workers is the number of workers that use records at the same time.
	Workers int
	// Unproven reports that reads come over a network or from a cache of such reads. Values are then compared with their
	// checksums each time. A read that lost a race, or that brought a value between two others, may have put damaged
	// bytes into the cache after the value was read intact.
	Unproven bool
	// Mount reports that the records are files on a network mount or a FUSE mount.
	Mount bool
	// Ahead reports that the owner calls Fetcher.Prefetch. Records of a remote store may then be read ahead with their
	// neighbours, unless Exact is set.
	Ahead bool
	// Exact turns off all reads of bytes that are not needed. It is for stores where bytes cost more than reads, and
	// for records that are cached after the first read.
	Exact bool
	// Known returns the error of a record that is known to be bad and is not read, nil for other records. Known may be
	// nil.
	Known  func(id int64) error
	Budget *arena.Budget
	// MaxValue is the size limit of a value in bytes, 0 for none. Enough returns the memory budget with which a value
	// of need bytes fits; it is nil if that is not known.
	MaxValue int64
	Enough   func(need int64) int64
	// Context is the context for reads of the index, nil for the background context.
	Context context.Context
}

// Fetcher reads ahead. Admit and Attach are called by one goroutine at a time, in the order of need. The other methods
// may be called from any goroutine.
//
// Each subject has a type of its own in the file of that name. mu guards all of them except stats.
type Fetcher struct {
	cfg    Config
	src    driver.Source
	obj    *recordread.Objects
	fields int
	ctx    context.Context // for reads of the index, which all units share
	stop   context.CancelFunc
	wg     sync.WaitGroup
	mu     guard
	mem    *memory

	account    account    // memory that is reserved
	queues     queues     // reads that have not begun
	running    running    // reads under way
	readers    readers    // goroutines that read
	ready      ready      // units for the workers
	candidates candidates // units whose records may be read ahead before they are admitted
	ordered    ordered    // reads of sources that are read in order
	pool       spare[Unit]

	// The tuners learn from the reads that end (see docs/internals/reading-ahead.md).
	window    window
	depth     depth
	gaps      gaps
	readahead readahead
	hedge     hedger

	space  chan struct{}
	stats  stats
	ledger *ledger // nil except in a build with checks
}

// stats are totals. They need no lock.
type stats struct{ busy, records, bytes, requests atomic.Int64 }

const (
	// maxUnits and maxExtents limit the units and the queued reads.
	maxUnits   = 4096
	maxExtents = 32 << 10
)

// New returns a Fetcher. It starts goroutines when it needs them. Close waits for them.
func New(cfg Config) *Fetcher {
	f := &Fetcher{
		cfg: cfg, src: cfg.Source, obj: cfg.Objects, fields: len(cfg.Source.Info().Fields),
		mem: newMemory(cfg.Budget, int(cfg.Memory)), account: account{planned: cfg.Memory - cfg.Urgent, mostUrgent: cfg.Urgent},
		space: make(chan struct{}, 1), ledger: newLedger(),
	}
	if f.cfg.Context == nil {
		f.cfg.Context = context.Background()
	}
	f.ctx, f.stop = context.WithCancel(f.cfg.Context)
	f.mu.check = f.check
	f.readers.work.L = &f.mu
	f.running.remote = cfg.Remote
	f.queues.init()
	f.ready.init()
	f.candidates.init()
	f.ordered.init()
	f.window.init(f.account.planned, cfg.Remote)
	f.depth.init()
	f.depth.start(&cfg)
	f.gaps.remote, f.gaps.exact = cfg.Remote, cfg.Exact
	f.queues.view.gap = f.gaps.most()
	if cfg.Remote && cfg.Ahead && !cfg.Exact {
		f.readahead.may = f.src.Info().Len <= maxCandidates*mostOfSet && f.readaheadMemory() >= leastReadahead
		f.readahead.on = f.readahead.may
	}
	return f
}

// Space is signalled when memory for another unit may be free, and when the planner should look further ahead.
func (f *Fetcher) Space() <-chan struct{} { return f.space }

// Wake signals Space.
func (f *Fetcher) Wake() { signal(f.space) }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// fieldsOf returns the fields to read of a group.
func (f *Fetcher) fieldsOf(ids []int64) []bool {
	if f.cfg.FieldsOf == nil || len(ids) == 0 {
		return f.cfg.Fields
	}
	return f.cfg.FieldsOf(ids[0])
}

// Close stops all reads and waits for them. Units are not valid afterwards.
func (f *Fetcher) Close() {
	f.stop()
	f.mu.Lock()
	f.readers.closed = true
	f.hedge.stop()
	f.readers.parked = 0
	f.readers.work.Broadcast()
	f.mu.Unlock()
	f.wg.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mem.close()
}

// Hold pauses reads that are not urgent, and resumes them. While the store fails, those reads would also fail.
func (f *Fetcher) Hold(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.queues.held = on; !on {
		f.wakeFor(f.queues.records.n)
		f.Wake()
	}
}

// Oldest returns the place of the read that has been running longest, and since when.
func (f *Fetcher) Oldest() (place string, since time.Duration, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.ordered.reads) > 0 { // in the order in which they began
		rd := f.ordered.reads[0]
		return f.obj.Place(&rd.Extent), time.Since(rd.since), true
	}
	oldest := time.Duration(-1)
	for _, fl := range f.running.attempts {
		if !fl.done { // a hedged read has answered: the units may be reused by now
			oldest = max(oldest, time.Since(fl.since))
		}
	}
	if oldest < 0 {
		return "", 0, false
	}
	// Choose the read that is needed first among the reads of about that age.
	var old *attempt
	for _, fl := range f.running.attempts {
		if !fl.done && time.Since(fl.since) >= oldest/2 && (old == nil || fl.extents[0].before(old.extents[0])) {
			old = fl
		}
	}
	w := old.extents[0]
	e := driver.Extent{Object: old.object, Offset: old.off, Size: old.size}
	if w.u != nil {
		name := f.name(w.u.IDs[w.u.recordOf(w.i)])
		if place := f.obj.Place(&e); !strings.HasPrefix(place, name) {
			name += " (" + place + ")"
		}
		return name, time.Since(old.since), true
	}
	return f.obj.Place(&e), time.Since(old.since), true
}

// name returns the place of a record. A panic of the source is ignored here.
func (f *Fetcher) name(id int64) (name string) {
	defer func() {
		if recover() != nil {
			name = "unknown"
		}
	}()
	return f.src.Name(id)
}

// Counters are the statistics of a Fetcher.
type Counters struct {
	// Busy is the total time of reading and parsing.
	Busy                     time.Duration
	Records, Bytes, Requests int64
	// Hedges counts the late requests that were made again.
	Hedges int64
	// Depth is the limit of concurrent reads at present. InFlight is the number of reads under way.
	Depth, InFlight int
	// Queue is the number of extents to be read. Ahead is the memory in use and Peak its maximum so far, in bytes.
	Queue       int
	Ahead, Peak int64
}

// Counters returns the statistics so far.
func (f *Fetcher) Counters() Counters {
	f.mu.Lock()
	defer f.mu.Unlock()
	return Counters{
		Busy: time.Duration(f.stats.busy.Load()), Records: f.stats.records.Load(), Bytes: f.stats.bytes.Load(), Requests: f.stats.requests.Load(),
		Hedges: f.hedge.made, Depth: f.depth.now, InFlight: f.running.count() + len(f.ordered.reads), Queue: f.queues.len(),
		Ahead: f.account.inUse(), Peak: f.account.peak,
	}
}

// MemoryError is the error of a record that does not fit the memory for reading even when nothing else is held.
type MemoryError struct {
	// Limit, Need and Enough are in bytes. Enough is the budget with which the record fits, 0 if that is not known.
	Limit, Need, Enough int64
}

// Error returns a message with the memory that is needed and the limit.
func (e *MemoryError) Error() string {
	text := fmt.Sprintf("its %d MiB do not fit the %d MiB that the memory budget leaves for reading; raise memory", units.MiB(e.Need), e.Limit>>20)
	if e.Enough > 0 {
		text += fmt.Sprintf(`: memory="%dMiB" or more`, units.MiB(e.Enough))
	}
	return text
}

// TooLarge returns the error of a value of need bytes.
func (f *Fetcher) TooLarge(need, limit int64) error {
	e := &MemoryError{Limit: limit, Need: need}
	if f.cfg.Enough != nil {
		e.Enough = f.cfg.Enough(need)
	}
	return e
}
