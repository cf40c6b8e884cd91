package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// The exit codes of every command. They are part of the contract: scripts
// depend on them, and the help of the root command lists them.
const (
	ExitOK          = 0
	ExitFailure     = 1   // it did not work; the message says why
	ExitUsage       = 2   // the command line is wrong
	ExitBadInputs   = 3   // finished, but some inputs were bad and left out
	ExitDamaged     = 4   // verify found damage, audit wrong counts
	ExitInterrupted = 130 // Ctrl-C or SIGTERM
)

// exitStatus describes an exit code.
type exitStatus struct {
	Code int    `json:"code"`
	Doc  string `json:"doc"`
}

var exitCodes = []exitStatus{
	{ExitOK, "success"},
	{ExitFailure, "it failed; the message says why"},
	{ExitUsage, "the command line is wrong"},
	{ExitBadInputs, "finished, but some inputs were bad and were left out (they are listed)"},
	{ExitDamaged, "the data is damaged (stoker verify), or records were seen twice or never (stoker audit)"},
	{ExitInterrupted, "interrupted by Ctrl-C or SIGTERM, within two seconds; a pack goes on with the same command"},
}

// exitCodeHelp is part of the help of the root command.
func exitCodeHelp() string {
	text := "Exit codes:"
	for _, e := range exitCodes {
		text += fmt.Sprintf("\n  %-4d %s", e.Code, e.Doc)
	}
	return text
}

// Error is an error for people: one line with the failure and its location, and a hint with the remedy. A command
// returns one if the plain error text would not help, or if the exit code is not 1.
type Error struct {
	Code int    // exit code; 0 means ExitFailure
	Msg  string // lower case, no full stop; "" prints Err alone
	Hint string // what to do; may be empty
	Err  error  // the cause; printed behind Msg
}

// Error returns the message without the hint.
func (e *Error) Error() string {
	switch {
	case e.Err == nil:
		return e.Msg
	case e.Msg == "":
		return e.Err.Error()
	}
	return e.Msg + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// usageError returns an error for an invalid command line.
func usageError(hint, format string, args ...any) error {
	return &Error{Code: ExitUsage, Msg: fmt.Sprintf(format, args...), Hint: hint}
}

// exitCode returns the exit code of an error. Only this function decides it.
func exitCode(err error) int {
	var e *Error
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &e) && e.Code != 0:
		return e.Code
	case errors.Is(err, context.Canceled):
		return ExitInterrupted
	}
	return ExitFailure
}

// printError writes "stoker: what happened" and the hint below it.
func printError(w io.Writer, err error) {
	var e *Error
	hint := ""
	if errors.As(err, &e) {
		hint = e.Hint
	}
	msg := err.Error()
	if msg == "" && e != nil {
		return // the exit code of a command that was run says it all
	}
	if errors.Is(err, context.Canceled) && e == nil {
		msg = "interrupted"
	}
	fmt.Fprintf(w, "stoker: %s\n", strings.TrimSpace(msg))
	for line := range strings.Lines(hint) {
		fmt.Fprintf(w, "  hint: %s\n", strings.TrimRight(line, "\n"))
	}
}
