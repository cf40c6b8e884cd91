// Package status shows the engines of a node. Each engine has a socket in the runtime folder and answers with the state
// of its loaders: rates, waits, the stage that limits, caches, requests and memory. `stoker top` reads them, and the
// exporter of metrics does. Both show the list in metrics.go. Counters come from the pipelines, and waits from the step
// log of the training process, so nothing is measured twice.
package status

import (
	"cmp"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/stokerdata/stoker/internal/doctor/steplog"
	"github.com/stokerdata/stoker/internal/pipeline"
	"github.com/stokerdata/stoker/internal/proc"
	"github.com/stokerdata/stoker/internal/stats"
	"github.com/stokerdata/stoker/internal/steptime"
	"github.com/stokerdata/stoker/plan"
)

// Totals are counters since a loader was opened.
type Totals struct {
	Batches, Records, ReadBytes, Skipped    int64
	Requests, RequestRetries, RequestErrors int64
	Waits                                   int64
	Waited                                  float64            // seconds
	Stages                                  map[string]float64 // seconds of work, by stage
	CacheHits, CacheMisses                  map[string]float64 // records of the cache of records, bytes of the others
	ringFull                                float64
}

// Status is the state of one loader. Process-wide values (Process of a metric) are the same for all of an engine.
type Status struct {
	// Run names the job: the script and the process that launched it.
	Run       string `json:"run"`
	Rank      int    `json:"rank"`
	WorldSize int    `json:"world_size"`
	// Engine and Trainer are process numbers as the engine sees them. Loader numbers the loaders of an engine.
	Engine  int    `json:"engine"`
	Trainer int    `json:"trainer"`
	Loader  int    `json:"loader"`
	Version string `json:"version"`
	Source  string `json:"source"`
	Format  string `json:"format"`
	// Opened is when, in seconds since 1970.
	Opened float64 `json:"opened"`
	// Metrics is the address on which this engine exports metrics.
	Metrics string `json:"metrics,omitempty"`

	Totals Totals `json:"totals"`
	// Last are the changes in the last Seconds.
	Last    Totals  `json:"last"`
	Seconds float64 `json:"seconds"`
	// Watched reports that waits of the training process are known. Quantiles are in seconds, over the last waits.
	Watched       bool       `json:"watched"`
	WaitQuantiles [3]float64 `json:"wait_quantiles"`
	// Limit is the stage that limited the last seconds: see limit. Waiting describes a wait longer than a second.
	Limit   string `json:"limit"`
	Waiting string `json:"waiting,omitempty"`

	BatchSize int            `json:"batch_size"`
	Ready     int            `json:"ready"`
	Slots     int            `json:"slots"`
	Workers   map[string]int `json:"workers"`
	Memory    int64          `json:"memory"`
	Resident  int64          `json:"resident"`
}

// WaitShare is the share of the last seconds in which the training process waited for data, NaN if that is unknown.
func (s *Status) WaitShare() float64 {
	if !s.Watched || s.Seconds <= 0 {
		return math.NaN()
	}
	return min(max(s.Last.Waited/s.Seconds, 0), 1)
}

// Quantiles are those of Status.WaitQuantiles.
var Quantiles = [3]float64{0.5, 0.95, 0.99}

// Source is a pipeline that is shown.
type Source interface {
	Counters() pipeline.Stats
	Info() pipeline.Info
}

const (
	// Every is the interval between two looks at the counters.
	Every = time.Second
	// Window is the time of Status.Last.
	Window = 5 * time.Second
	// keptWaits is the number of waits for the quantiles.
	keptWaits = 1024
)

// Loader is one pipeline of this process.
type Loader struct {
	engine *Engine
	src    Source
	fixed  Status
	waits  *waits

	reading sync.RWMutex // held while src is read: closing waits for it
	closed  bool

	mu   sync.Mutex
	past []moment // at most Window/Every+1 of them, the oldest first
}

type moment struct {
	at time.Time
	Totals
}

// Limits returns the stage that limited the last seconds.
func (l *Loader) Limits() string {
	s, _ := l.status(time.Now())
	return s.Limit
}

// Close removes the loader from the list. The pipeline is not used afterwards.
func (l *Loader) Close() { l.engine.remove(l) }

// tick remembers the counters.
func (l *Loader) tick(now time.Time) {
	t, _, ok := l.totals(now)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.past = append(l.past, moment{now, t})
	if most := int(Window/Every) + 1; len(l.past) > most {
		l.past = slices.Delete(l.past, 0, len(l.past)-most)
	}
}

// totals reads the counters, unless the loader is closed.
func (l *Loader) totals(now time.Time) (t Totals, s pipeline.Stats, ok bool) {
	l.reading.RLock()
	defer l.reading.RUnlock()
	if l.closed {
		return t, s, false
	}
	s = l.src.Counters()
	t = Totals{
		Batches: s.Batches, Records: s.Records, ReadBytes: s.Bytes, Skipped: s.Skipped,
		Stages: map[string]float64{}, CacheHits: map[string]float64{}, CacheMisses: map[string]float64{},
		ringFull: s.RingFull.Seconds(),
	}
	for _, stage := range s.Stages {
		t.Stages[stageName(stage.Name)] = stage.Busy.Seconds()
	}
	for i := range s.Network {
		t.Requests += s.Network[i].Requests
		t.RequestRetries += s.Network[i].Retries
		t.RequestErrors += s.Network[i].Errors
	}
	if c := s.Cache; c != nil {
		t.CacheHits["records"], t.CacheMisses["records"] = float64(c.Hits), float64(c.Misses)
	}
	if c := s.CacheMemory; c != nil {
		t.CacheHits["memory"], t.CacheMisses["memory"] = float64(c.HitBytes), float64(c.MissBytes)
	}
	if c := s.CacheDisk; c != nil {
		t.CacheHits["disk"], t.CacheMisses["disk"] = float64(c.HitBytes), float64(c.MissBytes)
	}
	t.Waits, t.Waited = l.waits.read(now)
	return t, s, true
}

// status is the state now, unless the loader is closed.
func (l *Loader) status(now time.Time) (out Status, ok bool) {
	t, s, ok := l.totals(now)
	if !ok {
		return out, false
	}
	out = l.fixed
	out.Totals, out.Metrics = t, l.engine.exports()
	out.WaitQuantiles, out.Watched = l.waits.quantiles()
	out.Waiting, out.Memory, out.Resident, out.Ready = s.Waiting, s.MemoryUsed, s.RSS, s.SlotsReady
	out.Workers = map[string]int{}
	for _, stage := range s.Stages {
		out.Workers[stageName(stage.Name)] = stage.Workers
	}
	l.mu.Lock()
	before := moment{at: now}
	if len(l.past) > 0 {
		before = l.past[0]
	}
	l.mu.Unlock()
	out.Last, out.Seconds = t.since(&before.Totals), now.Sub(before.at).Seconds()
	out.Limit = limit(&out)
	return out, true
}

// stageName is the name of a stage in reports.
func stageName(name string) string {
	if name == "fetch" {
		return Read
	}
	return name
}

// since returns the changes from an earlier time.
func (t *Totals) since(before *Totals) Totals {
	return Totals{
		Batches: t.Batches - before.Batches, Records: t.Records - before.Records, ReadBytes: t.ReadBytes - before.ReadBytes,
		Skipped: t.Skipped - before.Skipped, Requests: t.Requests - before.Requests,
		RequestRetries: t.RequestRetries - before.RequestRetries, RequestErrors: t.RequestErrors - before.RequestErrors,
		Waits: t.Waits - before.Waits, Waited: t.Waited - before.Waited,
		Stages: less(t.Stages, before.Stages), CacheHits: less(t.CacheHits, before.CacheHits), CacheMisses: less(t.CacheMisses, before.CacheMisses),
		ringFull: t.ringFull - before.ringFull,
	}
}

func less(a, b map[string]float64) map[string]float64 {
	out := make(map[string]float64, len(a))
	for k, v := range a {
		out[k] = v - b[k]
	}
	return out
}

// The values of Status.Limit other than stages of the pipeline.
const (
	// Idle: no batch was delivered, and the loop did not wait for one.
	Idle = "idle"
	// Step: the loop hardly waits, so the training step is the slower side.
	Step = plan.LimitAccelerator
	// Read: decode workers wait for data.
	Read = "read"
	// Handoff: batches were ready while the loop waited. Functions of map= or the hand-off take the time.
	Handoff = plan.LimitHandoff
)

const (
	// mostly is the share of the time from which the ring counts as full.
	mostly = 0.5
	// waitedFull is the share of the time in which the loop must have waited although it held all batches.
	waitedFull = 0.1
	// busy is the share of the decode workers' time from which they count as busy. Otherwise they wait for reads.
	busy = 0.7
)

// limit names what limited the last seconds.
func limit(s *Status) string {
	if s.Seconds <= 0 {
		return Idle
	}
	full, wait := s.Last.ringFull/s.Seconds, s.WaitShare()
	switch {
	case s.Last.Batches == 0 && (full > mostly || s.Totals.Batches == 0 && !(wait > mostly) || wait == 0):
		return Idle
	case s.Watched && wait <= 1-steptime.FedAU:
		return Step
	case full > mostly && s.Watched && full+wait > 1+waitedFull:
		return Handoff
	case full > mostly && !s.Watched:
		return Step
	}
	work := []string{"decode", "transform", "collate"}
	sum := 0.0
	for _, stage := range work {
		sum += s.Last.Stages[stage]
	}
	if sum < busy*s.Seconds*float64(max(s.Workers["decode"], 1)) {
		return Read
	}
	return slices.MaxFunc(work, func(a, b string) int { return cmp.Compare(s.Last.Stages[a], s.Last.Stages[b]) })
}

// waits follows the step log of a training process.
type waits struct {
	trainer int
	opened  int64 // on the clock of the log; earlier waits are not of this loader

	mu      sync.Mutex
	log     *steplog.Log
	tried   time.Time
	from    int64 // of the wait that is not over, 0 for none
	count   int64
	seconds float64
	last    []float64 // the last keptWaits, as a ring
}

// read reads what is new. A wait that is not over counts up to now.
func (w *waits) read(now time.Time) (count int64, seconds float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.log == nil {
		if w.trainer <= 0 || now.Sub(w.tried) < Every/2 {
			return 0, 0
		}
		w.tried = now
		log, err := steplog.Open(w.trainer)
		if err != nil {
			return 0, 0 // it begins one with its first wait
		}
		w.log = log
	}
	records, _, err := w.log.Next()
	if err != nil {
		return w.count, w.seconds
	}
	for _, r := range records {
		switch {
		case r.Kind == steplog.WaitBegin:
			w.from = max(r.NS, w.opened)
		case r.NS < w.opened:
			w.from = 0
		case r.Kind == steplog.WaitEnd && w.from != 0:
			d := float64(r.NS-w.from) / 1e9
			if len(w.last) < keptWaits {
				w.last = append(w.last, d)
			} else {
				w.last[w.count%keptWaits] = d
			}
			w.count++
			w.seconds += d
			w.from = 0
		}
	}
	seconds = w.seconds
	if w.from != 0 {
		seconds += float64(max(steplog.Now()-w.from, 0)) / 1e9
	}
	return w.count, seconds
}

// quantiles are those of the last waits. It reports whether waits are known.
func (w *waits) quantiles() (q [3]float64, known bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	d := stats.DistributionOf(w.last)
	return [3]float64{d.P50, d.P95, d.P99}, w.log != nil
}

func (w *waits) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.log != nil {
		_ = w.log.Close() // it was only read
		w.log = nil
	}
	w.trainer = 0
}

// runOf names the job of a training process: its script, and the process that launched its ranks.
func runOf(trainer, worldSize int) string {
	id := trainer
	if job := os.Getenv("SLURM_JOB_ID"); job != "" {
		return scriptOf(proc.Live.Command(trainer)) + " " + job
	}
	if parent := proc.Live.Parent(trainer); worldSize > 1 && parent > 1 {
		id = parent
	}
	if id <= 0 {
		return "unknown"
	}
	return scriptOf(proc.Live.Command(trainer)) + " " + strconv.Itoa(id)
}

// longestName is the longest name of a script that is shown.
const longestName = 32

// scriptOf names the program of a command line: the script or the module of an interpreter, otherwise the program.
func scriptOf(args []string) string {
	if len(args) == 0 {
		return "unknown"
	}
	name := filepath.Base(args[0])
	for i, arg := range args[1:] {
		if arg == "-m" && i+2 < len(args) {
			name = args[i+2]
			break
		}
		if arg == "-c" {
			break
		}
		if !strings.HasPrefix(arg, "-") {
			if strings.HasPrefix(name, "python") {
				name = filepath.Base(arg)
			}
			break
		}
	}
	name = strings.Map(func(r rune) rune {
		if r <= ' ' || r == 0x7f {
			return '_'
		}
		return r
	}, name)
	if len(name) > longestName {
		name = strings.ToValidUTF8(name[:longestName], "")
	}
	return name
}
