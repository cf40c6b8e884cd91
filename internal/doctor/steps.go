package doctor

import (
	"errors"
	"slices"
	"time"

	"github.com/stokerdata/stoker/internal/doctor/steplog"
	"github.com/stokerdata/stoker/internal/stats"
)

// stepTotals follows the step logs of all processes that have one.
type stepTotals struct {
	logs      map[int]*stepLog
	tried     map[int]time.Time
	durations []float64 // seconds per step
	waits     []float64 // seconds waited per step
	stages    map[string]float64
}

type stepLog struct {
	log       *steplog.Log
	waitFrom  int64 // a wait that has begun; 0 when none
	last      int64 // end of the last step
	lastWaits float64
	byWaits   bool // it has waits: Stoker's loader, or stoker.bench
	begun     bool // a batch or a step was seen while watching
	stageFrom map[uint32]int64
}

// maxDurations limits the number of steps for percentiles; the newest replace the oldest.
const maxDurations = 1 << 16

// has reports whether a process has a log with records.
func (s *stepTotals) has(pid int) bool {
	l := s.logs[pid]
	return l != nil && l.begun
}

// read takes the new records of every log.
func (s *stepTotals) read(c *collector, now time.Time, dt float64, put func(metric, float64)) {
	if s.logs == nil {
		s.logs, s.tried, s.stages = map[int]*stepLog{}, map[int]time.Time{}, map[string]float64{}
	}
	for pid, p := range c.tree.members {
		if p.role != roleTrainer || s.logs[pid] != nil {
			continue
		}
		// Searching the descriptors costs time, so it happens less and less often.
		pause := max(time.Second, now.Sub(p.since)/4)
		if now.Sub(s.tried[pid]) < pause {
			continue
		}
		s.tried[pid] = now
		log, err := steplog.Open(pid)
		if err != nil {
			if !errors.Is(err, steplog.ErrNone) && c.fs.Command(pid) != nil && p.isPython {
				c.skip("step log: %v", err)
			}
			continue
		}
		// Steps before the start of the observation do not count.
		if _, _, err := log.Next(); err != nil {
			log.Close()
			continue
		}
		s.logs[pid] = &stepLog{log: log, stageFrom: map[uint32]int64{}}
	}
	end := steplog.Now()
	for pid, l := range s.logs {
		p := c.tree.members[pid]
		if p == nil {
			l.log.Close()
			delete(s.logs, pid)
			continue
		}
		records, _, err := l.log.Next()
		if err != nil {
			continue
		}
		counting := p.trainer != nil && p.trainer.phase > 0
		begin := end - int64(dt*1e9)
		var waited int64
		var steps, rows float64
		for _, r := range records {
			switch r.Kind {
			case steplog.WaitBegin:
				l.waitFrom = r.NS
			case steplog.WaitEnd:
				l.byWaits, l.begun = true, true
				if l.waitFrom > 0 {
					waited += max(0, r.NS-max(l.waitFrom, begin))
					l.lastWaits += float64(r.NS-l.waitFrom) / 1e9
				}
				l.waitFrom = 0
				if r.Arg == steplog.NoBatch {
					continue // it belongs to the next batch
				}
				if counting {
					s.step(l, r.NS)
					steps++
					rows += float64(r.Arg)
				}
				l.last = r.NS
			case steplog.Step:
				l.begun = true
				if !l.byWaits {
					if counting {
						s.step(l, r.NS)
						steps++
					}
					l.last = r.NS
				}
			case steplog.StageBegin:
				l.stageFrom[r.Arg] = r.NS
			case steplog.StageEnd:
				if from := l.stageFrom[r.Arg]; from > 0 && counting {
					s.stages[l.log.Stages()[r.Arg]] += float64(r.NS-from) / 1e9
				}
				delete(l.stageFrom, r.Arg)
			}
		}
		if l.waitFrom > 0 {
			waited += max(0, end-max(l.waitFrom, begin))
		}
		if counting && l.byWaits {
			put(mLogTime, dt)
			put(mLogWait, min(dt, float64(waited)/1e9))
		}
		if counting {
			put(mLogSteps, steps)
			put(mLogRows, rows)
		}
	}
}

// step notes the end of a step.
func (s *stepTotals) step(l *stepLog, ns int64) {
	if l.last > 0 {
		if len(s.durations) >= maxDurations {
			half := len(s.durations) / 2
			s.durations = slices.Delete(s.durations, 0, half)
			s.waits = slices.Delete(s.waits, 0, half)
		}
		s.durations = append(s.durations, float64(ns-l.last)/1e9)
		s.waits = append(s.waits, l.lastWaits)
	}
	l.lastWaits = 0
}

// close lets go of the logs.
func (s *stepTotals) close() {
	for _, l := range s.logs {
		l.log.Close()
	}
}

// report summarizes the logs.
func (s *stepTotals) report(sum *bin) Steps {
	out := Steps{Source: "none"}
	if len(s.durations) == 0 {
		return out
	}
	out.Source = "step log"
	out.Count = len(s.durations)
	total, over := 0.0, 0
	for i, d := range s.durations {
		total += d
		if s.waits[i] > 0.001 && s.waits[i] > 0.01*d {
			over++
		}
	}
	n := float64(len(s.durations))
	out.Waited = float64(over) / n
	if total > 0 {
		out.PerSecond = n / total
	}
	steps, waits := stats.DistributionOf(s.durations), stats.DistributionOf(s.waits)
	out.Mean, out.P50, out.P99 = steps.Mean, steps.P50, steps.P99
	out.WaitMean, out.WaitP99 = waits.Mean, waits.P99
	for _, d := range s.durations {
		if d > 2*out.P50 {
			out.Stragglers++
		}
	}
	if steps := sum.v[mLogSteps]; steps > 0 && total > 0 {
		out.Rows = sum.v[mLogRows] / steps * out.PerSecond
	}
	return out
}
