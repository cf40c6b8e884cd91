package pipeline

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stokerdata/stoker/internal/budget"
	"github.com/stokerdata/stoker/internal/fetch"
	"github.com/stokerdata/stoker/internal/localcache"
	"github.com/stokerdata/stoker/internal/store/disk"
	"github.com/stokerdata/stoker/source/driver"
)

// maxBuffers is the number of chunks that may be read concurrently for single records.
const maxBuffers = 8

// onDisk is the cache of remote data on a disk of this machine.
type onDisk struct {
	*localcache.Cache
	staged  *localcache.Staged // a copy of all of it, in its place
	ended   chan struct{}      // closed when the first epoch has ended
	endOnce sync.Once
	buffers int // 0: nothing is cached
	largest int64
	mu      sync.Mutex
	note    string
	told    progress
	// The state of the batches that were handed out, guarded by the pipeline's lock. The field ahead is the number of
	// batches of a new epoch that may come before data is known to be read again. It is 0 while nothing is counted.
	seen  bool
	epoch int64
	ahead int
	again atomic.Bool // it is read again since lend was called last
}

// say reports why nothing, or nothing more, is cached.
func (d *onDisk) say(p *Pipeline, what string) {
	d.mu.Lock()
	d.note = what
	d.mu.Unlock()
	if p.cfg.Say != nil {
		p.cfg.Say(what)
	}
}

func (d *onDisk) noted() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.note
}

// wanted adds the memory of the disk cache's buffers to a request, if data is to be cached there. Without a window,
// records are requested one by one, and a chunk is read as a whole for each.
func (d *onDisk) wanted(p *Pipeline, info *driver.Info, r *budget.Request) {
	if p.cfg.Stage != "" && !localcache.Of(p.src) {
		d.say(p, fmt.Sprintf("stage is for data in other places; %s is on this machine", info.URL))
	}
	if p.cfg.Cache != CacheOn && p.cfg.Stage == "" || p.caches.kept.src != nil || !localcache.Of(p.src) {
		return
	}
	if p.cfg.Stage == "" && !p.worthKeeping(info) {
		d.say(p, "nothing is cached on a disk: less than half of the data is wanted, and it would be read as a whole")
		return
	}
	d.largest = localcache.Largest(p.src)
	n := maxBuffers
	if p.order.window != nil && p.order.window.own != nil {
		n = 1
	}
	if p.cfg.Stage != "" {
		n = max(n, 2) // one is for background copies
	}
	for before := *r; n > 0; n /= 2 {
		*r = before
		r.Cache += int64(n) * d.largest
		if r.Automatic { // which was chosen without it
			r.Memory = max(r.Memory, min(r.Memory+int64(n)*d.largest, r.Most))
		}
		if _, err := budget.Make(r); err == nil {
			d.buffers = n
			return
		}
		*r = before
	}
	d.say(p, "nothing is cached on a disk: memory does not suffice to read a chunk as a whole")
}

// worthKeeping reports whether at least half of the data is needed, as far as that is known.
func (p *Pipeline) worthKeeping(info *driver.Info) bool {
	records, all := int64(0), int64(0)
	for i := range info.Fields {
		st := info.Fields[i].Stats
		if st == nil || st.Count == 0 || info.Sequential {
			return true // the sizes are unknown
		}
		records += int64(float64(st.Bytes) / float64(st.Count) * float64(info.Len))
	}
	if !p.mostIsWanted() {
		return false
	}
	for n := range info.Objects {
		if all += p.src.Object(n).Entry.Size; all > 2*records {
			return false
		}
	}
	return true
}

// open opens the cache. A missing cache is not a failure: everything works without it.
func (d *onDisk) open(ctx context.Context, p *Pipeline) error {
	if d.buffers == 0 {
		return nil
	}
	if p.cfg.Stage != "" {
		s, err := localcache.OpenStage(ctx, p.src, localcache.StageOptions{
			Dir: p.cfg.Stage, Cache: p.cfg.CacheDir, Buffers: max(d.buffers-1, 1), Largest: d.largest, Say: func(what string) { d.say(p, what) },
		})
		if err != nil {
			d.say(p, "nothing is copied: "+err.Error())
			return nil
		}
		d.staged, d.ended = s, make(chan struct{})
		return nil
	}
	peers, err := localcache.PeerOptions(p.cfg.Peers, p.cfg.PeersSelf)
	if err != nil {
		return err
	}
	c, err := localcache.Open(p.src, localcache.Options{
		Peers: peers, Below: p.cfg.Decorate,
		Dir: p.cfg.CacheDir, Limit: p.cfg.CacheLimit, Buffers: d.buffers, Largest: d.largest, Memory: p.inMemory(),
		Say: func(what string) { d.say(p, what) },
	})
	if err != nil {
		if p.cfg.wantsCache() {
			d.say(p, "there is no cache: "+err.Error())
		}
		return nil
	}
	d.Cache = c
	return nil
}

// copyRest copies the chunks that were not read, after the end of the first epoch.
func (d *onDisk) copyRest(p *Pipeline) {
	if d.staged != nil {
		p.spawn("stage", func() { d.staged.Run(p.ctx, d.ended, p.objects.Read) })
	}
}

// epochEnded registers the end of an epoch.
func (d *onDisk) epochEnded() {
	if d.staged != nil {
		d.endOnce.Do(func() { close(d.ended) })
	}
}

// handedOut registers that the training loop gets a batch of an epoch. Once the loop has taken more of a second epoch
// than could be prefetched, data is known to be read again. A loop that reads the data once leaves the system's cache
// unchanged.
func (d *onDisk) handedOut(epoch int64, slots int) {
	switch {
	case d.Cache == nil:
		return
	case !d.seen:
		d.seen, d.epoch = true, epoch
	case epoch != d.epoch:
		d.epoch = epoch
		if d.ahead == 0 {
			d.ahead = slots + 1
		}
	}
	if d.ahead > 0 {
		if d.ahead--; d.ahead == 0 {
			d.again.Store(true)
		}
	}
}

// lend lets later reads use the records directly in the system's cache, if possible.
func (d *onDisk) lend(p *Pipeline) {
	if d.Cache == nil {
		return
	}
	inMemory := int64(0)
	if p.caches.ram != nil {
		inMemory = p.caches.ram.Stats().Limit
	}
	d.Lend(inMemory)
}

// inMemory returns a function that reports whether a piece is completely cached in memory.
func (p *Pipeline) inMemory() func(disk.Piece) bool {
	if p.caches.ram == nil {
		return nil
	}
	return func(c disk.Piece) bool { return p.caches.ram.Has(c) }
}

// close closes the cache after all reads have ended.
func (d *onDisk) close() error {
	switch {
	case d.staged != nil:
		return d.staged.Close()
	case d.Cache != nil:
		return d.Cache.Close()
	}
	return nil
}

// count puts the cache into the statistics.
func (d *onDisk) count(s *Stats) {
	if d.staged != nil {
		st := d.staged.Stats()
		st.Note = d.noted()
		s.Stage = &st
	}
	if d.Cache == nil {
		return
	}
	st := d.Cache.Stats()
	st.Note = d.noted()
	s.CacheDisk = &st
}

// countReads is the part of count that does not list files.
func (d *onDisk) countReads(s *Stats) {
	if d.Cache != nil {
		s.CacheDisk = &localcache.Stats{Stats: d.Cache.Disk.Stats()}
	}
}

// progress is the position that this engine has last published to other jobs.
type progress struct {
	epoch, pos int64
	from       fetch.Place // since when, for the rate
	since      time.Time
}

// tellEvery is the number of times per epoch that the position is published.
const tellEvery = 2048

// reading publishes to the jobs that share the cache which chunks are read from a place of the order on. So the cache
// replaces the chunk that all of them need last. The planner calls it.
func (d *onDisk) reading(p *Pipeline, at fetch.Place) {
	w := p.order.window
	if d.Cache == nil || w.own == nil || w.Whole() {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	t, length := &d.told, w.Len()
	switch {
	case t.since.IsZero() || at.Epoch != t.epoch || at.Pos < t.pos:
		if t.since.IsZero() || at.Epoch < t.epoch {
			t.from, t.since = at, time.Now()
		}
		now, next := w.epoch(at.Epoch), w.epoch(at.Epoch+1)
		// An error is ignored: the other jobs' cache decisions only get worse.
		_ = d.Chunks.Epoch(p.cfg.Rank, length, d.Uses(func(chunk int) (int64, int64) {
			return now.First(chunk, p.cfg.Rank, p.cfg.WorldSize), next.First(chunk, p.cfg.Rank, p.cfg.WorldSize)
		}))
	case at.Pos-t.pos < length/tellEvery:
		return
	}
	t.epoch, t.pos = at.Epoch, at.Pos
	rate := 0.0
	if took := time.Since(t.since).Seconds(); took > 0 {
		rate = float64((at.Epoch-t.from.Epoch)*length+at.Pos-t.from.Pos) / took
	}
	d.Chunks.At(at.Pos, rate)
}
