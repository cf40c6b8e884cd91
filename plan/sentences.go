package plan

import (
	"fmt"
	"math"

	"github.com/stokerdata/stoker/internal/units"
)

// sentences summarises the tables in three sentences: the need, the verdict, the change to make.
func (r *resolved) sentences(p *Plan) {
	p.Sentences = []string{r.sayNeed(p), r.sayVerdict(p), r.sayChange(p)}
}

func (r *resolved) sayNeed(p *Plan) string {
	who := "the accelerator"
	if r.Accelerators > 1 {
		who = fmt.Sprintf("%s accelerators", units.Count(float64(r.Accelerators)))
	}
	s := fmt.Sprintf("To keep %s busy, %s examples must arrive every %s in %s of the steps: %s examples/s",
		who, units.Count(float64(p.Goal.TotalBatch)), units.Seconds(r.Step), units.Percent(r.Share), units.Count(p.Goal.PerSecond))
	switch {
	case p.Reads.IOPS == 0:
		return s + ", all from memory."
	case r.Experiments > 1:
		return s + fmt.Sprintf(" each, and %s reads of %s per second (%s) for %s on the same storage.",
			span(p.Reads.IOPSLow, p.Reads.IOPS, units.Count), units.Bytes(p.Reads.Block), span(p.Reads.BandwidthLow, p.Reads.Bandwidth, units.Bandwidth),
			span(float64(r.ExperimentsLow), float64(r.Experiments), units.Count)+" experiments")
	}
	return s + fmt.Sprintf(", read in blocks of %s at %s.", units.Bytes(p.Reads.Block), units.Bandwidth(p.Reads.Bandwidth))
}

// span writes "5 to 10", or "5" when both are the same.
func span(low, high float64, text func(float64) string) string {
	if low == high {
		return text(high)
	}
	return text(low) + " to " + text(high)
}

func (r *resolved) sayVerdict(p *Plan) string {
	first, ok := p.Resource(p.FirstToFail)
	if !ok {
		return "There is no machine to compare with: name the storage (--storage nvme) and the cores, or let plan measure the machine."
	}
	what := fmt.Sprintf("%s (%s needed, %s available)", first.Name, first.NeedText, first.HaveText)
	if first.Name == ResourceLatency || first.Name == ResourceHandoff {
		what = fmt.Sprintf("%s (%s allowed, %s expected)", first.Name, trimAtMost(first.NeedText), first.HaveText)
	}
	path := "This path"
	if !p.Judged {
		path = "With the known figures, this path"
	}
	how := ", according to typical figures"
	if p.Delivered.Measured {
		how = ", according to measurements"
	}
	switch {
	case p.Meets && first.Verdict == VerdictTight:
		return fmt.Sprintf("%s delivers that%s, but only just: the tightest part is %s, at %s the need.", path, how, what, units.Times(first.Margin))
	case p.Meets:
		return fmt.Sprintf("%s delivers that%s: the tightest part is %s, at %s the need.", path, how, what, units.Times(first.Margin))
	case p.Delivered.AU < enough:
		problem := ""
		if r.smallFiles(p) {
			problem = " This is the small file problem."
		}
		return fmt.Sprintf("%s does not deliver that%s: the first part to fail is %s, so %s examples/s arrive and the accelerators work %s of the time.%s",
			path, how, what, units.Count(p.Delivered.PerSecond), units.Percent(p.Delivered.AU), problem)
	}
	return fmt.Sprintf("%s delivers enough examples%s, but there is too little %s.", path, how, what)
}

func trimAtMost(s string) string {
	if len(s) > 8 && s[:8] == "at most " {
		return s[8:]
	}
	return s
}

// smallFiles reports whether the storage lacks requests rather than bytes.
func (r *resolved) smallFiles(p *Plan) bool {
	requests, ok := p.Resource(ResourceRequests)
	if !ok || requests.Verdict != VerdictNo || p.FirstToFail != ResourceRequests {
		return false
	}
	bandwidth, ok := p.Resource(ResourceBandwidth)
	return !ok || requests.Margin < bytesBound*bandwidth.Margin
}

func (r *resolved) sayChange(p *Plan) string {
	var steps []string
	last := Advice{}
	for _, a := range p.Advice {
		if a.Step > 0 {
			steps = append(steps, a.Title)
			last = a
		}
	}
	switch {
	case p.Fit.Known && !p.Fit.Fits:
		return fmt.Sprintf("First lower n to %s: %s examples with their state do not fit %s.", units.Count(float64(p.Fit.LargestPowerOfTwo)), units.Count(float64(r.Batch)), units.Bytes(r.AcceleratorMemory))
	case len(steps) > 0 && last.AU >= enough:
		return fmt.Sprintf("To get there: %s; predicted: %s examples/s, accelerators never idle.", units.List(steps, "and then"), units.Count(last.To))
	case len(steps) > 0:
		return fmt.Sprintf("The largest gain: %s. Predicted: %s examples/s, accelerators %s busy. The rest needs faster hardware or a larger t.", units.List(steps, "and then"), units.Count(last.To), units.Percent(last.AU))
	case p.Delivered.AU < enough && len(p.Advice) > 0:
		return fmt.Sprintf("No change of format helps here: %s (%s).", p.Advice[0].Title, p.Advice[0].Effect)
	case !p.Meets:
		return "Lower n, or add memory."
	}
	if m := p.Memory; m.Compact > 0 && m.Batch > 1.5*m.Compact {
		return fmt.Sprintf("Keep the arrays in one byte per element until they are on the accelerator: %s instead of %s per batch.", units.Bytes(m.Compact), units.Bytes(m.Batch))
	}
	t := p.Memory.Torch
	return fmt.Sprintf("Nothing has to change: Stoker holds %s with %s batches ahead; the PyTorch DataLoader would hold %s in batches alone, and take %s.",
		units.Bytes(p.Memory.Total), units.Count(float64(p.Memory.Prefetch)), units.Bytes(t.Total), units.Plural(math.Max(1, t.Workers), "worker process"))
}
