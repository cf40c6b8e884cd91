// Package fetch reads the bytes of records before they are wanted. It knows
// what will be wanted in which order, locates it, reads it ahead as far as a budget
// of memory allows, neighbours together, with as many reads at a time as pay, and
// hands the records out in the order of need.
//
// Read, in this order: Unit (a group of records on its way), Fetcher.Admit (what
// is to be read), issue.go (what is read next, and with what), depth.go (how many
// reads at a time), gap.go and along.go (what is read along), finish.go (what happens to what
// was read).
package fetch

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/direct"
	"github.com/stokerdata/stoker/internal/units"
	"github.com/stokerdata/stoker/source/driver"
)

// Config says what to read and within which limits.
type Config struct {
	Source  driver.Source
	Objects *direct.Objects
	// Memory bounds what is read ahead, in bytes, taken from Budget. Urgent is
	// the part of it that is kept for records that are wanted at once and could
	// not be planned: those that were in memory and are not any more, or whose
	// index had to be read first.
	Memory, Urgent int64
	// Want says which fields are wanted, nil for all.
	Want []bool
	// Far says that each read is a way to another machine and back, so that many are
	// tried from the beginning.
	Far bool
	// Mount says that the records are files on a mount of a server or of another program (FUSE).
	Mount bool
	// Ahead says that the owner foresees (Fetcher.Foresee), so that records of something far
	// away may be read along with their neighbours, unless Exact.
	Ahead bool
	// Exact says that nothing is read but what is wanted: where bytes cost more than
	// reads, or are not read a second time because they are kept.
	Exact bool
	// Known returns why a record is not to be read since it is known to be bad, nil for others. It may be nil.
	Known  func(id int64) error
	Budget *arena.Budget
	// MaxValue is the largest value that is read, 0 for any, and Enough the memory budget with which one of some
	// bytes is, nil if that is not known.
	MaxValue int64
	Enough   func(need int64) int64
	// Context is that of reads of the index, nil for the background.
	Context context.Context
}

// Fetcher reads ahead. Admit and Attach are called by one goroutine at a time, in
// the order of need; the other methods may be called from any.
type Fetcher struct {
	cfg    Config
	src    driver.Source
	obj    *direct.Objects
	fields int

	mu  sync.Mutex
	mem *memory
	// used and urgent are what units have reserved of either part of the memory,
	// window is how much may be used at present: it grows when the workers run
	// dry, so that no more is read ahead than serves.
	used, urgent, window, peak int64
	// attached is what units have of used that are for a batch already.
	attached int64
	// ahead is the memory of what is read along for units that are not admitted (holding),
	// transit that of reads which bring such. foreseen are the records that may be.
	ahead, transit int64
	holding        map[*Unit]struct{}
	foreseen       int
	along          along
	handed         Turn // that of the unit that was handed out last
	grown          time.Time
	units          int // admitted and not done
	sinceDry       int // units handed out since the workers last ran dry

	// What is to be read: extents, pieces of the index, and what is in a hurry.
	queue, learn, rush fifo
	view               view // those of them that may become part of a larger read
	index              map[[2]int64]*indexRead

	ready  readyHeap
	nReady atomic.Int32
	kick   chan struct{}
	space  chan struct{}

	work    sync.Cond // of mu: there is something to read, or the depth has grown
	readers int
	single  atomic.Bool // each read is waited for by itself
	parked  int
	flights []*flight
	flying  int // flights that count for the depth
	// load is what those weigh, in parts of a read, without those of the index, which are
	// counted in learning where they have room of their own.
	load, learning int
	last           Turn // that of the read that began last
	depth          depth
	gaps           gaps
	hedge          hedger
	closed, held   bool
	ctx            context.Context // of reads of the index, which are for all
	stop           context.CancelFunc
	wg             sync.WaitGroup

	// Of sources that are read in order:
	inOrder []*orderedRead
	turn    chan struct{} // held by the InOrder that reads
	room    chan struct{} // there may be room for it

	pool  []*Unit
	wants []*want // spare

	busy, records, bytes, requests atomic.Int64
}

const (
	// firstWindow is how much is read ahead until that turns out to be too little.
	firstWindow = 16 << 20
	// farWindow is the same where reads are far away: a batch of photographs, and more.
	farWindow = 64 << 20
	// maxUnits and maxWants bound what is in view at a time.
	maxUnits = 4096
	maxWants = 32 << 10
)

// New returns a Fetcher. It starts goroutines as they are needed; Close waits
// for them.
func New(cfg Config) *Fetcher {
	f := &Fetcher{
		cfg: cfg, src: cfg.Source, obj: cfg.Objects, fields: len(cfg.Source.Info().Fields),
		mem: newMemory(cfg.Budget, int(cfg.Memory)), window: min(firstWindow, cfg.Memory-cfg.Urgent),
		index: map[[2]int64]*indexRead{}, holding: map[*Unit]struct{}{},
		kick: make(chan struct{}, 1), space: make(chan struct{}, 1),
		turn: make(chan struct{}, 1), room: make(chan struct{}, 1),
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
	if cfg.Far {
		f.depth.now = FarDepth
		f.window = min(farWindow, cfg.Memory-cfg.Urgent)
		f.along.may = cfg.Ahead && !cfg.Exact && f.src.Info().Len <= maxForeseen*mostOfSet && f.alongMemory() >= leastAlong
		f.along.on = f.along.may
	}
	f.gaps.far, f.gaps.exact = cfg.Far, cfg.Exact
	f.view.gap = f.gaps.most()
	return f
}

// Turn is what records have in common that are needed together: Fetcher.early keeps what comes
// later from sharing the link with them.
type Turn struct {
	// Epoch is the one that they come in.
	Epoch int64
	// Awaited says that they are of the first batch of a stream, for which somebody waits.
	Awaited bool
}

// Unit is a group of records on its way from Locate to Done. It belongs to the
// planner until Admit, to the Fetcher until it is ready, then to the worker.
type Unit struct {
	driver.Group
	// Owner, Lo and Hi say what the records are for, once it is attached.
	Owner  any
	Lo, Hi int
	// Turn is set before Admit.
	Turn
	// InMemory says that nothing has to be read.
	InMemory bool
	// Parsed says that the values are there without Parse.
	Parsed bool

	ctx      context.Context
	order    int64
	need     int64 // bytes of memory for what is to be read
	reserved int64
	rushed   bool // reserved of the urgent part
	missing  int  // pieces of the index that are being read
	rounds   int
	left     int // wants that are not there yet
	attached bool
	dropped  bool
	complete bool
	// foreseen says that it is in view but not admitted; later are its wants by extent that
	// were read along or may be, ahead the memory of those while it is not admitted.
	foreseen bool
	admitted bool
	later    []*want
	ahead    int64
	blocks   []*block // by extent
	ids      []int64  // memory of Group.IDs
	readErrs []error  // by record
	err      error
	whole    bool         // of a chunk that is read as it is
	chunk    bool         // its records are for other units
	from     []*heldChunk // the chunks that its records are of, one for each record
}

// Order is the unit's place in the order of need.
func (u *Unit) Order() int64 { return u.order }

// Err is the failure of the unit as a whole: a bug of the source.
func (u *Unit) Err() error { return u.err }

// Kick is signalled when units may be ready. A worker that takes one and leaves
// more signals it again.
func (f *Fetcher) Kick() <-chan struct{} { return f.kick }

// Space is signalled when there may be room for another unit, and when somebody
// should look ahead who has not.
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

// measure finds out what of the extents is in memory and what has to be read.
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

// pieceBytes is what n bytes take of the memory.
func pieceBytes(n int64) int64 {
	if n >= placeFrom {
		n += page
	}
	return (n + arena.Tail + pieceAlign - 1) &^ (pieceAlign - 1)
}

// recordOf is the record that extent i belongs to.
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

// Memory locates records and says whether all of them are in memory; u, of the
// caller, then has their bytes. It waits for nothing.
func (f *Fetcher) Memory(u *Unit, ids []int64) bool {
	u.IDs, u.Want = ids, f.cfg.Want
	u.Begin(ids, f.fields)
	if direct.LocateOnce(f.src, &u.Group) != nil || len(u.Missing) > 0 {
		return false // reading says what is wrong
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

// Count notes that a group of records was parsed, and how long that took, with
// Memory where it was found in memory.
func (f *Fetcher) Count(u *Unit, took time.Duration) {
	f.busy.Add(int64(took))
	n := 0
	for _, b := range u.Bytes {
		n += len(b)
	}
	f.records.Add(int64(len(u.IDs)))
	f.bytes.Add(int64(n))
}

// Ready is the number of units that are ready.
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

// slowRead is how long some reads must take for it to help that more is read
// ahead: those from the system's cache take the processor's time, which does not
// get less by that.
const slowRead = 5 * time.Millisecond

// shrinkAfter is how many units have to be there in time before less is read
// ahead.
const shrinkAfter = 2048

// Dry is called by a worker that found nothing to do: when that is because reads
// are out, more has to be read ahead.
func (f *Fetcher) Dry() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sinceDry = 0
	limit := f.cfg.Memory - f.cfg.Urgent
	if f.flying == 0 || f.window >= limit || f.used < f.window/2 || f.depth.slow < slowRead {
		return
	}
	if f.queue.n+f.rush.n > 0 {
		return // it waits for others that are out already: more would come between
	}
	// What the last growth has given is known after the reads that it allowed.
	if now := time.Now(); now.Sub(f.grown) >= f.depth.latency() {
		f.grown = now
		f.window = min(2*f.window, limit)
		signal(f.space)
	}
}

// Done ends the use of a unit that Pop has returned.
func (f *Fetcher) Done(u *Unit) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.freeLocked(u)
}

// freeLocked gives back what a unit holds.
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
	signal(f.room)
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
		u.dropped = true // who reads for it frees it
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

// Hold stops reads that are not urgent until they are let go on: while the store fails, those would fail as well.
func (f *Fetcher) Hold(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.held = on; !on {
		f.wakeFor(f.queue.n)
		f.Wake()
	}
}

// Oldest returns what is being read for longest, and for how long.
func (f *Fetcher) Oldest() (place string, since time.Duration, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.inOrder) > 0 { // in the order in which they began
		rd := f.inOrder[0]
		return f.obj.Place(&rd.Extent), time.Since(rd.since), true
	}
	oldest := time.Duration(-1)
	for _, fl := range f.flights {
		if !fl.done { // nobody waits for one whose answer another one has brought: its units may be others by now
			oldest = max(oldest, time.Since(fl.since))
		}
	}
	if oldest < 0 {
		return "", 0, false
	}
	// Of those that are about as old, the one that is needed first.
	var old *flight
	for _, fl := range f.flights {
		if !fl.done && time.Since(fl.since) >= oldest/2 && (old == nil || fl.wants[0].before(old.wants[0])) {
			old = fl
		}
	}
	w := old.wants[0]
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

// name says where a record lies; a panic of the source does not matter here.
func (f *Fetcher) name(id int64) (name string) {
	defer func() {
		if recover() != nil {
			name = "unknown"
		}
	}()
	return f.src.Name(id)
}

// Counters are what a Fetcher did so far.
type Counters struct {
	// Busy is the time that reads and parsing took, summed.
	Busy                     time.Duration
	Records, Bytes, Requests int64
	// Hedges counts the requests that were made again because they were late.
	Hedges int64
	// Depth is how many reads there may be at a time at present, InFlight how
	// many there are.
	Depth, InFlight int
	// Queue is the number of extents that are to be read. Ahead is the memory
	// that is in use, Peak the most that was, in bytes.
	Queue       int
	Ahead, Peak int64
}

// inUse is the memory that is in use.
func (f *Fetcher) inUse() int64 { return f.used + f.urgent + f.ahead + f.transit }

// Counters returns what was done so far.
func (f *Fetcher) Counters() Counters {
	f.mu.Lock()
	defer f.mu.Unlock()
	return Counters{
		Busy: time.Duration(f.busy.Load()), Records: f.records.Load(), Bytes: f.bytes.Load(), Requests: f.requests.Load(),
		Hedges: f.hedge.made, Depth: f.depth.now, InFlight: f.flying + len(f.inOrder), Ahead: f.inUse(), Peak: f.peak, Queue: f.queue.n + f.learn.n + f.rush.n,
	}
}

// MemoryError says that a record does not fit the memory for reading even when
// nothing else is held.
type MemoryError struct {
	// Limit and Need are in bytes, and so is Enough, the budget with which it does fit, 0 if that is not known.
	Limit, Need, Enough int64
}

// Error says how much there was.
func (e *MemoryError) Error() string {
	text := fmt.Sprintf("its %d MiB do not fit the %d MiB that the memory budget leaves for reading; raise memory", units.MiB(e.Need), e.Limit>>20)
	if e.Enough > 0 {
		text += fmt.Sprintf(`: memory="%dMiB" or more`, units.MiB(e.Enough))
	}
	return text
}

// TooLarge is the failure of a value of need bytes.
func (f *Fetcher) TooLarge(need, limit int64) error {
	e := &MemoryError{Limit: limit, Need: need}
	if f.cfg.Enough != nil {
		e.Enough = f.cfg.Enough(need)
	}
	return e
}

// readyHeap holds the ready units, the one that is needed first on top.
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
