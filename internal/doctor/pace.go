package doctor

import "time"

// Observing costs time for each thread, process and file in /proc. The cost on a machine is not known in advance, so
// the pace follows from the time that was spent.

// budget is the share of one core that observation may take.
const budget = 0.008

// makeUp is the time in which an excess over the budget is saved again.
const makeUp = time.Second

// tickBudget is the minimum ratio of the time between ticks to a tick's CPU time: 0.4% of one core. The figures that
// are read every second take as much.
const tickBudget = 250

// longestTick and longestSlow are the longest intervals between samples. With fewer samples there would be no verdict
// in time.
const longestTick, longestSlow = 1500 * time.Millisecond, 3500 * time.Millisecond

// pace controls the sampling intervals.
type pace struct {
	start time.Time
	cpu   func() time.Duration // of the watching: of this process, or of its thread
	begun time.Duration        // that at the start
	tick  time.Duration        // CPU time of a tick, a running mean
	slow  time.Duration        // of the slow readings
}

// begin sets the start of the observation. It runs on the observing thread.
func (p *pace) begin(start time.Time) { p.start, p.begun = start, p.cpu() }

// spent is the CPU time of the watching.
func (p *pace) spent() time.Duration { return p.cpu() - p.begun }

// ticked records the cost of a tick.
func (p *pace) ticked(cost time.Duration) {
	// The first sample of a program takes many times as long as later ones.
	cost = min(cost, 4*p.tick+500*time.Microsecond)
	p.tick += (cost - p.tick) / (4 * wideEvery)
}

// slowed records the cost of a slow reading.
func (p *pace) slowed(cost time.Duration) {
	cost = min(cost, 4*p.slow+10*time.Millisecond)
	p.slow += (cost - p.slow) / 2
}

// nextTick is the mean time until the next tick: with many threads they become rarer, and
// more so while the whole is beyond its budget.
func (p *pace) nextTick(now time.Time, least time.Duration) time.Duration {
	wait := max(least, min(p.tick*tickBudget, time.Second))
	return min(time.Duration(p.stretch(now)*float64(wait)), longestTick)
}

// nextSlow returns the time until the next slow reading. Those readings take at most half of the budget.
func (p *pace) nextSlow(now time.Time) time.Duration {
	wait := float64(p.slow) / (budget / 2)
	return min(max(slowEvery, time.Duration(p.stretch(now)*wait)), longestSlow)
}

// stretch returns the factor by which samples become rarer because of the time spent beyond the budget.
func (p *pace) stretch(now time.Time) float64 {
	over := p.spent().Seconds() - budget*now.Sub(p.start).Seconds()
	return 1 + max(0, over)/(budget*makeUp.Seconds())
}
