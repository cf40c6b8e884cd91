// Package fetch reads the bytes of records before they are needed. It locates the records that come next and reads them
// ahead, within a memory budget. It joins neighbours into one read, runs as many reads at a time as pay, and releases
// the records in the order of need.
//
// Read in this order: Unit (a group of records), Fetcher.Admit (queues the reads of a unit), issue.go (chooses the next
// read). Then depth.go (the number of concurrent reads), gap.go and readahead.go (bytes that a read takes in addition)
// and finish.go (delivers what was read).
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
	// MostReads limits the concurrent reads of local files, each of which takes a thread; 0 is the default.
	MostReads int
	// Remote reports that the store is remote: each read is a round trip. Many reads are then tried from the beginning.
	Remote bool
	// Share returns this fetcher's part of the concurrent reads of its engine, 1 for all. Nil means 1.
	Share func() float64
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
type Fetcher struct {
	cfg    Config
	src    driver.Source
	obj    *recordread.Objects
	fields int

	mu  sync.Mutex
	mem *memory
	// used and urgent are the bytes that units have reserved from either part of the memory. window limits used at
	// present. It grows when the workers run dry, so that no more is read ahead than needed.
	used, urgent, window, peak int64
	// attached is the part of used that belongs to units with a batch.
	attached int64
	// ahead is the memory of records that were read ahead for units that are not admitted yet (holding). The field
	// transit is the memory of the reads that bring such records, and candidates counts those that may be read ahead.
	ahead, transit int64
	holding        map[*Unit]struct{}
	candidates     int
	readahead      readahead
	handed         Turn // of the unit that was handed out last
	grown          time.Time
	units          int // admitted and not done
	sinceDry       int // units handed out since the workers last ran dry

	// the queues of reads: extents, pieces of the index, and urgent reads
	queue, learn, rush fifo
	view               view // the reads of the queues that may become part of a larger read
	index              map[[2]int64]*indexRead

	ready  readyHeap
	nReady atomic.Int32
	kick   chan struct{}
	space  chan struct{}

	work     sync.Cond // of mu: there is a read to start, or the depth has grown
	readers  int
	single   atomic.Bool // the reader waits for each read separately
	parked   int
	attempts []*attempt
	running  int // attempts that count for the depth
	// load is the weight of those attempts, in parts of a read. Reads of a remote index are counted in learning
	// instead.
	load, learning int
	last           Turn // of the read that began last
	depth          depth
	gaps           gaps
	hedge          hedger
	closed, held   bool
	ctx            context.Context // for reads of the index, which all units share
	stop           context.CancelFunc
	wg             sync.WaitGroup

	// for sources that are read in order
	inOrder    []*orderedRead
	turn       chan struct{} // held by the InOrder that reads
	memoryFree chan struct{} // signalled when memory for it may be free

	pool         []*Unit
	spareExtents []*extent // spare

	busy, records, bytes, requests atomic.Int64
}

const (
	// firstWindow is the number of bytes that are read ahead at first.
	firstWindow = 16 << 20
	// remoteWindow is firstWindow for a remote store: more than one batch of photographs.
	remoteWindow = 64 << 20
	// maxUnits and maxExtents limit the units and the queued reads.
	maxUnits   = 4096
	maxExtents = 32 << 10
)

// New returns a Fetcher. It starts goroutines when it needs them. Close waits for them.
func New(cfg Config) *Fetcher {
	f := &Fetcher{
		cfg: cfg, src: cfg.Source, obj: cfg.Objects, fields: len(cfg.Source.Info().Fields),
		mem: newMemory(cfg.Budget, int(cfg.Memory)), window: min(firstWindow, cfg.Memory-cfg.Urgent),
		index: map[[2]int64]*indexRead{}, holding: map[*Unit]struct{}{},
		kick: make(chan struct{}, 1), space: make(chan struct{}, 1),
		turn: make(chan struct{}, 1), memoryFree: make(chan struct{}, 1),
	}
	if f.cfg.Context == nil {
		f.cfg.Context = context.Background()
	}
	f.ctx, f.stop = context.WithCancel(f.cfg.Context)
	f.work.L = &f.mu
	f.view.init()
	f.depth.init()
	if cfg.Mount {
		f.depth.now, f.depth.mount = mountDepth, true
	}
	if cfg.Remote {
		f.depth.now = RemoteDepth
		f.window = min(remoteWindow, cfg.Memory-cfg.Urgent)
		f.readahead.may = cfg.Ahead && !cfg.Exact && f.src.Info().Len <= maxCandidates*mostOfSet && f.readaheadMemory() >= leastReadahead
		f.readahead.on = f.readahead.may
	}
	if n := cfg.MostReads; n > 0 {
		f.depth.most, f.depth.now = n, min(f.depth.now, n)
	}
	f.gaps.remote, f.gaps.exact = cfg.Remote, cfg.Exact
	f.view.gap = f.gaps.most()
	return f
}

// Turn is shared by records that are needed together. Fetcher.early keeps later records from sharing the link with
// them.
type Turn struct {
	// Epoch is the epoch of the records.
	Epoch int64
	// Awaited reports that the records belong to the first batch of a stream, so the trainer is waiting for them.
	Awaited bool
}

// Unit is a group of records on its way from Locate to Done. It belongs to the planner until Admit, to the Fetcher
// until it is ready, then to the worker.
type Unit struct {
	driver.Group
	// Owner, Lo and Hi identify the batch and the rows that the records are for, once the unit is attached.
	Owner  any
	Lo, Hi int
	// Turn is set before Admit.
	Turn
	// InMemory reports that nothing has to be read.
	InMemory bool
	// Parsed reports that the values are set without a call of Parse.
	Parsed bool

	ctx      context.Context
	order    int64
	need     int64 // bytes of memory for the bytes that have to be read
	reserved int64
	rushed   bool // reserved from the urgent part
	missing  int  // pieces of the index that are being read
	rounds   int
	left     int // reads that have not finished
	attached bool
	dropped  bool
	complete bool
	// candidate reports that the unit may be read ahead but is not admitted. The field later holds its reads by extent
	// that were read ahead or may be, and ahead their memory until the unit is admitted.
	candidate bool
	admitted  bool
	later     []*extent
	ahead     int64
	blocks    []*block // by extent
	ids       []int64  // backing array of Group.IDs
	readErrs  []error  // by record
	err       error
	whole     bool         // of a chunk that is read as a whole
	chunk     bool         // its records are copied to other units
	from      []*heldChunk // the chunk of each record
}

// Order returns the unit's position in the order of need.
func (u *Unit) Order() int64 { return u.order }

// Err returns the error of the unit as a whole: a bug in the source.
func (u *Unit) Err() error { return u.err }

// Kick is signalled when units may be ready. A worker that takes a unit and leaves others signals it again.
func (f *Fetcher) Kick() <-chan struct{} { return f.kick }

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

// newUnit returns an empty unit.
func (f *Fetcher) newUnit() *Unit {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.newUnitLocked()
}

func (f *Fetcher) newUnitLocked() *Unit {
	if n := len(f.pool); n > 0 {
		u := f.pool[n-1]
		f.pool = f.pool[:n-1]
		return u
	}
	return new(Unit)
}

// measure looks up which extents are in memory and sums the bytes that have to be read.
func (u *Unit) measure(f *Fetcher) {
	now := time.Now()
	u.need = 0
	u.InMemory = len(u.Missing) == 0
	n := len(u.Extents)
	if cap(u.blocks) < n {
		u.blocks = make([]*block, n)
	}
	u.blocks = u.blocks[:n]
	clear(u.blocks)
	u.Bytes = u.Bytes[:0]
	for i := range u.Extents {
		e := &u.Extents[i]
		b := f.obj.Resident(e, now)
		u.Bytes = append(u.Bytes, b)
		if b == nil && e.Size > 0 {
			u.InMemory = false
			u.need += pieceBytes(e.Size)
		}
	}
}

// pieceBytes returns the memory that n bytes take up, with alignment and tail.
func pieceBytes(n int64) int64 {
	if n >= placeFrom {
		n += page
	}
	return (n + arena.Tail + pieceAlign - 1) &^ (pieceAlign - 1)
}

// recordOf returns the index of the record that extent i belongs to.
func (u *Unit) recordOf(i int) int {
	lo, hi := 0, len(u.IDs)
	for lo < hi {
		mid := (lo + hi) / 2
		if int(u.First[mid+1]) > i {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}

// fieldsOf returns the fields to read of a group.
func (f *Fetcher) fieldsOf(ids []int64) []bool {
	if f.cfg.FieldsOf == nil || len(ids) == 0 {
		return f.cfg.Fields
	}
	return f.cfg.FieldsOf(ids[0])
}

// Memory locates records and reports whether all of them are in memory. If so, u, which the caller provides, has their
// bytes. Memory never waits.
func (f *Fetcher) Memory(u *Unit, ids []int64) bool {
	u.IDs, u.Want = ids, f.fieldsOf(ids)
	u.Begin(ids, f.fields)
	u.Again = f.cfg.Unproven
	if recordread.LocateOnce(f.src, &u.Group) != nil || len(u.Missing) > 0 {
		return false // reading returns the error
	}
	now := time.Now()
	for i := range u.Extents {
		e := &u.Extents[i]
		b := f.obj.Resident(e, now)
		if b == nil && e.Size > 0 || f.tooLarge(e) {
			return false
		}
		u.Bytes = append(u.Bytes, b)
	}
	return true
}

// Count records that a group was parsed and how long that took. If the group was found in memory, took includes the
// time of Memory.
func (f *Fetcher) Count(u *Unit, took time.Duration) {
	f.busy.Add(int64(took))
	n := 0
	for _, b := range u.Bytes {
		n += len(b)
	}
	f.records.Add(int64(len(u.IDs)))
	f.bytes.Add(int64(n))
}

// Ready returns the number of units that are ready.
func (f *Fetcher) Ready() int { return int(f.nReady.Load()) }

// Pop returns the ready unit that is needed first, or nil.
func (f *Fetcher) Pop() *Unit {
	if f.nReady.Load() == 0 {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	u := f.ready.pop()
	if u == nil {
		return nil
	}
	f.handed = u.Turn
	f.sinceDry++
	if f.sinceDry >= shrinkAfter {
		f.sinceDry = 0
		f.window = max(f.window-f.window/8, min(firstWindow, f.cfg.Memory-f.cfg.Urgent))
	}
	if f.nReady.Add(-1) > 0 {
		signal(f.kick)
	}
	return u
}

// slowRead is the latency of the slowest reads from which a larger window helps. Faster reads come from the system's
// cache and take processor time, which reading ahead does not save.
const slowRead = 5 * time.Millisecond

// shrinkAfter is the number of units that must be ready in time before the window shrinks.
const shrinkAfter = 2048

// Dry is called by a worker that found nothing to do. If it waits for reads, the window grows.
func (f *Fetcher) Dry() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sinceDry = 0
	limit := f.cfg.Memory - f.cfg.Urgent
	if f.running == 0 || f.window >= limit || f.used < f.window/2 || f.depth.slow < slowRead {
		return
	}
	if f.queue.n+f.rush.n > 0 {
		return // the worker waits for reads that are under way: more reads would delay them
	}
	// The effect of the last growth shows after the reads that it allowed.
	if now := time.Now(); now.Sub(f.grown) >= f.depth.latency() {
		f.grown = now
		f.window = min(2*f.window, limit)
		signal(f.space)
	}
}

// Done ends the use of a unit that Pop returned.
func (f *Fetcher) Done(u *Unit) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.freeLocked(u)
}

// freeLocked releases the memory and the chunks of a unit.
func (f *Fetcher) freeLocked(u *Unit) {
	for i, bl := range u.blocks {
		if bl != nil {
			f.mem.release(bl)
			u.blocks[i] = nil
		}
	}
	if u.rushed {
		f.urgent -= u.reserved
	} else {
		f.used -= u.reserved
		if u.attached {
			f.attached -= u.reserved
		}
	}
	f.units--
	for i, c := range u.from {
		c.usedLocked(f)
		u.from[i] = nil
	}
	clear(u.Bytes)
	clear(u.later)
	*u = Unit{Group: u.Group, blocks: u.blocks[:0], ids: u.ids, readErrs: u.readErrs[:0], from: u.from[:0], later: u.later[:0]}
	u.Alloc, u.Place = nil, nil
	if len(f.pool) < 256 {
		f.pool = append(f.pool, u)
	}
	signal(f.memoryFree)
	signal(f.space)
}

// Drop gives up a unit that is not attached, admitted or not.
func (f *Fetcher) Drop(u *Unit) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case u.complete:
		f.freeLocked(u)
	default:
		u.dropped = true // the last read frees it
		f.giveUp(u)
	}
}

// Close stops all reads and waits for them. Units are not valid afterwards.
func (f *Fetcher) Close() {
	f.stop()
	f.mu.Lock()
	f.closed = true
	f.hedge.stop()
	f.work.Broadcast()
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
	if f.held = on; !on {
		f.wakeFor(f.queue.n)
		f.Wake()
	}
}

// Oldest returns the place of the read that has been running longest, and since when.
func (f *Fetcher) Oldest() (place string, since time.Duration, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.inOrder) > 0 { // in the order in which they began
		rd := f.inOrder[0]
		return f.obj.Place(&rd.Extent), time.Since(rd.since), true
	}
	oldest := time.Duration(-1)
	for _, fl := range f.attempts {
		if !fl.done { // a hedged read has answered: the units may be reused by now
			oldest = max(oldest, time.Since(fl.since))
		}
	}
	if oldest < 0 {
		return "", 0, false
	}
	// Choose the read that is needed first among the reads of about that age.
	var old *attempt
	for _, fl := range f.attempts {
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

// inUse returns the number of bytes in use.
func (f *Fetcher) inUse() int64 { return f.used + f.urgent + f.ahead + f.transit }

// Counters returns the statistics so far.
func (f *Fetcher) Counters() Counters {
	f.mu.Lock()
	defer f.mu.Unlock()
	return Counters{
		Busy: time.Duration(f.busy.Load()), Records: f.records.Load(), Bytes: f.bytes.Load(), Requests: f.requests.Load(),
		Hedges: f.hedge.made, Depth: f.depth.now, InFlight: f.running + len(f.inOrder), Ahead: f.inUse(), Peak: f.peak, Queue: f.queue.n + f.learn.n + f.rush.n,
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

// readyHeap holds the ready units. The one that is needed first is on top.
type readyHeap []*Unit

func (h readyHeap) less(i, j int) bool {
	return h[i].order < h[j].order || h[i].order == h[j].order && h[i].Lo < h[j].Lo
}

func (h *readyHeap) push(u *Unit) {
	*h = append(*h, u)
	for i := len(*h) - 1; i > 0 && h.less(i, (i-1)/2); i = (i - 1) / 2 {
		(*h)[i], (*h)[(i-1)/2] = (*h)[(i-1)/2], (*h)[i]
	}
}

func (h *readyHeap) pop() *Unit {
	n := len(*h) - 1
	if n < 0 {
		return nil
	}
	u := (*h)[0]
	(*h)[0], (*h)[n] = (*h)[n], nil
	*h = (*h)[:n]
	for i := 0; ; {
		c := 2*i + 1
		if c+1 < n && h.less(c+1, c) {
			c++
		}
		if c >= n || !h.less(c, i) {
			return u
		}
		(*h)[i], (*h)[c] = (*h)[c], (*h)[i]
		i = c
	}
}
