// Package plan says what a data loading path must deliver, and whether a
// machine does: pure functions from a target (batch size n, seconds t that the
// accelerator takes for it, bytes es of a stored example), a dataset and a
// machine to requirements, verdicts and advice.
//
// It has no I/O, no clock and no goroutines: what is measured comes in as a
// [Machine], and internal/probe measures it. Each formula names its source.
package plan
