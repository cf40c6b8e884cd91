package plan

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/stokerdata/stoker/internal/budget"
	"github.com/stokerdata/stoker/internal/units"
)

// settings sets the loader's arguments, and a program that uses them.
func (r *resolved) settings(p *Plan) error {
	l := &p.Loader
	l.BatchSize = r.Batch
	l.Prefetch = p.Memory.Prefetch
	// Each rank has its own loader.
	l.Memory = int64(p.Memory.Total / float64(r.Accelerators))
	cached := false
	l.Threads = int64(r.threads())
	if c := r.best(p); c.Cores > 0 && r.machine.Cores > 0 {
		// Threads that are needed, with a quarter to spare.
		l.Threads = int64(math.Min(math.Ceil(c.Cores/float64(r.Accelerators)*tight), float64(l.Threads)))
	}
	q := r.request(int(l.Threads), l.Prefetch)
	q.Memory = l.Memory
	engine, err := budget.Make(&q)
	if err != nil {
		return err
	}
	p.Engine = Engine{Threads: q.Threads, Slots: engine.Slots, Memory: engine.Shares}
	l.Source = r.dataset.Path
	for _, a := range p.Advice {
		if a.Step == 0 {
			continue
		}
		switch a.Kind {
		case "pack", CodecDCT, CodecRaw:
			if l.Pack == "" || a.Kind != "pack" {
				l.Pack = a.Command
			}
		case "cache":
			cached = true
		}
	}
	if l.Pack != "" {
		fields := strings.Fields(l.Pack)
		l.Source = fields[len(fields)-3]
		if i := strings.Index(l.Pack, " --"); i > 0 {
			before := strings.Fields(l.Pack[:i])
			l.Source = before[len(before)-1]
		}
	}
	if l.Source == "" {
		l.Source = "train/"
	}
	l.Python = r.python(p, cached)
	return nil
}

// best returns the final codec of the plan.
func (r *resolved) best(p *Plan) CodecNeed {
	c := r.current(p)
	for _, a := range p.Advice {
		if n, ok := p.Codec(a.Kind); ok && a.Step > 0 {
			c = n
		}
	}
	return c
}

// python writes a training loop with the settings.
func (r *resolved) python(p *Plan, cached bool) string {
	l := &p.Loader
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# n = %s and t = %s on %s: %s examples/s, predicted %s.", units.Count(float64(r.Batch)), units.Seconds(r.Step),
		units.Plural(float64(r.Accelerators), "accelerator"), units.Count(p.Goal.PerSecond), units.Count(p.Delivered.PerSecond))
	if l.Pack != "" {
		line("# Once: %s", l.Pack)
	}
	if cached {
		line("# Leave the free memory to the page cache: it keeps what is read.")
	}
	line("import stoker\n")
	line("loader = stoker.Loader(")
	line("    %s,", strconv.Quote(l.Source))
	line("    batch_size=%d,", l.BatchSize)
	line("    shuffle=True,")
	line("    seed=0,")
	line("    drop_last=True,")
	line("    threads=%d,", l.Threads)
	line("    limits=stoker.Limits(memory=\"%dMiB\", prefetch=%d),", l.Memory>>20, l.Prefetch)
	if r.Kind == KindImage {
		line("    transforms={%q: [stoker.transforms.RandomResizedCrop(%d), stoker.transforms.RandomHorizontalFlip()]},", r.imageField(), r.side())
	}
	line("    output=\"torch\",")
	line(")")
	line("for epoch in range(90):")
	if r.Kind == KindImage {
		line("    for images, labels in loader:")
	} else {
		line("    for batch in loader:")
	}
	line("        ...  # one step; under torchrun each rank gets its part automatically")
	return b.String()
}
