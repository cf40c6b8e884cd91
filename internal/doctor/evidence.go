package doctor

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"

	"github.com/stokerdata/stoker/internal/units"
)

// evidence lists the figures behind the verdict, the most telling first.
func (c *collector) evidence(r *Report, s *shares, sum *bin) []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if s.samples == 0 {
		return out
	}
	how := "samples"
	if s.exact {
		how = "step log"
	}
	serial := s.loading() - s.wait
	switch {
	case len(c.trainers) == 0:
		say("no data loader was seen at work: the verdict rests on what the busiest process did")
	case s.lanes == 0 && s.engine == nil && serial > s.wait:
		say("the trainer loads its data itself, between the steps, for %.0f%% of its time (%.0f samples)", 100*serial, s.samples)
	case serial > 0.02:
		say("the trainer waits %.0f%% of its time and is busy with the hand-off %.0f%% (%s)", 100*s.wait, 100*serial, how)
	default:
		say("the trainer waits for data %.0f%% of its time (%s)", 100*s.wait, how)
	}
	per := func(m metric) float64 {
		if sum.dt <= 0 || !c.line.known[m] {
			return 0
		}
		return sum.v[m] / sum.dt
	}
	if e := s.engine; e != nil {
		say("the engine reads %.0f%%, decodes and transforms %.0f%%, collates %.0f%% of what its threads could", 100*e.read, 100*e.decode, 100*e.collate)
	} else if s.lanes >= 0.5 {
		say("%s: %s", units.Plural(int(math.Round(s.lanes)), "worker"), c.useOf(s))
	}
	switch r.Verdict {
	case CPU:
		if w := c.topWhere(); w != "" {
			say("most of the computing is in %s", w)
		}
		if s.lag > 0.15 || s.delay > 0.15 {
			say("threads that could run wait for a core %.0f%% of that time; the job uses %.2f of %.3g cores, other programs %.2f", 100*max(s.lag, s.delay), s.tree, s.cores, s.outside)
		} else {
			say("the job uses %.2f of %.3g cores, other programs %.2f", s.tree, s.cores, s.outside)
		}
		if s.limited > 0.02 {
			say("the control group's quota of %.3g cores stopped it %.0f%% of the time", c.sys.throttle.Quota, 100*min(1, s.limited))
		}
		if c.topOther != "" && s.outside > 0.2 {
			say("busiest other program: %s", c.topOther)
		}
	case Storage, Memory:
		if r.Verdict == Memory {
			say("memory: %.0f%% in use; something stood still for want of it %.0f%% of the time; the limit was hit %.0f times a second",
				100*per(gMemory), 100*s.memory, per(mFailures))
			if f := per(mRefaults); f > 1 {
				say("%s are read again after they had been pushed out of memory", units.Bandwidth(f*4096))
			}
		}
		if read, calls := per(mReadBytes), per(mReadChars); calls > 0 {
			say("%s come from block devices, %s through read calls: %.0f%% missed the page cache", units.Bandwidth(read), units.Bandwidth(calls), 100*min(1, read/calls))
		}
		if n := sum.v[mDiskReads]; n > 0 && c.sys.disk != "" {
			say("%s: %s reads/s of %s, %s each, busy %.0f%% of the time", c.sys.disk, units.Count(n/sum.dt), units.Bytes(sum.v[mDiskRead]/n), units.Seconds(sum.v[mDiskTime]/n), 100*min(1, per(mDiskBusy)))
		}
		if t, f := c.slowFile(); t != "" {
			say("the files waited for lie on %s (%s)", t, f)
		}
	case Network:
		if rate := per(mNetReceived) + per(mLoopback); rate > 0 {
			say("%s arrive", units.Bandwidth(rate))
		}
	case Handoff:
		if w := c.topWhere(); w != "" {
			say("most of it is in %s", w)
		}
		if c.line.known[gShm] && per(gShm) > 0.5 {
			say("/dev/shm is %.0f%% full", 100*per(gShm))
		}
	}
	if c.line.known[gGPU] {
		say("accelerators are busy %.0f%% of the time", 100*per(gGPU))
	}
	return out
}

// often says how many times something was done, at least once.
func often(n int) string {
	if n <= 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// useOf says what workers are at.
func (c *collector) useOf(s *shares) string {
	var parts []string
	for _, x := range []struct {
		name string
		c    cause
	}{
		{"computing", causeCPU}, {"waiting for files", causeStorage}, {"waiting for the network", causeNetwork},
		{"short of memory", causeMemory}, {"handing over", causeHandoff}, {"asleep or locked", causeOther}, {"without work", causeIdle},
	} {
		if s.use[x.c] >= 0.02 {
			parts = append(parts, fmt.Sprintf("%s %.0f%%", x.name, 100*s.use[x.c]))
		}
	}
	return strings.Join(parts, ", ")
}

// topWhere is the function that was seen most often.
func (c *collector) topWhere() string {
	best, n, total := "", 0, 0
	for _, where := range sortedKeys(c.wheres) {
		total += c.wheres[where]
		if c.wheres[where] > n {
			best, n = where, c.wheres[where]
		}
	}
	if best == "" || n*5 < total {
		return ""
	}
	return fmt.Sprintf("%s, %d%%", best, 100*n/total)
}

// slowFile is the kind of file system that most waiting was for, and an example.
func (c *collector) slowFile() (kind, file string) {
	n := 0
	for _, t := range sortedKeys(c.fsTypes) {
		if c.fsTypes[t] > n {
			kind, n = t, c.fsTypes[t]
		}
	}
	n = 0
	for _, f := range sortedKeys(c.files) {
		if c.files[f] > n {
			file, n = f, c.files[f]
		}
	}
	if len(file) > 60 {
		file = ".../" + filepath.Base(file)
	}
	return kind, file
}
