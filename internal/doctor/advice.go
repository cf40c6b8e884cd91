package doctor

import "sort"

// maxAdvice is the maximum number of pieces of advice in a report.
const maxAdvice = 3

// advise returns the advice for the verdict, most gain first.
func (f *findings) advise() []Advice {
	if tooShort(f.r, f.s) {
		return []Advice{}
	}
	if f.r.Loader.Trainers == 0 && !f.starved() {
		f.add(0, "watch the process that runs the training loop, while it trains",
			stoker("doctor", "--seconds", "60", "--pid", "4711").then("  # or: stoker doctor -- python train.py"),
			"no data loader was seen at work, so nothing is known of one")
		return f.advice
	}
	for _, c := range checks {
		if v := c.about().verdict; v == "" || v == f.r.Verdict {
			c.advise(f)
		}
	}
	sort.SliceStable(f.advice, func(i, j int) bool { return f.advice[i].Gain > f.advice[j].Gain })
	return append([]Advice{}, f.advice[:min(len(f.advice), maxAdvice)]...) // not nil: an empty list in JSON, too
}

// cost returns the share of a cause in the loading time: that of the workers if there are any, otherwise of the
// trainer's own loading.
func (s *shares) cost(x cause) float64 {
	if e := s.engine; e != nil {
		return e.cost(x)
	}
	if s.lanes > 0 {
		return s.part(x)
	}
	sum := 0.0
	for _, v := range s.serial {
		sum += v
	}
	if sum == 0 {
		return 0
	}
	return s.serial[x] / sum
}

// cost is the same of an engine's stages.
func (e *engineShares) cost(x cause) float64 {
	all := max(e.read+e.decode+e.collate, 1e-9)
	switch x {
	case causeCPU:
		return e.decode / all
	case causeHandoff:
		return e.collate / all
	case causeNetwork, causeStorage:
		if e.network == (x == causeNetwork) {
			return e.read / all
		}
	}
	return 0
}
