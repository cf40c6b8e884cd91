package pipeline

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/stokerdata/stoker/internal/cache"
	"github.com/stokerdata/stoker/internal/proc"
	"github.com/stokerdata/stoker/internal/source/wrap/cachedsource"
	"github.com/stokerdata/stoker/source/driver"
)

// keeping decides when records are converted for the cache. Undoing their entropy coding takes as long as decoding
// them, and is half of decoding: the decoder then continues from that point.
//
//   - While batches wait for the trainer, conversion delays no batch.
//   - While the trainer waits for batches, conversion must leave leastRate of their rate. That usually
//     allows all records of the first epoch. Trainings read the data more than once, so it pays from
//     the second epoch on.
type keeping struct {
	p    *Pipeline
	open atomic.Bool // before that, records are only read to inspect them
	src  *cachedsource.Source

	spent atomic.Int64
	note  atomic.Pointer[string] // the last message

	mu sync.Mutex
	// Moving averages in nanoseconds: plain and kept are the times per record from files and from the cache. The field
	// extra is the additional time for the conversion of a record to the cache's format.
	plain, kept, extra float64
	groups             int     // counted in plain
	credit             float64 // groups that may be converted
}

const (
	// leastRate is the fraction of the speed that must remain if the loader is the bottleneck. Converting all records
	// in the first epoch leaves 0.71. The rest is a margin for variations, because postponing some records is a loss.
	leastRate = 0.65
	// firstGroups is the number of groups that are decoded without conversion, to measure the time. The average starts
	// with the first group and moves slowly, so more would add little. All groups until then would be postponed to a
	// later epoch.
	firstGroups = 1
)

// options returns the options of the cache, nil if none is requested.
func (k *keeping) options() *cachedsource.Options {
	cfg := &k.p.cfg
	asked := cfg.Cache == CacheOn
	if !asked && (cfg.Cache != CacheAuto || cfg.Stage != "" || !hasDisk(cfg.CacheDir)) || cfg.Decorate != nil {
		return nil
	}
	opt := &cachedsource.Options{
		Dir: cfg.CacheDir, Limit: cfg.CacheLimit, Allow: k.allow, Spent: k.took, Say: k.say,
		Opened: func(s *cachedsource.Source) { k.src = s },
	}
	// Only images in separate files: packs and archives already have a chosen format.
	opt.Files = !asked
	if !cfg.wantsCache() {
		opt.Say = func(what string) {
			if k.open.Load() { // a missing cache is not reported if it was not requested
				k.say(what)
			}
		}
	}
	return opt
}

// hasDisk reports whether a cache folder is on a disk of this machine. Without a request, nothing is cached in memory
// or on a server.
func hasDisk(dir string) bool {
	d, err := cache.At(dir, 0)
	if err != nil {
		return false
	}
	m, ok := proc.Live.MountOf(d.Path())
	return ok && m.Type != "tmpfs" && m.Type != "ramfs" && proc.RemoteFiles(m.Type) == ""
}

// say reports why there is no cache, or no further caching.
func (k *keeping) say(what string) {
	k.note.Store(&what)
	if k.p.cfg.Say != nil {
		k.p.cfg.Say(what)
	}
}

// noted returns the last message, "" for none.
func (k *keeping) noted() string {
	if s := k.note.Load(); s != nil {
		return *s
	}
	return ""
}

// allow reports whether a group may be converted now.
func (k *keeping) allow() bool {
	if !k.open.Load() {
		return false
	}
	if k.idle() {
		return true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.groups < firstGroups {
		return false
	}
	if k.extra == 0 {
		k.extra = k.plain // an estimate until the first conversion
	}
	kept := k.kept
	if kept == 0 {
		kept = k.plain / 4
	}
	more := k.extra + kept - k.plain
	if more <= 0 {
		return true
	}
	k.credit = min(k.credit+k.plain*(1/leastRate-1)/more, 2)
	if k.credit < 1 {
		return false
	}
	k.credit--
	return true
}

// idle reports that batches wait for the trainer.
func (k *keeping) idle() bool {
	p := k.p
	p.mu.Lock()
	defer p.mu.Unlock()
	ready := 0
	for i := range p.slots.batches {
		if p.slots.batches[i].state == batchReady {
			ready++
		}
	}
	return ready >= max(2, len(p.slots.batches)/2)
}

// took notes how long records took to be made fit.
func (k *keeping) took(records int, d time.Duration) {
	k.spent.Add(int64(d))
	k.mu.Lock()
	defer k.mu.Unlock()
	average(&k.extra, records, d)
}

// made notes how long the rows of a group took.
func (k *keeping) made(recs []driver.Record, d time.Duration) {
	if k.src == nil || len(recs) == 0 {
		return
	}
	n := 0
	for i := range recs {
		for v := range recs[i].Values {
			if recs[i].Values[v].Codec == driver.CodecDCT {
				n++
				break
			}
		}
	}
	if n > 0 && n < len(recs) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if n > 0 {
		average(&k.kept, n, d)
		return
	}
	k.groups++
	average(&k.plain, len(recs), d)
}

func average(to *float64, records int, d time.Duration) {
	each := float64(d) / float64(records)
	if *to == 0 {
		*to = each
	}
	*to += (each - *to) / 16
}

// count adds the cache to the statistics. The conversion of records counts as decoding, although it runs in the parsing
// stage.
func (k *keeping) count(s *Stats) {
	if k.src == nil {
		return
	}
	st := k.src.Stats()
	st.Note = k.noted()
	s.Cache = &st
	spent := time.Duration(k.spent.Load())
	s.Stages[stageFetch].Busy -= min(spent, s.Stages[stageFetch].Busy)
	s.Stages[stageDecode].Busy += spent
}
