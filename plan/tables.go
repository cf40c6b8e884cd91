package plan

// Device is an accelerator, with the figures of its data sheet.
type Device struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	// Memory is in bytes. FLOPS is the rate in single precision, per second. MixedFLOPS is the rate of tensor cores
	// in 16 bits with 32-bit sums, without sparsity.
	Memory     float64 `json:"memory"`
	FLOPS      float64 `json:"flops"`
	MixedFLOPS float64 `json:"mixed_flops"`
	Source     string  `json:"source"`
}

// Devices lists the accelerators that can be named.
func Devices() []Device {
	const nvidia, amd = "NVIDIA data sheet", "AMD data sheet"
	return []Device{
		{"v100", "NVIDIA V100 16 GB", 16e9, 15.7e12, 125e12, nvidia},
		{"v100-32gb", "NVIDIA V100 32 GB", 32e9, 15.7e12, 125e12, nvidia},
		{"t4", "NVIDIA T4", 16e9, 8.1e12, 65e12, nvidia},
		{"a100-40gb", "NVIDIA A100 40 GB", 40e9, 19.5e12, 312e12, nvidia},
		{"a100", "NVIDIA A100 80 GB", 80e9, 19.5e12, 312e12, nvidia},
		{"l4", "NVIDIA L4", 24e9, 30.3e12, 121e12, nvidia},
		{"h100", "NVIDIA H100 SXM", 80e9, 67e12, 989e12, nvidia},
		{"h200", "NVIDIA H200 SXM", 141e9, 67e12, 989e12, nvidia},
		{"mi300x", "AMD Instinct MI300X", 192e9, 163.4e12, 1307e12, amd},
	}
}

// Model is a network, with the needs of an example.
type Model struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	// FLOPs is per example. Parameters and Activation (state per example) are in bytes of 32-bit numbers. They are 0
	// if nothing is published.
	FLOPs      float64 `json:"flops,omitempty"`
	Parameters float64 `json:"parameters,omitempty"`
	Activation float64 `json:"activation,omitempty"`
	// RecordBytes is a stored example of the dataset that the figures belong
	// to, Batch the n that they were published with.
	RecordBytes float64 `json:"record_bytes,omitempty"`
	Batch       int64   `json:"batch,omitempty"`
	Kind        string  `json:"kind"`
	Source      string  `json:"source"`
}

const (
	beast    = "\"Feeding the beast\""
	storages = "shape of MLPerf Storage v1.0's workload"
)

// Models lists the networks that can be named.
func Models() []Model {
	return []Model{
		{Name: "resnet50", Title: "ResNet-50, ImageNet", FLOPs: 4e9, Parameters: 98e6, Activation: 103e6, Kind: KindImage, Source: beast},
		{Name: "resnet152", Title: "ResNet-152, ImageNet", FLOPs: 8e9, Parameters: 209e6, Activation: 219e6, Kind: KindImage, Source: beast},
		{Name: "resnet50-records", Title: "ResNet-50 from TFRecords, not decoded", RecordBytes: 114_660, Batch: 400, Kind: KindBytes, Source: storages},
		{Name: "unet3d", Title: "3D U-Net, KiTS19 volumes", RecordBytes: 146.6e6, Batch: 7, Kind: KindBytes, Source: storages},
		{Name: "cosmoflow", Title: "CosmoFlow", RecordBytes: 2.83e6, Batch: 1, Kind: KindBytes, Source: storages},
	}
}

// Speed is a published training speed of a model on a device, in examples per
// second of one accelerator.
type Speed struct {
	Device    string  `json:"device"`
	Model     string  `json:"model"`
	PerSecond float64 `json:"per_second"`
	// Batch is the n of the measurement, 0 if the source does not state it.
	Batch  int64  `json:"batch,omitempty"`
	Source string `json:"source"`
}

// Speeds lists published speeds; the first that fits counts.
func Speeds() []Speed {
	const examples = "NVIDIA DeepLearningExamples, ResNet-50 v1.5 for PyTorch 21.03"
	const mlperf = "computation time in MLPerf Storage v1.0's workload"
	return []Speed{
		{"v100", "resnet50", 1457, 0, beast + ", as published by NVIDIA (today's recipe: 1,200 mixed, 367 single precision)"},
		{"v100-32gb", "resnet50", 1156, 0, examples + ", mixed precision"},
		{"a100", "resnet50", 2470, 0, examples + ", mixed precision"},
		{"v100", "resnet152", 1457 / 2., 0, beast + ": twice the computation of ResNet-50"},
		{"a100", "resnet50-records", 400 / 0.435, 400, mlperf},
		{"h100", "resnet50-records", 400 / 0.224, 400, mlperf},
		{"h100", "resnet50", 400 / 0.224, 400, mlperf},
		{"a100", "unet3d", 7 / 0.636, 7, mlperf},
		{"h100", "unet3d", 7 / 0.323, 7, mlperf},
		{"a100", "cosmoflow", 1 / 0.00551, 1, mlperf},
		{"h100", "cosmoflow", 1 / 0.00350, 1, mlperf},
	}
}

// DeviceNamed returns the device of a name.
func DeviceNamed(name string) (Device, bool) {
	for _, d := range Devices() {
		if d.Name == name {
			return d, true
		}
	}
	return Device{}, false
}

// ModelNamed returns the model of a name.
func ModelNamed(name string) (Model, bool) {
	for _, m := range Models() {
		if m.Name == name {
			return m, true
		}
	}
	return Model{}, false
}

// SpeedOf returns the published speed of a model on a device.
func SpeedOf(device, model string) (Speed, bool) {
	for _, s := range Speeds() {
		if s.Device == device && s.Model == model {
			return s, true
		}
	}
	return Speed{}, false
}

// typicalCodecs returns typical CPU seconds per image. They are for photographs of 110 kB (mean 470 x 400 pixels),
// RandomResizedCrop(224) and flip, with the whole engine, on a 2026 Xeon (docs/internals/benchmarks.md). They grow
// with the bytes of the image, or with the pixels copied for raw images.
func typicalCodecs(recordBytes, outputBytes float64) []CodecRate {
	const photo = 110e3
	grow := recordBytes / photo
	rates := []CodecRate{
		{Codec: CodecKeep, CPUSeconds: 1 / 1046.0 * grow},
		{Codec: CodecDCT, CPUSeconds: 1 / 4490.0 * grow},
		// 70,986 records of 196,608 bytes per second on 2 cores.
		{Codec: CodecRaw, CPUSeconds: outputBytes / 7.0e9},
	}
	for i := range rates {
		rates[i].CPUSeconds += 2e-6 // the cost of a record of any size
		rates[i].PerCore = 1 / rates[i].CPUSeconds
		rates[i].RecordBytes, rates[i].Origin = recordBytes, OriginTypical
		rates[i].Transform = "RandomResizedCrop, flip"
	}
	return rates
}

// Other figures of this project's benchmarks that plans use.
const (
	// dctGrowth is the ratio of the size of a dct pack to that of its JPEGs (docs/internals/benchmarks.md).
	dctGrowth = 1.095
	// torchCPU is the CPU time of PyTorch's DataLoader with torchvision's decoder
	// for such a photograph, in seconds (docs/internals/benchmarks.md).
	torchCPU = 1.92e-3
	// torchBandwidth is the number of bytes that it collates and hands over per second and worker: 28-35 ms per batch
	// of 38.5 MB.
	torchBandwidth = 1.2e9
	// pixelsPerByte of a photograph as JPEG: 470 x 400 in 110 kB.
	pixelsPerByte = 470 * 400 / 110e3
)
