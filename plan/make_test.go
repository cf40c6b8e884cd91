package plan

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
)

// photos are ImageNet-like images in files.
var photos = Dataset{RecordBytes: 110e3, Records: 1_281_167, Layout: LayoutFiles, Codec: CodecKeep, Width: 470, Height: 400, Channels: 3}

// measured returns a machine of two cores with a disk of 1 GB/s, like a result of probe.
func measured() Machine {
	rate := func(block int64, depth int, iops, latency float64) ReadRate {
		return ReadRate{Block: block, Depth: depth, IOPS: iops, Bandwidth: iops * float64(block), Latency: Latency{Mean: latency, P50: latency, P90: 1.5 * latency, P99: 4 * latency, P999: 10 * latency, Samples: 5000}}
	}
	return Machine{
		Cores: 2, MemoryTotal: 32e9, MemoryFree: 20e9, MemoryBandwidth: 12e9, MemoryBandwidthCore: 8e9, Scaling: 0.9,
		Codecs: []CodecRate{{Codec: CodecKeep, CPUSeconds: 1 / 900.0, PerCore: 900, RecordBytes: 110e3, Origin: OriginMeasured}},
		Store: &Store{
			Class:  ClassNVMe,
			Random: []ReadRate{rate(4096, 1, 5000, 0.0002), rate(4096, 32, 60_000, 0.0005), rate(131072, 1, 2500, 0.0004), rate(131072, 32, 7600, 0.004)},
		},
		Handoff: &Handoff{PerBatch: 20e-6},
	}
}

func mustMake(t *testing.T, target Target, d Dataset, m Machine) *Plan {
	t.Helper()
	p, err := Make(target, d, m)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The plan uses the machine's measurements. A machine that is half as fast needs twice the cores, and the measured
// disk decides, not its class.
func TestMeasurementsCount(t *testing.T) {
	target := Target{Batch: 256, Step: 0.1}
	p := mustMake(t, target, photos, measured())
	keep, _ := p.Codec(CodecKeep)
	if keep.Origin != OriginMeasured || math.Abs(keep.Cores-2560/900.0/0.9) > 0.01 {
		t.Errorf("keep %+v", keep)
	}
	slow := measured()
	slow.Codecs[0].CPUSeconds *= 2
	half := mustMake(t, target, photos, slow)
	for i := range p.CPU[:2] { // dct was not measured: it follows the codec that was
		if got := half.CPU[i].Cores / p.CPU[i].Cores; math.Abs(got-2) > 1e-6 {
			t.Errorf("%s: %v times the cores on a machine of half the speed", p.CPU[i].Codec, got)
		}
	}
	requests, _ := p.Resource(ResourceRequests)
	if requests.Origin != OriginMeasured || requests.Have < 2500 || requests.Have > 60_000 {
		t.Errorf("requests %+v", requests)
	}
	if p.FirstToFail != ResourceCPU || p.Meets || !p.Judged || !p.Delivered.Measured || p.Delivered.Limit != LimitCPU {
		t.Errorf("first %s, meets %v, delivered %+v", p.FirstToFail, p.Meets, p.Delivered)
	}
	if p.Latency.Origin != OriginMeasured || p.Latency.P99 <= p.Latency.Mean {
		t.Errorf("latency %+v", p.Latency)
	}

	limited := measured()
	limited.Store.LimitBandwidth = 50e6
	p = mustMake(t, target, photos, limited)
	bandwidth, _ := p.Resource(ResourceBandwidth)
	if bandwidth.Have != 50e6 || p.Delivered.Limit != LimitStorage || p.Delivered.PerSecond > 50e6/110e3 {
		t.Errorf("with a limit: %+v, %+v", bandwidth, p.Delivered)
	}
	// A class that the user names has priority over a measurement of another class.
	target.Storage = ClassHDD
	p = mustMake(t, target, photos, measured())
	requests, _ = p.Resource(ResourceRequests)
	if requests.Origin != OriginTypical || requests.Have > 100 || p.FirstToFail != ResourceRequests || !strings.Contains(p.Sentences[1], "small file problem") {
		t.Errorf("disk: %+v, %s", requests, p.Sentences[1])
	}
}

func TestAdviceIsInOrderOfGain(t *testing.T) {
	for _, class := range ClassNames() {
		p := mustMake(t, Target{Batch: 256, Step: 0.05, Accelerators: 2, Storage: class}, photos, Machine{Cores: 4, MemoryFree: 64e9})
		last := p.Delivered.PerSecond
		for i, a := range p.Advice {
			if a.Title == "" || a.Why == "" || a.Effect == "" {
				t.Errorf("%s: %+v says too little", class, a)
			}
			if a.Step == 0 {
				continue
			}
			if a.Step != i+1 || math.Abs(a.From-last) > 1e-6 || a.To < a.From {
				t.Errorf("%s: step %+v after %v", class, a, last)
			}
			last = a.To
		}
		if p.Delivered.AU < enough {
			kinds := map[string]bool{}
			for _, a := range p.Advice {
				kinds[a.Kind] = true
			}
			if !kinds["larger-t"] || !kinds["share"] {
				t.Errorf("%s: advice %v", class, kinds)
			}
		}
		if len(p.Sentences) != 3 {
			t.Errorf("%d sentences", len(p.Sentences))
		}
	}
}

func TestCachedShareIsNotRead(t *testing.T) {
	all := mustMake(t, Target{Batch: 128, Step: 0.1, Storage: ClassNVMe}, photos, Machine{})
	part := mustMake(t, Target{Batch: 128, Step: 0.1, Storage: ClassNVMe, Cached: 0.75}, photos, Machine{})
	none := mustMake(t, Target{Batch: 128, Step: 0.1, Storage: ClassNVMe, Cached: 1}, photos, Machine{})
	if math.Abs(part.Reads.IOPS/all.Reads.IOPS-0.25) > 1e-12 || none.Reads.IOPS != 0 || !none.Meets {
		t.Errorf("%v %v %v", all.Reads.IOPS, part.Reads.IOPS, none.Reads)
	}
}

func TestHardestWorkloadCounts(t *testing.T) {
	p := mustMake(t, Target{Batch: 64, Step: 2, Experiments: 10, ExperimentsLow: 5, Accelerators: 4,
		Others: []Workload{{Batch: 256, Step: 0.2, RecordBytes: 64e3, Accelerators: 4, DatasetBytes: 1e12}}},
		Dataset{RecordBytes: 500e3, Bytes: 2e12}, Machine{})
	if p.Reads.IOPS != 51200 || p.Reads.IOPSLow != 25600 || p.Reads.Block != 64e3 || p.Reads.Room != 3e12 {
		t.Errorf("%+v", p.Reads)
	}
}

func TestMissingAndBad(t *testing.T) {
	_, err := Make(Target{}, Dataset{}, Machine{})
	var missing *Missing
	if !errors.As(err, &missing) || len(missing.Figures) != 3 || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v", err)
	}
	for _, f := range missing.Figures {
		if len(f.Ways) == 0 {
			t.Errorf("%s: no way to give it", f.Name)
		}
	}
	ok := Target{Batch: 1, Step: 1}
	for _, test := range []struct {
		key string
		t   Target
		d   Dataset
		m   Machine
	}{
		{"batch", Target{Batch: MaxBatch + 1, Step: 1}, photos, Machine{}},
		{"step", Target{Batch: 1, Step: math.NaN()}, photos, Machine{}},
		{"step", Target{Batch: 1, Step: -1}, photos, Machine{}},
		{"share", Target{Batch: 1, Step: 1, Share: 2}, photos, Machine{}},
		{"storage", Target{Batch: 1, Step: 1, Storage: "tape"}, photos, Machine{}},
		{"device", Target{Device: "v101"}, photos, Machine{}},
		{"model", Target{Model: "resnet"}, photos, Machine{}},
		{"kind", Target{Kind: "video"}, photos, Machine{}},
		{"guess", Target{Guess: "medium"}, photos, Machine{}},
		{"record_bytes", ok, Dataset{RecordBytes: 1e18}, Machine{}},
		{"cores", ok, photos, Machine{Cores: -2}},
		{"with", Target{Batch: 1, Step: 1, Others: []Workload{{}}}, photos, Machine{}},
	} {
		_, err := Make(test.t, test.d, test.m)
		var b *BadInput
		if !errors.As(err, &b) || b.Key != test.key {
			t.Errorf("%s: %v", test.key, err)
		}
	}
}

func TestTablesHaveSources(t *testing.T) {
	for _, c := range Classes() {
		if c.Source == "" || c.IOPS <= 0 || c.Bandwidth <= 0 || c.Latency.P99 < c.Latency.P50 {
			t.Errorf("%+v", c)
		}
	}
	for _, d := range Devices() {
		if d.Source == "" || d.Memory <= 0 || d.FLOPS <= 0 {
			t.Errorf("%+v", d)
		}
	}
	for _, m := range Models() {
		if m.Source == "" {
			t.Errorf("%+v", m)
		}
	}
	for _, s := range Speeds() {
		_, device := DeviceNamed(s.Device)
		_, model := ModelNamed(s.Model)
		if s.Source == "" || !device || !model || s.PerSecond <= 0 {
			t.Errorf("%+v", s)
		}
	}
}

func TestFormulas(t *testing.T) {
	if n := LargestBatch(16e9, 98e6, 103e6); n != 154 {
		t.Error(n)
	}
	if n := LargestBatch(16e9, 17e9, 103e6); n != 0 {
		t.Error(n)
	}
	for n, want := range map[int64]int64{0: 0, 1: 1, 2: 2, 3: 2, 154: 128, 256: 256} {
		if got := PowerOfTwo(n); got != want {
			t.Errorf("PowerOfTwo(%d) = %d", n, got)
		}
	}
	if q := ReadQuantile(0.99, 128); math.Abs(q-0.9999215) > 1e-6 {
		t.Error(q)
	}
	if d := ReadsInFlight(5885, 0.01); d != 59 {
		t.Error(d)
	}
	l := Latency{Mean: 0.001, P50: 0.001, P90: 0.002, P99: 0.01, P999: 0.1, Max: 0.2, Samples: 1000}
	for q, want := range map[float64]float64{0.5: 0.001, 0.9: 0.002, 0.99: 0.01, 0.999: 0.1} {
		if got := l.At(q); math.Abs(got/want-1) > 1e-6 {
			t.Errorf("At(%v) = %v", q, got)
		}
	}
	if got := l.At(0.999999); got < 0.1 || got > 2 {
		t.Errorf("far tail %v", got)
	}
	last := 0.0
	for q := 0.5; q < 0.99999; q += 0.00037 {
		v := l.At(q)
		if v < last {
			t.Fatalf("At(%v) = %v below %v", q, v, last)
		}
		last = v
	}
}

// For any figures, a plan is refused in one line or has only finite numbers.
func FuzzMake(f *testing.F) {
	f.Add(int64(128), 0.087, 64e3, int64(4), int64(1), 16.0, int64(64e9), "nvme", 0.0, int64(1e6), true)
	f.Add(int64(1), 1e-9, 1.0, int64(1<<20), int64(1<<20), 0.01, int64(1<<20), "hdd", 1.0, int64(1), false)
	f.Add(int64(MaxBatch), 1e6, 1e13, int64(1), int64(10), 65536.0, int64(1)<<56, "", 0.5, int64(MaxRecords), true)
	f.Fuzz(func(t *testing.T, n int64, step, es float64, accelerators, experiments int64, cores float64, free int64, class string, cached float64, records int64, withMachine bool) {
		var m Machine
		if withMachine {
			m = measured()
		}
		m.Cores, m.MemoryFree = cores, free
		target := Target{Batch: n, Step: step, Accelerators: accelerators, Experiments: experiments, Storage: class, Cached: cached}
		p, err := Make(target, Dataset{RecordBytes: es, Records: records}, m)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("%q has several lines", err)
			}
			return
		}
		if _, err := json.Marshal(p); err != nil {
			t.Errorf("n=%d t=%v es=%v: %v", n, step, es, err)
		}
		if p.Delivered.AU < 0 || p.Delivered.AU > 1+1e-9 || p.Memory.Prefetch < 1 || len(p.Sentences) != 3 || p.Loader.Python == "" {
			t.Errorf("plan %+v", p.Delivered)
		}
	})
}

// Data in a bucket has a price for an epoch.
func TestBucket(t *testing.T) {
	d := photos
	d.Path, d.Layout, d.Bytes, d.ChunkBytes = "s3://bucket/train", LayoutPack, 140_928_370_000, 8<<20
	target := Target{Batch: 256, Step: 0.1, Storage: ClassObject}
	b := mustMake(t, target, d, measured()).Bucket
	if b == nil || b.Requests != d.Records || b.Bytes != d.Bytes || b.RequestsWindow != 16800 {
		t.Fatalf("%+v", b)
	}
	if math.Abs(b.Price-0.5125) > 0.001 || math.Abs(b.PriceWindow-0.00672) > 0.0001 || b.Source == "" {
		t.Errorf("%+v", b)
	}
	target.Cached, target.GetPrice = 0.5, 2
	if b := mustMake(t, target, d, measured()).Bucket; b.Requests != (d.Records+1)/2 || math.Abs(b.Price-1.2812) > 0.001 || b.Source != OriginGiven {
		t.Errorf("%+v", b)
	}
	target.GetPrice, d.Path = 0, "az://container/train"
	b = mustMake(t, target, d, measured()).Bucket
	if text, note := b.Text(); math.Abs(b.Price-0.44*float64(b.Requests)/1e6) > 1e-9 || text == "" || !strings.Contains(note, "at $0.44 per million") || !strings.Contains(b.Source, "Microsoft") {
		t.Errorf("%q, %q", text, note)
	}
	d.Path = "/data/train"
	if b := mustMake(t, target, d, measured()).Bucket; b != nil {
		t.Errorf("a folder costs %+v", b)
	}
}

// The measured rates of a server determine the read time of an epoch. For a server that answers after 10 ms and sends
// 100 MB/s, that is the bytes over its bandwidth.
func TestRemoteEpoch(t *testing.T) {
	const latency, bandwidth = 0.010, 100e6
	m := measured()
	m.Store = &Store{Class: ClassObject, Path: "s3://bucket/train"}
	for _, block := range []int64{4 << 10, 112 << 10, 8 << 20} {
		for _, depth := range []int{1, 4, 16, 64, 256} {
			rate := math.Min(float64(depth)/(latency+float64(block)/bandwidth), bandwidth/float64(block))
			m.Store.Random = append(m.Store.Random, ReadRate{
				Block: block, Depth: depth, IOPS: rate, Bandwidth: rate * float64(block),
				Latency: Latency{P50: float64(depth) / rate, P99: float64(depth) / rate, Samples: 100},
			})
		}
	}
	for _, size := range []float64{20e3, 110e3, 600e3, 3e6} {
		d := photos
		d.Path, d.Layout, d.RecordBytes, d.Records, d.ChunkBytes = "s3://bucket/train", LayoutPack, size, 100_000, 8<<20
		d.Bytes = int64(size * float64(d.Records))
		p := mustMake(t, Target{Batch: 256, Step: 0.0001, Kind: KindBytes}, d, m)
		want := float64(d.Bytes) / bandwidth
		if b := p.Bucket; math.Abs(b.Seconds/want-1) > 0.1 || math.Abs(b.SecondsWindow/want-1) > 0.1 {
			t.Errorf("records of %g bytes: %+v, should be %g s", size, b, want)
		}
		if math.Abs(p.EpochSecondsPredicted/want-1) > 0.1 || p.Delivered.Limit != LimitStorage {
			t.Errorf("records of %g bytes: %g s, limit %s, should be %g s", size, p.EpochSecondsPredicted, p.Delivered.Limit, want)
		}
	}
}
