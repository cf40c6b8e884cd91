package pipeline

import (
	"fmt"
	"runtime/metrics"
	"sync/atomic"
	"time"

	"github.com/stokerdata/stoker/internal/proc"
	"github.com/stokerdata/stoker/internal/store/traffic"
)

// The stages, in the order of the flow.
const (
	stageSample = iota
	stageFetch
	stageDecode
	stageTransform
	stageCollate
	numStages
)

var stageNames = [numStages]string{"sample", "fetch", "decode", "transform", "collate"}

// stageCounters are the counters of a stage, on a cache line of their own.
type stageCounters struct {
	busy, records atomic.Int64
	_             [48]byte
}

func (c *stageCounters) add(start time.Time, records int) {
	c.addFor(time.Since(start), int64(records))
}

func (c *stageCounters) addFor(d time.Duration, records int64) {
	c.busy.Add(int64(d))
	c.records.Add(records)
}

// counters are the totals of a pipeline.
type counters struct {
	opened                  time.Time
	stage                   [numStages]stageCounters
	batches, records        atomic.Int64
	skipped, retries        atomic.Int64
	consumerWait, waitSince atomic.Int64
}

// slowWait is the time from which a wait is reported.
const slowWait = time.Second

// Stats returns the counters. It lists the folder of the disk cache; see Counters.
func (p *Pipeline) Stats() Stats {
	s := p.Counters()
	p.caches.disk.count(&s)
	return s
}

// Counters is Stats for many calls per second: of the disk cache only the reads are counted, and not the files.
func (p *Pipeline) Counters() Stats {
	fetched := p.fetch.Counters()
	s := Stats{
		Batches: p.counters.batches.Load(), Records: p.counters.records.Load(), Mixed: p.mixedNow(), Skipped: p.counters.skipped.Load(),
		Bytes: fetched.Bytes, Retries: p.counters.retries.Load(), Repaired: p.faults.repairs.count(), Hedges: fetched.Hedges, Network: traffic.All(),
		ConsumerWait: time.Duration(p.counters.consumerWait.Load()),
		MemoryUsed:   p.memory.budget.Used() + fetched.Ahead + p.alone.mem.Budget().Used() + p.memory.large.Used(),
		MemoryPeak:   p.memory.budget.Peak() + fetched.Peak + p.alone.mem.Budget().Peak() + p.memory.large.Peak(),
		Uptime:       time.Since(p.counters.opened),
	}
	for _, w := range p.workers.list {
		s.MemoryUsed += w.budget.Used() + w.mem.Budget().Used()
		s.MemoryPeak += w.budget.Peak() + w.mem.Budget().Peak()
	}
	if since := p.counters.waitSince.Load(); since != 0 {
		s.ConsumerWait += time.Since(time.Unix(0, since))
	}
	for i := range p.counters.stage {
		st := StageStats{Name: stageNames[i], Busy: time.Duration(p.counters.stage[i].busy.Load()), Records: p.counters.stage[i].records.Load(), Workers: len(p.workers.list)}
		switch i {
		case stageSample:
			st.Workers = 1
		case stageFetch:
			st.Busy, st.Records, st.Workers, st.Queue = fetched.Busy, fetched.Records, fetched.Depth, fetched.Queue
		case stageDecode:
			st.Queue = p.fetch.Ready() + len(p.workers.memoryQ)
		}
		s.Stages = append(s.Stages, st)
	}
	p.caches.kept.count(&s)
	p.caches.disk.countReads(&s)
	if p.caches.ram != nil {
		kept := p.caches.ram.Stats()
		s.CacheMemory = &kept
		s.MemoryUsed += kept.Bytes
		s.MemoryPeak += kept.Bytes
	}
	if p.feeders != nil {
		r := p.feeders.Stats()
		s.Feeders = &r
	}
	p.mu.Lock()
	for i := range p.slots.batches {
		switch p.slots.batches[i].state {
		case batchFree:
			s.SlotsFree++
		case batchReady:
			s.SlotsReady++
		case batchHeld:
			s.SlotsHeld++
		}
	}
	p.countHeldLocked(0)
	s.RingFull, s.RingEmpty = p.slots.held.full, p.slots.held.empty
	p.mu.Unlock()
	s.Waiting, s.WaitingSeconds = p.waiting(s.SlotsHeld)
	s.NumGC = gcCycles()
	s.RSS, s.Private = proc.Resident()
	return s
}

// heldTime measures for how long the trainer held how many slots. Guarded by Pipeline.mu.
type heldTime struct {
	slots       int
	since       time.Time
	full, empty time.Duration
}

// countHeldLocked adds up the time since the last change of the number of held
// slots, and changes it.
func (p *Pipeline) countHeldLocked(change int) {
	h, now := &p.slots.held, time.Now()
	switch {
	case h.since.IsZero(): // nothing is counted before the first batch
	case h.slots == len(p.slots.batches):
		h.full += now.Sub(h.since)
	case h.slots <= 1:
		h.empty += now.Sub(h.since)
	}
	if change != 0 || !h.since.IsZero() {
		h.since = now
	}
	h.slots += change
}

// waiting returns the reason for a longer wait and its duration.
func (p *Pipeline) waiting(held int) (string, float64) {
	if place, d, ok := p.fetch.Oldest(); ok && d > slowWait {
		return fmt.Sprintf("fetch: reading %s for %.1f s%s", place, d.Seconds(), p.answered(d)), d.Seconds()
	}
	if text, first := p.faults.answers.since(time.Now().Add(-2 * longestPause)); text != "" && time.Since(first) > slowWait {
		d := time.Since(first)
		return fmt.Sprintf("fetch: retrying for %.1f s; failed requests: %s", d.Seconds(), text), d.Seconds()
	}
	since := p.counters.waitSince.Load()
	waited := time.Since(time.Unix(0, since))
	if since == 0 || waited < slowWait {
		return "", 0
	}
	if held == len(p.slots.batches) {
		return fmt.Sprintf("hand-off: all %d slots are held by the trainer for %.1f s", held, waited.Seconds()), waited.Seconds()
	}
	if name, d := p.decoding(); d > slowWait {
		return fmt.Sprintf("decode: %s and the records after it for %.1f s", name, d.Seconds()), d.Seconds()
	}
	return fmt.Sprintf("the next batch for %.1f s; no read or decoding takes long: the machine may be overloaded", waited.Seconds()), waited.Seconds()
}

// answered returns the failed requests of the last d.
func (p *Pipeline) answered(d time.Duration) string {
	text, _ := p.faults.answers.since(time.Now().Add(-d))
	switch {
	case text != "":
		return "; failed requests: " + text
	case p.remote:
		return "; no answer so far"
	}
	return ""
}

// decoding is the first record of the group that a worker has been busy with for longest.
func (p *Pipeline) decoding() (name string, d time.Duration) {
	for _, w := range p.workers.list {
		id, since := w.at.Load(), w.since.Load()
		if took := time.Since(time.Unix(0, since)); since != 0 && took > d {
			name, d = p.name(id), took
		}
	}
	return name, d
}

// gcCycles counts garbage collections without stopping anything.
func gcCycles() int64 {
	sample := []metrics.Sample{{Name: "/gc/cycles/total:gc-cycles"}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return int64(sample[0].Value.Uint64())
}
