package cli

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/stokerdata/stoker/internal/bench"
	"github.com/stokerdata/stoker/internal/proc"
	"github.com/stokerdata/stoker/internal/steptime"
)

// maxTold bounds the report of a program on a loop: a million steps are some 20 MB.
const maxTold = 256 << 20

// newLoopCommand is for programs that time their own loop. The Python client gets the verdicts from it, so that the
// rules are in one place.
func newLoopCommand(app *App) *cobra.Command {
	cmd := &cobra.Command{
		Use:    "loop",
		Hidden: true,
		Short:  "Report on a loop that a program times itself and tells of on standard input",
	}
	cmd.AddCommand(
		newLoopReport(app, "bench", "How fast the loop was and what limited it", func(t *steptime.Told, u proc.Usage) any { return t.Bench(u, len(proc.AllowedCPUs())) }),
		newLoopReport(app, "profile", "Where the time of its steps went", func(t *steptime.Told, u proc.Usage) any { return t.Profile(u) }),
		newLoopTrace(app), newLoopStudy(app), newLoopText(app))
	return cmd
}

// newLoopReport reports on a loop while this program watches it. The loop's process writes a line when counting begins
// and one when it ends. This program answers each, and then reads the timings.
func newLoopReport(app *App, name, short string, report func(*steptime.Told, proc.Usage) any) *cobra.Command {
	parent := 0
	cmd := &cobra.Command{
		Use:   name,
		Short: short,
		Args:  exactArgs(),
		RunE: func(*cobra.Command, []string) error {
			// Its standard input may be held open by children of the program.
			orphaned := make(chan struct{})
			if parent > 0 {
				if err := watchParent(parent, orphaned); err != nil {
					return err
				}
			}
			done := make(chan error, 1)
			go func() { done <- app.loopReport(parent, report) }()
			select {
			case err := <-done:
				return err
			case <-orphaned:
				return nil
			case <-app.Context.Done():
				return app.Context.Err()
			}
		},
	}
	cmd.Flags().IntVar(&parent, "parent", 0, "the program: what its processes use is counted, and this one ends with it")
	return cmd
}

func (app *App) loopReport(program int, report func(*steptime.Told, proc.Usage) any) error {
	in := bufio.NewReader(app.Stdin)
	var before, after proc.Usage
	for _, step := range []struct {
		word   string
		memory bool
		usage  *proc.Usage
	}{{"begin", false, &before}, {"end", true, &after}} {
		said, err := in.ReadSlice('\n')
		switch {
		case err == io.EOF && len(said) == 0:
			return nil // the program has given up
		case err != nil && err != io.EOF && err != bufio.ErrBufferFull:
			return fmt.Errorf("reading standard input: %w", err)
		case string(said) != strconv.Quote(step.word)+"\n":
			return &Error{Msg: fmt.Sprintf("standard input says %.40q; it must say %s first", said, step.word)}
		}
		if program > 0 {
			tree := slices.DeleteFunc(proc.Live.Tree(program), func(pid int) bool { return pid == os.Getpid() })
			*step.usage = proc.Live.UsageOf(tree, step.memory)
		}
		if _, err := io.WriteString(app.Stdout, "true\n"); err != nil {
			return err
		}
	}
	data, err := readAll(in, maxTold, "what the program tells")
	if err != nil {
		return err
	}
	if len(data) == 0 {
		return nil
	}
	told, err := steptime.ParseTold(data)
	if err != nil {
		return &Error{Msg: "standard input holds no loop", Err: err}
	}
	return app.printJSON(report(told, after.Sub(before)))
}

// newLoopTrace turns a step log that a program tells into a Chrome trace.
func newLoopTrace(app *App) *cobra.Command {
	return &cobra.Command{
		Use:   "trace < LOG.json",
		Short: "Write a Chrome trace of the steps",
		Args:  exactArgs(),
		RunE: func(*cobra.Command, []string) error {
			data, err := app.readStdin(maxTold, "the log")
			if err != nil {
				return err
			}
			var log struct {
				steptime.Log
				Title string `json:"title"`
				PID   int    `json:"pid"`
			}
			if err := json.Unmarshal(data, &log); err != nil {
				return &Error{Msg: "standard input holds no step log", Err: err}
			}
			return app.printJSON(log.Trace(log.Title, log.PID))
		},
	}
}

// newLoopStudy finds the knee of runs that a program has made.
func newLoopStudy(app *App) *cobra.Command {
	return &cobra.Command{
		Use:   "study < RUNS.json",
		Short: "Find the knee of its runs",
		Args:  exactArgs(),
		RunE: func(*cobra.Command, []string) error {
			data, err := app.readStdin(maxStudyJSON, "the study")
			if err != nil {
				return err
			}
			told, err := bench.ParseTold(data)
			if err != nil {
				return &Error{Msg: "standard input holds no study", Err: err}
			}
			curve, err := told.Curve()
			if err != nil {
				return &Error{Msg: "standard input holds no study", Err: err}
			}
			return app.printJSON(curve)
		},
	}
}
