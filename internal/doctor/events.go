package doctor

import (
	"fmt"
	"math"
	"sort"
)

// An eventRule raises an event while a figure is beyond a threshold. The thresholds of CPU, I/O wait, load, memory and
// swap are those of Glances (glances.conf). They are user and system 50/70/90% of all cores, iowait 80/90/100% of
// 1/cores, load 0.7/1/5 per core, memory and swap 50/70/90%. The other thresholds are this project's own, for starved
// training jobs.
type eventRule struct {
	name     string
	unit     string
	scale    float64 // from the figure to unit
	levels   [3]float64
	figure   func(l *timeline, b *bin) float64
	training bool // only while the job trains
}

// eventSeconds is the minimum time beyond the threshold, as in Glances (min_duration of its events list, 6 s). So a
// single busy second is not an event.
const eventSeconds = 6

// zeroTicks is the number of consecutive idle seconds of an accelerator that make an event.
const zeroTicks = 2

var eventLevels = [3]Level{Careful, Warning, Critical}

// eventRules are the rules for this machine.
func (c *collector) eventRules(gpus int) []eventRule {
	all := max(1, float64(c.sys.cpu.Cores))
	cores := max(1, c.sys.cores)
	rate := func(m metric, scale float64) func(*timeline, *bin) float64 {
		return func(l *timeline, b *bin) float64 { return l.rate(b, m) * scale }
	}
	// The kernel's sums and our clock are not read at the same instant.
	pressure := func(m metric) func(*timeline, *bin) float64 {
		return func(l *timeline, b *bin) float64 { return min(1, l.rate(b, m)) }
	}
	out := []eventRule{
		{name: "CPU_USER", levels: [3]float64{.5, .7, .9}, figure: rate(mUser, 1/all)},
		{name: "CPU_SYSTEM", levels: [3]float64{.5, .7, .9}, figure: rate(mSystem, 1/all)},
		{name: "CPU_IOWAIT", levels: [3]float64{.8 / all, .9 / all, 1 / all}, figure: rate(mIOWait, 1/all)},
		{name: "CPU_STEAL", levels: [3]float64{.5, .7, .9}, figure: rate(mSteal, 1/all)},
		{name: "LOAD", unit: "per core", scale: 1, levels: [3]float64{.7, 1, 5}, figure: rate(gLoad, 1)},
		{name: "MEM", levels: [3]float64{.5, .7, .9}, figure: rate(gMemory, 1)},
		{name: "SWAP", levels: [3]float64{.5, .7, .9}, figure: rate(gSwap, 1)},
		{name: "CPU_QUOTA", levels: [3]float64{.05, .2, .5}, figure: rate(mThrottled, 1/cores)},
		{name: "CPU_PRESSURE", levels: [3]float64{.3, .6, .9}, figure: pressure(mPSICPU)},
		{name: "IO_PRESSURE", levels: [3]float64{.2, .4, .7}, figure: pressure(mPSIIO)},
		{name: "MEM_PRESSURE", levels: [3]float64{.05, .15, .4}, figure: pressure(mPSIMemory)},
		{name: "DISK_BUSY", levels: [3]float64{.7, .85, .95}, figure: rate(mDiskBusy, 1)},
		{name: "DISK_READ_TIME", unit: "ms", scale: 1000, levels: [3]float64{.02, .05, .2}, figure: func(l *timeline, b *bin) float64 {
			if !l.known[mDiskReads] || b.v[mDiskReads] < 10 {
				return math.NaN()
			}
			return b.v[mDiskTime] / b.v[mDiskReads]
		}},
		{name: "MAJOR_FAULTS", unit: "/s", scale: 1, levels: [3]float64{50, 200, 1000}, figure: rate(mMajorFaults, 1)},
		{name: "SHM", levels: [3]float64{.5, .7, .9}, figure: rate(gShm, 1)},
		{name: "TRAINER_WAIT", levels: [3]float64{.05, .2, .5}, training: true, figure: func(_ *timeline, b *bin) float64 {
			if b.v[mLogTime] > 0 {
				return min(1, b.v[mLogWait]/b.v[mLogTime])
			}
			n := b.trainer.total()
			if n == 0 {
				return math.NaN()
			}
			return (n - b.trainer[causeStep] - b.trainer[causeOther]) / n
		}},
		{name: "GPU_SLOWED", levels: [3]float64{.2, .5, .9}, figure: rate(mThrottleGPU, 1)},
	}
	for g := range gpus {
		out = append(out, eventRule{
			name: fmt.Sprintf("GPU%d_IDLE", g), unit: "s", scale: 1, levels: [3]float64{zeroTicks, 5, 15}, training: true,
			figure: func(_ *timeline, b *bin) float64 {
				if g >= len(b.gpus) || b.dt <= 0 {
					return math.NaN()
				}
				return b.gpus[g] / b.dt
			},
		})
	}
	return out
}

// findEvents applies every rule to the timeline.
func findEvents(l *timeline, c *collector) []Event {
	out := []Event{}
	gpus := 0
	for i := range l.bins {
		gpus = max(gpus, len(l.bins[i].gpus))
	}
	for _, r := range c.eventRules(gpus) {
		if r.scale == 0 {
			r.scale, r.unit = 100, "%"
		}
		if len(r.name) > 4 && r.name[:3] == "GPU" && r.name[len(r.name)-4:] == "IDLE" {
			out = append(out, idleEvents(l, r)...)
			continue
		}
		out = append(out, levelEvents(l, r)...)
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].Start < out[j].Start })
	return out
}

// levelEvents finds the periods in which a figure is continuously at or beyond its lowest threshold.
func levelEvents(l *timeline, r eventRule) []Event {
	var out []Event
	for i := 0; i < len(l.bins); {
		b := &l.bins[i]
		v := r.figure(l, b)
		if math.IsNaN(v) || v < r.levels[0] || r.training && b.training == 0 {
			i++
			continue
		}
		start, end := b.t, b.t+b.dt
		// The level is the one that was held for long enough.
		var held [3]float64
		worst := v
		for ; i < len(l.bins); i++ {
			b := &l.bins[i]
			v := r.figure(l, b)
			if math.IsNaN(v) || v < r.levels[0] {
				break
			}
			end = b.t + b.dt
			worst = max(worst, v)
			for k := range held {
				if v >= r.levels[k] {
					held[k] += b.dt
				}
			}
		}
		if held[0] < eventSeconds {
			continue
		}
		k := 0
		for k < 2 && held[k+1] >= eventSeconds {
			k++
		}
		out = append(out, Event{
			Start: round(start, 2), End: round(end, 2), Level: eventLevels[k], Name: r.name,
			Value: round(worst*r.scale, 2), Threshold: round(r.levels[k]*r.scale, 2), Unit: r.unit,
		})
	}
	return out
}

// idleEvents finds runs of ticks in which an accelerator was idle.
func idleEvents(l *timeline, r eventRule) []Event {
	var out []Event
	for i := 0; i < len(l.bins); {
		start, long := l.bins[i].t, 0.0
		j := i
		for ; j < len(l.bins); j++ {
			v := r.figure(l, &l.bins[j])
			if math.IsNaN(v) || v >= 0.005 || l.bins[j].training == 0 {
				break
			}
			long += l.bins[j].dt
		}
		if long >= r.levels[0]-0.2 {
			k := 0
			for k < 2 && long >= r.levels[k+1] {
				k++
			}
			out = append(out, Event{
				Start: round(start, 2), End: round(start+long, 2), Level: eventLevels[k], Name: r.name,
				Value: round(long, 2), Threshold: r.levels[k], Unit: r.unit,
			})
		}
		i = max(j, i+1)
	}
	return out
}
