package cli

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/stokerdata/stoker/internal/bench"
	"github.com/stokerdata/stoker/internal/store/stores"
	"github.com/stokerdata/stoker/internal/units"
)

// benchFlags are the flags of `stoker bench`.
type benchFlags struct {
	app *App

	batch        int
	step         string
	steps        int64
	seconds      time.Duration
	spin, copies bool
	transforms   string
	accelerators string
	threads      int
	memory       string
	prefetch     int
	target       float64

	cores, workers, decode, cache string
	repeats                       int
	decoded                       string
	svg                           string
	workload, device              string
	scale                         float64
	dir                           string
	noWhatIf, check               bool
	asJSON                        bool
	diskText                      string

	t    time.Duration
	mem  int64
	disk float64
}

func newBenchCommand(app *App) *cobra.Command {
	f := &benchFlags{app: app}
	cmd := &cobra.Command{
		Use:     "bench SOURCE | -- COMMAND...",
		GroupID: groupEngine,
		Short:   "Measure a data path with a simulated accelerator, or watch a training command",
		Long: `Measure a data path as a training program sees it.

With a SOURCE (a pack, a folder, a URL) the engine runs as in training. This program takes
the place of the trainer: it takes batches and computes for t seconds on each. It sleeps,
or burns a core with --spin, as the launching thread of a framework does. Without --t it
takes batches as fast as they come. The report has the accelerator utilisation (AU =
compute time / total time, without the first step), the step times, the time of each stage,
and the limit of the speed.

With a COMMAND after --, the training program runs unchanged and is watched from outside:
CPU, bytes, memory and steps. Steps are counted in programs that use PyTorch's DataLoader
(through a hook in the program's Python), stoker.torch, stoker.Loader or stoker.step().

--cores, --workers, --decode and --cache take lists. Each combination runs --repeats times,
alternating with the others. The report is then a study: a table, the curve of the time per
epoch, and its knee, the last point at which the speed still grows by 10%. In a command,
"{workers}" and "{cores}" stand for the values.`,
		Example: `  stoker bench train/ --batch 128 --t 87ms
  stoker bench train/ --workers 1,2,4 --decode on,off --svg knee.svg
  stoker bench train/ --cache cold,warm --t 87ms --spin
  stoker bench --workload unet3d --accelerators auto
  stoker bench --workers 0,1,2,4 -- python train.py --workers {workers}`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	flags := cmd.Flags()
	flags.IntVar(&f.batch, "batch", 256, "mini-batch size n, in `EXAMPLES` per accelerator")
	flags.StringVar(&f.step, "t", "", "`TIME` of the accelerator for one mini-batch, such as 87ms (default: none)")
	flags.Int64Var(&f.steps, "steps", 0, "end after this many steps")
	spanVar(flags, &f.seconds, "seconds", 0, "end after this long (default 10s; 3s for each run of a study)")
	flags.BoolVar(&f.spin, "spin", false, "burn a core during a step instead of sleeping")
	flags.BoolVar(&f.copies, "copy", false, "copy each batch into private memory, as a copy from pageable memory to a device begins")
	flags.StringVar(&f.transforms, "transforms", "", "`LIST` such as 'RandomResizedCrop(224),RandomHorizontalFlip' or none (default: these two, for images of several sizes)")
	flags.StringVar(&f.accelerators, "accelerators", "1", "simulated accelerators `N`, each with its part of the data; auto finds how many can be fed")
	flags.IntVar(&f.threads, "threads", 0, "decode workers; 0 means one per core")
	flags.StringVar(&f.memory, "memory", "", "memory for ring, prefetch and read buffers, such as 2GB")
	flags.IntVar(&f.prefetch, "prefetch", 0, "batches made ahead; 0 means what fits")
	flags.Float64Var(&f.target, "au", 0.9, "accelerator utilisation to reach, 0 to 1")
	flags.StringVar(&f.cores, "cores", "", "CPUs for engine and trainer: `LIST` such as 1,2,4")
	flags.StringVar(&f.workers, "workers", "", "decode workers, or {workers} of a command: `LIST` such as 1,2,4")
	flags.StringVar(&f.decode, "decode", "", "`LIST` of on and off; off measures a copy with the images decoded beforehand")
	flags.StringVar(&f.decoded, "decoded", "", "`PACK` with raw images to use for --decode off (default: one is made and removed)")
	flags.StringVar(&f.cache, "cache", "", "share of the source in the page cache at the start: `LIST` of cold, warm or percentages")
	flags.IntVar(&f.repeats, "repeats", 3, "runs of each cell of a study")
	flags.StringVar(&f.svg, "svg", "", "draw the curve of a study into `FILE`")
	flags.StringVar(&f.workload, "workload", "", "an MLPerf-Storage-shaped workload: `NAME` is unet3d, resnet50 or cosmoflow")
	flags.StringVar(&f.device, "device", "a100", "accelerator whose published step time the workload takes: a100 or h100")
	flags.Float64Var(&f.scale, "scale", 0, "size of the workload's data in `GB` (default: what makes a run of a few seconds)")
	flags.StringVar(&f.dir, "dir", "", "`FOLDER` to keep the workload's data in (default: a temporary one)")
	flags.BoolVar(&f.noWhatIf, "no-what-if", false, "leave out what other machines would give")
	flags.BoolVar(&f.check, "what-if", false, "also measure the what-ifs that this machine can try")
	flags.StringVar(&f.diskText, "disk", "2GB", "what the disk of a what-if gives per second, in `BYTES`")
	flags.BoolVar(&f.asJSON, "json", false, "print JSON")
	cmd.AddCommand(newBenchDecodeCommand(app), newBenchDrawCommand(app))
	return cmd
}

func (f *benchFlags) run(cmd *cobra.Command, args []string) error {
	if err := f.check1(cmd); err != nil {
		return err
	}
	study, err := f.axes()
	if err != nil {
		return err
	}
	dash := cmd.ArgsLenAtDash()
	switch {
	case dash == 0 && len(args) > 0:
		return f.runCommand(args, study)
	case dash >= 0:
		return usageError("stoker bench SOURCE, or stoker bench -- COMMAND", "give a source or a command, not both")
	case f.workload != "":
		if len(args) > 0 {
			return usageError("stoker bench --workload unet3d", "--workload makes its own data; %q is one argument too many", args[0])
		}
		return f.runWorkload(cmd)
	case len(args) == 0:
		return usageError("stoker bench SOURCE, stoker bench --workload unet3d, or stoker bench -- python train.py", "bench what?")
	case len(args) > 1:
		return usageError("a command goes after --: stoker bench -- "+strings.Join(args, " "), "%q is one argument too many", args[1])
	}
	if len(study) > 0 {
		return f.runStudy(args[0], study)
	}
	return f.runSource(args[0])
}

// check1 reads the flags whose values are not plain numbers.
func (f *benchFlags) check1(cmd *cobra.Command) error {
	var err error
	if f.step != "" {
		if f.t, err = parseTime("--t", f.step); err != nil {
			return err
		}
	}
	if f.memory != "" {
		if f.mem, err = parseBytes("--memory", f.memory); err != nil {
			return err
		}
	}
	disk, err := parseBytes("--disk", f.diskText)
	if err != nil {
		return err
	}
	f.disk = float64(disk)
	switch {
	case f.disk < 1e6:
		return usageError("--disk 500MB, per second", "--disk is %s", f.diskText)
	case f.batch < 1:
		return usageError("--batch 256", "--batch is %d", f.batch)
	case f.steps < 0 || f.steps == 1:
		return usageError("--steps 200; the first step is not counted", "--steps is %d", f.steps)
	case f.seconds < 0:
		return usageError("--seconds 10s", "--seconds is %v", f.seconds)
	case f.threads < 0 || f.prefetch < 0:
		return usageError("0 means the default", "--threads is %d, --prefetch %d", f.threads, f.prefetch)
	case math.IsNaN(f.target) || f.target <= 0 || f.target > 1:
		return usageError("--au 0.9", "--au is %v; it is a share of the time, from 0 to 1", f.target)
	case f.repeats < 1 || f.repeats > 100:
		return usageError("--repeats 3", "--repeats is %d", f.repeats)
	case f.spin && f.t == 0 && f.workload == "":
		return usageError("--t 87ms --spin", "--spin needs the time of a step")
	case f.device != "a100" && f.device != "h100":
		return usageError("--device a100, or --t 87ms for any other", "--device %q is neither a100 nor h100", f.device)
	case math.IsNaN(f.scale) || f.scale < 0 || f.scale > 1e6:
		return usageError("--scale 2", "--scale is %v GB", f.scale)
	}
	if f.accelerators != "auto" {
		if n, err := strconv.Atoi(f.accelerators); err != nil || n < 1 || n > 1024 {
			return usageError("--accelerators 4, or auto", "--accelerators %q is neither a number from 1 to 1024 nor auto", f.accelerators)
		}
	} else if f.t == 0 && f.workload == "" {
		return usageError("--t 87ms --accelerators auto", "how many accelerators can be fed depends on the time of a step")
	}
	return nil
}

// parseTime reads the time of a step.
func parseTime(flag, s string) (time.Duration, error) {
	v, err := units.ParseSeconds(s)
	switch {
	case err != nil:
		return 0, usageError(flag+" 87ms", "%s: %v", flag, err)
	case v > 3600:
		return 0, usageError(flag+" 87ms", "%s is %s; a step takes up to an hour", flag, units.Seconds(v))
	}
	return time.Duration(v * 1e9), nil
}

// options are those of one run of a source.
func (f *benchFlags) options(s *bench.Subject) (bench.Options, string, error) {
	cfg, words, err := s.Config(f.transforms, f.batch)
	if err != nil {
		return bench.Options{}, "", usageError("stoker bench SOURCE --transforms 'RandomResizedCrop(224)'", "%v", err)
	}
	cfg.Threads, cfg.Memory, cfg.Prefetch = f.threads, f.mem, f.prefetch
	if f.seconds == 0 && f.steps == 0 {
		f.seconds = 10 * time.Second
	}
	o := bench.Options{Config: cfg, Step: f.t, Spin: f.spin, Copy: f.copies, Steps: f.steps, For: f.seconds, Cached: -1}
	if n, err := strconv.Atoi(f.accelerators); err == nil {
		o.Accelerators = n
	}
	return o, words, nil
}

// runSource is one run of one source.
func (f *benchFlags) runSource(url string) error {
	s, err := bench.Look(f.app.Context, url)
	if err != nil {
		return err
	}
	o, words, err := f.options(s)
	if err != nil {
		return err
	}
	if f.accelerators == "auto" {
		found, err := bench.Feed(f.app.Context, o, f.target, f.note)
		if err != nil {
			return benchFailed(err)
		}
		if f.asJSON {
			return f.app.printJSON(found)
		}
		return f.app.print(feedText(found, words, f.target))
	}
	return f.report(s, o, words)
}

// report runs once and prints the result.
func (f *benchFlags) report(s *bench.Subject, o bench.Options, words string) error {
	r, err := f.runWithBar(o)
	if err != nil {
		return benchFailed(err)
	}
	r.Source = stores.Public(s.Source)
	report := &benchReport{Result: r, Transforms: words, Target: f.target}
	if !f.noWhatIf {
		if s.Image != "" {
			f.note("measuring what a sample of the images costs, for the what-ifs")
		}
		m, err := bench.Costs(f.app.Context, s, o.Config)
		if f.app.Context.Err() != nil {
			return f.app.Context.Err()
		}
		if err != nil {
			f.note("the what-ifs go by the run alone: %v", err)
		}
		report.WhatIf = bench.WhatIf(s, r, m, f.disk)
		if f.check {
			if err := bench.CheckWhatIf(f.app.Context, s, o, report.WhatIf, f.note); err != nil {
				return benchFailed(err)
			}
		}
	}
	if f.asJSON {
		return f.app.printJSON(report)
	}
	return f.app.print(report.text())
}

// runWithBar runs one benchmark and shows its progress.
func (f *benchFlags) runWithBar(o bench.Options) (*bench.Result, error) {
	if o.For == 0 {
		return bench.Run(f.app.Context, o)
	}
	bar := f.app.NewProgress("measuring", "", o.For.Milliseconds())
	defer bar.Stop()
	shown := int64(0)
	o.Progress = func(share float64) {
		now := int64(share * float64(o.For.Milliseconds()))
		bar.Add(now-shown, 0)
		shown = now
	}
	return bench.Run(f.app.Context, o)
}

// note writes the current step to stderr.
func (f *benchFlags) note(format string, args ...any) {
	fmt.Fprintf(f.app.Stderr, "bench: "+format+"\n", args...)
}

// benchFailed adds the engine's hint to its error.
func benchFailed(err error) error {
	var h interface{ Hint() string }
	if errors.As(err, &h) && h.Hint() != "" {
		return &Error{Err: err, Hint: h.Hint()}
	}
	return err
}

// checkSVG refuses a picture that could not be written at the end of a long run.
func (f *benchFlags) checkSVG() error {
	if f.svg == "" {
		return nil
	}
	dir := filepath.Dir(f.svg)
	if st, err := os.Stat(dir); err != nil || !st.IsDir() {
		return usageError("make the folder first", "--svg %s: there is no folder %s", f.svg, dir)
	}
	return nil
}
