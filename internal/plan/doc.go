// Package plan computes the throughput that a data loading path must deliver, and whether a machine delivers it. It
// has only pure functions. Their inputs are a target, a dataset and a machine, and their results are requirements,
// verdicts and advice. A target is a batch size n, the seconds t that the accelerator takes for a batch, and the
// bytes es of a stored example.
//
// It has no I/O, no clock and no goroutines: measurements are passed in as a [Machine], and internal/probe makes
// them. Each formula names its source.
package plan
