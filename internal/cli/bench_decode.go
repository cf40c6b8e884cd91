package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"charm.land/lipgloss/v2"
	"github.com/spf13/cobra"

	"github.com/stokerdata/stoker/internal/bench/decodebench"
	"github.com/stokerdata/stoker/internal/units"
)

func newBenchDecodeCommand(app *App) *cobra.Command {
	o := decodebench.Options{}
	var asJSON bool
	var cpuProfile string
	var look viewFlags
	cmd := &cobra.Command{
		Use:   "decode SRC",
		Short: "Measure reading, decoding and transforming, without a trainer",
		Long: `Run the engine on a pack or a folder of images without a trainer: batches are built and
released immediately. The report has images per second, images per second of CPU time,
the time of each stage per record, and garbage collections.

--cpuprofile writes a profile for "go tool pprof". Its samples have the label "stage".`,
		Example: `  stoker bench decode train/
  stoker bench decode train/ --threads 1 --cpuprofile cpu.pprof
  go tool pprof -tagfocus stage=decode bin/stoker cpu.pprof`,
		Args: exactArgs("SRC"),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := look.read(); err != nil {
				return err
			}
			o.Source = look.url(args[0])
			if !slices.Contains([]string{decodebench.Crop, decodebench.Whole, decodebench.None}, o.Transform) {
				return usageError("--transform crop, whole or none", "--transform %q is not known", o.Transform)
			}
			if o.Size < 1 || o.Size > 1<<14 {
				return usageError("--size 224", "--size is %d", o.Size)
			}
			if o.For <= 0 || o.Warmup < 0 {
				return usageError("--seconds 5s", "there is nothing to measure in %v", o.For)
			}
			if cpuProfile != "" {
				f, err := os.Create(cpuProfile)
				if err != nil {
					return err
				}
				defer f.Close()
				if err := pprof.StartCPUProfile(f); err != nil {
					return err
				}
				defer pprof.StopCPUProfile()
			}
			r, err := decodebench.Run(app.Context, o)
			if err != nil {
				return err
			}
			if asJSON {
				e := json.NewEncoder(app.Stdout)
				e.SetIndent("", "  ")
				return e.Encode(r)
			}
			_, err = lipgloss.Fprint(app.Stdout, decodeText(r))
			return err
		},
	}
	cmd.Flags().StringVar(&o.Transform, "transform", decodebench.Crop, "`WHAT` is done: crop (RandomResizedCrop and flip), whole (Resize) or none (raw images)")
	cmd.Flags().IntVar(&o.Size, "size", 224, "width and height of the output in `PIXELS`")
	cmd.Flags().IntVar(&o.Batch, "batch", 256, "`RECORDS` per batch")
	cmd.Flags().IntVar(&o.Threads, "threads", 0, "decode workers; 0 means one per core")
	spanVar(cmd.Flags(), &o.For, "seconds", 5*time.Second, "how long to measure")
	spanVar(cmd.Flags(), &o.Warmup, "warmup", time.Second, "how long to run before")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().StringVar(&cpuProfile, "cpuprofile", "", "write a CPU profile to `FILE`")
	look.register(cmd.Flags())
	return cmd
}

func decodeText(r *decodebench.Report) string {
	var out strings.Builder
	what := map[string]string{
		decodebench.Crop:  fmt.Sprintf("RandomResizedCrop %d and flip", r.Size),
		decodebench.Whole: fmt.Sprintf("Resize to %dx%d", r.Size, r.Size),
		decodebench.None:  "as stored",
	}[r.Transform]
	fmt.Fprintf(&out, "%s: %s; %s, uint8, batches of %d; %s with %s kernels\n\n", r.Source, units.Records(r.Records),
		what, r.Batch, units.Plural(r.Threads, "decode worker"), r.Kernels)
	fmt.Fprintf(&out, "  %s images/s, %s per second\n", units.Int(int64(r.PerSecond)), units.Bytes(r.BytesPerSecond))
	fmt.Fprintf(&out, "  %s images per second of CPU time (%.3f CPU seconds per 1,000)\n\n", units.Int(int64(r.PerCPUSecond)), 1000/r.PerCPUSecond)
	t := newTable("stage", "ns per record", "share", "workers")
	for _, s := range r.Stages {
		t.Row(s.Name, units.Int(int64(s.PerRecord)), units.Tenths(s.Share), fmt.Sprint(s.Workers))
	}
	fmt.Fprintf(&out, "%s\n\n", t)
	fmt.Fprintf(&out, "  %s images in %.1f s; %s; at most %s outside the Go heap\n", units.Int(r.Images), r.Seconds,
		units.Plural(int(r.Collections), "garbage collection"), units.Bytes(r.MemoryPeak))
	return out.String()
}
