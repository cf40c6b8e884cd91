package plan

import (
	"fmt"
	"math"

	"github.com/stokerdata/stoker/internal/budget"
	"github.com/stokerdata/stoker/internal/units"
)

// tight is the margin below which a resource only just meets the need.
const tight = 1.25

// Make makes a plan: the requirements of target for the data path to dataset, and whether machine meets them. All
// three may be incomplete. A *Missing error lists missing figures, a *BadInput error names an impossible one.
func Make(target Target, dataset Dataset, machine Machine) (*Plan, error) {
	r, err := resolve(target, dataset, machine)
	if err != nil {
		return nil, err
	}
	p := &Plan{Version: Version}
	r.goal(p)
	r.fit(p)
	r.reads(p)
	r.cpu(p)
	store := r.storage(p)
	r.latency(p, store)
	if err := r.memory(p); err != nil {
		return nil, err
	}
	r.resources(p, store)
	r.classes(p)
	r.deliver(p, store)
	r.reconcile(p)
	r.epoch(p)
	r.bucket(p)
	r.advise(p, store)
	if err := r.settings(p); err != nil {
		return nil, err
	}
	r.sentences(p)
	if r.dataset.InOrder {
		r.note("The dataset is compressed and can only be read in order: pack it (stoker pack) to read it in a random one. What decompressing takes is not in these figures.")
	}
	p.Inputs, p.Notes = r.inputs, r.notes
	return p, nil
}

func (r *resolved) goal(p *Plan) {
	n := float64(r.Batch)
	p.Goal = Goal{
		Share: r.Share, Batch: r.Batch, Step: r.Step, Accelerators: r.Accelerators,
		TotalBatch:     r.Batch * r.Accelerators,
		PerAccelerator: ReadIOPS(n, r.Step),
		PerSecond:      ReadIOPS(n*float64(r.Accelerators), r.Step),
		LatencyBound:   r.Step,
	}
	if r.FLOPs > 0 && r.DeviceFLOPS > 0 {
		p.Goal.ComputeRate = ComputeRate(r.FLOPs, r.DeviceFLOPS)
	}
}

func (r *resolved) fit(p *Plan) {
	if r.AcceleratorMemory == 0 || r.Activation == 0 {
		return
	}
	need := BatchMemory(r.Batch, r.Parameters, r.Activation)
	p.Fit = Fit{
		Known: true, Fits: need <= r.AcceleratorMemory, Need: need, Have: r.AcceleratorMemory,
		Largest: r.largest, LargestPowerOfTwo: PowerOfTwo(r.largest),
	}
}

// reads computes the need of the storage for all experiments, which share it. Of several trainings, the highest
// number of requests and the highest number of bytes count.
//
// Source: "Feeding the beast", stage 2, on shared storage: the union of the
// datasets, a challenging combination of t, n and es, and n = experiments x
// batch size.
func (r *resolved) reads(p *Plan) {
	type load struct{ iops, bandwidth, es float64 }
	mine := load{p.Goal.PerSecond, p.Goal.PerSecond * r.es, r.es}
	hardest, bandwidth := mine, mine.bandwidth
	room := float64(r.dataset.Bytes)
	for _, w := range r.Others {
		iops := ReadIOPS(float64(w.Batch)*math.Max(1, float64(w.Accelerators)), w.Step)
		other := load{iops, iops * w.RecordBytes, w.RecordBytes}
		if other.iops > hardest.iops {
			hardest = other
		}
		bandwidth = math.Max(bandwidth, other.bandwidth)
		room += w.DatasetBytes
	}
	if len(r.Others) > 0 {
		r.note("Of the %s on this storage the hardest counts: the most requests and the most bytes per second of any.", units.Plural(float64(len(r.Others)+1), "training"))
	}
	left := 1 - r.Cached
	low, high := float64(r.ExperimentsLow)*left, float64(r.Experiments)*left
	p.Reads = ReadNeed{
		IOPS: hardest.iops * high, IOPSLow: hardest.iops * low,
		Bandwidth: bandwidth * high, BandwidthLow: bandwidth * low,
		Block: hardest.es, Room: room, PerMachine: mine.bandwidth * left, Cached: r.Cached,
	}
}

// cpu assesses the decoding and transforming on one machine, per codec.
func (r *resolved) cpu(p *Plan) {
	for _, rate := range r.codecs() {
		c := CodecNeed{
			Codec: rate.Codec, PerCore: rate.PerCore, Cores: p.Goal.PerSecond * rate.CPUSeconds / r.scaling(),
			RecordBytes: rate.RecordBytes, Origin: rate.Origin, Current: rate.Codec == r.codec(),
			Bandwidth: rate.RecordBytes * p.Goal.PerSecond * (1 - r.Cached),
		}
		if r.dataset.Records > 0 {
			c.DatasetBytes = float64(r.dataset.Records) * rate.RecordBytes
		}
		p.CPU = append(p.CPU, c)
	}
}

// codecBytes is the codec name of records that are not decoded.
const codecBytes = "bytes"

// codec returns the current codec of the records.
func (r *resolved) codec() string {
	switch {
	case r.Kind != KindImage:
		return codecBytes
	case r.dataset.Codec != "":
		return r.dataset.Codec
	}
	return CodecKeep
}

// scaling returns the rate of all cores together, as a share of the sum of the cores alone.
func (r *resolved) scaling() float64 {
	if r.machine.Scaling > 0 && r.machine.Scaling <= 1 {
		return r.machine.Scaling
	}
	return 1
}

// codecs returns the rates per codec, each with the stored bytes of an example. Measured rates are preferred. Others
// are typical rates, scaled by this machine's speed on a measured codec.
func (r *resolved) codecs() []CodecRate {
	if r.Kind != KindImage {
		// Records that are used unchanged are only copied into the batch.
		bandwidth := r.machine.MemoryBandwidthCore
		origin := OriginMeasured
		if bandwidth <= 0 {
			bandwidth, origin = 5e9, OriginTypical
		}
		seconds := 2e-6 + r.es/bandwidth
		return []CodecRate{{Codec: codecBytes, CPUSeconds: seconds, PerCore: 1 / seconds, RecordBytes: r.es, Origin: origin}}
	}
	jpeg := r.es // the bytes of the image as a JPEG
	switch r.codec() {
	case CodecDCT:
		jpeg = r.es / dctGrowth
	case CodecRaw:
		jpeg = r.es / (3 * pixelsPerByte)
	}
	out := typicalCodecs(jpeg, r.output)
	size := map[string]float64{CodecKeep: jpeg, CodecDCT: jpeg * dctGrowth, CodecRaw: r.rawBytes(jpeg)}
	slower, known := 1.0, false
	for i := range out {
		c := &out[i]
		m := r.measuredCodec(c.Codec)
		if m == nil {
			continue
		}
		seconds := m.CPUSeconds
		if m.RecordBytes > 0 && c.Codec == r.codec() && math.Abs(r.es/m.RecordBytes-1) > 0.2 {
			// Measured on images of another size: decoding grows with the bytes.
			seconds *= r.es / m.RecordBytes
		} else if m.RecordBytes > 0 && size[c.Codec] > 0 && c.Codec != CodecRaw && math.Abs(size[c.Codec]/m.RecordBytes-1) > 0.2 {
			seconds *= size[c.Codec] / m.RecordBytes
		}
		if !known && c.Codec != CodecRaw {
			slower, known = seconds/c.CPUSeconds, true
		}
		c.CPUSeconds, c.Origin = seconds, OriginMeasured
		if m.Transform != "" {
			c.Transform = m.Transform
		}
	}
	for i := range out {
		c := &out[i]
		if c.Origin == OriginTypical {
			c.CPUSeconds *= slower
			if known {
				c.Origin = OriginDerived
			}
		}
		c.PerCore = 1 / c.CPUSeconds
		c.RecordBytes = size[c.Codec]
		if c.Codec == r.codec() {
			c.RecordBytes = r.es
		}
	}
	return out
}

func (r *resolved) measuredCodec(name string) *CodecRate {
	for i := range r.machine.Codecs {
		if m := &r.machine.Codecs[i]; m.Codec == name && m.CPUSeconds > 0 && m.Origin != OriginTypical {
			return m
		}
	}
	return nil
}

// rawBytes returns the size of an example as pixels, at the size for a random crop: the shorter side is 256/224 of
// the output's.
func (r *resolved) rawBytes(jpeg float64) float64 {
	if r.codec() == CodecRaw {
		return r.es
	}
	w, h := r.dataset.Width, r.dataset.Height
	if w <= 0 || h <= 0 {
		w, h = 470, 400 // a mean photograph of ImageNet
		if jpeg > 0 {
			f := math.Sqrt(jpeg * pixelsPerByte / (w * h))
			w, h = w*f, h*f
		}
	}
	channels := math.Max(1, float64(r.dataset.Channels))
	if r.dataset.Channels == 0 {
		channels = 3
	}
	if side := r.rawSide(); math.Min(w, h) > side {
		f := side / math.Min(w, h)
		w, h = w*f, h*f
	}
	return w * h * channels
}

// rawSide returns the shorter side of images stored as pixels.
func (r *resolved) rawSide() float64 {
	for _, a := range r.Arrays {
		if len(a.Shape) == 3 {
			return math.Ceil(float64(max(a.Shape[0], a.Shape[1])) * 256 / 224)
		}
	}
	return 256
}

// current returns the rate of the codec that the data is stored in.
func (r *resolved) current(p *Plan) CodecNeed {
	for _, c := range p.CPU {
		if c.Current {
			return c
		}
	}
	return CodecNeed{}
}

// clients returns the number of machines that read at the same time.
func (r *resolved) clients() float64 { return float64(r.Experiments) }

// storage chooses the storage of the plan, and adds a note if nothing is known.
func (r *resolved) storage(p *Plan) *storage {
	s := r.storageFor(p.Reads.Block, r.dataset.Layout)
	switch {
	case s == nil:
		r.note("The storage is neither measured nor named, so it is left out of the verdict: see the classes.")
	case s.origin == OriginTypical && r.Storage == "":
		r.note("The storage was recognised but not measured; its figures are those of its class.")
	}
	return s
}

// storageFor returns the storage for examples of block bytes. If the user names a class, it is that class, with the
// measurement if it is of the same class. Otherwise it is the measured storage, or nil without one.
func (r *resolved) storageFor(block float64, layout string) *storage {
	measured := r.machine.Store.measured(block, layout)
	name := r.Storage
	if measured != nil && (name == "" || measured.name == name) {
		return measured
	}
	if name == "" && r.machine.Store != nil {
		name = r.machine.Store.Class
	}
	if c, ok := ClassNamed(name); ok {
		return c.storage(block, layout, r.clients(), r.machine.Network)
	}
	return nil
}

// memory computes the memory of one machine: the batches built ahead for each accelerator, buffers, scratch memory
// and a cache. It also computes that of the PyTorch DataLoader for comparison.
//
// Sources: "Efficient PyTorch", advice 4, for the sizes and for the DataLoader. The engine's memory is from package
// budget, which the engine itself uses.
func (r *resolved) memory(p *Plan) error {
	m := &p.Memory
	m.Example = r.output
	m.Batch = r.output * float64(r.Batch)
	compact := 0.0
	for _, a := range r.Arrays {
		m.Arrays = append(m.Arrays, ArrayBytes{a.String(), a.Bytes() * float64(r.Batch)})
		b := a.Bytes()
		if len(a.Shape) > 1 {
			b /= float64(elementSize(a.DType))
		}
		compact += b * float64(r.Batch)
	}
	if compact < m.Batch {
		m.Compact = compact
	}
	each := float64(r.Accelerators)
	m.Have = float64(r.machine.MemoryFree)
	engine, err := r.engine(p.Latency.Prefetch)
	if err != nil {
		return err
	}
	m.Prefetch = engine.Slots - 2
	m.Slots = float64(engine.Ring) * each
	m.Lookahead = float64(engine.Lookahead) * each
	m.ReadAhead = float64(engine.Read) * each
	m.PerThread = float64(engine.WorkerScratch)
	m.Scratch = float64(engine.Scratch) * each
	m.Total = float64(engine.Budget) * each
	if d := float64(r.dataset.Bytes); d > 0 {
		want := d
		if r.Cached > 0 {
			want = d * r.Cached
		} else if m.Have > 0 {
			want = math.Min(d, math.Max(0, 0.8*(m.Have-m.Total)))
		}
		m.Cache, m.CacheShare = want, want/d
		if r.Cached == 0 && m.Have == 0 {
			m.Cache, m.CacheShare = d, 1
		}
	}
	r.torch(p)
	return nil
}

// torch computes the needs of the PyTorch DataLoader: as many workers as keep up, each with prefetch_factor = 2
// batches, for each accelerator's process.
func (r *resolved) torch(p *Plan) {
	seconds := 2e-5 + r.es/torchBandwidth
	if r.Kind == KindImage && r.codec() != CodecRaw {
		seconds = torchCPU * r.es / 110e3
		if r.codec() == CodecDCT {
			seconds /= dctGrowth
		}
		for _, c := range r.codecs() { // a machine that is slower for us is slower for it
			if c.Codec == CodecKeep && c.Origin == OriginMeasured {
				seconds *= c.CPUSeconds * 1046 / (r.es / 110e3)
			}
		}
	}
	t := &p.Memory.Torch
	t.Cores = p.Goal.PerSecond * seconds
	t.Workers = math.Max(1, math.Ceil(p.Goal.PerAccelerator*seconds-1e-9)) * float64(r.Accelerators)
	if r.Workers > 0 {
		t.Workers = float64(r.Workers) * float64(r.Accelerators)
	}
	t.PerWorker = WorkerBatches(p.Memory.Batch, 1, 2)
	t.Total = WorkerBatches(p.Memory.Batch, t.Workers, 2)
	t.OneEach = WorkerBatches(p.Memory.Batch, t.Workers, 1)
}

func (r *resolved) epoch(p *Plan) {
	if r.dataset.Records == 0 {
		return
	}
	p.EpochSeconds = EpochSeconds(float64(r.dataset.Records), p.Goal.PerSecond)
	if p.Delivered.PerSecond > 0 {
		p.EpochSecondsPredicted = EpochSeconds(float64(r.dataset.Records), p.Delivered.PerSecond)
	}
}

// latency assesses single reads: the latency of slow reads, and the concurrency that hides it.
func (r *resolved) latency(p *Plan, s *storage) {
	if s == nil {
		return
	}
	l := &p.Latency
	decode := 0.0
	if c := r.current(p); c.PerCore > 0 {
		decode = 1 / c.PerCore
	}
	l.Origin, l.Storage = s.origin, s.title
	l.Mean, l.P99 = s.latency.typical()+decode, s.latency.At(0.99)+decode
	// Each machine must hide the latency of its own reads.
	rate := p.Goal.PerSecond * (1 - r.Cached)
	l.Depth = ReadsInFlight(rate, s.latency.typical())
	l.LoaderDepth = budget.MaxReaders
	n := max(1, int64(math.Round(float64(p.Goal.TotalBatch)*(1-r.Cached))))
	l.BatchOne = BatchSeconds(s.latency, n, 1, r.Share)
	l.Batch = BatchSeconds(s.latency, n, l.Depth, r.Share)
	l.Tail = math.Max(0, s.latency.At(ReadQuantile(r.Share, n))-s.latency.typical())
	// A batch that is started k steps early has k x t. That is enough for its reads, which take t at this depth, and
	// for the slowest of them.
	l.Prefetch = int(math.Min(budget.MaxPrefetch, math.Max(2, 1+math.Ceil(l.Tail/r.Step))))
}

func verdict(margin float64) string {
	switch {
	case margin < 1:
		return VerdictNo
	case margin < tight:
		return VerdictTight
	}
	return VerdictYes
}

func perSecond(v float64) string { return units.Count(v) + "/s" }

// resources compares need and have, part by part.
func (r *resolved) resources(p *Plan, s *storage) {
	add := func(name string, need, have float64, text func(float64) string, origin, detail string) {
		if !(need > 0 && have > 0) {
			return
		}
		margin := have / need
		p.Resources = append(p.Resources, Resource{
			Name: name, Need: need, Have: have, NeedText: text(need), HaveText: text(have),
			Margin: margin, Verdict: verdict(margin), Origin: origin, Detail: detail,
		})
	}
	if p.Fit.Known {
		add(ResourceAccelerator, p.Fit.Need, p.Fit.Have, units.Bytes, OriginGiven, fmt.Sprintf("largest n: %s", units.Count(float64(p.Fit.Largest))))
		if p.Fit.Fits {
			p.Resources[0].Verdict = VerdictYes // a batch is chosen to fill it
		}
	}
	if s != nil {
		detail := s.title
		if s.requests > 1 {
			detail += fmt.Sprintf(", %s requests per file", units.Count(s.requests))
		}
		if s.limited != "" {
			detail += ", " + s.limited
		}
		add(ResourceRequests, p.Reads.IOPS*s.requests, s.iops, perSecond, s.origin, detail)
		add(ResourceBandwidth, p.Reads.Bandwidth, s.bandwidth, units.Bandwidth, s.origin, s.title)
		if p.Reads.IOPS > 0 {
			p.Resources = append(p.Resources, Resource{
				Name: ResourceLatency, Need: r.Step, Have: p.Latency.P99,
				NeedText: "at most " + units.Seconds(r.Step), HaveText: units.Seconds(p.Latency.P99),
				Margin: r.Step / p.Latency.P99, Verdict: verdict(r.Step / p.Latency.P99), Origin: s.origin,
				Detail: "99% of single examples",
			})
		}
		if s.network {
			have, origin := r.machine.Network, OriginMeasured
			if have == 0 {
				have, origin = tenGigabit, OriginTypical
			}
			add(ResourceNetwork, p.Reads.PerMachine, have, units.Bandwidth, origin, "of this machine")
		}
	}
	if c := r.current(p); c.PerCore > 0 {
		add(ResourceCPU, c.Cores, r.machine.Cores, decimals, c.Origin, fmt.Sprintf("%s: %s examples/s per core", c.Codec, units.Count(c.PerCore)))
	}
	cache := 0.0
	if r.Cached > 0 {
		cache = p.Memory.Cache
	}
	add(ResourceMemory, p.Memory.Total+cache, p.Memory.Have, units.Bytes, OriginMeasured, "free, for batches, buffers and scratch")
	add(ResourceCopies, p.Goal.PerSecond*(r.es+r.output), r.machine.MemoryBandwidth, units.Bandwidth, OriginMeasured, "each example copied in and out once")
	if h := r.machine.Handoff; h != nil {
		seconds := h.PerBatch
		if h.Bandwidth > 0 {
			seconds += p.Memory.Batch / h.Bandwidth
		}
		if seconds > 0 {
			p.Resources = append(p.Resources, Resource{
				Name: ResourceHandoff, Need: r.Step, Have: seconds, NeedText: "at most " + units.Seconds(r.Step), HaveText: units.Seconds(seconds),
				Margin: r.Step / seconds, Verdict: verdict(r.Step / seconds), Origin: OriginMeasured, Detail: "per batch",
			})
		}
	}
	p.Judged = s != nil && r.machine.Cores > 0
}

// reconcile takes the margins of the storage and of the cores from the prediction, so that the page uses one model.
// The prediction includes the page cache for the loader's reads and their cost in CPU time. It does not include other
// trainings.
func (r *resolved) reconcile(p *Plan) {
	now := r.now(p)
	if now.cores > 0 && now.cpuSeconds > 0 && len(r.Others) == 0 {
		for _, c := range Predict(r.pipeline(now)).Capacity {
			margin := c.PerSecond / p.Goal.PerSecond
			switch c.Resource {
			case LimitStorage:
				r.storageMargin(p, margin)
			case LimitCPU:
				if res := p.resource(ResourceCPU); res != nil {
					res.setNeed(res.Have/margin, decimals)
				}
			}
		}
	}
	r.firstToFail(p)
}

// storageMargin scales the capacity of the storage, so that the tighter of requests and bytes has the predicted
// margin.
func (r *resolved) storageMargin(p *Plan, margin float64) {
	requests, bandwidth := p.resource(ResourceRequests), p.resource(ResourceBandwidth)
	if requests == nil || bandwidth == nil {
		return
	}
	f := margin / min(requests.Margin, bandwidth.Margin)
	if math.Abs(f-1) < 0.05 { // reads begin and end within pages, which are read whole
		requests.setNeed(requests.Need/f, perSecond)
		bandwidth.setNeed(bandwidth.Need/f, units.Bandwidth)
		return
	}
	requests.setHave(requests.Have*f, perSecond)
	bandwidth.setHave(bandwidth.Have*f, units.Bandwidth)
}

func (p *Plan) resource(name string) *Resource {
	for i := range p.Resources {
		if p.Resources[i].Name == name {
			return &p.Resources[i]
		}
	}
	return nil
}

func (res *Resource) setNeed(need float64, text func(float64) string) {
	res.Need, res.NeedText = need, text(need)
	res.judge()
}

func (res *Resource) setHave(have float64, text func(float64) string) {
	res.Have, res.HaveText = have, text(have)
	res.judge()
}

// judge sets the margin and the verdict from need and have.
func (res *Resource) judge() {
	res.Margin = res.Have / res.Need
	res.Verdict = verdict(res.Margin)
}

// limits maps the limit of a prediction to resources.
var limits = map[string][]string{
	LimitStorage: {ResourceRequests, ResourceBandwidth}, LimitNetwork: {ResourceNetwork}, LimitCPU: {ResourceCPU},
	LimitMemory: {ResourceCopies}, LimitHandoff: {ResourceHandoff},
}

// firstToFail finds the part with the least margin, and whether all meet the need.
func (r *resolved) firstToFail(p *Plan) {
	least := math.Inf(1)
	p.Meets = true
	for _, res := range p.Resources {
		if res.Name == ResourceAccelerator && p.Fit.Fits {
			continue
		}
		if res.Margin < least {
			least, p.FirstToFail = res.Margin, res.Name
		}
		p.Meets = p.Meets && res.Verdict != VerdictNo
	}
	if !p.Meets || p.Delivered.AU >= enough {
		return
	}
	// Several parts together fall short of the need that each of them meets alone.
	p.Meets = false
	for _, name := range limits[p.Delivered.Limit] {
		if p.resource(name) != nil {
			p.FirstToFail = name
			return
		}
	}
}

// classes assesses whether each kind of storage would be sufficient.
func (r *resolved) classes(p *Plan) {
	for _, c := range Classes() {
		s := c.storage(p.Reads.Block, r.dataset.Layout, r.clients(), r.machine.Network)
		if c.Name == ClassRAM {
			// The measured bandwidth, or the copies of a few cores until memory becomes the limit.
			s.bandwidth *= math.Min(math.Max(r.machine.Cores, 1), 8)
			if r.machine.MemoryBandwidth > 0 {
				s.bandwidth = r.machine.MemoryBandwidth
			}
		}
		rate, byRequests := s.examples(p.Reads.Block)
		need := math.Max(p.Reads.IOPS, p.Reads.Bandwidth/p.Reads.Block)
		v := ClassVerdict{
			Name: c.Name, Title: c.Title, Unit: c.Unit, PerSecond: rate, Units: 1, Source: c.Source, Limit: "bandwidth",
			Depth: ReadsInFlight(p.Goal.PerSecond*(1-r.Cached), s.latency.typical()), P99: s.latency.At(0.99),
		}
		if byRequests {
			v.Limit = "requests"
		}
		if need <= 0 {
			v.Margin, v.Verdict, v.Text = math.MaxFloat64, VerdictYes, "nothing is read from it"
			p.Classes = append(p.Classes, v)
			continue
		}
		v.Margin = rate / need
		v.Verdict = verdict(v.Margin)
		v.Units = Disks(need, rate)
		v.SmallFiles = v.Verdict == VerdictNo && byRequests
		v.Text = r.classText(p, &c, &v)
		p.Classes = append(p.Classes, v)
	}
}

// classText describes the verdict in a few words.
func (r *resolved) classText(p *Plan, c *Class, v *ClassVerdict) string {
	if c.Name == ClassRAM && p.Reads.Room > 0 && p.Memory.Have > 0 && p.Reads.Room > p.Memory.Have-p.Memory.Total {
		share := math.Max(0, (p.Memory.Have-p.Memory.Total)/p.Reads.Room)
		v.Verdict, v.Limit = VerdictNo, "room"
		return fmt.Sprintf("%s of %s fit", units.Percent(share), units.Bytes(p.Reads.Room))
	}
	if p.Latency.P99 > 0 && v.P99 > r.Step && v.Verdict != VerdictNo {
		return fmt.Sprintf("p99 %s > t: %s in flight", units.Seconds(v.P99), units.Count(v.Depth))
	}
	lack := "too few bytes/s"
	if v.SmallFiles {
		lack = "small file problem"
	}
	switch {
	case v.Verdict == VerdictYes && v.Depth > 1:
		return fmt.Sprintf("with %s reads in flight", units.Count(v.Depth))
	case v.Verdict == VerdictYes:
		return "one read at a time is enough"
	case v.Verdict == VerdictTight:
		return "just, with " + units.Plural(v.Depth, "read") + " in flight"
	case c.Network && c.PerClient > 0 && !v.SmallFiles:
		return lack + " for one machine"
	case c.Unit == "" || v.Units > 1e6:
		return lack
	}
	return fmt.Sprintf("%s: %s", lack, units.Plural(v.Units, c.Unit))
}
