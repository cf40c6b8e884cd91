package plan

import (
	"fmt"
	"math"
	"strings"

	"github.com/stokerdata/stoker/internal/units"
)

// Example is a published calculation, made again by the planner.
type Example struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	// Text is the publication that has the calculation.
	Text string `json:"text"`
	// Target, Dataset and Machine are its inputs. Figures that the text does not have are left out or listed in
	// Assumed.
	Target  Target  `json:"target"`
	Dataset Dataset `json:"dataset"`
	Machine Machine `json:"machine"`
	Assumed string  `json:"assumed,omitempty"`

	figures func(*Plan) []Figure
}

// Figure compares a figure of the text with ours.
type Figure struct {
	What string `json:"what"`
	// Text is the printed figure, Ours the planner's.
	Text string `json:"text"`
	Ours string `json:"ours"`
	// Agrees is true if they are equal except for rounding (2%). If they are not, or if the text's own arithmetic is
	// wrong, Reason explains why.
	Agrees bool   `json:"agrees"`
	Reason string `json:"reason,omitempty"`
}

// Figures compares the text with a plan made from the example's inputs.
func (e *Example) Figures(p *Plan) []Figure { return e.figures(p) }

// Plan makes the plan of the example.
func (e *Example) Plan() (*Plan, error) { return Make(e.Target, e.Dataset, e.Machine) }

// figure compares the number of a text with ours, for people.
func figure(what, printed string, value, ours float64, text func(float64) string, reason string) Figure {
	return Figure{What: what, Text: printed, Ours: text(ours), Agrees: math.Abs(ours/value-1) <= 0.02, Reason: reason}
}

// figures compares a range.
func figureRange(what, printed string, low, high, oursLow, oursHigh float64, text func(float64) string, reason string) Figure {
	return Figure{
		What: what, Text: printed, Ours: span(oursLow, oursHigh, text), Reason: reason,
		Agrees: math.Abs(oursLow/low-1) <= 0.02 && math.Abs(oursHigh/high-1) <= 0.02,
	}
}

// says compares a statement of the text with ours.
func says(what, printed, ours string, agrees bool, reason string) Figure {
	return Figure{What: what, Text: printed, Ours: ours, Agrees: agrees, Reason: reason}
}

const (
	efficient = "\"Efficient PyTorch\""
	shared    = beast + ", scaling the storage"
)

// Examples lists the published calculations.
func Examples() []Example {
	return []Example{
		resnet50V100(), resnet152V100(), imagenet4xV100(),
		sharedNFS(), sharedNFSSmall(), smallFiles(),
		cityscapes(), cityscapesCompact(), volume(),
		smallData(), largeData(), imagenetRAM(), caltech256(),
	}
}

// ExampleNamed returns the example of a name.
func ExampleNamed(name string) (*Example, error) {
	all := Examples()
	for i := range all {
		if all[i].Name == name {
			return &all[i], nil
		}
	}
	return nil, bad("example", "%q is not known; there are %s", name, units.List(names(all, func(e Example) string { return e.Name }), "and"))
}

func resnet50V100() Example {
	return Example{
		Name: "resnet50-v100", Title: "ResNet-50 on ImageNet, one V100 of 16 GB", Text: beast + ", Imagenet on ResNet 50",
		Target: Target{
			Activation: 103e6, Parameters: 98e6, AcceleratorMemory: 16e9,
			FLOPs: 4e9, DeviceFLOPS: 7e12, Rate: 1457,
		},
		Dataset: Dataset{RecordBytes: 64e3},
		figures: func(p *Plan) []Figure {
			return []Figure{
				figure("by FLOPs, img/s", "1750", 1750, p.Goal.ComputeRate, units.Count,
					"7 TFLOP/s is what a V100 does in double precision, and 4 GFLOP a forward pass alone: the two errors cancel"),
				figure("mini-batch n", "128", 128, float64(p.Goal.Batch), units.Count, fmt.Sprintf("the largest that fits is %s; the text takes a power of two", units.Count(float64(p.Fit.Largest)))),
				figure("memory for n = 128", "12.97 GB", 12.97e9, p.Fit.Need, units.Bytes,
					"128 x 103 MB + 98 MB = 13,282 MB; the text has 1,024 MB in a GB, and the 98 MB are in it"),
				says("n = 256", "does not fit", units.Bytes(BatchMemory(256, 98e6, 103e6))+" of 16.0 GB", BatchMemory(256, 98e6, 103e6) > 16e9, ""),
				figure("t", "0.087 s", 0.087, p.Goal.Step, units.Seconds, "128 / 1,457 = 0.08785: the text cuts it off"),
				figure("examples/s", "1457", 1457, p.Goal.PerSecond, units.Count, ""),
				figure("latency of one example", "at most 87 ms", 0.087, p.Goal.LatencyBound, units.Seconds, ""),
			}
		},
	}
}

func resnet152V100() Example {
	return Example{
		Name: "resnet152-v100", Title: "ResNet-152 on ImageNet, one V100 of 16 GB", Text: beast + ", Imagenet on ResNet 152",
		Target: Target{
			Activation: 219e6, Parameters: 209e6, AcceleratorMemory: 16e9,
			FLOPs: 8e9, DeviceFLOPS: 7e12, Rate: 1457 * 4 / 8.,
		},
		Dataset: Dataset{RecordBytes: 64e3},
		Assumed: "twice the computation per example, so half the 1,457 examples/s of ResNet-50",
		figures: func(p *Plan) []Figure {
			return []Figure{
				figure("mini-batch n", "64", 64, float64(p.Goal.Batch), units.Count, fmt.Sprintf("the largest that fits is %s; the text takes a power of two", units.Count(float64(p.Fit.Largest)))),
				figure("state of 64 examples", "64 x 219 MB = 13.8 GB", 13.8e9, 64*219e6, units.Bytes,
					"64 x 219 MB = 14,016 MB, which is 14.0 GB, or 13.7 with 1,024 MB in a GB: the text's 13.8 is neither"),
				figure("t", "0.087 s", 0.087, p.Goal.Step, units.Seconds, "64 / 728.5 = 0.08785, as for ResNet-50: half the examples, twice the computation"),
				figure("examples/s", "about 730", 730, p.Goal.PerSecond, units.Count, ""),
				figure("latency of one example", "at most 87 ms", 0.087, p.Goal.LatencyBound, units.Seconds, ""),
			}
		},
	}
}

func imagenet4xV100() Example {
	return Example{
		Name: "imagenet-4xv100", Title: "ResNet-50 on ImageNet, four V100 in one machine", Text: beast + ", loading examples from storage",
		Target:  Target{Batch: 128, Step: 0.087, Accelerators: 4, Storage: ClassSATA},
		Dataset: Dataset{RecordBytes: 64e3, Bytes: 150e9},
		figures: func(p *Plan) []Figure {
			ssd, _ := p.Class(ClassSATA)
			need := p.Reads.IOPS
			low, high := Disks(need, 150), Disks(need, 125)
			return []Figure{
				figure("examples per step", "128*4 = 512", 512, float64(p.Goal.TotalBatch), units.Count, ""),
				figure("IOPS", "512/0.087 = 5885", 5885, need, units.Count, ""),
				figure("block size", "64 KB", 64e3, p.Reads.Block, units.Bytes, ""),
				figure("read bandwidth", "367 MB/s", 367e6, p.Reads.Bandwidth, units.Bandwidth, "5,885 x 64 KB = 376,600 KB/s; the text has 1,024 KB in a MB"),
				says("spinning disks", "about 45", fmt.Sprintf("%s to %s", units.Count(low), units.Count(high)), low <= 45 && 45 <= high,
					fmt.Sprintf("of 10,000 rpm, 125-150 IOPS each; of 7,200 rpm (75-100 IOPS) it takes %s to %s", units.Count(Disks(need, 100)), units.Count(Disks(need, 75)))),
				says("one SSD", "is enough", fmt.Sprintf("%s, %s of the need", ssd.Verdict, units.Times(ssd.Margin)), ssd.Verdict != VerdictNo, ""),
			}
		},
	}
}

func sharedNFS() Example {
	return Example{
		Name: "shared-nfs", Title: "5 to 10 experiments on four GPUs each, large files, relaxed t", Text: shared + ": decent NFS can work",
		Target:  Target{Batch: 64, Step: 2, Accelerators: 4, Experiments: 10, ExperimentsLow: 5, Storage: ClassCloud},
		Dataset: Dataset{RecordBytes: 500e3, Bytes: 10e12},
		figures: func(p *Plan) []Figure {
			cloud, _ := p.Class(ClassCloud)
			return []Figure{
				figureRange("IOPS", "640-1280", 640, 1280, p.Reads.IOPSLow, p.Reads.IOPS, units.Count, ""),
				figureRange("read bandwidth", "600 MB/s - 1.28 GB/s", 0.6e9, 1.28e9, p.Reads.BandwidthLow, p.Reads.Bandwidth, units.Bandwidth,
					"640 x 500 KB is 320 MB/s; the text's figures are those of 1 MB per example"),
				says("NFS of a cloud", "possible (GCP Filestore, AWS EFS)", fmt.Sprintf("%s, %s of the need", cloud.Verdict, units.Times(cloud.Margin)), cloud.Verdict != VerdictNo, ""),
			}
		},
	}
}

func smallFilesFigures(p *Plan) []Figure {
	nfs, _ := p.Class(ClassNFS)
	var kinds []string
	for _, a := range p.Advice {
		kinds = append(kinds, a.Kind)
	}
	advice := strings.Join(kinds, ", ")
	return []Figure{
		figureRange("IOPS", "25600-51200", 25600, 51200, p.Reads.IOPSLow, p.Reads.IOPS, units.Count, ""),
		figureRange("read bandwidth", "1.6-3.2 GB/s", 1.6e9, 3.2e9, p.Reads.BandwidthLow, p.Reads.Bandwidth, units.Bandwidth,
			"25,600 x 64 KB is 1.638 GB/s; the text has 1,024 KB in a MB, and 1,000 MB in a GB"),
		says("standard NFS", "problematic: \"the small file problem\"", nfs.Text, nfs.SmallFiles, ""),
		says("what to do", "compact, cache 20%, pack, weaker or shared GPUs", advice, strings.Contains(advice, "larger-t") && strings.Contains(advice, "share"), "each with its predicted effect below"),
	}
}

func sharedNFSSmall() Example {
	return Example{
		Name: "shared-nfs-small", Title: "5 to 10 experiments on four GPUs each, small files, short t", Text: shared + ": small inputs / short latency",
		Target:  Target{Batch: 256, Step: 0.2, Accelerators: 4, Experiments: 10, ExperimentsLow: 5, Storage: ClassNFS},
		Dataset: Dataset{RecordBytes: 64e3, Bytes: 10e12},
		figures: smallFilesFigures,
	}
}

// smallFiles returns the same calculation under the name that the problem has.
func smallFiles() Example {
	e := sharedNFSSmall()
	e.Name, e.Title = "small-files", "The small file problem: "+e.Title
	return e
}

func cityscapes() Example {
	return Example{
		Name: "cityscapes-batch", Title: "Segmentation on Cityscapes, images f32 and masks i64, 8 workers", Text: efficient + ", advice 4",
		Target: Target{
			Batch: 32, Step: 0.5, Workers: 8, Kind: KindImage,
			Arrays: []Array{{"image", []int64{512, 512, 3}, "f32"}, {"mask", []int64{512, 512}, "i64"}},
		},
		Dataset: Dataset{RecordBytes: 2.3e6},
		Assumed: "t = 0.5 s and 2.3 MB per stored example, which the text does not give; the memory does not depend on them",
		figures: func(p *Plan) []Figure {
			m := p.Memory
			return []Figure{
				figure("one image", "3,145,728 B", 3145728, m.Arrays[0].Bytes/32, exact, ""),
				figure("images of a batch", "100,663,296 B", 100663296, m.Arrays[0].Bytes, exact, ""),
				figure("masks of a batch", "67,108,864 B", 67108864, m.Arrays[1].Bytes, exact, ""),
				figure("a batch", "167 Mb", 167e6, m.Batch, units.Bytes, "167,772,160 B; by Mb the text means megabytes"),
				figure("8 workers", "1,336 Mb", 1336e6, m.Torch.OneEach, units.Bytes, "8 x 167.8 MB; the text multiplies the rounded 167"),
				figure("64 workers", "almost 11 Gb", 10.7e9, WorkerBatches(m.Batch, 64, 1), units.Bytes, ""),
				figure("the same in u8", "33 Mb, 5 times less", 33.6e6, m.Compact, units.Bytes, fmt.Sprintf("33,554,432 B: %s less", units.Times(m.Batch/m.Compact))),
			}
		},
	}
}

func cityscapesCompact() Example {
	e := cityscapes()
	e.Name, e.Title = "cityscapes-u8", "The same with images and masks of one byte per element"
	e.Target.Arrays = []Array{{"image", []int64{512, 512, 3}, "u8"}, {"mask", []int64{512, 512}, "u8"}}
	e.figures = func(p *Plan) []Figure {
		m := p.Memory
		return []Figure{
			figure("a batch", "33 Mb", 33.6e6, m.Batch, units.Bytes, "33,554,432 B, which rounds to 34; by Mb the text means megabytes"),
			figure("less than f32 and i64", "5 times", 5, 167772160/m.Batch, units.Times, ""),
		}
	}
	return e
}

func volume() Example {
	return Example{
		Name: "volume-batch", Title: "Volumes of 512 x 512 x 512 voxels of one byte, 8 workers", Text: efficient + ", advice 4",
		Target: Target{
			Batch: 32, Step: 2, Workers: 8, Kind: KindBytes,
			Arrays: []Array{{"volume", []int64{512, 512, 512}, "u8"}},
		},
		Assumed: "t = 2 s, which the text does not give, and volumes stored as they are",
		figures: func(p *Plan) []Figure {
			m := p.Memory
			return []Figure{
				figure("one volume", "134 Mb", 134e6, m.Example, units.Bytes, "134,217,728 B; by Mb the text means megabytes"),
				figure("batch of 32", "4.2 Gb", 4.2e9, m.Batch, units.Bytes, "4,294,967,296 B: 4.29 GB, or 4.0 GiB; the text's 4.2 is cut off"),
				figure("8 workers", "32 Gb", 32e9, m.Torch.OneEach, units.Bytes, "34,359,738,368 B: the text's 32 are GiB, unlike its 4.2"),
			}
		},
	}
}

func smallData() Example {
	return Example{
		Name: "small-data", Title: "Rule of thumb: little data, a small or fine-tuned network", Text: beast + ", rules of thumb",
		Target:  Target{Guess: "small"},
		Dataset: Dataset{RecordBytes: 64e3},
		figures: func(p *Plan) []Figure {
			return []Figure{
				says("t", "tens of milliseconds", units.Seconds(p.Goal.Step), p.Goal.Step >= 0.01 && p.Goal.Step < 0.1, ""),
				says("n", "small, 16 or 32", units.Count(float64(p.Goal.Batch)), p.Goal.Batch == 32, ""),
				says("examples/s", "can still be high", units.Count(p.Goal.PerSecond), p.Goal.PerSecond > 100, "per accelerator"),
			}
		},
	}
}

func largeData() Example {
	return Example{
		Name: "large-data", Title: "Rule of thumb: a lot of data, a large network", Text: beast + ", rules of thumb",
		Target:  Target{Guess: "large"},
		Dataset: Dataset{RecordBytes: 500e3},
		figures: func(p *Plan) []Figure {
			return []Figure{
				figure("t", "relaxed, 2 seconds", 2, p.Goal.Step, units.Seconds, ""),
				figure("n", "very large, 1024", 1024, float64(p.Goal.Batch), units.Count, "all accelerators together: activations limit n on each"),
			}
		},
	}
}

func imagenetRAM() Example {
	return Example{
		Name: "imagenet-ram", Title: "ImageNet in the memory of a p3.8xlarge", Text: efficient + ", advice 1",
		Target:  Target{Batch: 128, Step: 0.087, Accelerators: 4, Storage: ClassRAM},
		Dataset: Dataset{RecordBytes: 110e3, Records: 1_281_167},
		Machine: Machine{MemoryTotal: 248e9, MemoryFree: 248e9, Cores: 32},
		Assumed: "1,281,167 photographs of 110 KB, n and t of the four V100, 32 vCPUs; the text gives none",
		figures: func(p *Plan) []Figure {
			ram, _ := p.Class(ClassRAM)
			return []Figure{
				says("ImageNet in 248 GB of RAM", "more than enough", fmt.Sprintf("%s of data: %s", units.Bytes(p.Reads.Room), ram.Verdict), ram.Verdict == VerdictYes, ""),
			}
		},
	}
}

func caltech256() Example {
	return Example{
		Name: "caltech256", Title: "ResNet-50 on Caltech-256, ml.p3.2xlarge, 7 workers", Text: "the SageMaker sample on GPU I/O",
		Target:  Target{Batch: 32, Rate: 30600 / 96.0, Workers: 7},
		Dataset: Dataset{RecordBytes: 39e3, Records: 30600},
		Machine: Machine{Cores: 8},
		Assumed: "39 KB per file (1.2 GB in 30,607 files) and n = 32",
		figures: func(p *Plan) []Figure {
			slow := EpochSeconds(30600, 260)
			return []Figure{
				figure("1 worker: img/s of an epoch in 260 s", "about 100", 100, slow, units.Count, "30,600 / 260 s = 118: the text rounds down"),
				figure("7 workers: img/s of an epoch in 96 s", "about 300", 300, p.Goal.PerSecond, units.Count, "30,600 / 96 s = 319: the text rounds down"),
				figure("7 workers against 1", "3 X", 3, 260.0/96, units.Times, "260 s / 96 s"),
				figure("epoch", "96 s", 96, p.EpochSeconds, units.Seconds, ""),
			}
		},
	}
}

// exact writes a whole number of bytes.
func exact(v float64) string { return units.Count(v) + " B" }
