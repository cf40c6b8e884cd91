package plan

import (
	"math"
	"testing"
)

// The figures of the texts, as MISSION lists them, against ours.
func TestPublishedFigures(t *testing.T) {
	for _, test := range []struct {
		example string
		what    string
		got     func(*Plan) float64
		want    float64
	}{
		{"resnet50-v100", "n", func(p *Plan) float64 { return float64(p.Goal.Batch) }, 128},
		{"resnet50-v100", "largest n", func(p *Plan) float64 { return float64(p.Fit.Largest) }, 154},
		{"resnet50-v100", "img/s by FLOPs", func(p *Plan) float64 { return p.Goal.ComputeRate }, 1750},
		{"resnet50-v100", "t", func(p *Plan) float64 { return p.Goal.Step }, 0.087852},
		{"resnet50-v100", "img/s", func(p *Plan) float64 { return p.Goal.PerSecond }, 1457},
		{"resnet50-v100", "memory, as the text counts it", func(p *Plan) float64 { return p.Fit.Need / 1e6 / 1024 }, 12.9707},
		{"resnet152-v100", "n", func(p *Plan) float64 { return float64(p.Goal.Batch) }, 64},
		{"resnet152-v100", "t", func(p *Plan) float64 { return p.Goal.Step }, 0.087852},
		{"resnet152-v100", "img/s", func(p *Plan) float64 { return p.Goal.PerSecond }, 728.5},
		{"imagenet-4xv100", "n", func(p *Plan) float64 { return float64(p.Goal.TotalBatch) }, 512},
		{"imagenet-4xv100", "IOPS", func(p *Plan) float64 { return p.Reads.IOPS }, 5885.06},
		{"imagenet-4xv100", "MB/s, as the text counts it", func(p *Plan) float64 { return p.Reads.Bandwidth / 1e3 / 1024 }, 367.816},
		{"imagenet-4xv100", "MB/s", func(p *Plan) float64 { return p.Reads.Bandwidth / 1e6 }, 376.644},
		{"imagenet-4xv100", "disks of 131 IOPS", func(p *Plan) float64 { return Disks(p.Reads.IOPS, 131) }, 45},
		{"shared-nfs", "IOPS, 5 experiments", func(p *Plan) float64 { return p.Reads.IOPSLow }, 640},
		{"shared-nfs", "IOPS, 10 experiments", func(p *Plan) float64 { return p.Reads.IOPS }, 1280},
		{"shared-nfs", "GB/s, 5 experiments", func(p *Plan) float64 { return p.Reads.BandwidthLow / 1e9 }, 0.32},
		{"shared-nfs", "GB/s, 10 experiments", func(p *Plan) float64 { return p.Reads.Bandwidth / 1e9 }, 0.64},
		{"shared-nfs-small", "IOPS, 5 experiments", func(p *Plan) float64 { return p.Reads.IOPSLow }, 25600},
		{"shared-nfs-small", "IOPS, 10 experiments", func(p *Plan) float64 { return p.Reads.IOPS }, 51200},
		{"small-files", "GB/s, 5 experiments", func(p *Plan) float64 { return p.Reads.BandwidthLow / 1e9 }, 1.6384},
		{"small-files", "GB/s, 10 experiments", func(p *Plan) float64 { return p.Reads.Bandwidth / 1e9 }, 3.2768},
		{"cityscapes-batch", "images", func(p *Plan) float64 { return p.Memory.Arrays[0].Bytes }, 100_663_296},
		{"cityscapes-batch", "masks", func(p *Plan) float64 { return p.Memory.Arrays[1].Bytes }, 67_108_864},
		{"cityscapes-batch", "batch", func(p *Plan) float64 { return p.Memory.Batch }, 167_772_160},
		{"cityscapes-batch", "8 workers", func(p *Plan) float64 { return p.Memory.Torch.OneEach }, 1_342_177_280},
		{"cityscapes-batch", "8 workers with prefetch_factor 2", func(p *Plan) float64 { return p.Memory.Torch.Total }, 2_684_354_560},
		{"cityscapes-batch", "64 workers", func(p *Plan) float64 { return WorkerBatches(p.Memory.Batch, 64, 1) }, 10_737_418_240},
		{"cityscapes-batch", "u8", func(p *Plan) float64 { return p.Memory.Compact }, 33_554_432},
		{"cityscapes-u8", "batch", func(p *Plan) float64 { return p.Memory.Batch }, 33_554_432},
		{"volume-batch", "volume", func(p *Plan) float64 { return p.Memory.Example }, 134_217_728},
		{"volume-batch", "batch", func(p *Plan) float64 { return p.Memory.Batch }, 4_294_967_296},
		{"volume-batch", "8 workers", func(p *Plan) float64 { return p.Memory.Torch.OneEach }, 34_359_738_368},
	} {
		e, err := ExampleNamed(test.example)
		if err != nil {
			t.Fatal(err)
		}
		p, err := e.Plan()
		if err != nil {
			t.Fatalf("%s: %v", test.example, err)
		}
		if got := test.got(p); math.Abs(got/test.want-1) > 1e-5 {
			t.Errorf("%s, %s: %v, want %v", test.example, test.what, got, test.want)
		}
	}
}

// If a text contradicts itself, the example explains why.
func TestExamplesGiveReasons(t *testing.T) {
	disagree := map[string]int{}
	for _, e := range Examples() {
		p, err := e.Plan()
		if err != nil {
			t.Errorf("%s: %v", e.Name, err)
			continue
		}
		for _, f := range e.Figures(p) {
			if f.Text == "" || f.Ours == "" {
				t.Errorf("%s, %s: empty: %+v", e.Name, f.What, f)
			}
			if !f.Agrees {
				disagree[e.Name]++
				if f.Reason == "" {
					t.Errorf("%s, %s: %s against %s without a reason", e.Name, f.What, f.Text, f.Ours)
				}
			}
			t.Logf("%-18s %-24s %-36s %-24s %v %s", e.Name, f.What, f.Text, f.Ours, f.Agrees, f.Reason)
		}
		for _, s := range p.Sentences {
			t.Logf("  %s", s)
		}
		for _, a := range p.Advice {
			t.Logf("    %d %-8s %s | %s | %s | %s", a.Step, a.Kind, a.Title, a.Why, a.Effect, a.Command)
		}
	}
	if disagree["shared-nfs"] != 1 {
		t.Errorf("shared-nfs: %d figures disagree, want its bandwidth alone", disagree["shared-nfs"])
	}
}
