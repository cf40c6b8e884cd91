package cli

import (
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stokerdata/stoker/internal/bench"
	"github.com/stokerdata/stoker/internal/steptime"
	"github.com/stokerdata/stoker/internal/units"
)

// runCommand watches a training command, once or for each combination.
func (f *benchFlags) runCommand(args []string, axes []bench.Axis) error {
	if f.workload != "" || f.check || f.t > 0 || f.accelerators != "1" {
		return usageError("stoker bench [--steps N] [--workers LIST] -- COMMAND", "--workload, --what-if, --t and --accelerators are not for commands: a command has its own step")
	}
	if _, err := exec.LookPath(args[0]); err != nil {
		return usageError("stoker bench -- python train.py", "%s is not a program that can be started", args[0])
	}
	for _, a := range axes {
		switch {
		case a.Name == bench.AxisCache:
			return usageError("stoker bench SOURCE --cache cold,warm", "--cache is for sources: which files a command reads is not known")
		case a.Name != bench.AxisCores && !slices.ContainsFunc(args, func(arg string) bool { return strings.Contains(arg, "{"+a.Name+"}") }):
			return usageError(fmt.Sprintf("write {%s} where the command takes the value: ... --%s {%s}", a.Name, a.Name, a.Name), "--%s is given and the command does not say where it goes", a.Name)
		}
	}
	if err := f.checkSVG(); err != nil {
		return err
	}
	if single(axes) {
		values := map[string]string{}
		for _, a := range axes {
			values[a.Name] = a.Values[0]
		}
		r, err := f.watchCommand(args, values)
		if err != nil {
			return err
		}
		if f.asJSON {
			return f.app.printJSON(r)
		}
		return f.app.print(commandText(r))
	}
	unit := ""
	study, err := bench.RunStudy(f.app.Context, strings.Join(args, " "), "seconds", axes, f.repeats, func(values map[string]string) (bench.Outcome, error) {
		r, err := f.watchCommand(args, values)
		if err != nil {
			return bench.Outcome{}, err
		}
		if r.ExitCode != 0 && !r.Ended {
			return bench.Outcome{}, fmt.Errorf("the command ended with exit code %d", r.ExitCode)
		}
		out := bench.Outcome{Seconds: r.Seconds, Limit: r.Limit, Why: r.Why, PSS: r.PSS}
		now := "seconds per run"
		if s := r.Steps; s != nil {
			out.Seconds, out.PerSecond, out.AU, now = s.StepTime.Mean, s.PerSecond, s.AU, "seconds per step"
		}
		if unit != "" && unit != now {
			return out, fmt.Errorf("its steps can be seen in some runs and not in others")
		}
		unit = now
		return out, nil
	}, f.note)
	if err != nil {
		return err
	}
	study.Unit = unit
	if unit == "seconds per run" {
		study.Notes = append(study.Notes, noSteps)
	}
	return f.show(study, units.Plural(f.repeats, "run")+" each")
}

const noSteps = "its steps cannot be seen: whole runs are compared, start included; call stoker.step() at the end of the loop's body"

// watchCommand runs the command once with its placeholders filled in.
func (f *benchFlags) watchCommand(args []string, values map[string]string) (*steptime.CommandResult, error) {
	o := steptime.CommandOptions{Steps: int(min(f.steps, 1<<30)), For: f.seconds, Output: f.app.Stderr, Env: hookEnvironment(endsVariable)}
	for _, arg := range args {
		for name, v := range values {
			arg = strings.ReplaceAll(arg, "{"+name+"}", v)
		}
		o.Args = append(o.Args, arg)
	}
	if v, ok := values[bench.AxisCores]; ok {
		o.Cores, _ = strconv.Atoi(v)
	}
	return steptime.RunCommand(f.app.Context, o)
}

func commandText(r *steptime.CommandResult) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s\n", clean(strings.Join(r.Command, " ")))
	how := fmt.Sprintf("ended with exit code %d", r.ExitCode)
	if r.Ended {
		how = "was ended, as asked"
	}
	fmt.Fprintf(&out, "%s, %s; %s\n\n", units.Elapsed(time.Duration(r.Seconds*1e9)), units.Plural(r.Cores, "core"), how)
	if s := r.Steps; s != nil {
		what := "from batch to batch"
		if s.Marked {
			what = "marked by stoker.step()"
		}
		fmt.Fprintf(&out, "  %s steps (%s), the first one left out", units.Int(int64(s.Count)), what)
		if s.Loops > 1 {
			fmt.Fprintf(&out, ", of %d processes", s.Loops)
		}
		if s.PerSecond > 0 {
			fmt.Fprintf(&out, "; %s examples/s", bold(units.Int(int64(s.PerSecond))))
		}
		out.WriteString("\n")
		if s.WaitsSeen {
			fmt.Fprintf(&out, "  AU %s: the share of the time in which the loop does not wait for data\n", bold(units.Tenths(s.AU)))
		} else {
			out.WriteString("  waiting cannot be told from computing: load with stoker.Loader, or loop over stoker.watch(loader)\n")
		}
		if r.Why != "" {
			fmt.Fprintf(&out, "  %s\n", r.Why)
		}
		t := newTable("", "mean", "p50", "p95", "p99", "max")
		t.Row("step", units.Seconds(s.StepTime.Mean), units.Seconds(s.StepTime.P50), units.Seconds(s.StepTime.P95), units.Seconds(s.StepTime.P99), units.Seconds(s.StepTime.Max))
		if s.WaitsSeen {
			t.Row("wait for the batch", units.Seconds(s.Wait.Mean), units.Seconds(s.Wait.P50), units.Seconds(s.Wait.P95), units.Seconds(s.Wait.P99), units.Seconds(s.Wait.Max))
		}
		fmt.Fprintf(&out, "\n%s\n\n", t)
		for _, p := range s.Parts {
			fmt.Fprintf(&out, "  %s: %s per step\n", p.Name, units.Seconds(p.PerStep))
		}
	} else {
		out.WriteString("  " + noSteps + "\n")
		if r.Why != "" {
			fmt.Fprintf(&out, "  %s\n", r.Why)
		}
	}
	if len(r.Engine) > 0 {
		t := newTable("engine stage", "per record", "workers", "busy")
		for _, s := range r.Engine {
			t.Row(s.Name, units.Seconds(s.PerRecord/1e9), fmt.Sprint(s.Workers), units.Tenths(s.Busy))
		}
		fmt.Fprintf(&out, "%s\n\n", t)
	}
	fmt.Fprintf(&out, "  CPU: %.2f s, %s of the %s; at most %d processes\n", r.CPU, units.Tenths(r.CPU/max(r.Seconds*float64(r.Cores), 1e-9)), units.Plural(r.Cores, "core"), r.Processes)
	fmt.Fprintf(&out, "  read: %s by read(), %s from storage; memory: %s (PSS)\n", units.Bytes(r.ReadBytes), units.Bytes(r.BlockBytes), units.Bytes(r.PSS))
	fmt.Fprintf(&out, "  watching took %.1f%% of one core\n", 100*r.WatchingCPU/max(r.Seconds, 1e-9))
	return out.String()
}
