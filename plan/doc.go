// Package plan computes the throughput that a data loading path must deliver, and whether a machine delivers it. It
// has only pure functions. Their inputs are a target, a dataset and a machine, and their results are requirements,
// verdicts and advice. A target is a batch size n, the seconds t that the accelerator takes for a batch, and the
// bytes es of a stored example.
//
// It has no I/O, no clock and no goroutines. Package measure fills in a [Dataset] and a [Machine] from this machine.
// Sizes are in bytes, times in seconds, rates per second. Each formula names its source.
//
//	p, err := plan.Make(
//		plan.Target{Batch: 128, Step: 0.087, Accelerators: 4, Storage: "nvme"},
//		plan.Dataset{RecordBytes: 64e3},
//		plan.Machine{Cores: 16},
//	)
//	fmt.Println(p.Reads.IOPS, p.FirstToFail, p.Sentences)
package plan
