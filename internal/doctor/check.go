package doctor

import (
	"fmt"
	"slices"
)

// A check is one possible limit of a job, or another fact worth reporting. Each check has its own file. Only the table
// of checks refers to it.
type check interface {
	about() about
	// gain returns the factor by which the job would be faster without the check's limit; 1 means no gain.
	gain(f *findings) float64
	// evidence adds the figures that support the check's verdict.
	evidence(f *findings)
	// advise adds advice. A check with a verdict is called if the report has that verdict; one without is always called
	// and adds nothing if it does not apply.
	advise(f *findings)
}

// about names a check.
type about struct {
	name    string  // of the check, in one word
	verdict Verdict // "" for a check that only gives advice
	cause   cause   // the use of time by threads; causeIdle if it is not a resource of the data path
	short   string  // the verdict in words: "CPU-bound"
	removed string  // the removed limit, after "without": "computing examples"
	doing   string  // the work of a worker: "computing"
}

// checks is the table of checks, in the order of reports.
var checks = []check{
	ranksCheck{}, workersCheck{}, restartsCheck{}, interpreterCheck{},
	cpuCheck{}, storageCheck{}, networkCheck{}, memoryCheck{}, handoffCheck{}, latencyCheck{},
	acceleratorCheck{}, healthyCheck{}, unknownCheck{},
	nativeCheck{}, partnersCheck{}, realtimeCheck{}, forksCheck{},
	shmCheck{}, throttledCheck{},
}

// Causes are the verdicts that name a resource of the data path, in the order of reports.
var Causes = causes()

func causes() []Verdict {
	var out []Verdict
	for _, c := range checks {
		if a := c.about(); a.cause != causeIdle {
			out = append(out, a.verdict)
		}
	}
	return out
}

// resources maps the verdicts to their causes.
var resources = resourcesOf()

func resourcesOf() map[Verdict]cause {
	out := map[Verdict]cause{}
	for _, c := range checks {
		if a := c.about(); a.cause != causeIdle {
			out[a.verdict] = a.cause
		}
	}
	return out
}

// checkOf is the check with a verdict.
func checkOf(v Verdict) check {
	for _, c := range checks {
		if v != "" && c.about().verdict == v {
			return c
		}
	}
	return healthyCheck{}
}

// Words is a verdict in words: "CPU-bound".
func (v Verdict) Words() string {
	for _, c := range checks {
		if a := c.about(); v != "" && a.verdict == v {
			return a.short
		}
	}
	return "no verdict"
}

// findings is the input and output of the checks.
type findings struct {
	c   *collector
	r   *Report // the decisions so far
	s   *shares
	sum *bin

	said   []string
	advice []Advice
}

// say adds a line of evidence.
func (f *findings) say(format string, args ...any) {
	f.said = append(f.said, fmt.Sprintf(format, args...))
}

// add adds a piece of advice. A gain of 0 means that no model estimates it.
func (f *findings) add(gain float64, title string, do Action, why string, args ...any) {
	f.advice = append(f.advice, Advice{
		Title: title, Why: fmt.Sprintf(why, args...), Command: do.String(), Gain: round(gain, 2), Options: do.options(), Prefix: do.prefix(),
	})
}

// per is a metric per second.
func (f *findings) per(m metric) float64 {
	if f.sum.dt <= 0 || !f.c.line.known[m] {
		return 0
	}
	return f.sum.v[m] / f.sum.dt
}

// starved reports whether the verdict names a resource of the data path.
func (f *findings) starved() bool { return slices.Contains(Causes, f.r.Verdict) }

// resource is the shared part of the checks for resources of the data path: the gain comes from the model.
type resource struct{}

func (resource) gainOf(f *findings, v Verdict) float64 { return 1 / f.s.timeWithout(v) }

// remedy is the part of a check without a verdict.
type remedy struct{}

func (remedy) gain(*findings) float64 { return 1 }
func (remedy) evidence(*findings)     {}
