package plan

import (
	"fmt"
	"math"
	"strings"

	"github.com/stokerdata/stoker/internal/units"
)

// The kinds of records.
const (
	KindImage = "image" // files that have to be decoded: JPEG
	KindBytes = "bytes" // records that are used as they are
)

// The origins of a figure.
const (
	OriginGiven     = "given"     // set by the user
	OriginDataset   = "dataset"   // read from the dataset
	OriginMeasured  = "measured"  // measured on this machine
	OriginPublished = "published" // from the table of devices and models
	OriginDerived   = "derived"   // computed from others
	OriginTypical   = "typical"   // an ordinary value, if nothing better is known
)

// Target describes the user's goal. Zero values are filled in from Device and Model, from the dataset, from the
// machine, or requested from the user; see Make.
type Target struct {
	// Batch is n, the examples per accelerator and step. Step is t, the seconds that the accelerator takes for them.
	// Rate is the examples per second of one accelerator, if only that is known.
	Batch int64   `json:"batch,omitempty"`
	Step  float64 `json:"step,omitempty"`
	Rate  float64 `json:"rate,omitempty"`
	// FLOPs per example and DeviceFLOPS per second, if neither is known.
	FLOPs       float64 `json:"flops,omitempty"`
	DeviceFLOPS float64 `json:"device_flops,omitempty"`
	// Device and Model are names of Devices and Models.
	Device string `json:"device,omitempty"`
	Model  string `json:"model,omitempty"`
	// Guess is "small" or "large": the rule of thumb for n and t when nothing
	// is known yet.
	Guess string `json:"guess,omitempty"`
	// Parameters and Activation (per example) in bytes, AcceleratorMemory too.
	Parameters        float64 `json:"parameters,omitempty"`
	Activation        float64 `json:"activation,omitempty"`
	AcceleratorMemory float64 `json:"accelerator_memory,omitempty"`
	// Accelerators is the number of accelerators of one training, on one machine. Experiments is the number of such
	// trainings that run at the same time on the same storage, each on its own machine. The range is from
	// ExperimentsLow to Experiments.
	Accelerators   int64 `json:"accelerators,omitempty"`
	Experiments    int64 `json:"experiments,omitempty"`
	ExperimentsLow int64 `json:"experiments_low,omitempty"`
	// Share is the part of mini-batches that must not wait, 0.99 by default.
	Share float64 `json:"share,omitempty"`
	// Kind is KindImage or KindBytes. Arrays are the arrays of an example in a batch, an image of 224 x 224 x 3 bytes
	// by default.
	Kind   string  `json:"kind,omitempty"`
	Arrays []Array `json:"arrays,omitempty"`
	// Storage is the class of the storage that has the data; empty means the measured storage.
	Storage string `json:"storage,omitempty"`
	// Cached is the share of the dataset that is kept in memory.
	Cached float64 `json:"cached,omitempty"`
	// GetPrice is the price of a million requests to a bucket in US dollars, 0 for the list price.
	GetPrice float64 `json:"price_per_million_gets,omitempty"`
	// Workers is the number of workers of the PyTorch DataLoader for comparison; 0 means the required number.
	Workers int64 `json:"workers,omitempty"`
	// Others are further trainings on the same storage: the hardest decides.
	Others []Workload `json:"others,omitempty"`
}

// Workload is another training on the same storage.
type Workload struct {
	Batch        int64   `json:"batch"`
	Step         float64 `json:"step"`
	RecordBytes  float64 `json:"record_bytes"`
	Accelerators int64   `json:"accelerators"`
	// DatasetBytes is the size of its data, which adds to the required space.
	DatasetBytes float64 `json:"dataset_bytes,omitempty"`
}

// Input is a figure that a plan uses, and its origin.
type Input struct {
	Key    string  `json:"key"`
	Name   string  `json:"name"`
	Value  float64 `json:"value"`
	Text   string  `json:"text"`
	Origin string  `json:"origin"`
	Source string  `json:"source,omitempty"`
}

// Missing is the error for figures that are missing and cannot be derived.
type Missing struct {
	// Figures lists them, with the ways to specify each.
	Figures []MissingFigure
}

// MissingFigure is one of them.
type MissingFigure struct {
	// Key is the field of Target for the figure: "step". Name describes it, and Ways are the ways to specify it.
	Key, Name string
	Ways      []string
}

// Error names the figures, on one line.
func (m *Missing) Error() string {
	names := make([]string, len(m.Figures))
	for i, f := range m.Figures {
		names[i] = f.Name
	}
	if len(names) == 1 {
		return "one figure is missing: " + names[0]
	}
	return fmt.Sprintf("%d figures are missing: %s", len(names), units.List(names, "and"))
}

// BadInput is the error of an impossible figure.
type BadInput struct {
	// Key is the field of Target, Dataset or Machine.
	Key, Reason string
}

// Error returns one line.
func (b *BadInput) Error() string { return b.Key + ": " + b.Reason }

func bad(key, format string, args ...any) error { return &BadInput{key, fmt.Sprintf(format, args...)} }

// The limits of the inputs of a plan. They keep all results finite.
const (
	MaxBatch        = 1 << 24
	MaxAccelerators = 1 << 20
	MaxRecords      = 1 << 50
	maxRecordBytes  = 1 << 44
)

// resolved is a target with everything filled in.
type resolved struct {
	Target
	dataset  Dataset
	machine  Machine
	es       float64 // bytes of a stored example
	output   float64 // bytes of an example in a batch
	largest  int64   // n that fits, 0 if not known
	rateFrom string  // the figure from which t was derived
	inputs   []Input
	notes    []string
}

func (r *resolved) input(key, name string, v float64, text, origin, source string) {
	r.inputs = append(r.inputs, Input{Key: key, Name: name, Value: v, Text: text, Origin: origin, Source: source})
}

func (r *resolved) note(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

// check refuses impossible figures from any origin.
func (t *Target) check(d *Dataset, m *Machine) error {
	for _, f := range []struct {
		key       string
		v, lo, hi float64
		allowed   string
	}{
		{"batch", float64(t.Batch), 1, MaxBatch, "1 to 16,777,216"},
		{"step", t.Step, 1e-9, 1e6, "1ns to 1,000,000s"},
		{"rate", t.Rate, 1e-6, 1e12, "above zero, up to 1e12 per second"},
		{"flops", t.FLOPs, 1, 1e21, "1 to 1e21 FLOPs per example"},
		{"device_flops", t.DeviceFLOPS, 1, 1e21, "1 to 1e21 FLOP/s"},
		{"parameters", t.Parameters, 1, 1e18, "1 B to 1,000 PB"},
		{"activation", t.Activation, 1, 1e18, "1 B to 1,000 PB"},
		{"accelerator_memory", t.AcceleratorMemory, 1, 1e18, "1 B to 1,000 PB"},
		{"accelerators", float64(t.Accelerators), 1, MaxAccelerators, "1 to 1,048,576"},
		{"experiments", float64(t.Experiments), 1, MaxAccelerators, "1 to 1,048,576"},
		{"experiments_low", float64(t.ExperimentsLow), 1, MaxAccelerators, "1 to 1,048,576"},
		{"share", t.Share, 0.5, 0.999999, "50% to 99.9999%"},
		{"cached", t.Cached, 0, 1, "0% to 100%"},
		{"price_per_million_gets", t.GetPrice, 1e-6, 1e6, "0.000001 to 1,000,000 dollars"},
		{"workers", float64(t.Workers), 1, 1 << 20, "1 to 1,048,576"},
		{"record_bytes", d.RecordBytes, 1, maxRecordBytes, "1 B to 17.6 TB"},
		{"records", float64(d.Records), 1, MaxRecords, "1 to 2^50"},
		{"dataset_bytes", float64(d.Bytes), 1, 1e18, "1 B to 1,000 PB"},
		{"cores", m.Cores, 0.01, 1 << 16, "0.01 to 65,536"},
		{"memory", float64(m.MemoryTotal), 1 << 20, 1 << 56, "1 MiB to 64 PiB"},
		{"network", m.Network, 1, 1e15, "above zero"},
	} {
		if math.IsNaN(f.v) || math.IsInf(f.v, 0) || f.v != 0 && (f.v < f.lo || f.v > f.hi) {
			return bad(f.key, "%v is not possible; allowed is %s", f.v, f.allowed)
		}
	}
	if t.Storage != "" {
		if _, ok := ClassNamed(t.Storage); !ok {
			return bad("storage", "%q is not a storage class; there are %s", t.Storage, units.List(ClassNames(), "and"))
		}
	}
	if t.Kind != "" && t.Kind != KindImage && t.Kind != KindBytes {
		return bad("kind", "%q is not known; there are image and bytes", t.Kind)
	}
	if t.Guess != "" && t.Guess != "small" && t.Guess != "large" {
		return bad("guess", "%q is not known; there are small and large", t.Guess)
	}
	if t.Device != "" {
		if _, ok := DeviceNamed(t.Device); !ok {
			return bad("device", "%q is not in the table; there are %s", t.Device, units.List(names(Devices(), func(d Device) string { return d.Name }), "and"))
		}
	}
	if t.Model != "" {
		if _, ok := ModelNamed(t.Model); !ok {
			return bad("model", "%q is not in the table; there are %s", t.Model, units.List(names(Models(), func(m Model) string { return m.Name }), "and"))
		}
	}
	if len(t.Arrays) > 64 || len(t.Others) > 64 {
		return bad("arrays", "there are more than 64 arrays or workloads")
	}
	total := 0.0
	for _, a := range t.Arrays {
		if v := a.Bytes(); !(v > 0 && v <= maxArray) {
			return bad("array", "%s has no size that could be meant", a)
		} else if total += v; total > maxArray {
			return bad("array", "an example of %s is more than can be meant", units.Bytes(total))
		}
	}
	for _, w := range t.Others {
		if w.Batch < 1 || w.Batch > MaxBatch || !(w.Step >= 1e-9 && w.Step <= 1e6) || !(w.RecordBytes >= 1 && w.RecordBytes <= maxRecordBytes) ||
			w.Accelerators < 0 || w.Accelerators > MaxAccelerators || !(w.DatasetBytes >= 0 && w.DatasetBytes <= 1e18) {
			return bad("with", "a workload needs n, t and es, all above zero")
		}
	}
	return nil
}

func names[T any](items []T, name func(T) string) []string {
	out := make([]string, len(items))
	for i, item := range items {
		out[i] = name(item)
	}
	return out
}

// resolve fills in missing figures, in this order: from the table of devices and models, the dataset, the machine,
// and the other figures.
func resolve(t Target, d Dataset, m Machine) (*resolved, error) {
	if err := t.check(&d, &m); err != nil {
		return nil, err
	}
	r := &resolved{Target: t, dataset: d, machine: m}
	r.defaults()
	model, device := r.tables()
	var missing []MissingFigure
	if f := r.resolveExample(model); f != nil {
		missing = append(missing, *f)
	}
	if f := r.resolveBatch(model); f != nil {
		missing = append([]MissingFigure{*f}, missing...)
	}
	if f := r.resolveStep(device, model); f != nil {
		missing = append(missing, *f)
	}
	if len(missing) > 0 {
		return nil, &Missing{Figures: missing}
	}
	r.resolveOutput()
	if r.dataset.Bytes == 0 && r.dataset.Records > 0 {
		r.dataset.Bytes = int64(math.Min(float64(r.dataset.Records)*r.es, 1<<62))
	}
	if r.dataset.Records == 0 && r.dataset.Bytes > 0 {
		r.dataset.Records = max(1, int64(math.Round(float64(r.dataset.Bytes)/r.es)))
	}
	return r, nil
}

func (r *resolved) defaults() {
	if r.Accelerators == 0 {
		r.Accelerators = 1
	}
	if r.Experiments == 0 {
		r.Experiments = 1
	}
	if r.ExperimentsLow == 0 || r.ExperimentsLow > r.Experiments {
		r.ExperimentsLow = r.Experiments
	}
	if r.Share == 0 {
		r.Share = 0.99
	}
	if r.dataset.Layout == "" {
		r.dataset.Layout = LayoutFiles
	}
}

// tables returns the entries of Device and Model, used for figures that the user did not set.
func (r *resolved) tables() (Model, Device) {
	device, _ := DeviceNamed(r.Device)
	model, _ := ModelNamed(r.Model)
	take := func(v *float64, from float64, key, name, source string, text func(float64) string) {
		if *v > 0 {
			r.input(key, name, *v, text(*v), OriginGiven, "")
		} else if from > 0 {
			*v = from
			r.input(key, name, from, text(from), OriginPublished, source)
		}
	}
	take(&r.AcceleratorMemory, device.Memory, "accelerator_memory", "accelerator memory", device.Source, units.Bytes)
	take(&r.Parameters, model.Parameters, "parameters", "parameters", model.Source, units.Bytes)
	take(&r.Activation, model.Activation, "activation", "state per example", model.Source, units.Bytes)
	if r.Kind == "" && model.Kind != "" {
		r.Kind = model.Kind
	}
	if r.Kind == "" && (r.dataset.Codec != "" || r.dataset.Width > 0 || len(r.Arrays) == 0) {
		r.Kind = KindImage
	}
	if r.Kind == "" {
		r.Kind = KindBytes
		for _, a := range r.Arrays {
			if strings.HasPrefix(a.Name, "image") {
				r.Kind = KindImage
			}
		}
	}
	return model, device
}

func (r *resolved) resolveExample(model Model) *MissingFigure {
	const name = "bytes of a stored example (es)"
	switch d := &r.dataset; {
	case d.RecordBytes > 0 && d.Path != "":
		r.es = d.RecordBytes
		r.input("record_bytes", name, r.es, units.Bytes(r.es), OriginDataset, d.Path)
	case d.RecordBytes > 0:
		r.es = d.RecordBytes
		r.input("record_bytes", name, r.es, units.Bytes(r.es), OriginGiven, "")
	case d.Bytes > 0 && d.Records > 0:
		r.es = float64(d.Bytes) / float64(d.Records)
		r.input("record_bytes", name, r.es, units.Bytes(r.es), OriginDerived, "size of the dataset / records")
	case model.RecordBytes > 0:
		r.es = model.RecordBytes
		r.input("record_bytes", name, r.es, units.Bytes(r.es), OriginPublished, model.Source)
	case r.Kind == KindBytes && len(r.Arrays) > 0:
		r.es = ExampleBytes(r.Arrays)
		r.input("record_bytes", name, r.es, units.Bytes(r.es), OriginDerived, "its arrays, stored as they are")
	default:
		return &MissingFigure{Key: "record_bytes", Name: name, Ways: []string{"--example-bytes 110KB", "a dataset or pack to look at: stoker plan DIR"}}
	}
	r.dataset.RecordBytes = r.es
	return nil
}

func (r *resolved) resolveBatch(model Model) *MissingFigure {
	const name = "mini-batch size per accelerator (n)"
	if r.Activation > 0 && r.AcceleratorMemory > 0 {
		r.largest = LargestBatch(r.AcceleratorMemory, r.Parameters, r.Activation)
	}
	switch {
	case r.Batch > 0:
		r.input("batch", name, float64(r.Batch), units.Count(float64(r.Batch)), OriginGiven, "")
	case r.largest > 0:
		r.Batch = min(PowerOfTwo(r.largest), MaxBatch)
		r.input("batch", name, float64(r.Batch), units.Count(float64(r.Batch)), OriginDerived, "largest power of two that fits")
	case model.Batch > 0:
		r.Batch = model.Batch
		r.input("batch", name, float64(r.Batch), units.Count(float64(r.Batch)), OriginPublished, model.Source)
	case r.Guess != "":
		r.Batch = map[string]int64{"small": 32, "large": 1024}[r.Guess]
		r.input("batch", name, float64(r.Batch), units.Count(float64(r.Batch)), OriginTypical, "rule of thumb for "+r.Guess+" data")
	default:
		ways := []string{"--batch 128", "--activation 103MB --parameters 98MB --accelerator-memory 16GB"}
		return &MissingFigure{Key: "batch", Name: name, Ways: ways}
	}
	return nil
}

func (r *resolved) resolveStep(device Device, model Model) *MissingFigure {
	const name = "accelerator time per mini-batch (t)"
	n := float64(max(r.Batch, 1))
	speed, published := SpeedOf(r.Device, r.Model)
	if r.FLOPs == 0 {
		r.FLOPs = model.FLOPs
	}
	given := r.DeviceFLOPS > 0
	if !given {
		r.DeviceFLOPS = device.FLOPS
	}
	set := func(origin, source string) {
		r.input("step", name, r.Step, units.Seconds(r.Step), origin, source)
	}
	switch {
	case r.Step > 0:
		set(OriginGiven, "")
	case r.Rate > 0:
		r.Step = n / r.Rate
		set(OriginDerived, "n / "+units.Count(r.Rate)+" examples/s, given")
	case published && !given:
		r.Step = n / speed.PerSecond
		r.rateFrom = speed.Source
		set(OriginPublished, "n / "+units.Count(speed.PerSecond)+" examples/s: "+speed.Source)
	case r.FLOPs > 0 && r.DeviceFLOPS > 0:
		r.Step = n / ComputeRate(r.FLOPs, r.DeviceFLOPS)
		r.rateFrom = "FLOPs"
		set(OriginDerived, fmt.Sprintf("n x %s / %s/s", units.FLOPs(r.FLOPs), units.FLOPs(r.DeviceFLOPS)))
		r.note("t comes from the rated speed of the device. Training reaches a part of it only, so t is a lower bound and what follows from it an upper one; measure t to do better.")
	case r.Guess != "":
		r.Step = map[string]float64{"small": 0.05, "large": 2}[r.Guess]
		set(OriginTypical, "rule of thumb for "+r.Guess+" data")
	default:
		return &MissingFigure{Key: "step", Name: name, Ways: []string{"--step 87ms", "--rate 1457", "--flops 4GFLOP --device-flops 7TFLOP/s", "--device v100 --model resnet50"}}
	}
	if r.Step < 1e-9 || r.Step > 1e6 || math.IsNaN(r.Step) {
		r.Step = math.Min(math.Max(r.Step, 1e-9), 1e6)
	}
	return nil
}

// resolveOutput determines the arrays of an example in a batch.
func (r *resolved) resolveOutput() {
	switch {
	case len(r.Arrays) > 0:
	case r.Kind == KindImage:
		r.Arrays = []Array{{"image", []int64{224, 224, 3}, "u8"}, {"label", []int64{1}, "i64"}}
	default:
		r.Arrays = []Array{{"data", []int64{int64(math.Ceil(r.es))}, "u8"}}
	}
	r.output = ExampleBytes(r.Arrays)
}

// ParseWorkload reads "n=256 t=200ms es=64KB", which may also have
// accelerators=4 and dataset=1.2TB.
func ParseWorkload(s string) (Workload, error) {
	const hint = "write \"n=256 t=200ms es=64KB\""
	var w Workload
	if len(s) > 512 {
		return w, fmt.Errorf("it is too long: %s", hint)
	}
	for _, item := range strings.FieldsFunc(s, func(r rune) bool { return r == ' ' || r == ';' }) {
		key, value, ok := strings.Cut(item, "=")
		if !ok {
			return w, fmt.Errorf("%q is not understood: %s", item, hint)
		}
		var err error
		switch key {
		case "n":
			w.Batch, err = units.ParseCount(value, MaxBatch)
		case "t":
			w.Step, err = units.ParseSeconds(value)
		case "es":
			w.RecordBytes, err = units.ParseBytes(value)
		case "accelerators":
			w.Accelerators, err = units.ParseCount(value, MaxAccelerators)
		case "dataset":
			w.DatasetBytes, err = units.ParseBytes(value)
		default:
			return w, fmt.Errorf("%q is not known; there are n, t, es, accelerators, dataset", key)
		}
		if err != nil {
			return w, fmt.Errorf("%s: %w", key, err)
		}
	}
	if w.Batch == 0 || w.Step == 0 || w.RecordBytes == 0 {
		return w, fmt.Errorf("it needs n, t and es: %s", hint)
	}
	return w, nil
}
