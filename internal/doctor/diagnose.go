package doctor

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/stokerdata/stoker/internal/proc"
)

const (
	// actGain is the gain from which a resource of the data path is reported.
	actGain = 1.10
	// roomGain is the factor by which the data path must be faster than the step for the step to be the undoubted
	// limit.
	roomGain = 1.5
)

// report condenses a timeline.
func (c *collector) report(l timeline) *Report {
	f := c.judge(l)
	f.r.Advice = f.advise()
	return f.r
}

// judge condenses a timeline, without advice, which would need a look at the job's data.
func (c *collector) judge(l timeline) *findings {
	l = c.settle(l.warmed())
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

// mostWaiting is the largest share of time that a trainer may wait for data and still count as fed.
const mostWaiting = 0.15

// fed reports whether the trainer hardly waits: the condition of the verdicts healthy and accelerator. A trainer that
// waits longer is starved, perhaps by an unknown resource.
func fed(r *Report, s *shares) bool { return r.Waiting+s.other <= mostWaiting }

// shortest is the minimum number of observed seconds for a job in which no training was seen.
const shortest = 2

// tooShort reports whether a job ended before it could be observed.
func tooShort(r *Report, s *shares) bool {
	return r.Seconds < shortest && (s.samples == 0 || r.Loader.Trainers == 0)
}

// decide sets the verdict and its confidence.
func (c *collector) decide(r *Report, s *shares, sum *bin) {
	ranked := slices.Clone(Causes)
	sort.SliceStable(ranked, func(i, j int) bool { return r.Gains[ranked[i]] > r.Gains[ranked[j]] })
	best, second := r.Gains[ranked[0]], r.Gains[ranked[1]]
	// How well the shares are known: the error of a share of n samples.
	sharp := s.samples / (s.samples + 20)
	if c.framesOK == 0 && !s.exact {
		sharp *= 0.7 // no data from inside the job
	}
	switch {
	case s.samples == 0 && tooShort(r, s):
		r.Verdict, r.Gain, r.Confidence = Unknown, 1, 0
		return
	case s.samples == 0:
		// The job ran, but no part of it trains.
		r.Verdict, r.Gain, r.Confidence = Unknown, 1, 0.1
		return
	case best >= actGain:
		r.Verdict, r.Gain = ranked[0], best
		lead := (best - second) / (best - 1)
		over := min(1, (best-actGain)/0.15)
		r.Confidence = sharp * (0.45 + 0.35*lead + 0.2*over)
	case !fed(r, s):
		// The trainer waits, and the observed work does not explain it.
		r.Verdict, r.Gain = Unknown, 1
		r.Confidence = 0.3 * sharp
	case r.Gains[Accelerator] >= roomGain:
		// The gains include the speed at which the data path could feed. Without its step there is no job, so this is
		// not a gain of the job.
		r.Verdict, r.Gain = Accelerator, 1
		r.Confidence = sharp * (0.6 + 0.4*min(1, (actGain-best)/(actGain-1)))
	default:
		r.Verdict, r.Gain = Healthy, 1
		r.Confidence = sharp * (0.6 + 0.4*min(1, (actGain-best)/(actGain-1)))
	}
	if len(c.trainers) == 0 {
		r.Confidence *= 0.5 // no loader was seen at all
		if r.Verdict == Healthy || r.Verdict == Accelerator {
			// A job without a visible training loop cannot be called fed.
			r.Verdict, r.Gain, r.Confidence = Unknown, 1, min(r.Confidence, 0.3)
		}
	}
	if fed := r.Verdict == Healthy || r.Verdict == Accelerator; fed && c.onlyWeak() && len(c.made) == 0 && !(c.shown && c.computesModels()) {
		// The program may use a framework for another purpose.
		r.Verdict, r.Gain, r.Confidence = Unknown, 1, min(r.Confidence, 0.3)
	}
	if blind := c.framesOK == 0 && !s.exact && s.lanes == 0 && s.engine == nil; blind && (r.Verdict == Healthy || r.Verdict == Accelerator) {
		// A thread that runs or sleeps may be in its step or in its loader.
		r.Verdict, r.Gain, r.Confidence = Unknown, 1, min(r.Confidence, 0.3)
	}
	r.Confidence = round(min(0.99, max(0.01, r.Confidence)), 2)
}

// onlyWeak reports whether the only evidence that trainers train is a framework that they have loaded.
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

// computesModels reports whether a trainer has loaded a framework for models.
func (c *collector) computesModels() bool {
	for _, p := range c.tree.members {
		if p.trainer != nil && c.hasFramework(p) {
			return true
		}
	}
	return false
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
