package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/stokerdata/stoker/internal/handoff"
)

// Fed is the number of simulated accelerators that a data path feeds.
type Fed struct {
	// Accelerators is the largest number for which it and all smaller numbers tried reached the target, 0 if one was
	// too many.
	Accelerators int     `json:"accelerators"`
	Target       float64 `json:"au_target"`
	// Note is the reason why no more were tried.
	Note string `json:"note,omitempty"`
	// Runs are the numbers tried, in order.
	Runs []*Result `json:"runs"`
}

// maxFed bounds the search: beyond it a machine's limit is not its data path.
const maxFed = 256

// Feed finds how many accelerators a data path feeds at an AU of target or better. It measures the maximum that the
// path delivers and starts at the number that this is enough for. From there it goes up and down until a number is
// enough and the next one is not.
func Feed(ctx context.Context, o Options, target float64, note func(format string, args ...any)) (*Fed, error) {
	return feed(ctx, o, target, note, Run)
}

func feed(ctx context.Context, o Options, target float64, note func(format string, args ...any),
	run func(context.Context, Options) (*Result, error)) (*Fed, error) {
	free := o
	free.Step, free.Spin, free.Accelerators = 0, false, 1
	r, err := run(ctx, free)
	if err != nil {
		return nil, err
	}
	// Each accelerator needs a batch of its own in an epoch.
	most := int(min(max(r.Records/int64(o.Config.BatchSize), 1), maxFed))
	need := float64(o.Config.BatchSize) / o.Step.Seconds() * target
	guess := min(max(int(r.PerSecond/need), 1), most)
	note("without an accelerator: %.0f examples/s, enough for about %d", r.PerSecond, guess)
	f := &Fed{Target: target}
	tried := map[int]*Result{}
	enough := func(n int) (bool, error) {
		p := o
		p.Accelerators = n
		r, err := run(ctx, p)
		if err != nil {
			return false, fmt.Errorf("with %d accelerators: %w", n, err)
		}
		note("%d accelerators: AU %.1f%%", n, 100*r.AU)
		tried[n] = r
		return r.AU >= target, nil
	}
	// fed is the largest number known to be enough, starved the smallest known to be too many. With too many, AU falls
	// in proportion, which gives the next number to try.
	fed, starved := 0, most+1
	for n := guess; starved-fed > 1; {
		ok, err := enough(n)
		if refused := (*handoff.Failure)(nil); errors.As(err, &refused) && n > 1 {
			// This many rings do not fit the memory. Fewer may fit.
			note("%v", err)
			f.Note = err.Error()
			starved = n
			n = max((fed+n)/2, fed+1)
			continue
		}
		if err != nil {
			return nil, err
		}
		next := n + 1
		if ok {
			fed = n
		} else {
			starved = n
			next = int(float64(n)*tried[n].AU/target + 0.5)
		}
		n = min(max(next, fed+1), starved-1)
	}
	n := fed
	f.Accelerators = n
	if n == most && most < maxFed && f.Note == "" {
		f.Note = fmt.Sprintf("more than %d were not tried: the data has %d batches", most, r.Records/int64(o.Config.BatchSize))
	}
	for _, r := range tried {
		f.Runs = append(f.Runs, r)
	}
	slices.SortFunc(f.Runs, func(a, b *Result) int { return cmp.Compare(a.Accelerators, b.Accelerators) })
	return f, nil
}
