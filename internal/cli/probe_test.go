package cli

import (
	"strings"
	"testing"

	"github.com/stokerdata/stoker/plan"
)

func TestProbeText(t *testing.T) {
	rate := func(codec string, seconds float64) plan.CodecRate {
		return plan.CodecRate{Codec: codec, Transform: "RandomResizedCrop(32), flip", CPUSeconds: seconds, PerCore: 1 / seconds, AllCores: 1.9 / seconds,
			RecordBytes: 110e3, Width: 500, Height: 375, Origin: "measured"}
	}
	m := &plan.Machine{
		CPU: "a processor", Cores: 2, MemoryFree: 4e9, MemoryTotal: 8e9, MemoryBandwidth: 9e9, MemoryBandwidthCore: 8e9,
		Codecs: []plan.CodecRate{rate("keep", 0.001), rate("dct", 0.00025)},
		Store: &plan.Store{Filesystem: "ext4", Device: "vda", Class: "nvme",
			Random: []plan.ReadRate{{Block: 4096, Depth: 16, IOPS: 52_000, Bandwidth: 213e6, Latency: plan.Latency{P50: 0.0003, P99: 0.001}}}},
		Handoff: &plan.Handoff{PerBatch: 48e-6},
		Notes:   []string{"decoding of raw: not measured, the time was up; give it more with --seconds"},
	}
	text := probeText("photos", m)
	for _, want := range []string{
		"photos: 2 cores of a processor; 4.00 GB of 8.00 GB memory free\n",
		"\nStorage: ext4 on vda, behaves as nvme\n", "  random ", "52,000",
		"\nDecoding: your images, mean 500 x 375 pixels, RandomResizedCrop(32), flip\n", "  keep ", "  dct ", "1,000", "0.250",
		"\nHand-off: 48 us per batch\n",
		"\n  note: decoding of raw: not measured, the time was up",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	m.Codecs[0].Origin = "generated"
	if text := probeText("photos", m); !strings.Contains(text, "Decoding: generated images") {
		t.Error(text)
	}
	if text := probeText("photos", &plan.Machine{}); !strings.Contains(text, "an unknown processor") || strings.Contains(text, "Decoding") {
		t.Error(text)
	}
}
