// Package doctor finds the bottleneck of a training job. It observes a process tree from outside, without root and
// without changing the job. Its verdict names the resource that limits the job, the confidence, and what to do.
//
// It samples /proc, control groups, disks, accelerators and, if allowed, the Python frames of the job. The samples are
// condensed into a [Report].
package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"
)

// ReportVersion is the version of the JSON of [Report]. Fields may be added without a new version; a field that changes
// its meaning requires one.
const ReportVersion = 1

// Verdict is the limit of a job.
type Verdict string

// The verdicts. Each of the first six names the resource whose removal would speed the job up most. Accelerator and
// Healthy both mean that the trainer hardly waits for data. With Accelerator, the step takes nearly all of the time and
// the data path has reserves, so that only a faster step helps. With Healthy, no gain is large enough to act on.
// Unknown has no gain: the trainer waits, and the reason was not visible.
const (
	CPU         Verdict = "cpu"         // workers compute: decode, transforms, antagonists, quotas
	Storage     Verdict = "storage"     // reads of files: disk, FUSE, network file systems
	Network     Verdict = "network"     // reads from sockets: object stores, remote services
	Memory      Verdict = "memory"      // swap, reclaim, limits of the control group
	Handoff     Verdict = "handoff"     // collate, pickling, pinning, full queues
	Latency     Verdict = "latency"     // timers, locks, commands: late external answers
	Accelerator Verdict = "accelerator" // the training step itself
	Healthy     Verdict = "healthy"     // no gain worth acting on
	Unknown     Verdict = "unknown"     // the trainer waits for an unknown reason, or too little was observed
)

// A Report is the doctor's result on a job, and the JSON that `stoker doctor --json` prints and --save keeps.
type Report struct {
	Version int       `json:"version"`           // [ReportVersion]
	Stoker  string    `json:"stoker,omitempty"`  // version of the program that wrote it
	Start   time.Time `json:"start"`             // wall clock at the first sample
	Seconds float64   `json:"seconds"`           // time watched
	PID     int       `json:"pid"`               // root of the process tree
	Command []string  `json:"command,omitempty"` // its command line, if readable
	Host    Host      `json:"host"`              // the machine

	Verdict    Verdict `json:"verdict"`
	Confidence float64 `json:"confidence"` // 0..1
	// Waiting is the share of the trainer's time, 0..1, in which it waited for data, or loaded the data itself if it
	// has no workers.
	Waiting float64 `json:"waiting"`
	// Gain is the factor by which the job would be faster if the resource of the verdict were free. It is 1 for
	// Healthy, Accelerator and Unknown, which name none. See docs/reference/doctor.md for the model.
	Gain float64 `json:"gain"`
	// Gains holds that factor for every resource, and for "accelerator" how many
	// times as fast a step the data path could feed.
	Gains map[Verdict]float64 `json:"gains"`
	// Line is the verdict as one sentence.
	Line     string   `json:"line"`
	Evidence []string `json:"evidence"` // the figures that support it, most telling first
	Advice   []Advice `json:"advice"`   // what to do, most gain first; at most three
	Loader   Loader   `json:"loader"`
	Events   []Event  `json:"events"` // in order of their start
	// Stages is the division of the time. First come the trainer's stages (names "wait", "step", ...), whose shares add
	// up to 1. Then come the workers' stages (names that begin with "worker ").
	Stages []Stage `json:"stages"`
	Series Series  `json:"series"`
	Steps  Steps   `json:"steps"`
	// Overhead is the CPU time that watching took, as a share of one core.
	Overhead float64 `json:"overhead"`
	// Verified is the result of a second run with the first advice, nil without one.
	Verified *Verified `json:"verified,omitempty"`
	// Skipped lists unavailable data and the reasons, one per line.
	Skipped []string `json:"skipped"`
}

// Host describes the machine, as far as the verdict depends on it.
type Host struct {
	Cores  float64 `json:"cores"`  // cores that the job may use: affinity and quota
	Memory int64   `json:"memory"` // bytes that it may use: RAM or the limit of its control group
	Kernel string  `json:"kernel,omitempty"`
	CPU    string  `json:"cpu,omitempty"` // model name
	// Accelerators are the names of the devices that were watched.
	Accelerators []string `json:"accelerators,omitempty"`
}

// Advice is one thing to do.
type Advice struct {
	Title   string  `json:"title"`             // an imperative: "use 4 workers instead of 1"
	Why     string  `json:"why"`               // the figures of this job that speak for it
	Command string  `json:"command,omitempty"` // what to type, or the line of code to change
	Gain    float64 `json:"gain,omitempty"`    // expected factor; 0 if there is no estimate
	// Options are the options of a torch DataLoader that Command sets, nil for other commands.
	Options map[string]any `json:"options,omitempty"`
	// Prefix has the words that Command puts before the job's own, nil for other commands.
	Prefix []string `json:"prefix,omitempty"`
}

// Tryable reports whether a job's loaders can be given the options from outside.
func (a *Advice) Tryable() bool {
	for name := range a.Options {
		switch name {
		case "num_workers", "persistent_workers", "prefetch_factor", "pin_memory":
		default:
			return false
		}
	}
	return len(a.Options) > 0
}

// Verified is the result of a piece of advice that was tried.
type Verified struct {
	Title     string         `json:"title,omitempty"`
	Options   map[string]any `json:"options,omitempty"`   // that the job's DataLoaders had
	Predicted float64        `json:"predicted,omitempty"` // the advice's gain
	Measured  float64        `json:"measured,omitempty"`  // the measured speed-up; 0 if unknown
	Before    float64        `json:"before,omitempty"`    // steps per second
	After     float64        `json:"after,omitempty"`
	Why       string         `json:"why,omitempty"` // why there is no measurement
}

// Loader is the recognised data loader.
type Loader struct {
	// Kind is "torch", "stoker", "webdataset", "grain", "tf.data", "dali",
	// "ffcv", "mosaic", "litdata", "spdl", "datasets", "ray" or "unknown".
	Kind       string `json:"kind"`
	Workers    int    `json:"workers"`    // worker processes or threads: the loader's number, otherwise the most frequent number of live ones
	Restarted  bool   `json:"restarted"`  // workers exited and new ones started (no persistent workers)
	PinMemory  bool   `json:"pin_memory"` // a thread pins batches
	Trainers   int    `json:"trainers"`   // processes that run training steps (ranks)
	Recognised string `json:"recognised"` // the evidence: "frames", "threads", "processes", "step log", "none"
}

// Level is the severity of an event, with the names of Glances.
type Level string

// The levels.
const (
	Careful  Level = "careful"
	Warning  Level = "warning"
	Critical Level = "critical"
)

// Event is a period in which a figure was beyond a threshold.
type Event struct {
	Start     float64 `json:"start"` // seconds since the report's start
	End       float64 `json:"end"`   // the report's end if the event was still in progress
	Level     Level   `json:"level"` // the worst that it reached
	Name      string  `json:"name"`  // "CPU_USER", "IOWAIT", "MEM", "GPU0_IDLE", ...
	Value     float64 `json:"value"` // the worst value
	Threshold float64 `json:"threshold"`
	Unit      string  `json:"unit,omitempty"` // of both: "%", "MB/s", "s", ...
}

// Stage is a part of the time.
type Stage struct {
	Name    string  `json:"name"`
	Share   float64 `json:"share"`   // of the trainer's time, or of the workers' time
	Seconds float64 `json:"seconds"` // summed over the trainers or workers
	Exact   bool    `json:"exact"`   // counted inside the job, not sampled from outside
}

// Series has figures over time. "t" is seconds since the start, one entry per tick (a second); every other entry has
// the same length. Names end in their unit unless they are shares. Shares ("cpu", "wait", "gpu0") are 0..1 of all cores
// that the job may use, of the trainer's time, of the device.
type Series map[string]Values

// Values are figures; NaN means unknown and becomes null in JSON.
type Values []float64

// MarshalJSON writes four significant digits, and null for values that are not numbers.
func (v Values) MarshalJSON() ([]byte, error) {
	b := make([]byte, 0, 8*len(v)+2)
	b = append(b, '[')
	for i, x := range v {
		if i > 0 {
			b = append(b, ',')
		}
		if math.IsNaN(x) || math.IsInf(x, 0) {
			b = append(b, "null"...)
			continue
		}
		rounded, err := strconv.ParseFloat(strconv.FormatFloat(x, 'g', 4, 64), 64)
		if err != nil {
			rounded = x
		}
		b = strconv.AppendFloat(b, rounded, 'f', -1, 64)
	}
	return append(b, ']'), nil
}

// UnmarshalJSON reads the output of MarshalJSON.
func (v *Values) UnmarshalJSON(data []byte) error {
	var pointers []*float64
	if err := json.Unmarshal(data, &pointers); err != nil {
		return err
	}
	if pointers == nil {
		*v = nil
		return nil
	}
	*v = make(Values, len(pointers))
	for i, p := range pointers {
		(*v)[i] = math.NaN()
		if p != nil {
			(*v)[i] = *p
		}
	}
	return nil
}

// Steps has the steps of the job's step log, or inferred ones without a log.
type Steps struct {
	// Source is "step log" if the job uses Stoker's client or stoker.step(), "frames" if waits were counted from
	// samples, and "none".
	Source     string  `json:"source"`
	Count      int     `json:"count"`           // steps seen; 0 if unknown
	PerSecond  float64 `json:"per_second"`      // 0 if unknown
	Mean       float64 `json:"mean"`            // seconds per step, waiting included
	P50        float64 `json:"p50"`             // seconds
	P99        float64 `json:"p99"`             // seconds
	WaitMean   float64 `json:"wait_mean"`       // seconds per step spent waiting
	WaitP99    float64 `json:"wait_p99"`        // seconds
	Waited     float64 `json:"waited"`          // share of the steps that waited more than 1 ms and 1% of the step
	Stragglers int     `json:"stragglers"`      // steps longer than twice the median
	Rows       float64 `json:"rows_per_second"` // rows received; 0 if unknown
}

// maxReport bounds the size of a report that is read back, 64 MiB.
const maxReport = 64 << 20

// Write writes the report as JSON, indented, with a line feed at the end.
func (r *Report) Write(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}

// ReadReport reads a report that [Report.Write] has written.
func ReadReport(r io.Reader) (*Report, error) {
	limited := &io.LimitedReader{R: r, N: maxReport + 1}
	var report Report
	if err := json.NewDecoder(limited).Decode(&report); err != nil {
		if limited.N <= 0 {
			return nil, fmt.Errorf("the report is larger than %d MiB", maxReport>>20)
		}
		return nil, fmt.Errorf("not a report of stoker doctor: %w", err)
	}
	if report.Version != ReportVersion {
		return nil, fmt.Errorf("the report has version %d; this program reads version %d", report.Version, ReportVersion)
	}
	return &report, nil
}
