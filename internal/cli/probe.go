package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/stokerdata/stoker/internal/probe"
	"github.com/stokerdata/stoker/internal/store/stores"
	"github.com/stokerdata/stoker/internal/units"
	"github.com/stokerdata/stoker/plan"
)

func newProbeCommand(app *App) *cobra.Command {
	c := &probeCommand{app: app}
	cmd := &cobra.Command{
		Use:     "probe [PATH]",
		GroupID: groupEngine,
		Short:   "Measure what this machine delivers: storage, decoding, memory, hand-off",
		Long: `Measure in about 20 seconds what this machine delivers to a training job:

  - reads of several sizes and depths from the storage at PATH, with their latencies
  - small files
  - the time of one core to decode and transform an image, for each codec
  - memory bandwidth, the hand-off of a batch, and the limits of control groups

PATH is a pack, a folder of images, or any other folder. The default is the current
folder. For a URL (s3:, gs:, az:, http:) the server is measured: the latency of small
reads, the bandwidth of large ones by the number of reads in flight, and whether the
server supports ranges, versions and checksums.

Decoding is measured on the images at PATH, or on generated ones. Your files are only read,
and not through the page cache if the file system allows that. A scratch file takes at most
1 GiB and a tenth of the free space, and is removed.

The result is saved in the user's cache folder for "stoker plan" and for the what-if of
"stoker bench". --last shows it again.`,
		Example: `  stoker probe train/
  stoker probe /mnt/data --seconds 30
  stoker probe s3://bucket/train
  stoker probe train/ --json > machine.json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageError("stoker probe PATH", "one PATH at most, not %d", len(args))
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			path := "."
			if len(args) == 1 {
				path = args[0]
			}
			return c.run(path)
		},
	}
	flags := cmd.Flags()
	spanVar(flags, &c.opt.For, "seconds", probe.DefaultFor, "about how long to measure")
	flags.StringVar(&c.opt.Transform, "transform", probe.Crop, "`WHAT` is done with an image: crop (RandomResizedCrop and flip), whole (Resize) or none (raw images)")
	flags.IntVar(&c.opt.Size, "size", 224, "width and height of the output in `PIXELS`")
	flags.BoolVar(&c.asJSON, "json", false, "print JSON")
	flags.BoolVar(&c.last, "last", false, "show the last result instead of measuring")
	return cmd
}

type probeCommand struct {
	app          *App
	opt          probe.Options
	asJSON, last bool
}

func (c *probeCommand) run(path string) error {
	switch {
	case c.opt.For < probe.MinFor || c.opt.For > probe.MaxFor:
		return probeSpanError("seconds", c.opt.For)
	case c.opt.Transform != probe.Crop && c.opt.Transform != probe.Whole && c.opt.Transform != probe.None:
		return usageError("--transform crop, whole or none", "--transform %q is not known", c.opt.Transform)
	case c.opt.Size < 1 || c.opt.Size > 1<<12:
		return usageError("--size 224", "--size is %d", c.opt.Size)
	}
	var m *plan.Machine
	var age time.Duration
	var err error
	kept := ""
	if c.last {
		m, age, err = probe.Load(path)
		if errors.Is(err, probe.ErrNone) {
			shown := stores.Public(path)
			return &Error{Msg: shown + " has not been probed on this machine", Hint: "stoker probe " + units.Shell(shown)}
		}
		if err != nil {
			return err
		}
	} else {
		if m, err = c.app.measure("probing", path, c.opt); err != nil {
			return err
		}
		if kept, err = probe.Save(path, m); err != nil {
			m.Notes = append(m.Notes, err.Error())
		}
	}
	if c.asJSON {
		e := json.NewEncoder(c.app.Stdout)
		e.SetIndent("", "  ")
		return e.Encode(m)
	}
	text := probeText(stores.Public(path), m)
	switch {
	case c.last:
		text += fmt.Sprintf("  measured %s ago\n", units.Elapsed(age))
	case kept != "":
		text += "  kept in " + kept + "\n"
	}
	return c.app.print(text)
}

// probeSpanError refuses a time to measure for.
func probeSpanError(flag string, d time.Duration) error {
	return usageError(fmt.Sprintf("--%s %g", flag, probe.DefaultFor.Seconds()), "--%s is %g seconds, not between %g and %g",
		flag, d.Seconds(), probe.MinFor.Seconds(), probe.MaxFor.Seconds())
}

// measure probes, and shows its progress: in one line on a terminal, otherwise in a line for each part.
func (app *App) measure(label, path string, opt probe.Options) (*plan.Machine, error) {
	w := app.Stderr
	terminal := terminalOf(w) != nil
	erase := func() {
		if terminal {
			fmt.Fprint(w, "\r\x1b[K")
		}
	}
	defer erase()
	start := time.Now()
	opt.Progress = func(done, parts int, name string) {
		erase()
		fmt.Fprintf(w, "%s: %s (%d of %d)", label, name, done+1, parts)
		if left := opt.For - time.Since(start); terminal && left > time.Second {
			fmt.Fprintf(w, ", about %s left", units.Elapsed(left))
		}
		if !terminal {
			fmt.Fprintln(w)
		}
	}
	return probe.Run(app.Context, path, opt)
}

func probeText(path string, m *plan.Machine) string {
	var out strings.Builder
	cpu := m.CPU
	if cpu == "" {
		cpu = "an unknown processor"
	}
	fmt.Fprintf(&out, "%s: %.4g cores of %s", path, m.Cores, cpu)
	if m.NUMANodes > 1 {
		fmt.Fprintf(&out, ", %d NUMA nodes", m.NUMANodes)
	}
	fmt.Fprintf(&out, "; %s of %s memory free\n", units.Bytes(m.MemoryFree), units.Bytes(m.MemoryTotal))
	for _, a := range m.Accelerators {
		fmt.Fprintf(&out, "  accelerator: %s\n", a)
	}
	if s := m.Store; s != nil {
		storeText(&out, s)
	}
	if len(m.Codecs) > 0 {
		r := m.Codecs[0]
		fmt.Fprintf(&out, "\nDecoding: %s images, mean %.0f x %.0f pixels, %s\n\n", originText(r.Origin), r.Width, r.Height, r.Transform)
		t := newTable("codec", "bytes", "images/s, one core", "all cores", "ms of CPU")
		for _, r := range m.Codecs {
			t.Row(r.Codec, units.Bytes(r.RecordBytes), units.Int(int64(r.PerCore)), units.Int(int64(r.AllCores)), fmt.Sprintf("%.3f", 1e3*r.CPUSeconds))
		}
		fmt.Fprintln(&out, t)
	}
	if m.MemoryBandwidth > 0 {
		fmt.Fprintf(&out, "\nMemory, copied per second: %s with one core, %s with all (through the caches: %s, %s)\n",
			units.Bytes(m.MemoryBandwidthCore), units.Bytes(m.MemoryBandwidth), units.Bytes(m.MemoryCopyCore), units.Bytes(m.MemoryCopy))
	}
	if m.Handoff != nil {
		fmt.Fprintf(&out, "Hand-off: %.0f us per batch\n", 1e6*m.Handoff.PerBatch)
	}
	if len(m.Notes) > 0 {
		fmt.Fprintln(&out)
	}
	for _, n := range m.Notes {
		fmt.Fprintf(&out, "  note: %s\n", n)
	}
	return out.String()
}

func originText(origin string) string {
	if origin == "measured" {
		return "your"
	}
	return "generated"
}

func storeText(out *strings.Builder, s *plan.Store) {
	fmt.Fprintf(out, "\nStorage: %s on %s", s.Filesystem, s.Device)
	if s.Class != "" {
		fmt.Fprintf(out, ", behaves as %s", s.Class)
	}
	if s.LimitBandwidth > 0 {
		fmt.Fprintf(out, "; the control group lets %s/s through", units.Bytes(s.LimitBandwidth))
	}
	if s.LimitIOPS > 0 {
		fmt.Fprintf(out, "; the control group lets %s reads/s through", units.Int(int64(s.LimitIOPS)))
	}
	fmt.Fprint(out, "\n\n")
	t := newTable("reads", "block", "in flight", "reads/s", "bytes/s", "p50", "p99")
	for _, g := range []struct {
		name  string
		rates []plan.ReadRate
	}{{"random", s.Random}, {"sequential", s.Sequential}, {"small files", s.Files}, {"as the loader", s.Buffered}} {
		for _, r := range g.rates {
			name := g.name
			if r.Cached {
				name += ", cached"
			}
			t.Row(name, units.Binary(r.Block), fmt.Sprint(r.Depth), units.Int(int64(r.IOPS)), units.Bytes(r.Bandwidth),
				latency(r.Latency.P50), latency(r.Latency.P99))
		}
	}
	fmt.Fprintln(out, t)
	if e := s.Endpoint; e != nil {
		fmt.Fprintf(out, "\nServer: %s\n", endpointText(e))
	}
}

// endpointText describes the features of a server.
func endpointText(e *plan.Endpoint) string {
	var said []string
	if e.Ranges {
		said = append(said, "reads parts of objects")
	} else {
		said = append(said, "reads no parts of objects, which the loader needs")
	}
	if e.IfMatch {
		said = append(said, "refuses other versions on its own")
	} else {
		said = append(said, "leaves it to the reader to see other versions")
	}
	if e.Checksum != "" {
		said = append(said, "sends checksums ("+e.Checksum+")")
	} else {
		said = append(said, "sends no checksums")
	}
	if e.Depth > 0 {
		said = append(said, units.Plural(float64(e.Depth), "large read")+" in flight are enough")
	}
	return strings.Join(said, "; ")
}

// latency writes a time that may not have been measured.
func latency(s float64) string {
	if s <= 0 {
		return "-"
	}
	return units.Seconds(s)
}
