package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/stokerdata/stoker/internal/doctor"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source"
	"github.com/stokerdata/stoker/source/driver"
)

// doctorFlags are the flags of `stoker doctor`.
type doctorFlags struct {
	app *App

	pid     int
	seconds time.Duration
	asJSON  bool
	save    string
	live    bool
	try     bool
	reportFlags
}

// A running job is watched for doctorTime by default, after its first batch. Without a batch it is watched for
// doctorPatience, and never for longer than doctorMost in all.
const (
	doctorTime     = doctor.FirstVerdict
	doctorPatience = 2 * time.Second
	doctorMost     = 14500 * time.Millisecond
)

func newDoctorCommand(app *App) *cobra.Command {
	f := &doctorFlags{app: app}
	cmd := &cobra.Command{
		Use:     "doctor -- COMMAND... | --pid P",
		GroupID: groupKnow,
		Short:   "Find what limits a training job: CPU, storage, network, memory, hand-off, or nothing",
		Long: `Watch a training job from outside. Say in one line what limits it, how certain that is,
how fast the job would be without that limit, and what to do.

The job can use any loader. Doctor does not change or stop it, does not need root, and
takes less than 1% of one core.

With a COMMAND after --, doctor starts the job and watches it until it exits. The report
goes to standard error, and the output and exit code of the job are unchanged. A first
verdict appears 12 s after the first batch. With --seconds, doctor reports that long after
the first batch, and the job continues. A hook in the program's Python counts the batches
of PyTorch's DataLoaders and asks whether "stoker run" would take them over.

With --pid, doctor watches a running job without the hook, for 12 s or --seconds. The
report goes to standard output.

With --verify the command runs twice, for 15 s (or --seconds) after its first batch: once
unchanged, and once with the first advice that changes no file, such as another number of
workers. The report compares the result with the prediction.

docs/reference/doctor.md describes the verdicts and the fields of --json.`,
		Example: `  stoker doctor -- python train.py
  stoker doctor --pid 4711
  stoker doctor --seconds 15 --save before.json -- python train.py --epochs 1
  stoker doctor --verify -- python train.py
  stoker doctor --compare before.json --report out.html -- python train.py`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	flags := cmd.Flags()
	flags.IntVar(&f.pid, "pid", 0, "process to watch, with all that descend from it")
	spanVar(flags, &f.seconds, "seconds", 0, "how long to watch, such as 15 or 2m (default: until the job ends, or 12 s with --pid)")
	flags.BoolVar(&f.asJSON, "json", false, "print the report as JSON")
	flags.StringVar(&f.save, "save", "", "write the report as JSON into this file")
	flags.BoolVar(&f.live, "watch", false, "show while watching what is seen so far; q ends it")
	flags.BoolVar(&f.try, "verify", false, "run the COMMAND a second time with the first advice that needs no file changed, and say what it gave")
	f.add(flags)
	return cmd
}

func (f *doctorFlags) run(cmd *cobra.Command, args []string) error {
	switch {
	case f.load != "" && (len(args) > 0 || f.pid != 0 || f.live):
		return usageError("stoker doctor --load report.json --report out.html", "--load shows a report that was saved; it watches nothing")
	case f.load != "":
		return f.showSaved()
	case f.try && (f.pid != 0 || f.live || f.load != ""):
		return usageError("stoker doctor --verify -- python train.py", "--verify runs a command twice: it goes with neither --pid nor --watch nor --load")
	case f.live && f.asJSON:
		return usageError("--watch --save report.json shows both", "--watch and --json exclude each other")
	case len(args) > 0 && f.pid != 0:
		return usageError("stoker doctor --help has examples", "a command and --pid exclude each other")
	case len(args) == 0 && f.pid == 0:
		return usageError("stoker doctor -- python train.py starts and watches a job; stoker doctor --pid P watches a running one",
			"there is nothing to watch")
	case f.seconds > 0 && f.seconds < time.Second:
		return usageError("--seconds 15", "%s is too short to see anything; use 5 s or more", f.seconds)
	case f.pid < 0:
		return usageError("ps or nvidia-smi lists processes", "%d is not a process", f.pid)
	case len(args) > 0 && cmd.ArgsLenAtDash() != 0:
		return usageError(fmt.Sprintf("stoker doctor [flags] -- %s", strings.Join(args, " ")), "the command must come after --")
	}
	if err := f.prepare(); err != nil {
		return err
	}
	// A few megabytes more, and hardly any time for collecting them: watching
	// must not take CPU time from the job.
	debug.SetGCPercent(400)
	if f.pid != 0 {
		return f.watchRunning()
	}
	if f.try {
		return f.verify(args)
	}
	return f.watchCommand(args)
}

// showSaved shows a report from a file.
func (f *doctorFlags) showSaved() error {
	if err := f.prepare(); err != nil {
		return err
	}
	r, err := loadReport(f.load)
	if err != nil {
		return err
	}
	return f.give(r, f.app.Stdout)
}

func (f *doctorFlags) options(pid int) doctor.Options {
	return doctor.Options{PID: pid, Seconds: f.seconds.Seconds(), Stoker: version(), Inspect: f.inspectData, Alone: true}
}

// first prints the first verdict, of a job that is watched for much longer.
func (f *doctorFlags) first(r *doctor.Report) {
	if f.seconds == 0 || f.seconds > 2*doctor.FirstVerdict {
		fmt.Fprintf(f.app.Stderr, "stoker doctor: so far, after %.0f s: %s\n", r.Seconds, r.Line)
	}
}

// inspectLimit is the time that reading the job's data for advice may take.
const inspectLimit = 3 * time.Second

// inspectData returns the program's description of a job's data.
func (f *doctorFlags) inspectData(path string) (doctor.Data, error) {
	type result struct {
		data doctor.Data
		err  error
	}
	done := make(chan result, 1)
	go func() {
		src, err := source.Open(f.app.Context, path, &source.Options{})
		if err != nil {
			done <- result{err: err}
			return
		}
		defer src.Close()
		info := src.Info()
		d := doctor.Data{Format: info.Format, Packable: info.Len > 0}
		for i := range info.Fields {
			switch info.Fields[i].Kind {
			case driver.KindFrames:
				d.Packable = false
			case driver.KindImage:
				d.Images = true
			}
		}
		done <- result{data: d}
	}()
	select {
	case r := <-done:
		return r.data, r.err
	case <-time.After(inspectLimit):
		return doctor.Data{}, fmt.Errorf("%s takes longer than %s to look at", path, inspectLimit)
	}
}

// watchRunning watches a job that is already running.
func (f *doctorFlags) watchRunning() error {
	if f.pid == os.Getpid() {
		return usageError("", "process %d is this program", f.pid)
	}
	opt := f.options(f.pid)
	opt.Patience = 5 // it should be training already
	if opt.Seconds == 0 {
		opt.Seconds, opt.Patience, opt.Most = doctorTime.Seconds(), doctorPatience.Seconds(), doctorMost.Seconds()
	}
	watch := doctor.Watch
	if f.live {
		view := newLiveView(f.app.Stdout, fmt.Sprintf("process %d", f.pid))
		if f.seconds == 0 && view.terminal != nil {
			opt.Seconds, opt.Most = 0, 0 // until somebody presses q
		}
		watch = func(ctx context.Context, opt doctor.Options) (*doctor.Report, error) {
			return view.watch(ctx, opt, nil)
		}
	}
	report, err := watch(f.app.Context, opt)
	if err != nil {
		return &Error{Msg: "cannot watch the job", Err: err, Hint: "ps lists the processes that run"}
	}
	return f.give(report, f.app.Stdout)
}

// watchCommand starts a job and watches it.
func (f *doctorFlags) watchCommand(args []string) error {
	if _, err := exec.LookPath(args[0]); err != nil {
		return &Error{Code: ExitUsage, Msg: fmt.Sprintf("cannot run %s", args[0]), Err: err, Hint: "give the command as you would in a shell, after --"}
	}
	stdin, stdout, stderr := f.app.Stdin, f.app.Stdout, f.app.Stderr
	var view *liveView
	if f.live {
		view = newLiveView(stderr, strings.Join(args, " "))
		stdout, stderr = view.jobOutput(stdout), view.jobOutput(stderr)
		if view.terminal != nil {
			stdin = nil // the keys are the view's
		}
	}
	f.app.passing.Store(true)
	o := doctor.JobOptions{Stdin: stdin, Stdout: stdout, Stderr: stderr}
	if hook := hookEnvironment(doctorVariable); hook != nil {
		o.Env = lastOfEach(append(os.Environ(), hook...))
	}
	job, err := doctor.StartWith(args, o)
	if err != nil {
		return &Error{Msg: fmt.Sprintf("cannot run %s", args[0]), Err: err}
	}
	// The signals of this process go to the job, and its end ends the watching.
	ctx, cancel := job.Context(context.WithoutCancel(f.app.Context))
	defer cancel()
	watch := doctor.Watch
	if view != nil {
		watch = func(ctx context.Context, opt doctor.Options) (*doctor.Report, error) {
			return view.watch(ctx, opt, job.Interrupt)
		}
	}
	opt := f.options(job.PID())
	if view == nil && !f.asJSON {
		opt.First = f.first
	}
	report, watchErr := watch(ctx, opt)
	var giveErr error
	if watchErr == nil {
		giveErr = f.give(report, f.app.Stderr)
	}
	code := job.Wait()
	switch {
	case code != 0:
		return &Error{Code: code}
	case watchErr != nil && (f.asJSON || f.save != ""):
		return &Error{Msg: "the job ended before it could be watched: there is no report", Err: watchErr}
	case watchErr != nil:
		// The job itself went well, so its exit code stands.
		fmt.Fprintf(f.app.Stderr, "stoker doctor: the job ended before it could be watched: %v\n", watchErr)
	}
	return giveErr
}

// give prints and saves the report.
func (f *doctorFlags) give(r *doctor.Report, w io.Writer) error {
	var err error
	if f.asJSON {
		err = r.Write(w)
	} else {
		err = r.Text(w)
		if err == nil && r.Verified != nil {
			err = printVerified(w, r.Verified)
		}
	}
	if err == nil && f.save != "" {
		err = saveReport(r, f.save)
	}
	if err == nil {
		err = f.reportFlags.give(r, w, f.asJSON)
	}
	return err
}

// saveReport writes a report into a file.
func saveReport(r *doctor.Report, path string) error {
	if err := localstore.WriteFile(path, r.Write); err != nil {
		return &Error{Msg: "the report cannot be saved", Err: err}
	}
	return nil
}
