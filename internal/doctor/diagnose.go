package doctor

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/stokerdata/stoker/internal/proc"
	"github.com/stokerdata/stoker/internal/units"
)

const (
	// actGain is the gain from which a resource of the data path is worth naming.
	actGain = 1.10
	// roomGain is how much faster than the step the data path must be for the
	// step to be the limit beyond doubt.
	roomGain = 1.5
)

// report condenses a timeline.
func (c *collector) report(l timeline) *Report {
	f := c.judge(l)
	f.r.Advice = f.advise()
	return f.r
}

// judge condenses a timeline, without advice, for which the job's data is looked at.
func (c *collector) judge(l timeline) *findings {
	l = c.settle(l)
	s, sum := c.measure(&l)
	r := &Report{
		Version: ReportVersion, Stoker: c.opt.Stoker, Start: c.wall.Round(time.Millisecond), PID: c.opt.PID,
		Host: c.sys.host, Gains: map[Verdict]float64{}, Evidence: []string{}, Advice: []Advice{},
		Events: []Event{}, Stages: []Stage{}, Series: Series{}, Skipped: c.skips(),
	}
	if root := c.tree.members[c.opt.PID]; root != nil && len(root.cmd) > 0 {
		c.command = root.cmd
	}
	r.Command = c.command
	if n := len(l.bins); n > 0 {
		r.Seconds = l.bins[n-1].t + l.bins[n-1].dt - l.bins[0].t
	}
	if wall := time.Since(c.start).Seconds(); wall > 0 {
		r.Overhead = (proc.OwnCPU() - c.cpuAtStart).Seconds() / wall
	}
	r.Loader = c.loader(&s)
	if !r.Loader.Restarted {
		s.restart = 0
	}
	r.Steps = c.log.report(&sum)
	r.Waiting = round(s.loading(), 4)
	f := &findings{c: c, r: r, s: &s, sum: &sum}
	for _, x := range checks {
		if a := x.about(); a.cause != causeIdle || a.verdict == Accelerator {
			r.Gains[a.verdict] = round(x.gain(f), 3)
		}
	}
	c.decide(r, &s, &sum)
	r.Stages = c.stages(&s, &sum)
	r.Series = c.series(&l)
	r.Events = findEvents(&l, c)
	r.Evidence = f.evidence()
	r.Line = f.line()
	return f
}

func round(x float64, digits int) float64 {
	p := math.Pow(10, float64(digits))
	return math.Round(x*p) / p
}

// mostWaiting is how much of its time a trainer may wait for data and still be
// called fed.
const mostWaiting = 0.15

// fed is the rule for the verdicts that call a job fed, healthy and accelerator:
// its trainer hardly waits. Whatever else was seen, one that does is starved, of
// something that may not be known.
func fed(r *Report, s *shares) bool { return r.Waiting+s.other <= mostWaiting }

// shortest is how many seconds of a job say something of it, where nothing in it was seen
// to train.
const shortest = 2

// tooShort reports whether a job ended before it could be looked at.
func tooShort(r *Report, s *shares) bool {
	return r.Seconds < shortest && (s.samples == 0 || r.Loader.Trainers == 0)
}

// decide names the verdict and says how sure it is.
func (c *collector) decide(r *Report, s *shares, sum *bin) {
	ranked := slices.Clone(Causes)
	sort.SliceStable(ranked, func(i, j int) bool { return r.Gains[ranked[i]] > r.Gains[ranked[j]] })
	best, second := r.Gains[ranked[0]], r.Gains[ranked[1]]
	// How well the shares are known: the error of a share of n samples.
	sharp := s.samples / (s.samples + 20)
	if c.framesOK == 0 && !s.exact {
		sharp *= 0.7 // nothing from inside the job
	}
	switch {
	case s.samples == 0 && tooShort(r, s):
		r.Verdict, r.Gain, r.Confidence = Unknown, 1, 0
		return
	case s.samples == 0:
		// It ran, and nothing of it trains.
		r.Verdict, r.Gain, r.Confidence = Unknown, 1, 0.1
		return
	case best >= actGain:
		r.Verdict, r.Gain = ranked[0], best
		lead := (best - second) / (best - 1)
		over := min(1, (best-actGain)/0.15)
		r.Confidence = sharp * (0.45 + 0.35*lead + 0.2*over)
	case !fed(r, s):
		// Something makes it wait, and what was seen at work is not it.
		r.Verdict, r.Gain = Unknown, 1
		r.Confidence = 0.3 * sharp
	case r.Gains[Accelerator] >= roomGain:
		// What its data path could feed is among the gains; without its step there is
		// no job, and so nothing that it would gain.
		r.Verdict, r.Gain = Accelerator, 1
		r.Confidence = sharp * (0.6 + 0.4*min(1, (actGain-best)/(actGain-1)))
	default:
		r.Verdict, r.Gain = Healthy, 1
		r.Confidence = sharp * (0.6 + 0.4*min(1, (actGain-best)/(actGain-1)))
	}
	if len(c.trainers) == 0 {
		r.Confidence *= 0.5 // no loader was seen at all
		if r.Verdict == Healthy || r.Verdict == Accelerator {
			// What does not look like a training loop cannot be called fed.
			r.Verdict, r.Gain, r.Confidence = Unknown, 1, min(r.Confidence, 0.3)
		}
	}
	if fed := r.Verdict == Healthy || r.Verdict == Accelerator; fed && c.onlyWeak() && len(c.made) == 0 {
		// It may be a program that uses a framework for something else.
		r.Verdict, r.Gain, r.Confidence = Unknown, 1, min(r.Confidence, 0.3)
	}
	if blind := c.framesOK == 0 && !s.exact && s.lanes == 0 && s.engine == nil; blind && (r.Verdict == Healthy || r.Verdict == Accelerator) {
		// A thread that runs or sleeps may be in its step as well as in its loader.
		r.Verdict, r.Gain, r.Confidence = Unknown, 1, min(r.Confidence, 0.3)
	}
	r.Confidence = round(min(0.99, max(0.01, r.Confidence)), 2)
}

// onlyWeak reports whether there are trainers, and nothing but a framework shows that they
// train.
func (c *collector) onlyWeak() bool {
	weak := false
	for _, p := range c.tree.members {
		if p.trainer != nil && !p.trainer.weak {
			return false
		}
		weak = weak || p.trainer != nil
	}
	return weak
}

// loader says what loader the job uses.
func (c *collector) loader(s *shares) Loader {
	votes := map[string]int{}
	out := Loader{Kind: "unknown", Recognised: "none"}
	for _, p := range c.tree.members {
		if p.trainer == nil {
			continue
		}
		out.Trainers++
		for kind, n := range p.trainer.loaders {
			votes[kind] += n
		}
		if p.pinSeen {
			out.PinMemory = true
		}
		if p.workerSeen && c.torchWorkers(p) && votes["torch"] == 0 {
			votes["torch"]++
			out.Recognised = "threads"
		}
	}
	for kind, n := range c.votes {
		if votes[kind] == 0 {
			votes[kind] = n
		}
	}
	// A library that runs in torch's workers.
	lanes := 0
	for _, n := range c.laneLoaders {
		lanes += n
	}
	for kind, n := range c.laneLoaders {
		if kind != "torch" && n*20 > lanes {
			votes[kind] += 1000 + n
		}
	}
	if c.engine.socketsLooked || len(c.engines) > 0 {
		votes["stoker"] += 10
	}
	most := 0
	for _, kind := range sortedKeys(votes) {
		if votes[kind] > most {
			out.Kind, most = kind, votes[kind]
		}
	}
	out.Trainers = max(out.Trainers, len(c.trainers))
	out.PinMemory = out.PinMemory || c.pinned
	out.Workers = int(math.Round(s.lanes))
	if s.lanes > 0 && s.lanes < 1 && c.workersEver > 0 {
		out.Workers = 1
	}
	if c.workersEver == 0 {
		out.Workers = 0
	}
	if s.threads {
		out.Workers = int(math.Round(s.lanes))
		out.Recognised = "threads"
	}
	all := max(1, out.Workers)
	if s.slow != nil {
		all *= out.Trainers // the figures are those of one rank
	}
	out.Restarted = c.workersEver > all*3/2 && out.Workers > 0
	if most > 0 && out.Recognised == "none" {
		out.Recognised = "frames"
		if c.framesOK == 0 {
			out.Recognised = "processes"
		}
	}
	if out.Kind == "unknown" && s.exact {
		out.Recognised = "step log"
	}
	return out
}

func (c *collector) torchWorkers(p *process) bool {
	for _, q := range c.tree.members {
		if q.comm == "pt_data_worker" && c.tree.starter(q) == p {
			return true
		}
	}
	return false
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// stages says where the time went.
func (c *collector) stages(s *shares, sum *bin) []Stage {
	var out []Stage
	seconds := sum.dt * float64(max(1, len(c.trainers)))
	add := func(name string, share, seconds float64, exact bool) {
		if share >= 0.002 {
			out = append(out, Stage{Name: name, Share: round(share, 4), Seconds: round(share*seconds, 3), Exact: exact})
		}
	}
	add("step", s.step, seconds, s.exact)
	add("wait", s.wait, seconds, s.exact)
	// The trainer's own loading, split by what its frames said.
	serial := 0.0
	for _, v := range s.serial {
		serial += v
	}
	parts := 0.0
	for _, n := range sum.trainerParts {
		parts += n
	}
	if parts > 0 {
		names := map[string]float64{}
		for p, n := range sum.trainerParts {
			names[partLabel(part(p))] += serial * n / parts
		}
		for _, name := range sortedKeys(names) {
			add(name, names[name], seconds, false)
		}
	} else {
		for _, v := range Causes {
			add("load ("+string(v)+")", s.serial[resources[v]], seconds, false)
		}
	}
	add("other", s.other, seconds, false)
	sort.SliceStable(out, func(i, j int) bool { return out[i].Share > out[j].Share })
	if len(c.log.stages) > 0 && sum.dt > 0 {
		for _, name := range sortedKeys(c.log.stages) {
			out = append(out, Stage{Name: "step " + name, Share: round(c.log.stages[name]/seconds, 4), Seconds: round(c.log.stages[name], 3), Exact: true})
		}
	}
	if s.engine != nil {
		total := sum.v[mEngineRead] + sum.v[mEngineDecode] + sum.v[mEngineTransform] + sum.v[mEngineCollate]
		for _, e := range []struct {
			name string
			m    metric
		}{{"read", mEngineRead}, {"decode", mEngineDecode}, {"transform", mEngineTransform}, {"collate", mEngineCollate}} {
			if total > 0 {
				out = append(out, Stage{Name: "worker " + e.name, Share: round(sum.v[e.m]/total, 4), Seconds: round(sum.v[e.m], 3), Exact: true})
			}
		}
		return out
	}
	if s.lanes > 0 {
		workers := len(out)
		lanes := sum.dt * s.lanes
		total := 0.0
		for _, n := range sum.laneParts {
			total += n
		}
		names := map[string]float64{}
		if total > 0 {
			for p, n := range sum.laneParts {
				names["worker "+partLabel(part(p))] += s.busy * n / total
			}
		} else {
			for _, v := range Causes {
				names["worker "+string(v)] += s.use[resources[v]]
			}
		}
		for _, name := range sortedKeys(names) {
			add(name, names[name], lanes, false)
		}
		tail := out[workers:]
		sort.SliceStable(tail, func(i, j int) bool { return tail[i].Share > tail[j].Share })
		add("worker idle", max(0, 1-s.busy), lanes, false)
	}
	return out
}

// partLabel is the name of a part in the stage table.
func partLabel(p part) string {
	switch p {
	case partUnknown, partFetch, partStep:
		return "dataset code"
	case partWait:
		return "unpickle"
	case partPut:
		return "put in queue"
	}
	return partNames[p]
}

// series writes the timeline for plots.
func (c *collector) series(l *timeline) Series {
	out := Series{}
	n := len(l.bins)
	add := func(name string, f func(b *bin) float64) {
		v := make(Values, n)
		some := false
		for i := range l.bins {
			v[i] = f(&l.bins[i])
			some = some || !math.IsNaN(v[i])
		}
		if some {
			out[name] = v
		}
	}
	cores := max(1, c.sys.cores)
	all := max(1, float64(c.sys.cpu.Cores))
	rate := func(m metric, scale float64) func(*bin) float64 {
		return func(b *bin) float64 { return l.rate(b, m) * scale }
	}
	share := func(f func(b *bin) float64) func(*bin) float64 {
		return func(b *bin) float64 {
			if n := b.trainer.total(); n > 0 {
				return f(b) / n
			}
			return math.NaN()
		}
	}
	add("t", func(b *bin) float64 { return b.t })
	add("cpu", rate(mRun, 1/cores))
	add("cpu_machine", rate(mBusy, 1/all))
	add("cpu_user", rate(mUser, 1/all))
	add("cpu_system", rate(mSystem, 1/all))
	add("iowait", rate(mIOWait, 1/all))
	add("steal", rate(mSteal, 1/all))
	add("run_queue", rate(mDelay, 1/cores))
	add("throttled", rate(mThrottled, 1/cores))
	add("wait", func(b *bin) float64 {
		if b.v[mLogTime] > 0 {
			return min(1, b.v[mLogWait]/b.v[mLogTime])
		}
		return share(func(b *bin) float64 { return b.trainer.total() - b.trainer[causeStep] - b.trainer[causeOther] })(b)
	})
	add("step", share(func(b *bin) float64 { return b.trainer[causeStep] }))
	for _, v := range Causes {
		x := resources[v]
		add("worker_"+string(v), func(b *bin) float64 {
			if n := b.lanes.total(); n > 0 {
				return b.lanes[x] / n
			}
			return math.NaN()
		})
	}
	add("workers", rate(gWorkers, 1))
	add("read_MBps", rate(mReadBytes, 1e-6))
	add("read_calls_MBps", rate(mReadChars, 1e-6))
	add("disk_busy", rate(mDiskBusy, 1))
	add("disk_read_MBps", rate(mDiskRead, 1e-6))
	add("disk_read_ms", func(b *bin) float64 {
		if !l.known[mDiskReads] || b.v[mDiskReads] == 0 {
			return math.NaN()
		}
		return 1000 * b.v[mDiskTime] / b.v[mDiskReads]
	})
	add("net_MBps", rate(mNetReceived, 1e-6))
	add("loopback_MBps", rate(mLoopback, 1e-6))
	add("memory", rate(gMemory, 1))
	add("swap", rate(gSwap, 1))
	add("shm", rate(gShm, 1))
	add("rss_MB", rate(gRSS, 1e-6))
	add("load", rate(gLoad, 1))
	add("major_faults", rate(mMajorFaults, 1))
	add("switches", rate(mSwitches, 1))
	add("psi_cpu", func(b *bin) float64 { return min(1, l.rate(b, mPSICPU)) })
	add("psi_io", func(b *bin) float64 { return min(1, l.rate(b, mPSIIO)) })
	add("psi_memory", func(b *bin) float64 { return min(1, l.rate(b, mPSIMemory)) })
	add("steps_per_s", rate(mLogSteps, 1))
	add("rows_per_s", rate(mLogRows, 1))
	gpus := 0
	for i := range l.bins {
		gpus = max(gpus, len(l.bins[i].gpus))
	}
	for g := range gpus {
		add(fmt.Sprintf("gpu%d", g), func(b *bin) float64 {
			if g >= len(b.gpus) || b.dt <= 0 {
				return math.NaN()
			}
			return b.gpus[g] / b.dt
		})
	}
	if gpus > 0 {
		add("gpu_memory", rate(gGPUMemory, 1))
		add("gpu_clock", rate(gGPUClock, 1))
		add("pcie_read_MBps", rate(mPCIeRead, 1e-6))
		add("pcie_write_MBps", rate(mPCIeWrite, 1e-6))
	}
	return out
}

// line is the verdict in one sentence.
func (f *findings) line() (text string) {
	r, s := f.r, f.s
	if tooShort(r, s) {
		return "no verdict: the job did not run long enough to be looked at"
	}
	about := checkOf(r.Verdict).about()
	name := about.short
	if r.Confidence < 0.5 {
		defer func() { text += fmt.Sprintf(" (only %s sure)", units.Whole(r.Confidence)) }()
	}
	switch r.Verdict {
	case Unknown:
		return name + ": " + f.unseen()
	case Healthy:
		return fmt.Sprintf("%s: the trainer waits for data %s of the time, and nothing is worth removing", name, units.Whole(r.Waiting))
	case Accelerator:
		if s.step < 0.02 {
			return name
		}
		return fmt.Sprintf("%s: the step takes %s of the time; the data path could feed one %s as fast", name, units.Whole(s.step), times(r.Gains[Accelerator]))
	}
	where := "the trainer waits for data"
	if s.slow != nil {
		where = fmt.Sprintf("the others wait for %s, which waits for data", f.c.rankName(s.slow.pid))
	}
	if s.lanes == 0 && s.engine == nil && s.wait < 0.5*r.Waiting {
		where = "the trainer loads data itself"
	}
	if r.Verdict == CPU && fed(r, s) && max(s.lag, s.delay) > 0.15 {
		return fmt.Sprintf("%s: threads that could run wait for a core %s of that time; without that and %s it would run %s as fast",
			name, units.Whole(max(s.lag, s.delay)), about.removed, times(r.Gain))
	}
	return fmt.Sprintf("%s: %s %s of the time; without %s it would run %s as fast", name, where, units.Whole(r.Waiting), about.removed, times(r.Gain))
}

// times writes a factor.
func times(x float64) string {
	if x >= 1/minTime-0.5 {
		return fmt.Sprintf("%.0f times or more", x)
	}
	if x >= 10 {
		return fmt.Sprintf("%.0f times", x)
	}
	return strings.TrimSuffix(fmt.Sprintf("%.2f", x), "0") + " times"
}
