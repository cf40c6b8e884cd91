package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/stokerdata/stoker/internal/probe"
	"github.com/stokerdata/stoker/internal/proc"
	"github.com/stokerdata/stoker/internal/store/stores"
	"github.com/stokerdata/stoker/internal/survey"
	"github.com/stokerdata/stoker/internal/units"
	"github.com/stokerdata/stoker/plan"
	"github.com/stokerdata/stoker/store"
)

// planCommand is one call of `stoker plan`. Flags are text, since the parsers of package plan give better errors for
// figures than those of flags.
type planCommand struct {
	app *App

	batch, step, rate, flops, deviceFLOPS string
	device, model, guess                  string
	example, exampleBytes                 string
	records, datasetBytes, layout, codec  string
	width, height                         string
	parameters, activation, accelMemory   string
	accelerators, experiments             string
	cores, memory, network                string
	percentile, storage, cached, workers  string
	price                                 string
	kind                                  string
	arrays, others                        []string

	probeFile, saveHTML, emit string
	noProbe, asJSON           bool
	fresh                     bool
	seconds                   time.Duration
}

func newPlanCommand(app *App) *cobra.Command {
	c := &planCommand{app: app}
	cmd := &cobra.Command{
		Use:     "plan [DATA]",
		GroupID: groupKnow,
		Short:   "Calculate what the data path must deliver, whether it does, and what to change",
		Long: `Calculate what the data path must deliver to keep accelerators busy: reads and bytes per
second, cores, memory. Say whether this machine delivers it, which part fails first, and
what to change, with the predicted effect of each change.

A plan needs three figures: the batch size n, the time t of a step, and the bytes of a
stored example. DATA, a dataset or pack, gives the last one. Each can be given, or is
calculated from others:

  n   --batch, or the largest that fits: --activation --parameters --accelerator-memory
  t   --step, or --rate, or --flops with --device-flops, or --device with --model

Other figures are measured here (stoker probe, about 15 seconds, saved): the storage of DATA
or of the current folder, or the server of a URL, decoding per core on your files, memory
and cores. --no-probe measures nothing and uses a saved probe. --storage plans for typical
figures of a kind of storage.

Units: 64KB is 64,000 bytes and 64KiB is 65,536 bytes. Times are 87ms, 0.087s, 2min.`,
		Example: `  stoker plan train/ --batch 128 --step 87ms
  stoker plan photos/ --device a100 --model resnet50 --accelerators 8
  stoker plan --batch 256 --rate 2470 --example-bytes 110KB --records 1.28e6 --storage nvme
  stoker plan --example imagenet-4xv100          # a published calculation; --example list
  stoker plan train/ --batch 128 --step 87ms --emit python
  stoker plan train/ --batch 128 --step 87ms --html plan.html`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageError("stoker plan DATA --batch 128 --step 87ms", "one DATA at most, not %d", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			data := ""
			if len(args) == 1 {
				data = args[0]
			}
			return c.run(cmd, data)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVarP(&c.batch, "batch", "n", "", "mini-batch size per accelerator, `N` examples")
	f.StringVarP(&c.step, "step", "t", "", "`TIME` the accelerator takes for a mini-batch: 87ms")
	f.StringVar(&c.rate, "rate", "", "or the examples per `SECOND` of one accelerator: 1457")
	f.StringVar(&c.flops, "flops", "", "or the computation per example, `FLOPS`: 4GFLOP")
	f.StringVar(&c.deviceFLOPS, "device-flops", "", "with what a device computes, `RATE`: 7TFLOP/s")
	f.StringVar(&c.device, "device", "", "or an accelerator of the table, `NAME`: v100, a100, h100, ... (list)")
	f.StringVar(&c.model, "model", "", "with a network of the table, `NAME`: resnet50, unet3d, ... (list)")
	f.StringVar(&c.guess, "guess", "", "or the rule of thumb for `small` or large data")
	f.StringVar(&c.parameters, "parameters", "", "`BYTES` of all parameters: 98MB")
	f.StringVar(&c.activation, "activation", "", "`BYTES` of state per example on the accelerator: 103MB")
	f.StringVar(&c.accelMemory, "accelerator-memory", "", "`BYTES` of memory of an accelerator: 16GB")
	f.StringVarP(&c.accelerators, "accelerators", "a", "", "accelerators of one training, on one machine (`N`, default 1)")
	f.StringVar(&c.experiments, "experiments", "", "trainings that share the storage, each on its own machines: `N` or 5-10")
	f.StringArrayVar(&c.others, "with", nil, "another training on this storage: `\"n=256 t=200ms es=64KB\"`, may have accelerators=, dataset=; repeatable")
	f.StringVar(&c.percentile, "percentile", "", "`SHARE` of mini-batches that must be in time (default 99%)")
	f.StringVarP(&c.exampleBytes, "example-bytes", "e", "", "`BYTES` of a stored example: 110KB")
	f.StringVar(&c.records, "records", "", "`N` examples in the dataset")
	f.StringVar(&c.datasetBytes, "dataset-bytes", "", "`BYTES` of the dataset: 150GB")
	f.StringVar(&c.layout, "layout", "", "`files` (one per example) or pack")
	f.StringVar(&c.codec, "codec", "", "how images are stored: `keep` (JPEG), dct or raw")
	f.StringVar(&c.kind, "kind", "", "`image`, to be decoded, or bytes, used as they are")
	f.StringVar(&c.width, "width", "", "mean width of the images in `PIXELS`")
	f.StringVar(&c.height, "height", "", "mean height of the images in `PIXELS`")
	f.StringArrayVar(&c.arrays, "array", nil, "an array of an example in a batch, `image:512x512x3:u8`; repeatable")
	f.StringVar(&c.storage, "storage", "", "plan for a kind of storage, `CLASS`: "+strings.Join(plan.ClassNames(), ", "))
	f.StringVar(&c.cached, "cached", "", "`SHARE` of the dataset that is kept in memory")
	f.StringVar(&c.cores, "cores", "", "plan for `N` cores")
	f.StringVar(&c.memory, "memory", "", "plan for `BYTES` of free memory")
	f.StringVar(&c.network, "network", "", "plan for a network of `RATE`: 10Gbit/s")
	f.StringVar(&c.price, "price-per-million-gets", "", "what a million reads of a bucket cost, in `DOLLARS` (default what is published)")
	f.StringVar(&c.workers, "workers", "", "workers of the PyTorch DataLoader to compare with (`N`, default what it would need)")
	f.BoolVar(&c.noProbe, "no-probe", false, "measure nothing; an earlier probe is used")
	f.BoolVar(&c.fresh, "fresh", false, "measure again, even where an earlier probe is kept (one that was cut short or made on a busy machine is never used)")
	f.StringVar(&c.probeFile, "probe", "", "use the measurements in `FILE`, made by stoker probe --json")
	spanVar(f, &c.seconds, "probe-seconds", probe.DefaultFor, "about how long to measure")
	f.StringVar(&c.example, "example", "", "a published calculation next to ours, by `NAME`; \"list\" lists them")
	f.StringVar(&c.emit, "emit", "", "print only a training loop with the settings, in `python`")
	f.BoolVar(&c.asJSON, "json", false, "print JSON")
	f.StringVar(&c.saveHTML, "html", "", "also write the plan to `FILE`, as one page")
	return cmd
}

func (c *planCommand) run(cmd *cobra.Command, data string) error {
	if c.emit != "" && c.emit != "python" {
		return usageError("stoker plan ... --emit python", "--emit %q is not known; there is python", c.emit)
	}
	if c.seconds < probe.MinFor || c.seconds > probe.MaxFor {
		return probeSpanError("probe-seconds", c.seconds)
	}
	switch {
	case c.example == "list":
		return c.listExamples()
	case c.device == "list" || c.model == "list":
		return c.listTables()
	case c.example != "":
		return c.runExample(cmd, data)
	}
	var target plan.Target
	var machine plan.Machine
	dataset, err := c.look(data, &target)
	if err != nil {
		return err
	}
	if err := c.parse(&target, dataset, &machine); err != nil {
		return err
	}
	// Missing figures are requested before any measurement of seconds.
	if _, err := plan.Make(target, *dataset, machine); err != nil {
		return planError(err)
	}
	measured, err := c.machine(data, target.Storage != "" && c.storage != "")
	if err != nil {
		return err
	}
	if c.storage == "" {
		target.Storage = "" // it may have been measured
	}
	if err := c.parse(&target, dataset, measured); err != nil {
		return err
	}
	p, err := plan.Make(target, *dataset, *measured)
	if err != nil {
		return planError(err)
	}
	return c.print(&planView{Plan: p, Title: planTitle(&target, dataset), Machine: measured})
}

// look fills in the properties of the dataset.
func (c *planCommand) look(data string, target *plan.Target) (*plan.Dataset, error) {
	if data == "" {
		return &plan.Dataset{}, nil
	}
	s, err := survey.Look(c.app.Context, data)
	if err != nil {
		return nil, err
	}
	target.Kind = s.Kind
	if s.Kind == plan.KindBytes {
		target.Arrays = s.Arrays
	}
	return &s.Dataset, nil
}

// parse reads the flags into the three inputs of a plan. A flag takes precedence over found or measured values.
func (c *planCommand) parse(t *plan.Target, d *plan.Dataset, m *plan.Machine) error {
	f := new(figures)
	c.parseTarget(f, t)
	c.parseNames(t)
	if _, ok := plan.InBucket(d.Path); ok && t.Storage == "" && (m.Store == nil || len(m.Store.Random) == 0) {
		t.Storage = plan.ClassObject // of which nothing was measured
	}
	c.parseLists(f, t)
	c.parseData(f, d)
	c.parseMachine(f, m)
	return f.first
}

// figures reads the flags of figures. The first error counts.
type figures struct{ first error }

func (f *figures) fail(flag string, err error) {
	if err != nil && f.first == nil {
		f.first = &Error{Code: ExitUsage, Msg: fmt.Sprintf("--%s: %s", flag, err), Hint: "stoker plan --help says what it takes"}
	}
}

// float passes the value of a flag to set, unless the flag is empty.
func (f *figures) float(flag, text string, parse func(string) (float64, error), set func(float64)) {
	if text == "" {
		return
	}
	v, err := parse(text)
	if f.fail(flag, err); err == nil {
		set(v)
	}
}

// count is float for a whole number up to limit.
func (f *figures) count(flag, text string, limit int64, set func(int64)) {
	if text == "" {
		return
	}
	v, err := units.ParseCount(text, limit)
	if f.fail(flag, err); err == nil {
		set(v)
	}
}

// parseTarget reads the figures of the training.
func (c *planCommand) parseTarget(f *figures, t *plan.Target) {
	f.count("batch", c.batch, plan.MaxBatch, func(v int64) { t.Batch = v })
	f.float("step", c.step, units.ParseSeconds, func(v float64) { t.Step = v })
	f.float("rate", c.rate, units.ParseRate, func(v float64) { t.Rate = v })
	f.float("flops", c.flops, units.ParseFLOPs, func(v float64) { t.FLOPs = v })
	f.float("device-flops", c.deviceFLOPS, units.ParseFLOPRate, func(v float64) { t.DeviceFLOPS = v })
	f.float("parameters", c.parameters, units.ParseBytes, func(v float64) { t.Parameters = v })
	f.float("activation", c.activation, units.ParseBytes, func(v float64) { t.Activation = v })
	f.float("accelerator-memory", c.accelMemory, units.ParseBytes, func(v float64) { t.AcceleratorMemory = v })
	f.count("accelerators", c.accelerators, plan.MaxAccelerators, func(v int64) { t.Accelerators = v })
	if c.experiments != "" {
		low, high, err := units.ParseRange(c.experiments, plan.MaxAccelerators)
		f.fail("experiments", err)
		t.ExperimentsLow, t.Experiments = low, high
	}
	f.float("percentile", c.percentile, units.ParseShare, func(v float64) { t.Share = v })
	f.float("cached", c.cached, units.ParseShare, func(v float64) { t.Cached = v })
	f.float("price-per-million-gets", c.price, parseDollars, func(v float64) { t.GetPrice = v })
	f.count("workers", c.workers, 1<<20, func(v int64) { t.Workers = v })
	if t.Step > 0 && t.Rate > 0 {
		f.fail("rate", errors.New("t is given by --step already; give one of the two"))
	}
}

// parseNames reads the names of the device, the model and the storage.
func (c *planCommand) parseNames(t *plan.Target) {
	for _, v := range []struct {
		text string
		to   *string
	}{{c.device, &t.Device}, {c.model, &t.Model}, {c.guess, &t.Guess}, {c.storage, &t.Storage}, {c.kind, &t.Kind}} {
		if v.text != "" {
			*v.to = strings.ToLower(v.text)
		}
	}
	if name, ok := storageAliases[t.Storage]; ok {
		t.Storage = name
	}
}

// parseLists reads the arrays of a batch and the other jobs on the storage.
func (c *planCommand) parseLists(f *figures, t *plan.Target) {
	if len(c.arrays) > 0 {
		t.Arrays = nil
		for _, text := range c.arrays {
			a, err := plan.ParseArray(text)
			f.fail("array", err)
			t.Arrays = append(t.Arrays, a)
		}
	}
	t.Others = nil
	for _, text := range c.others {
		w, err := plan.ParseWorkload(text)
		f.fail("with", err)
		t.Others = append(t.Others, w)
	}
}

// parseData reads the figures of the data.
func (c *planCommand) parseData(f *figures, d *plan.Dataset) {
	f.float("example-bytes", c.exampleBytes, units.ParseBytes, func(v float64) {
		if d.Path != "" && d.RecordBytes != v {
			// The user plans for other data than the data that was read.
			d.Path, d.Bytes, d.Fields = "", 0, nil
		}
		d.RecordBytes = v
	})
	f.count("records", c.records, plan.MaxRecords, func(v int64) {
		if d.Records != v && c.datasetBytes == "" {
			d.Bytes = 0
		}
		d.Records = v
	})
	f.float("dataset-bytes", c.datasetBytes, units.ParseBytes, func(v float64) {
		if c.records == "" && d.Bytes != int64(v) {
			d.Records = 0
		}
		d.Bytes = int64(v)
	})
	f.count("width", c.width, 1<<20, func(v int64) { d.Width = float64(v) })
	f.count("height", c.height, 1<<20, func(v int64) { d.Height = float64(v) })
	f.fail("layout", choose(c.layout, &d.Layout, plan.LayoutFiles, plan.LayoutPack))
	f.fail("codec", choose(c.codec, &d.Codec, plan.CodecKeep, plan.CodecDCT, plan.CodecRaw))
}

// parseMachine reads the figures of the machine.
func (c *planCommand) parseMachine(f *figures, m *plan.Machine) {
	f.float("cores", c.cores, parseCores, func(v float64) { m.Cores = v })
	f.float("memory", c.memory, units.ParseBytes, func(v float64) { m.MemoryFree, m.MemoryTotal = int64(v), max(m.MemoryTotal, int64(v)) })
	f.float("network", c.network, units.ParseBandwidth, func(v float64) { m.Network = v })
}

// storageAliases are other names that people have for kinds of storage.
var storageAliases = map[string]string{
	"disk": plan.ClassHDD, "ssd": plan.ClassSATA, "sata": plan.ClassSATA, "nfs": plan.ClassNFS, "nas": plan.ClassNFS,
	"efs": plan.ClassCloud, "filestore": plan.ClassCloud, "s3": plan.ClassObject, "gcs": plan.ClassObject, "memory": plan.ClassRAM,
}

// parseDollars reads a price.
func parseDollars(s string) (float64, error) {
	v, err := strconv.ParseFloat(strings.TrimPrefix(s, "$"), 64)
	if err != nil || !(v >= 1e-6 && v <= 1e6) {
		return 0, fmt.Errorf("%q is not a price in dollars: write 0.40", s)
	}
	return v, nil
}

// parseCores reads a number of cores, which may be a fraction.
func parseCores(s string) (float64, error) {
	n, err := units.ParseRate(s)
	if err != nil || strings.ContainsAny(s, "/") {
		return 0, fmt.Errorf("%q is not a number of cores", s)
	}
	if n > 65536 {
		return 0, fmt.Errorf("%q is more cores than 65,536", s)
	}
	return n, nil
}

// choose sets to from text, which must be one of allowed, or empty.
func choose(text string, to *string, allowed ...string) error {
	if text == "" {
		return nil
	}
	if !slices.Contains(allowed, text) {
		return fmt.Errorf("%q is not known; there are %s", text, strings.Join(allowed, ", "))
	}
	*to = text
	return nil
}

// machine returns the properties of this machine: from a file, from an earlier probe, or measured now. Without any of
// them it returns what the system reports immediately.
func (c *planCommand) machine(data string, named bool) (*plan.Machine, error) {
	if c.probeFile != "" {
		return readMachine(c.probeFile)
	}
	path := data
	if path == "" {
		path = "."
	}
	if !c.fresh {
		if m, _, err := probe.Load(path); err == nil && (c.noProbe || m.Doubt() == "") {
			if data == "" && !named {
				m.Notes = append(m.Notes, "the storage is the one under the current folder; name the data (stoker plan DATA) or a class (--storage)")
			}
			return m, nil
		}
	}
	if c.noProbe && stores.IsURL(path) {
		// The properties of this machine hold for data in other places, except those of storage.
		if m, _, err := probe.Load("."); err == nil {
			m.Store, m.Network = nil, 0
			return m, nil
		}
	}
	if c.noProbe || named && data == "" && c.cores != "" && c.memory != "" {
		return here(), nil
	}
	m, err := c.app.measure("measuring this machine", path, probe.Options{For: c.seconds})
	if err != nil {
		return nil, err
	}
	// A result that cannot be kept is a result all the same.
	_, _ = probe.Save(path, m)
	return m, nil
}

// here returns the properties of this machine that are known without measuring.
func here() *plan.Machine {
	m := &plan.Machine{Cores: float64(runtime.GOMAXPROCS(0))}
	if free, err := proc.Live.FreeMemory(); err == nil {
		m.MemoryFree, m.MemoryTotal = free, free
	}
	return m
}

// maxProbeFile bounds the size of a probe file.
const maxProbeFile = 4 << 20

func readMachine(name string) (*plan.Machine, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, &Error{Msg: "cannot read --probe " + name, Err: store.Cause(err)}
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxProbeFile+1))
	if err != nil {
		return nil, &Error{Msg: "cannot read --probe " + name, Err: store.Cause(err)}
	}
	var m plan.Machine
	if len(text) > maxProbeFile {
		return nil, &Error{Msg: name + " is too large for a probe", Hint: "make it with: stoker probe train/ --json > machine.json"}
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, &Error{Msg: name + " is not a probe", Err: err, Hint: "make it with: stoker probe train/ --json > machine.json"}
	}
	if m.Cores == 0 && m.Store == nil && len(m.Codecs) == 0 {
		return nil, &Error{Msg: name + " has no measurements in it", Hint: "make it with: stoker probe train/ --json > machine.json"}
	}
	return &m, nil
}

// planError reports in one line the missing or invalid figure, and as a hint the way to give it.
func planError(err error) error {
	var missing *plan.Missing
	if errors.As(err, &missing) {
		var hints []string
		for _, f := range missing.Figures {
			hints = append(hints, f.Name+": "+strings.Join(f.Ways, ", or "))
		}
		return &Error{Code: ExitUsage, Msg: missing.Error(), Hint: strings.Join(hints, "\n")}
	}
	var bad *plan.BadInput
	if errors.As(err, &bad) {
		flag := strings.ReplaceAll(bad.Key, "_", "-")
		if bad.Key == "record_bytes" {
			flag = "example-bytes"
		}
		if bad.Key == "share" {
			flag = "percentile"
		}
		return &Error{Code: ExitUsage, Msg: "--" + flag + ": " + bad.Reason, Hint: "stoker plan --help says what it takes"}
	}
	return err
}

func (c *planCommand) runExample(cmd *cobra.Command, data string) error {
	e, err := plan.ExampleNamed(c.example)
	if err != nil {
		return planError(err)
	}
	if data != "" {
		return usageError("stoker plan --example "+e.Name, "--example has figures of its own; %s is not looked at", stores.Public(data))
	}
	if c.probeFile != "" {
		m, err := readMachine(c.probeFile)
		if err != nil {
			return err
		}
		e.Machine = *m
	}
	if err := c.parse(&e.Target, &e.Dataset, &e.Machine); err != nil {
		return err
	}
	p, err := e.Plan()
	if err != nil {
		return planError(err)
	}
	v := &planView{Plan: p, Title: e.Title, Example: e, Figures: e.Figures(p)}
	for _, name := range []string{"step", "batch", "rate", "flops", "device-flops", "device", "model", "guess", "parameters", "activation",
		"accelerator-memory", "accelerators", "experiments", "example-bytes", "dataset-bytes", "array", "workers", "with", "records", "cached"} {
		if cmd.Flags().Changed(name) {
			// The figures are no longer those of the text.
			v.Figures, v.Changed = nil, true
		}
	}
	return c.print(v)
}

func planTitle(t *plan.Target, d *plan.Dataset) string {
	what := "Plan"
	if m, ok := plan.ModelNamed(t.Model); ok {
		what = m.Title
	}
	if dev, ok := plan.DeviceNamed(t.Device); ok {
		what += " on " + dev.Title
	}
	if d.Path != "" {
		what += " for " + clean(d.Path)
	}
	return what
}
