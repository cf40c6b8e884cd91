package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/stokerdata/stoker/internal/stats"
	"github.com/stokerdata/stoker/internal/steptime"
	"github.com/stokerdata/stoker/internal/units"
)

// profileFlags are the flags of `stoker profile`.
type profileFlags struct {
	app                  *App
	o                    steptime.CommandOptions
	save, compare, trace string
	asJSON, noHook       bool
}

func newProfileCommand(app *App) *cobra.Command {
	f := &profileFlags{app: app}
	cmd := &cobra.Command{
		Use:     "profile -- COMMAND...",
		GroupID: groupEngine,
		Short:   "Run a training command for some steps and show how the time is spent",
		Long: `Run a training command for a limited number of steps and show how the time is spent:
waiting for data, the parts of the step, and the stages of Stoker's engine if the program
uses it.

Waiting is measured in programs that use PyTorch's DataLoader (through a hook in the
program's Python), stoker.Loader or stoker.watch(loader). The program marks the parts of
its step:

  with stoker.stage("forward"): loss = criterion(model(images), labels)

After --max-batches steps the program is ended. --save and --compare show two runs side by
side.`,
		Example: `  stoker profile -- python train.py
  stoker profile --save before.json -- python train.py --profiling
  stoker profile --compare before.json -- python train.py --workers 4
  stoker profile compare before.json after.json
  stoker profile --trace trace.json -- python train.py      # for ui.perfetto.dev`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	flags := cmd.Flags()
	flags.IntVar(&f.o.Steps, "max-batches", 200, "end the program after this many `STEPS`; 0 lets it run to its end")
	spanVar(flags, &f.o.For, "seconds", 0, "end it after this long")
	flags.StringVar(&f.save, "save", "", "keep the profile in `FILE`, for --compare")
	flags.StringVar(&f.compare, "compare", "", "compare with the profile that was saved in `FILE`")
	flags.StringVar(&f.trace, "trace", "", "write the steps as a Chrome trace into `FILE`, for ui.perfetto.dev")
	flags.BoolVar(&f.noHook, "no-hook", false, "load nothing into the program: see only what it says itself")
	flags.BoolVar(&f.asJSON, "json", false, "print JSON")
	cmd.AddCommand(newProfileCompareCommand(app))
	return cmd
}

func (f *profileFlags) run(cmd *cobra.Command, args []string) error {
	switch {
	case cmd.ArgsLenAtDash() != 0 || len(args) == 0:
		return usageError("stoker profile -- python train.py", "profile what? The command goes after --")
	case f.o.Steps < 0 || f.o.Steps == 1 || f.o.For < 0:
		return usageError("--max-batches 200; the first step is not counted", "--max-batches is %d, --seconds %v", f.o.Steps, f.o.For)
	}
	if _, err := exec.LookPath(args[0]); err != nil {
		return usageError("stoker profile -- python train.py", "%s is not a program that can be started", args[0])
	}
	var before *steptime.Profile
	if f.compare != "" {
		var err error
		if before, err = readProfile(f.compare); err != nil {
			return err
		}
	}
	f.o.Args, f.o.Output, f.o.Keep = args, f.app.Stderr, f.trace != ""
	if !f.noHook {
		f.o.Env = hookEnvironment(endsVariable)
	}
	r, err := steptime.RunCommand(f.app.Context, f.o)
	if err != nil {
		return err
	}
	if r.ExitCode != 0 && !r.Ended {
		return &Error{Msg: fmt.Sprintf("the command ended with exit code %d", r.ExitCode), Hint: "what it printed stands above"}
	}
	p := r.Profile()
	if p == nil {
		return &Error{Msg: "the steps of the program cannot be seen", Hint: "load with stoker.Loader or a PyTorch DataLoader, loop over stoker.watch(loader), or call stoker.step() in the loop"}
	}
	if f.save != "" {
		if err := writeJSON(f.save, p); err != nil {
			return err
		}
	}
	if f.trace != "" {
		if err := writeJSON(f.trace, r.Trace()); err != nil {
			return err
		}
	}
	if f.asJSON {
		return f.app.printJSON(p)
	}
	text := profileText(p, fmt.Sprintf("CPU %.2f s in at most %d processes; watching took %.1f%% of one core", p.CPU, r.Processes, 100*r.WatchingCPU/max(r.Seconds, 1e-9)))
	if before != nil {
		text += "\n" + compareText(before, p)
	}
	return f.app.print(text)
}

// Variables that tell the hook its task. endsVariable: this program ends the command with an interrupt. doctorVariable:
// doctor asks for the loaders.
const (
	endsVariable   = "STOKER_ENDS=1"
	doctorVariable = "STOKER_DOCTOR=1"
)

// hookEnvironment makes a program's Python load the hook: it puts the folder of the hook
// first in PYTHONPATH, and adds variables. The hook is in the installed package and in the
// repository. Elsewhere hookEnvironment returns nil and the program runs without it.
func hookEnvironment(variables ...string) []string {
	self, err := os.Executable()
	if err != nil {
		return nil
	}
	if real, err := filepath.EvalSymlinks(self); err == nil {
		self = real
	}
	dir := filepath.Dir(self)
	for _, hook := range []string{
		os.Getenv("STOKER_PYTHON_HOOK"),
		filepath.Join(dir, "..", "_hook"),                            // stoker/bin/stoker of the package
		filepath.Join(dir, "..", "python", "src", "stoker", "_hook"), // bin/stoker of the repository
	} {
		if hook == "" {
			continue
		}
		if _, err := os.Stat(filepath.Join(hook, "sitecustomize.py")); err == nil {
			path := hook
			if old := os.Getenv("PYTHONPATH"); old != "" {
				path += string(os.PathListSeparator) + old
			}
			return append(variables, "PYTHONPATH="+path)
		}
	}
	return nil
}

func writeJSON(name string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return writeBytes(name, append(data, '\n'))
}

// profileText formats a profile for people. cpu is the text on CPU use.
func profileText(p *steptime.Profile, cpu string) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s\n", clean(p.Loader))
	speed := ""
	if p.PerSecond > 0 {
		speed = fmt.Sprintf("; %s examples/s", bold(units.Int(int64(p.PerSecond))))
	}
	fmt.Fprintf(&out, "%s steps in %s, the first one left out%s; AU %s\n\n", units.Int(int64(p.Steps)), units.Seconds(p.Seconds), speed, units.Tenths(p.AU))
	t := newTable("stage", "where", "per step", "share")
	for _, s := range p.Stages {
		t.Row(clean(s.Name), clean(s.Where), units.Seconds(s.Seconds), units.Tenths(s.Share))
	}
	t.Row("step", "", units.Seconds(p.Step.Mean), "")
	fmt.Fprintf(&out, "%s\n\n", t)
	for _, d := range []struct {
		name string
		d    stats.Distribution
	}{{"step", p.Step}, {"wait", p.Wait}} {
		fmt.Fprintf(&out, "  %s: p50 %s, p95 %s, p99 %s, max %s\n", d.name, units.Seconds(d.d.P50), units.Seconds(d.d.P95), units.Seconds(d.d.P99), units.Seconds(d.d.Max))
	}
	fmt.Fprintf(&out, "  %s\n", cpu)
	for _, note := range p.Notes {
		fmt.Fprintf(&out, "  %s\n", clean(note))
	}
	return out.String()
}
