package plan

import (
	"math"
	"testing"
)

// testMachine returns a machine with round figures: 2 cores, 1,000 keep images per second and core and 1,900
// together, a disk of 20,000 reads or 1 GB per second.
func testMachine() Machine {
	var random []ReadRate
	for _, depth := range []int{1, 4, 16, 64} {
		for _, block := range []int64{4 << 10, 128 << 10, 1 << 20} {
			iops := min(float64(depth)*5000, 20_000, 1e9/float64(block))
			random = append(random, ReadRate{Block: block, Depth: depth, IOPS: iops, Bandwidth: iops * float64(block)})
		}
	}
	return Machine{
		Cores: 2, MemoryBandwidth: 16e9, MemoryBandwidthCore: 8e9, MemoryCopy: 12e9,
		Codecs: []CodecRate{
			{Codec: CodecKeep, CPUSeconds: 1e-3, PerCore: 1000, AllCores: 1900, RecordBytes: 110_000, OutputBytes: 224 * 224 * 3},
			{Codec: CodecRaw, CPUSeconds: 50e-6, PerCore: 20_000, AllCores: 40_000, RecordBytes: 200_000, OutputBytes: 224 * 224 * 3},
		},
		Store:   &Store{Random: random},
		Handoff: &Handoff{PerBatch: 10e-6},
	}
}

func TestPredict(t *testing.T) {
	for _, test := range []struct {
		name  string
		p     Pipeline
		want  float64 // examples per second
		limit string
	}{
		{"cores decide", Pipeline{Batch: 100, Step: 0.01, Codec: CodecKeep, CachedShare: 1}, 1900, LimitCPU},
		{"one core", Pipeline{Batch: 100, Step: 0.01, Cores: 1, Codec: CodecKeep, CachedShare: 1}, 1000, LimitCPU},
		{"one worker", Pipeline{Batch: 100, Step: 0.01, Threads: 1, Codec: CodecKeep, CachedShare: 1}, 1000, LimitCPU},
		{"the step decides", Pipeline{Batch: 100, Step: 0.1, Codec: CodecKeep, CachedShare: 1}, 1000, LimitAccelerator},
		{"larger images", Pipeline{Batch: 100, Step: 0.01, Codec: CodecKeep, CachedShare: 1, RecordBytes: 220_000}, 1900 / 1.85, LimitCPU},
		{
			"a capped disk", Pipeline{Batch: 100, Step: 0.01, Codec: CodecKeep, RecordBytes: 95_904, DiskBandwidth: 50e6},
			500, LimitStorage,
		},
		{
			"half of it cached", Pipeline{Batch: 100, Step: 0.01, Codec: CodecKeep, RecordBytes: 95_904, DiskBandwidth: 50e6, CachedShare: 0.5},
			1000, LimitStorage,
		},
		{"a cap on reads", Pipeline{Batch: 100, Step: 0.01, Codec: CodecKeep, RecordBytes: 95_904, DiskIOPS: 300}, 300, LimitStorage},
		{"the disk itself", Pipeline{Batch: 100, Step: 0.001, Codec: CodecRaw, RecordBytes: 1<<20 - 4096}, 1e9 / (1 << 20), LimitStorage},
		// A spinning trainer leaves the engine its fair share of 2*2/3 cores during the step.
		{"beside a spinning step", Pipeline{Batch: 100, Step: 1, Codec: CodecKeep, CachedShare: 1, Spin: true}, 100, LimitAccelerator},
		{
			"after a spinning step", Pipeline{Batch: 1000, Step: 0.3, Codec: CodecKeep, CachedShare: 1, Spin: true},
			// 0.3 s at 4/3 cores of 950/s, the rest at 1,900/s.
			1000 / (0.3 + (1000-0.3*950*4/3)/1900), LimitCPU,
		},
		{"two accelerators", Pipeline{Batch: 100, Accelerators: 2, Step: 0.01, Codec: CodecKeep, CachedShare: 1}, 1900, LimitCPU},
		{"given cost", Pipeline{Batch: 10, Step: 1e-6, Cores: 1, CPUSeconds: 2e-3, CachedShare: 1}, 500, LimitCPU},
		{
			"memory", Pipeline{Batch: 1000, Step: 1e-6, CPUSeconds: 1e-9, OutputBytes: 16e6, CachedShare: 1}, 1000, LimitMemory,
		},
	} {
		got := Predict(test.p, testMachine())
		if math.Abs(got.Throughput/test.want-1) > 0.005 || got.Limit != test.limit {
			t.Errorf("%s: %.1f/s by %s, want %.1f by %s", test.name, got.Throughput, got.Limit, test.want, test.limit)
		}
		n := float64(test.p.Batch) * float64(max(test.p.Accelerators, 1))
		if math.Abs(got.AU-test.p.Step*got.Throughput/n) > 1e-9 || got.AU > 1 {
			t.Errorf("%s: AU %g of %g/s", test.name, got.AU, got.Throughput)
		}
		if got.StepP99 < got.StepSeconds*(1-1e-9) {
			t.Errorf("%s: p99 of %g s below the mean of %g s", test.name, got.StepP99, got.StepSeconds)
		}
	}
}

// A pipeline never gets slower from more of anything.
func TestPredictIsMonotonic(t *testing.T) {
	m := testMachine()
	base := Pipeline{Batch: 64, Step: 0.02, Codec: CodecKeep, RecordBytes: 110_000, CachedShare: 0.3, DiskBandwidth: 80e6, Spin: true}
	for name, change := range map[string]func(*Pipeline, float64){
		"cores":  func(p *Pipeline, v float64) { p.Cores = 1 + 7*v },
		"cached": func(p *Pipeline, v float64) { p.CachedShare = v },
		"disk":   func(p *Pipeline, v float64) { p.DiskBandwidth = 10e6 + v*1e9 },
		"depth":  func(p *Pipeline, v float64) { p.DiskBandwidth, p.Depth = 0, 1+int(v*63) },
	} {
		last := 0.0
		for i := range 101 {
			p := base
			change(&p, float64(i)/100)
			got := Predict(p, m).Throughput
			if got < last*(1-1e-9) {
				t.Fatalf("%s: from %.2f to %.2f/s at %d%%", name, last, got, i)
			}
			last = got
		}
	}
}

func TestPredictSaysWhatIsMissing(t *testing.T) {
	got := Predict(Pipeline{Batch: 64, Step: 0.1}, Machine{})
	if len(got.Missing) != 3 || got.Limit != LimitAccelerator {
		t.Errorf("missing %q, limit %q", got.Missing, got.Limit)
	}
	for _, v := range []float64{got.Throughput, got.AU, got.StepSeconds, got.StepP99, got.FirstBatch} {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			t.Errorf("%+v", got)
		}
	}
	if got := Predict(Pipeline{}, Machine{}); math.IsNaN(got.Throughput) || math.IsInf(got.Throughput, 0) {
		t.Errorf("of nothing: %+v", got)
	}
}

func TestRateAt(t *testing.T) {
	rates := []ReadRate{
		{Block: 4 << 10, Depth: 1, IOPS: 1000}, {Block: 4 << 10, Depth: 16, IOPS: 16_000},
		{Block: 64 << 10, Depth: 1, IOPS: 500}, {Block: 64 << 10, Depth: 16, IOPS: 2000},
		{Block: 64 << 10, Depth: 16, IOPS: 1e6, Cached: true},
	}
	for _, test := range []struct{ block, depth, want float64 }{
		{4 << 10, 1, 1000},
		{4 << 10, 4, 4000},         // between in the logarithm
		{64 << 10, 64, 2000},       // deeper does not help
		{1 << 10, 1, 1000},         // smaller is not faster
		{128 << 10, 1, 250},        // larger at the same bandwidth
		{34 << 10, 1, 1e3 / (1.5)}, // half way: 1.5 ms
	} {
		if got := RateAt(rates, test.block, test.depth); math.Abs(got/test.want-1) > 1e-9 {
			t.Errorf("%g bytes, %g in flight: %g, want %g", test.block, test.depth, got, test.want)
		}
	}
	if got := RateAt(nil, 4096, 1); got != 0 {
		t.Errorf("of nothing: %g", got)
	}
}

// Through the page cache the disk delivers half of its rate for small blocks and all of it for large ones. Sizes in
// between are interpolated.
func TestPredictReadsThroughThePageCache(t *testing.T) {
	m := testMachine()
	m.Store.Buffered = []ReadRate{
		{Block: 1 << 20, Depth: 64, IOPS: 1e9 / (1 << 20)},
		{Block: 128 << 10, Depth: 64, IOPS: 0.5e9 / (128 << 10)},
		{Block: 128 << 10, Depth: 1, IOPS: 1e6, Cached: true},
	}
	for _, test := range []struct{ read, share float64 }{{64 << 10, 0.5}, {128 << 10, 0.5}, {576 << 10, 0.75}, {1 << 20, 1}, {2 << 20, 1}} {
		p := Pipeline{Batch: 100, Step: 1e-6, Codec: CodecRaw, RecordBytes: test.read - pageBytes, CPUSeconds: 1e-9}
		got := Predict(p, m)
		if want := test.share * RateAt(m.Store.Random, test.read, 96); math.Abs(got.Throughput/want-1) > 0.005 || got.Limit != LimitStorage {
			t.Errorf("reads of %g bytes: %.1f/s by %s, want %.1f by storage", test.read, got.Throughput, got.Limit, want)
		}
	}
}

// The prediction equals the measured rate of the loader, at any number of concurrent reads that the loader chose.
// That number may be outside of the measured range of plain reads.
func TestPredictWhatTheLoaderGot(t *testing.T) {
	const block = 112 << 10
	for _, depth := range []int{8, 64, 512} {
		for _, rate := range []float64{300, 900, 40_000} {
			m := testMachine()
			m.Store.Buffered = []ReadRate{{Block: block, Depth: depth, IOPS: rate}}
			p := Pipeline{Batch: 100, Step: 1e-6, Codec: CodecRaw, RecordBytes: block - pageBytes, CPUSeconds: 1e-9}
			if got := Predict(p, m); math.Abs(got.Throughput/rate-1) > 0.005 || got.Limit != LimitStorage {
				t.Errorf("%g/s with %d in flight: %.1f/s by %s", rate, depth, got.Throughput, got.Limit)
			}
		}
	}
}

func TestDSAnalyzer(t *testing.T) {
	m := testMachine()
	p := Pipeline{Batch: 100, Step: 0.01, Codec: CodecKeep, RecordBytes: 105_000, CachedShare: 0.5, DiskBandwidth: 50e6}
	published, corrected := DSAnalyzer(p, m)
	// Half from memory at 12 GB/s, then half from a disk of 525 MB/s: 9,581/s; the
	// cores prepare 2,000.
	if math.Abs(published-2000/(0.15+0.85*105./110)) > 1 {
		t.Errorf("published %.1f", published)
	}
	if want := 50e6 / 109_096 / 0.5; math.Abs(corrected-want) > 1 {
		t.Errorf("corrected %.1f, want %.1f", corrected, want)
	}
}
