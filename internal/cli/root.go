// Package cli is the command line: one file per command, and their shared code here. Commands parse flags, call the
// packages that do the work and print. They contain no logic of their own.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/leftover"
	"github.com/stokerdata/stoker/internal/units"
	"github.com/stokerdata/stoker/source"
)

// commands lists every command, in the order of the help.
var commands = []func(*App) *cobra.Command{
	newQuickstartCommand,
	newGenCommand,
	newPackCommand,
	newInspectCommand,
	newFormatsCommand,
	newDescribeCommand,
	newVerifyCommand,
	newAuditCommand,
	newCacheCommand,
	newConvertCommand,
	newServeCommand,
	newTokenCommand,
	newRecordsCommand,
	newPlanCommand,
	newProbeCommand,
	newBenchCommand,
	newRunCommand,
	newProfileCommand,
	newDoctorCommand,
	newTopCommand,
	newVersionCommand,
	newChartCommand,
	newLoopCommand,
}

// Groups of commands in the help of the root command.
const (
	groupData   = "data"
	groupEngine = "engine"
	groupKnow   = "know"
)

// App is a command's access to its environment. Tests pass their own.
type App struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Context ends when the user presses Ctrl-C or the process gets SIGTERM. A command has stopTime to return after
	// that.
	Context context.Context
	// passing reports whether signals go to a job, whose end ends the command.
	passing atomic.Bool
}

// Main runs one command line and returns the exit code. It is the whole program, except for os.Exit.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) (code int) {
	defer func() {
		if p := recover(); p != nil {
			code = ExitFailure
			reportPanic(stderr, p, debug.Stack())
		}
	}()
	app := &App{Stdin: stdin, Stdout: stdout, Stderr: stderr}
	defer app.interruptible()()
	err := app.run(args)
	if err != nil {
		var text strings.Builder
		printError(&text, err)
		fmt.Fprint(stderr, hideIn(args, text.String()))
	}
	return exitCode(err)
}

// hideIn returns a message without the values of unknown options in the URLs of a command line, and without passwords.
func hideIn(args []string, message string) string {
	for _, arg := range args {
		message = source.Hide(arg, message)
	}
	return message
}

// A command that still works stopTime after the first signal is terminated. clearTime is the time that the removal of
// its temporary files may take.
const (
	stopTime  = 1200 * time.Millisecond
	clearTime = 300 * time.Millisecond
)

// interruptible sets the context, which ends at the first SIGINT or SIGTERM. The second one ends the process, and so
// does the time after the first one, until stop is called.
func (app *App) interruptible() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	app.Context = ctx
	signals, done, stopped := make(chan os.Signal, 2), make(chan struct{}), make(chan struct{})
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		defer close(stopped)
		select {
		case <-signals:
			cancel()
			app.endLate(signals, done)
		case <-done:
		}
	}()
	return func() {
		signal.Stop(signals)
		close(done)
		<-stopped
		cancel()
	}
}

// endLate ends the process, unless the command returns soon.
func (app *App) endLate(signals <-chan os.Signal, done <-chan struct{}) {
	var late <-chan time.Time
	if !app.passing.Load() {
		late = time.After(stopTime)
	}
	why := "interrupted while it computed"
	select {
	case <-signals:
		why = "ended immediately, as asked twice"
	case <-late:
	case <-done:
		return
	}
	fmt.Fprintln(app.Stderr, "stoker: "+why)
	for _, line := range leftover.Clear(clearTime) {
		fmt.Fprintln(app.Stderr, "  hint: "+line)
	}
	os.Exit(ExitInterrupted)
}

// reportPanic reports in two lines that there is a bug, and the file with the details. The stack goes to that file,
// because users cannot use it on a terminal.
func reportPanic(stderr io.Writer, p any, stack []byte) {
	where := "the details could not be saved"
	if f, err := os.CreateTemp("", "stoker-crash-*.txt"); err == nil {
		fmt.Fprintf(f, "%s\n%v\n\n%s", versionLine(), p, stack)
		if f.Close() == nil {
			where = "the details are in " + f.Name()
		}
	}
	fmt.Fprintf(stderr, "stoker: internal error: %v\n", p)
	fmt.Fprintf(stderr, "  hint: this is a bug in Stoker; %s; please report it at https://github.com/stokerdata/stoker/issues\n", where)
}

// run parses args and runs the command that they name.
func (app *App) run(args []string) error {
	started := false
	root := app.root(&started)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(app.Context)
	var e *Error
	if err == nil || started || errors.As(err, &e) {
		return err
	}
	hint := fmt.Sprintf("%s --help says what it takes", cmd.CommandPath())
	if flag, ok := strings.CutPrefix(err.Error(), "unknown flag: --"); ok {
		if near := nearestFlag(cmd, flag); near != "" {
			hint = fmt.Sprintf("did you mean --%s? %s", near, hint)
		}
	}
	return &Error{Code: ExitUsage, Msg: usageMessage(err), Hint: hint}
}

// nearestFlag returns the flag of a command that is most like a name, "" for none.
func nearestFlag(cmd *cobra.Command, name string) string {
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			known = append(known, f.Name)
		}
	})
	return units.Nearest(name, known)
}

// Command returns the tree of commands, for programs that document it.
func Command() *cobra.Command {
	started := false
	return (&App{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Context: context.Background()}).root(&started)
}

// root makes the tree of commands. It notes in started that a command line was
// found right and its command begins.
func (app *App) root(started *bool) *cobra.Command {
	cobra.EnableCommandSorting = false // they are listed in the order of use
	root := &cobra.Command{
		Use:   "stoker",
		Short: "A data loader for deep learning",
		Long: `Stoker keeps accelerators fed: it is a data loader for deep learning.

Start from your own data or training script:

  stoker quickstart photos/               # says what it is, and writes train.py
  stoker run -- python train.py           # an unchanged PyTorch script, faster

Or pack a dataset once, and load the pack:

  stoker pack photos/ train/              # a folder of images becomes a pack
  stoker inspect train/                   # shows what it contains

In Python:

  loader = stoker.open("train/").loader(batch_size=256, shuffle=True)`,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			// Errors of cobra before this point, of its checks of flags and of the environment are mistakes of the user.
			// Later errors are failures.
			if err := errors.Join(cmd.ValidateRequiredFlags(), cmd.ValidateFlagGroups(), cdec.CheckKernels()); err != nil {
				return err
			}
			*started = true
			return nil
		},
	}
	root.AddGroup(
		&cobra.Group{ID: groupData, Title: "Prepare data:"},
		&cobra.Group{ID: groupEngine, Title: "Feed a training loop:"},
		&cobra.Group{ID: groupKnow, Title: "Know what is needed, and what is slow:"},
	)
	root.SetVersionTemplate(versionLine() + "\n")
	root.SetUsageTemplate(root.UsageTemplate() + "{{if not .HasParent}}\n" + exitCodeHelp() + "\n{{end}}")
	root.SetIn(app.Stdin)
	root.SetOut(app.Stdout)
	root.SetErr(app.Stderr)
	for _, newCommand := range commands {
		root.AddCommand(newCommand(app))
	}
	root.InitDefaultCompletionCmd()
	complete(root)
	return root
}

// usageMessage puts cobra's text on one line, with its suggestions.
func usageMessage(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	return strings.Replace(text, "Did you mean this?", "- did you mean:", 1)
}

// exactArgs requires one argument for each name.
func exactArgs(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return fmt.Errorf("%s is missing", strings.Join(names[len(args):], " and "))
		case len(args) > len(names):
			return fmt.Errorf("%q is one argument too many", args[len(names)])
		}
		return nil
	}
}
