package plan

import (
	"fmt"
	"math"
	"sort"

	"github.com/stokerdata/stoker/internal/budget"
)

const (
	pageBytes = 4096
	// recordVariation is the standard deviation over the mean of the work for a photograph, approximately that of its
	// size.
	recordVariation = 0.55
	// handoffPython is the time that the Python client adds to the engine's hand-off.
	handoffPython = 25e-6
	p99Deviations = 2.33 // of a normal distribution
	// throttleSlice is the time for which Linux lets a throttled group wait (block/blk-throttle.c, DFL_THROTL_SLICE:
	// a tenth of a second).
	throttleSlice = 0.1
)

// Predict predicts the throughput of a pipeline on a machine: examples per second, accelerator utilisation and the
// time from step to step.
//
// The stages overlap, so the slowest one decides and not the sum. This is the operational bound min_i(1/D_i) of
// Denning and Buzen, "The operational analysis of queueing network models", ACM Computing Surveys 10(3), 1978.
// Predict adds important effects that the bound ignores:
//
//   - a core has one rate alone and another beside busy neighbours: the rate
//     with k cores is interpolated between the measured one core and all cores;
//   - a miss costs CPU time besides disk time, for the kernel reads it into the
//     page cache and the engine copies it out;
//   - a trainer that computes takes its share of the cores: beside T decode
//     workers on C cores it runs for the step, and the workers get the rest,
//     at least their fair share C*T/(T+1);
//   - the first step after a batch has to wait for the hand-off.
//
// Batches vary: the time to build one has the standard deviation of its records over sqrt(n) and of the last group in
// progress. The part that Prefetch batches cannot hide affects the 99th percentile.
func Predict(p Pipeline, m Machine) Prediction {
	var out Prediction
	accelerators := float64(max(p.Accelerators, 1))
	n := float64(max(p.Batch, 1)) * accelerators // per step of all accelerators
	t := max(p.Step, 0)

	cpu := newCPUModel(&p, &m, &out)
	disk := storageRate(&p, &m, &out)
	miss := min(max(1-p.CachedShare, 0), 1)
	handoff := handoffPython
	if m.Handoff != nil && m.Handoff.PerBatch > 0 {
		handoff += m.Handoff.PerBatch
		if m.Handoff.Bandwidth > 0 {
			handoff += n / accelerators * p.OutputBytes / m.Handoff.Bandwidth
		}
	} else {
		out.Missing = append(out.Missing, "hand-off: not measured")
	}

	// The shortest period of each resource alone, in seconds per step.
	type bound struct {
		name    string
		seconds float64
	}
	bounds := []bound{{LimitAccelerator, t + p.StepCPU}, {LimitHandoff, handoff}}
	if cpu.known {
		bounds = append(bounds, bound{LimitCPU, cpu.period(n, t)})
	}
	if miss > 0 && disk > 0 {
		name := LimitStorage
		seconds := n * miss / disk
		if m.Network > 0 && p.RecordBytes > 0 && n*miss*p.RecordBytes/m.Network > seconds {
			name, seconds = LimitNetwork, n*miss*p.RecordBytes/m.Network
		}
		bounds = append(bounds, bound{name, seconds})
	}
	if m.MemoryBandwidth > 0 && p.OutputBytes > 0 {
		// Each byte of a batch is written once from one that is read.
		bounds = append(bounds, bound{LimitMemory, n * p.OutputBytes / m.MemoryBandwidth})
	}

	period := 0.0
	for _, b := range bounds {
		if b.seconds > 0 {
			out.Capacity = append(out.Capacity, Capacity{b.name, n / b.seconds})
		}
		// Ties go to the accelerator: it is first, and to be busy is its purpose.
		if b.seconds > period*(1+1e-9) {
			period, out.Limit = b.seconds, b.name
		}
	}
	data := 0.0 // the slowest stage that makes batches
	for _, b := range bounds {
		if b.name != LimitAccelerator && b.name != LimitHandoff {
			data = max(data, b.seconds)
		}
	}
	// The step does not hide the hand-off: the trainer asks for a batch after finishing the last one. It also does
	// not hide late wake-ups. A trainer that sleeps, or waits for its accelerator, is woken late when the cores are
	// busy. They are busy for the share of the step that building a batch takes.
	floor := t + p.StepCPU + handoff
	if cpu.known && !p.Spin && floor > 0 {
		floor += m.WakeLatency * min(cpu.period(n, t)/floor, 1)
	}
	period = max(period, floor)
	if period <= 0 {
		return out
	}
	out.StepSeconds = period
	out.Throughput = n / period
	out.AU = min(t/period, 1)
	out.StepP99 = stepP99(&p, n, floor, data, cpu.workers)
	if out.Limit == LimitStorage && isThrottled(&p, &m) {
		out.StepP99 = max(out.StepP99, period+throttleSlice)
	}
	out.FirstBatch = firstBatch(n, miss, disk, &cpu) + handoff
	return out
}

// cpuModel is the CPU capacity of the engine.
type cpuModel struct {
	known   bool
	seconds float64 // of CPU per example on one busy core, misses included
	cores   float64
	workers float64
	spin    float64 // share of the step for which the trainer keeps a core busy
	// Rates relative to one core: measured with measuredCores busy.
	scaling, measuredCores float64
	// crowding is the rate next to a busy thread, divided by the fair share.
	crowding float64
}

// newCPUModel takes the CPU time of an example from the pipeline or the machine.
func newCPUModel(p *Pipeline, m *Machine, out *Prediction) cpuModel {
	c := cpuModel{cores: p.Cores, scaling: m.Scaling, measuredCores: max(m.Cores, 1), crowding: 1}
	if c.cores <= 0 {
		c.cores = m.Cores
	}
	if c.cores <= 0 {
		out.Missing = append(out.Missing, "cpu: the number of cores is not known")
		return c
	}
	c.workers = float64(p.Threads)
	if p.Threads <= 0 {
		c.workers = max(math.Floor(c.cores), 1)
	}
	if p.Spin {
		c.spin = 1
	} else if p.StepCPU > 0 {
		c.spin = p.StepCPU / (p.Step + p.StepCPU)
	}
	rate := codecRate(m, p.Codec)
	c.seconds = p.CPUSeconds
	if c.seconds <= 0 && rate != nil {
		c.seconds = rate.CPUSeconds * sizeFactor(p.Codec, p.RecordBytes, rate.RecordBytes)
		if rate.AllCores > 0 && rate.PerCore > 0 && m.Cores > 0 {
			c.scaling = rate.AllCores / (rate.PerCore * m.Cores)
		}
		if rate.BesideBusy > 0 && rate.AllCores > 0 {
			k := max(math.Floor(c.measuredCores), 1)
			c.crowding = rate.BesideBusy / rate.AllCores / fairShare(k, k)
		}
	}
	if c.seconds <= 0 {
		out.Missing = append(out.Missing, fmt.Sprintf("cpu: the cost of a %s example is not known", codecName(p.Codec)))
		return c
	}
	c.seconds += max(1-p.CachedShare, 0) * missSeconds(p, m)
	if c.scaling <= 0 || c.scaling > 1.2 {
		c.scaling = 1
	}
	c.known = true
	return c
}

func codecName(codec string) string {
	if codec == "" {
		return "plain"
	}
	return codec
}

// codecRate returns the measurement of a codec.
func codecRate(m *Machine, codec string) *CodecRate {
	for i := range m.Codecs {
		if m.Codecs[i].Codec == codec {
			return &m.Codecs[i]
		}
	}
	return nil
}

// sizeFactor corrects the cost of a sample for records of another mean size. Two thirds of a JPEG's time is its
// entropy code and most of the rest its pixels. Both are proportional to its bytes, because the output has one size.
// The cost of dct and raw images depends on the pixels of the crop and of the output.
func sizeFactor(codec string, bytes, sampled float64) float64 {
	if bytes <= 0 || sampled <= 0 {
		return 1
	}
	fixed := 0.5
	if codec == CodecKeep {
		fixed = 0.15
	}
	return fixed + (1-fixed)*bytes/sampled
}

// missSeconds returns the extra CPU time of a record from the disk compared with one from memory. It is the kernel's
// work for a read into the page cache. For codecs that are otherwise used in place, it also includes the copy out of
// the page cache.
func missSeconds(p *Pipeline, m *Machine) float64 {
	if m.Store == nil || p.RecordBytes <= 0 {
		return 0
	}
	var cold []point
	var warm float64
	for _, r := range m.Store.Buffered {
		if r.Block <= 0 {
			continue
		}
		perByte := r.CPUSeconds / float64(r.Block)
		if r.Cached {
			warm = perByte
		} else {
			cold = append(cold, point{float64(r.Block), perByte})
		}
	}
	if len(cold) == 0 {
		return 0
	}
	if p.Codec == CodecDCT || p.Codec == CodecRaw {
		warm = 0
	}
	return max(between(cold, p.RecordBytes)-warm, 0) * p.RecordBytes
}

// power returns the rate of k busy cores in units of one core alone.
func (c *cpuModel) power(k float64) float64 {
	if k <= 1 || c.measuredCores <= 1 {
		return k
	}
	// Linear between the measurements, constant beyond them.
	share := min((k-1)/(c.measuredCores-1), 1)
	return k * (1 - (1-c.scaling)*share)
}

// period returns the minimum time per step of n examples with a trainer that computes for t. The engine works next to
// the trainer, and does the rest while the trainer waits.
func (c *cpuModel) period(n, t float64) float64 {
	work := n * c.seconds
	alone := c.power(min(c.workers, c.cores))
	if c.spin == 0 {
		return work / alone
	}
	beside := alone * min(fairShare(c.workers, c.cores)*c.crowding, 1)
	during := t * (c.spin*beside + (1-c.spin)*alone)
	if work <= during {
		return work / during * t
	}
	return t + (work-during)/alone
}

// fairShare returns the share of their full rate that workers get while one more thread is always busy. That thread
// uses a free core if there is one, or takes the share of one thread among all.
func fairShare(workers, cores float64) float64 {
	if workers+1 <= cores {
		return 1
	}
	return min(max(cores-1, cores*workers/(workers+1))/min(workers, cores), 1)
}

// storageRate returns the examples per second of the storage if every example is a miss, 0 if unknown.
func storageRate(p *Pipeline, m *Machine, out *Prediction) float64 {
	record := max(p.RecordBytes, 1)
	// A record begins and ends within a page, and reads are whole pages.
	read := record + pageBytes
	if m.Store != nil && m.Store.Class == ClassObject {
		read = record // of objects there are bytes
	}
	rate := math.Inf(1)
	if s := m.Store; s != nil {
		if r := storeRate(p, s, read); r > 0 {
			rate = r
		}
		rate = min(rate, limit(s.LimitBandwidth, read), limit(s.LimitIOPS, 1))
	}
	rate = min(rate, limit(p.DiskBandwidth, read), limit(p.DiskIOPS, 1))
	if math.IsInf(rate, 1) {
		if p.CachedShare < 1 {
			out.Missing = append(out.Missing, "storage: not measured")
		}
		return 0
	}
	return rate
}

func limit(perSecond, each float64) float64 {
	if perSecond <= 0 {
		return math.Inf(1)
	}
	return perSecond / each
}

// storeRate interpolates the measurements of whole files or of reads of a pack. The loader keeps the optimal number
// of reads of a pack in flight, but opens files one by one.
func storeRate(p *Pipeline, s *Store, read float64) float64 {
	depth := float64(p.Depth)
	if p.Layout == LayoutFiles {
		if depth <= 0 {
			depth = budget.Readers
		}
		if r := RateAt(s.Files, read, depth); r > 0 {
			return r
		}
	}
	if depth <= 0 {
		depth = budget.MaxReaders
	}
	return RateAt(s.Random, read, depth) * loaderShare(p, s, read, depth)
}

// loaderShare returns the loader's rate for reads of a size, as a share of plain reads. The loader plans its reads
// and goes through the page cache, plain reads do not. The share is measured, and linear between the measured sizes.
func loaderShare(p *Pipeline, s *Store, read, depth float64) float64 {
	var shares []point
	for _, b := range s.Buffered {
		if p.Depth > 0 {
			depth = float64(b.Depth)
		}
		plain := RateAt(s.Random, float64(b.Block), depth)
		if !b.Cached && plain > 0 && b.IOPS > 0 {
			shares = append(shares, point{float64(b.Block), b.IOPS / plain})
		}
	}
	if len(shares) == 0 {
		return 1
	}
	return between(shares, read)
}

// point is a figure that was measured with blocks of a size.
type point struct{ block, figure float64 }

// between returns the figure of a block size: linear between measured sizes, and that of the nearest size beyond
// them.
func between(points []point, block float64) float64 {
	sort.Slice(points, func(i, j int) bool { return points[i].block < points[j].block })
	k := sort.Search(len(points), func(i int) bool { return points[i].block >= block })
	switch k {
	case 0:
		return points[0].figure
	case len(points):
		return points[k-1].figure
	}
	lo, hi := points[k-1], points[k]
	return lo.figure + (hi.figure-lo.figure)*(block-lo.block)/(hi.block-lo.block)
}

// RateAt returns the number of reads of block bytes per second with depth in flight, 0 if nothing was measured. It
// interpolates between measurements without the page cache. Over depth it uses the logarithm, over size the time of a
// read: latency plus bytes over bandwidth.
func RateAt(rates []ReadRate, block, depth float64) float64 {
	// By block: the time per read at the requested depth.
	type point struct{ block, seconds float64 }
	var below, above point
	for i := range rates {
		b := float64(rates[i].Block)
		iops := atDepth(rates, rates[i].Block, depth)
		if iops <= 0 {
			continue
		}
		at := point{b, 1 / iops}
		if b <= block && b > below.block {
			below = at
		}
		if b >= block && (above.block == 0 || b < above.block) {
			above = at
		}
	}
	switch {
	case below.block == 0 && above.block == 0:
		return 0
	case above.block == 0: // larger than measured: at the same bandwidth
		return 1 / (below.seconds * block / below.block)
	case below.block == 0 || above.block == below.block:
		return 1 / above.seconds
	}
	share := (block - below.block) / (above.block - below.block)
	return 1 / (below.seconds + share*(above.seconds-below.seconds))
}

// atDepth returns the rate of one block size at a depth; depths above the measured ones give no more.
func atDepth(rates []ReadRate, block int64, depth float64) float64 {
	var lo, hi *ReadRate
	for i := range rates {
		r := &rates[i]
		if r.Block != block || r.Cached || r.IOPS <= 0 {
			continue
		}
		if d := float64(r.Depth); d <= depth && (lo == nil || r.Depth > lo.Depth) {
			lo = r
		} else if d > depth && (hi == nil || r.Depth < hi.Depth) {
			hi = r
		}
	}
	switch {
	case lo == nil && hi == nil:
		return 0
	case hi == nil:
		return lo.IOPS
	case lo == nil:
		return hi.IOPS * depth / float64(hi.Depth)
	}
	share := math.Log(depth/float64(lo.Depth)) / math.Log(float64(hi.Depth)/float64(lo.Depth))
	return lo.IOPS * math.Pow(hi.IOPS/lo.IOPS, share)
}

// stepP99 returns the 99th percentile of the time from step to step. It is floor if the finished batches hide the
// variation in building one.
//
// The sum of k batches deviates by sqrt(k) times one; k batches made ahead of a
// trainer that needs floor for each leave a slack of k*(floor-data).
func stepP99(p *Pipeline, n, floor, data, workers float64) float64 {
	ahead := float64(p.Prefetch)
	if ahead <= 0 {
		ahead = budget.DefaultSlots
	}
	groups := max(n/budget.GroupRows, 1)
	spread := recordVariation / math.Sqrt(n)
	// A batch is ready when its last group is, and groups of later batches are
	// worked on before that: up to one for each reader and worker.
	last := max(workers, budget.Readers) / groups / math.Sqrt(12)
	sigma := data * math.Hypot(spread, min(last, 0.5))
	if data >= floor {
		return data + p99Deviations*sigma
	}
	z := ahead * (floor - data) / (math.Sqrt(ahead) * max(sigma, 1e-12))
	return floor + max(p99Deviations-z, 0)*sigma
}

// isThrottled reports whether a control group, rather than the disk, limits the rate.
func isThrottled(p *Pipeline, m *Machine) bool {
	return p.DiskBandwidth > 0 || p.DiskIOPS > 0 || m.Store != nil && (m.Store.LimitBandwidth > 0 || m.Store.LimitIOPS > 0)
}

// firstBatch returns the time to the first batch of an open loader: nothing overlaps with a step yet, but stages
// overlap with each other.
func firstBatch(n, miss, disk float64, cpu *cpuModel) float64 {
	seconds := 0.0
	if cpu.known {
		seconds = n * cpu.seconds / cpu.power(min(cpu.workers, cpu.cores))
	}
	if miss > 0 && disk > 0 {
		seconds = max(seconds, n*miss/disk)
	}
	return seconds
}
