package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/stokerdata/stoker/internal/doctor"
	"github.com/stokerdata/stoker/internal/doctor/report"
	"github.com/stokerdata/stoker/internal/leftover"
)

// tryVariable gives the hook in a program's Python options for its DataLoaders, as
// JSON.
const tryVariable = "STOKER_TRY"

// verifyTime is the default duration of each of the two runs after its first batch, and verifyGrace the time that a job
// may take to exit.
const (
	verifyTime  = 15 * time.Second
	verifyGrace = 5 * time.Second
)

// verify runs a command twice for a short time: unchanged, and with the first advice that needs no changed file. It
// stops the job each time.
func (f *doctorFlags) verify(args []string) error {
	hook := hookEnvironment(doctorVariable)
	if hook == nil {
		return &Error{Msg: "the Python package is not next to this program", Hint: "--verify counts steps through it: pip install stoker"}
	}
	before, err := f.shortRun(args, hook)
	if err != nil {
		return err
	}
	advice, prefix, env := trial(before)
	if advice == nil {
		before.Verified = &doctor.Verified{Why: "none of the advice can be tried without changing files"}
		return f.give(before, f.app.Stderr)
	}
	fmt.Fprintf(f.app.Stderr, "stoker doctor: trying: %s\n", advice.Title)
	after, err := f.shortRun(slices.Concat(prefix, args), append(slices.Clone(hook), env...))
	if err != nil {
		return err
	}
	before.Verified = verified(before, after, advice)
	return f.give(before, f.app.Stderr)
}

// trial returns the first advice that can be tried without changing files: by a prefix of the job's command, or by its
// environment. It also returns these.
func trial(r *doctor.Report) (a *doctor.Advice, prefix, env []string) {
	for i := range r.Advice {
		a := &r.Advice[i]
		switch {
		case a.Gain < 1.05:
		case r.Loader.Kind == "stoker" || r.Steps.Count == 0:
			// No DataLoader of torch's was iterated: there is nothing to change, or to count.
		case len(a.Prefix) > 0:
			if _, err := exec.LookPath(a.Prefix[0]); err == nil {
				return a, a.Prefix, nil
			}
		case a.Tryable():
			text, err := json.Marshal(a.Options)
			if err == nil {
				return a, nil, []string{tryVariable + "=" + string(text)}
			}
		case strings.HasPrefix(a.Command, "stoker run "):
			text, err := json.Marshal(runOptions{})
			if err == nil {
				return a, nil, []string{runVariable + "=" + string(text)}
			}
		}
	}
	return nil, nil, nil
}

// verified returns the measured result of a trial together with the prediction.
func verified(before, after *doctor.Report, a *doctor.Advice) *doctor.Verified {
	v := &doctor.Verified{Title: a.Title, Options: a.Options, Predicted: a.Gain, Before: before.Steps.PerSecond, After: after.Steps.PerSecond}
	v.Measured, _ = report.Speedup(before, after)
	if v.Measured == 0 {
		v.Why = "no steps were counted in one of the two runs"
	}
	return v
}

// shortRun watches a command for a while and ends it.
func (f *doctorFlags) shortRun(args, env []string) (*doctor.Report, error) {
	seconds := f.seconds
	if seconds == 0 {
		seconds = verifyTime
	}
	job, err := doctor.StartWith(args, doctor.JobOptions{Stdout: f.app.Stdout, Stderr: f.app.Stderr, Env: lastOfEach(append(os.Environ(), env...)), Group: true})
	if err != nil {
		return nil, &Error{Msg: fmt.Sprintf("cannot run %s", args[0]), Err: err}
	}
	defer leftover.Group(job.PID())()
	ctx, cancel := job.Context(f.app.Context)
	defer cancel()
	opt := f.options(job.PID())
	opt.Seconds = seconds.Seconds()
	r, watchErr := doctor.Watch(ctx, opt)
	grace := verifyGrace
	if f.app.Context.Err() != nil {
		grace = time.Second // this command must stop soon
	}
	ended := job.End(grace)
	if err := f.app.Context.Err(); err != nil {
		return nil, err
	}
	switch {
	case watchErr != nil:
		return nil, &Error{Msg: "the job ended before it could be watched: nothing can be verified", Err: watchErr}
	case !ended && job.Wait() != 0:
		return nil, &Error{Code: job.Wait(), Msg: "the job failed: nothing can be verified"}
	}
	return r, nil
}

// printVerified prints the result of the trial.
func printVerified(w io.Writer, v *doctor.Verified) error {
	var err error
	if v.Measured == 0 {
		_, err = fmt.Fprintf(w, "\nNot verified: %s\n", v.Why)
		return err
	}
	_, err = fmt.Fprintf(w, "\nVerified: %s\n  %.2f times as fast, predicted %.2f (%.3g steps/s, before %.3g)\n", clean(v.Title), v.Measured, v.Predicted, v.After, v.Before)
	return err
}
