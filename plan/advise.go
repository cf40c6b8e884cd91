package plan

import (
	"fmt"
	"math"
	"sort"

	"github.com/stokerdata/stoker/internal/units"
)

// state is one way to run the path; advice compares several.
type state struct {
	codec, layout string
	es            float64 // bytes of a stored example
	cached        float64
	class         string  // storage class instead of the existing one, "" for the existing one
	cpuSeconds    float64 // per example
	cores         float64
	measured      bool
}

// now returns the current state.
func (r *resolved) now(p *Plan) state {
	c := r.current(p)
	s := state{codec: c.Codec, layout: r.dataset.Layout, es: r.es, cached: r.Cached, cores: r.machine.Cores, measured: c.Origin == OriginMeasured}
	if c.PerCore > 0 {
		s.cpuSeconds = 1 / c.PerCore
	}
	return s
}

// withCodec returns s with the images stored in another codec.
func (s state) withCodec(p *Plan, name string) state {
	c, _ := p.Codec(name)
	s.codec, s.layout, s.es = name, LayoutPack, c.RecordBytes
	if c.PerCore > 0 {
		s.cpuSeconds = 1 / c.PerCore
	}
	return s
}

// capacity returns the examples per second that each part of one machine could deliver alone. Unknown parts are left
// out.
func (r *resolved) capacity(s state) []Capacity {
	var out []Capacity
	add := func(name string, v float64) {
		if v > 0 && !math.IsNaN(v) {
			out = append(out, Capacity{name, v})
		}
	}
	store := r.storeOf(s)
	if store != nil && s.cached < 1 {
		rate, _ := store.examples(s.es)
		if s.class == "" {
			rate /= r.clients() // shared; a storage in each machine is not
		}
		add(LimitStorage, rate/(1-s.cached))
		if store.network {
			network := r.machine.Network
			if network == 0 {
				network = tenGigabit
			}
			add(LimitNetwork, network/s.es/(1-s.cached))
		}
	}
	if s.cores > 0 && s.cpuSeconds > 0 {
		add(LimitCPU, s.cores*r.scaling()/s.cpuSeconds)
	}
	if r.machine.MemoryBandwidth > 0 {
		add(LimitMemory, r.machine.MemoryBandwidth/(s.es+r.output))
	}
	if h := r.machine.Handoff; h != nil {
		seconds := h.PerBatch
		if h.Bandwidth > 0 {
			seconds += r.output * float64(r.Batch) / h.Bandwidth
		}
		if seconds > 0 {
			add(LimitHandoff, float64(r.Batch*r.Accelerators)/seconds)
		}
	}
	return out
}

// enough is the share of the need that counts as meeting it. The cost of a step besides t, the hand-off, is not worth
// a change.
const enough = 0.985

// delivers returns the throughput of a state and the part that limits it. If the cores are known, the throughput is
// from Predict, otherwise it is the least capacity. It is at most the demand of the accelerators.
func (r *resolved) delivers(p *Plan, s state) (rate float64, limit string) {
	if s.cores > 0 && s.cpuSeconds > 0 {
		out := Predict(r.pipeline(s))
		if out.Throughput > 0 {
			return math.Min(out.Throughput, p.Goal.PerSecond), out.Limit
		}
	}
	rate, limit = p.Goal.PerSecond, LimitAccelerator
	for _, c := range r.capacity(s) {
		if c.PerSecond < rate {
			rate, limit = c.PerSecond, c.Resource
		}
	}
	return rate, limit
}

// pipeline converts a state for Predict.
func (r *resolved) pipeline(s state) (Pipeline, Machine) {
	m := r.machine
	out := Pipeline{
		Batch: r.Batch, Step: r.Step, Accelerators: int(r.Accelerators), Cores: s.cores, Codec: s.codec, Layout: s.layout,
		RecordBytes: s.es, OutputBytes: r.output, CachedShare: s.cached,
	}
	if c := r.measuredCodec(s.codec); c == nil || c.RecordBytes <= 0 {
		out.CPUSeconds = s.cpuSeconds
	}
	store := r.storeOf(s)
	if store == nil {
		m.Store = nil
		return out, m
	}
	if store.origin != OriginMeasured {
		m.Store = nil
	}
	if store.origin != OriginMeasured || r.clients() > 1 {
		share := 1.0
		if s.class == "" {
			share = r.clients() // a storage that all use, not one in each machine
		}
		out.DiskIOPS, out.DiskBandwidth = store.iops/store.requests/share, store.bandwidth/share
	}
	if !store.network {
		m.Network = 0
	}
	return out, m
}

// storeOf returns the storage of a state.
func (r *resolved) storeOf(s state) *storage {
	if c, ok := ClassNamed(s.class); ok {
		return c.storage(s.es, s.layout, r.clients(), r.machine.Network)
	}
	return r.storageFor(s.es, s.layout)
}

// deliver predicts the throughput of the unchanged machine.
func (r *resolved) deliver(p *Plan, s *storage) {
	now := r.now(p)
	d := &p.Delivered
	d.PerSecond, d.Limit = r.delivers(p, now)
	d.AU = d.PerSecond / p.Goal.PerSecond
	d.Measured = now.measured || s != nil && s.origin == OriginMeasured
}

// change is one change: its effect on a state, and its description.
type change struct {
	kind, title, why, command string
	apply                     func(state) state
}

// changes returns the changes that could raise the throughput and make sense for this data.
func (r *resolved) changes(p *Plan) []change {
	var out []change
	src := r.dataset.Path
	if src == "" {
		src = "data/"
	}
	verb, packed := "pack", "train/"
	if r.dataset.Layout == LayoutPack {
		verb, packed = "convert", "train-new/"
	}
	command := func(flags string) string {
		if verb == "convert" {
			return fmt.Sprintf("stoker convert %s %s %s", units.Shell(src), packed, flags)
		}
		return fmt.Sprintf("stoker pack %s %s %s", units.Shell(src), packed, flags)
	}
	if r.dataset.Layout == LayoutFiles {
		out = append(out, change{
			kind: "pack", title: "pack the files into few large ones", command: command("--images keep"),
			why:   "no file to open per example",
			apply: func(s state) state { s.layout = LayoutPack; return s },
		})
	}
	if r.Kind == KindImage && r.codec() != CodecDCT && r.codec() != CodecRaw {
		dct, _ := p.Codec(CodecDCT)
		out = append(out, change{
			kind: CodecDCT, title: "store the JPEGs without their entropy code (dct)", command: command("--images dct"),
			why:   fmt.Sprintf("%s images/s per core instead of %s, the same pixels, %s of the bytes", units.Count(dct.PerCore), units.Count(r.current(p).PerCore), units.Percent(dct.RecordBytes/r.es)),
			apply: func(s state) state { return s.withCodec(p, CodecDCT) },
		})
	}
	if r.Kind == KindImage && r.codec() != CodecRaw {
		raw, _ := p.Codec(CodecRaw)
		flags := fmt.Sprintf("--images raw --resize %.0f", r.rawSide())
		out = append(out, change{
			kind: CodecRaw, title: fmt.Sprintf("store pixels, resized offline to %.0f (raw)", r.rawSide()), command: command(flags),
			why:   fmt.Sprintf("no decoding: %s images/s per core; %s per example instead of %s", units.Count(raw.PerCore), units.Bytes(raw.RecordBytes), units.Bytes(r.es)),
			apply: func(s state) state { return s.withCodec(p, CodecRaw) },
		})
	}
	if w, h := r.dataset.Width, r.dataset.Height; r.Kind == KindImage && r.codec() != CodecRaw && math.Min(w, h) > 1.2*r.rawSide() {
		f := r.rawSide() / math.Min(w, h)
		out = append(out, change{
			kind: "smaller", title: fmt.Sprintf("resize the images offline to a shorter side of %.0f", r.rawSide()),
			why:   fmt.Sprintf("the loader scales %.0f x %.0f pixels down every time: about %s per example are enough (before packing; it encodes JPEGs again, with a loss)", w, h, units.Bytes(r.es*f*f)),
			apply: func(s state) state { s.es *= f * f; s.cpuSeconds *= f * f; return s },
		})
	}
	if c := r.cacheChange(p); c != nil {
		out = append(out, *c)
	}
	if s := r.storageFor(p.Reads.Block, r.dataset.Layout); s != nil && s.name != ClassRAM && s.name != ClassNVMe && r.Experiments == 1 {
		out = append(out, change{
			kind: "local", title: "copy the data to a local NVMe SSD", command: "rsync -a " + src + " /scratch/",
			why: "one sequential pass, then every epoch reads there",
			apply: func(s state) state {
				if s.class == "" {
					s.class = ClassNVMe
				}
				return s
			},
		})
	}
	return out
}

// cacheChange caches as much data in memory as fits.
func (r *resolved) cacheChange(p *Plan) *change {
	share := p.Memory.CacheShare
	switch {
	case r.Cached > 0 || r.storageFor(p.Reads.Block, r.dataset.Layout) == nil:
		return nil
	case r.dataset.Bytes == 0 || r.machine.MemoryFree == 0:
		// The share that fits is unknown: use the article's "random 20%".
		share = 0.2
	case share < 0.02:
		return nil
	}
	c := &change{
		kind: "cache", title: fmt.Sprintf("keep %s of the data in memory", units.Percent(share)),
		why:   fmt.Sprintf("each epoch then reads %s of it; the page cache already does so with unused memory", units.Percent(1-share)),
		apply: func(s state) state { s.cached = math.Max(s.cached, share); return s },
	}
	if share >= 0.999 {
		c.title, c.why = "keep all of the data in memory", fmt.Sprintf("%s fit into %s free; from the second epoch on nothing is read", units.Bytes(float64(r.dataset.Bytes)), units.Bytes(p.Memory.Have))
	}
	return c
}

// advise lists the changes to make. First come changes that raise the throughput, each time the one with the largest
// gain after the previous ones. This ends if the need is met or no change helps. Then come the alternatives.
func (r *resolved) advise(p *Plan, s *storage) {
	p.Advice = []Advice{}
	start := r.now(p)
	before, _ := r.delivers(p, start)
	need := p.Goal.PerSecond
	left := r.changes(p)
	at, rate := start, before
	for step := 1; rate < need*enough && len(left) > 0; step++ {
		best, bestRate := -1, rate
		for i, c := range left {
			if v, _ := r.delivers(p, c.apply(at)); v > bestRate*1.02 {
				best, bestRate = i, v
			}
		}
		if best < 0 {
			// Two limits may be so close that only a pair of changes helps. Then the change that leaves the largest
			// margin elsewhere is taken.
			best, bestRate = r.loosest(left, at), rate
			if best < 0 {
				break
			}
		}
		c := left[best]
		left = append(append([]change(nil), left[:best]...), left[best+1:]...)
		at = c.apply(at)
		p.Advice = append(p.Advice, r.advice(p, step, c, rate, bestRate))
		rate = bestRate
	}
	p.Advice = dropUseless(p.Advice, before)
	r.alternatives(p, start, before, left)
	r.compact(p)
}

// loosest returns the change that raises the limiting part, although another part then limits at the same rate. It
// returns -1 if there is none.
func (r *resolved) loosest(left []change, at state) int {
	caps := r.capacity(at)
	if len(caps) == 0 {
		return -1
	}
	sort.Slice(caps, func(i, j int) bool { return caps[i].PerSecond < caps[j].PerSecond })
	best, most := -1, 1.02
	for i, c := range left {
		for _, v := range r.capacity(c.apply(at)) {
			if v.Resource == caps[0].Resource && v.PerSecond/caps[0].PerSecond > most {
				best, most = i, v.PerSecond/caps[0].PerSecond
			}
		}
	}
	return best
}

// dropUseless cuts the steps off that gain nothing at the end.
func dropUseless(steps []Advice, before float64) []Advice {
	for len(steps) > 0 && steps[len(steps)-1].To <= before*1.02 {
		steps = steps[:len(steps)-1]
	}
	return steps
}

func (r *resolved) advice(p *Plan, step int, c change, from, to float64) Advice {
	a := Advice{Step: step, Kind: c.kind, Title: c.title, Why: c.why, Command: c.command, From: from, To: to, Gain: 1, AU: to / p.Goal.PerSecond}
	if from > 0 {
		a.Gain = to / from
	}
	a.Effect = fmt.Sprintf("%s -> %s examples/s (%s), accelerators %s busy", units.Count(from), units.Count(to), units.Times(a.Gain), units.Percent(a.AU))
	return a
}

// alternatives returns other ways to meet the need: a larger t, sharing, buying. If the need is met, they report how
// much capacity is left.
func (r *resolved) alternatives(p *Plan, start state, before float64, left []change) {
	need := p.Goal.PerSecond
	caps := r.capacity(start)
	if len(caps) == 0 {
		return
	}
	if before >= need*enough {
		most := math.Inf(1)
		for _, c := range caps {
			most = math.Min(most, c.PerSecond)
		}
		if n := math.Floor(most / p.Goal.PerAccelerator); n > float64(r.Accelerators) && n < 1<<20 {
			p.Advice = append(p.Advice, Advice{
				Kind: "spare", Title: "nothing has to change", Why: fmt.Sprintf("the same path could feed %s of the same kind", units.Plural(n, "accelerator")),
				From: before, To: before, Gain: 1, AU: 1, Effect: fmt.Sprintf("up to %s examples/s", units.Count(most)),
			})
		}
		return
	}
	alternative := func(kind, title, why, effect string, to float64) {
		p.Advice = append(p.Advice, Advice{
			Kind: kind, Title: title, Why: why, From: before, To: to, Gain: to / before, AU: math.Min(1, to/need), Effect: effect,
		})
	}
	// A single change with the same effect as the steps above together.
	reached := before * 1.02
	for _, a := range p.Advice {
		reached = math.Max(reached, a.To)
	}
	for _, c := range left {
		if v, _ := r.delivers(p, c.apply(start)); v >= reached*0.9999 {
			p.Advice = append(p.Advice, r.advice(p, 0, c, before, v))
		}
	}
	r.buy(p, start, before, alternative)
	t := float64(p.Goal.TotalBatch) / before
	alternative("larger-t", fmt.Sprintf("let a step take %s or longer (now %s)", units.Seconds(t), units.Seconds(r.Step)),
		"a larger network or input, or a slower and cheaper accelerator: the data path then keeps up",
		fmt.Sprintf("the same %s examples/s, accelerators 100%% busy", units.Count(before)), before)
	p.Advice[len(p.Advice)-1].AU = 1
	if busy := before / p.Goal.PerAccelerator; r.Accelerators > 1 && busy < 1 {
		alternative("share", "share the accelerators between jobs", fmt.Sprintf("this path keeps %s of one busy", units.Percent(busy)),
			fmt.Sprintf("the same %s examples/s for this job", units.Count(before)), before)
	} else if r.Accelerators > 1 {
		alternative("share", fmt.Sprintf("give away %s of the %d accelerators, or share them between jobs", units.Count(float64(r.Accelerators)-math.Floor(busy)), r.Accelerators),
			fmt.Sprintf("the path keeps %s busy", units.Count(busy)), fmt.Sprintf("the same %s examples/s", units.Count(before)), before)
	} else {
		alternative("share", "share the accelerator with another job", fmt.Sprintf("it idles %s of the time", units.Percent(1-before/need)),
			fmt.Sprintf("the same %s examples/s for this job", units.Count(before)), before)
	}
}

// buy adds the hardware that would meet the need.
func (r *resolved) buy(p *Plan, start state, before float64, alternative func(kind, title, why, effect string, to float64)) {
	need := p.Goal.PerSecond
	better := start
	var what []string
	for _, c := range r.capacity(start) {
		if c.PerSecond >= need {
			continue
		}
		switch c.Resource {
		case LimitCPU:
			cores := math.Ceil(start.cores*need/c.PerSecond - 1e-9)
			better.cores = cores
			what = append(what, fmt.Sprintf("%s instead of %s", units.Plural(cores, "core"), units.Count(start.cores)))
		case LimitStorage:
			what = append(what, r.buyStorage(need, &better))
		case LimitNetwork:
			what = append(what, fmt.Sprintf("a network of %s", units.Bandwidth(p.Reads.PerMachine)))
		}
	}
	if len(what) == 0 {
		return
	}
	to, _ := r.delivers(p, better)
	if to <= before*1.02 {
		to = need // several devices: they are counted so that they meet it
	}
	alternative("buy", "buy "+units.List(what, "and"), "what the need takes, all else as it is",
		fmt.Sprintf("%s -> %s examples/s (%s)", units.Count(before), units.Count(to), units.Times(to/before)), to)
}

// compact advises on the memory of batches. This changes no throughput here, but the memory and the copies to the
// accelerator.
func (r *resolved) compact(p *Plan) {
	m := &p.Memory
	if m.Compact == 0 || m.Batch < 1.5*m.Compact {
		return
	}
	p.Advice = append(p.Advice, Advice{
		Kind: "compact", Title: "keep the arrays in one byte per element until they are on the accelerator",
		Why:  "images and masks are u8; cast and normalise there",
		From: p.Delivered.PerSecond, To: p.Delivered.PerSecond, Gain: 1, AU: p.Delivered.AU,
		Effect: fmt.Sprintf("%s -> %s per batch (%s less memory and copying)", units.Bytes(m.Batch), units.Bytes(m.Compact), units.Times(m.Batch/m.Compact)),
	})
}

// buyStorage returns the simplest local storage that delivers need examples per second to one machine, or the
// required number of the fastest one.
func (r *resolved) buyStorage(need float64, better *state) string {
	where := ""
	if r.Experiments > 1 {
		where = " in each machine"
	}
	rate := 0.0
	for _, name := range []string{ClassHDD, ClassSATA, ClassNVMe} {
		class, _ := ClassNamed(name)
		rate, _ = class.storage(better.es, better.layout, 1, 0).examples(better.es)
		if rate*1/(1-better.cached) >= need {
			better.class = name
			return "a local " + class.Title + where
		}
	}
	return units.Plural(Disks(need*(1-better.cached), rate), "local NVMe SSD") + where
}
