package plan

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// TestOneModelSpeaks checks that the verdict, the margins, the prediction and the advice of a plan agree for any
// measurements. For example, reads past the page cache may be many times faster than the loader's reads.
func TestOneModelSpeaks(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	between := func(low, high float64) float64 { return low + (high-low)*rng.Float64() }
	meets, fails := 0, 0
	for i := range 2000 {
		raw := between(50, 30000)
		m := Machine{
			Cores: float64(1 + rng.IntN(64)), MemoryTotal: 64 << 30, MemoryFree: 32 << 30, MemoryBandwidth: between(1e9, 50e9),
			Store:   &Store{Class: ClassNVMe, Random: []ReadRate{{Block: 128 << 10, Depth: 16, IOPS: raw, Bandwidth: raw * (128 << 10), Latency: Latency{Mean: 1e-4, P99: 3e-4}}}},
			Codecs:  []CodecRate{{Codec: CodecKeep, CPUSeconds: between(2e-4, 4e-3), RecordBytes: 110e3}},
			Handoff: &Handoff{PerBatch: between(1e-6, 1e-3)},
		}
		if rng.IntN(2) == 0 {
			share := between(0.02, 1.2)
			m.Store.Buffered = []ReadRate{{Block: 128 << 10, Depth: 16, IOPS: raw * share, CPUSeconds: between(0, 1e-3)}}
		}
		target := Target{Batch: int64(1 + rng.IntN(512)), Step: between(0.01, 0.5), Accelerators: int64(1 + rng.IntN(8)), Kind: KindImage}
		d := Dataset{Path: "x", Layout: []string{LayoutFiles, LayoutPack}[rng.IntN(2)], Codec: CodecKeep, Records: 1e5, Bytes: 11e9, RecordBytes: 110e3, Width: 470, Height: 400}
		p, err := Make(target, d, m)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Join(p.Sentences, " ")
		steps := 0
		for _, a := range p.Advice {
			if a.Step > 0 {
				steps++
			}
		}
		delivers := p.Delivered.AU >= enough
		if p.Meets {
			meets++
		} else if !delivers {
			fails++
		}
		if p.Meets && (!delivers || steps > 0) || !delivers && strings.Contains(text, "delivers that") || p.Meets && strings.Contains(text, "To get there") {
			t.Errorf("%d: meets %v, AU %.3f, %d steps: %s", i, p.Meets, p.Delivered.AU, steps, text)
		}
		for _, name := range []string{ResourceRequests, ResourceBandwidth, ResourceCPU} {
			if r, ok := p.Resource(name); ok && delivers && r.Margin < enough {
				t.Errorf("%d: %s has a margin of %.3f, and the accelerators work %.3f of the time", i, name, r.Margin, p.Delivered.AU)
			}
		}
	}
	if meets < 50 || fails < 50 {
		t.Errorf("%d plans meet the need, %d fail: this tests nothing", meets, fails)
	}
}

func TestDoubtfulProbes(t *testing.T) {
	for _, c := range []struct {
		m    Machine
		says string // "" for none
	}{
		{Machine{}, ""}, {Machine{Busy: 0.2}, ""},
		{Machine{Busy: 0.6}, "other programs used 60% of the cores"},
		{Machine{Unfinished: []string{"decoding"}}, "before it had measured decoding"},
	} {
		if got := c.m.Doubt(); (got == "") != (c.says == "") || !strings.Contains(got, c.says) {
			t.Errorf("%+v: %q", c.m, got)
		}
	}
}
