package status

import (
	"math"
	"strings"

	"github.com/stokerdata/stoker/internal/doctor/gpu"
	"github.com/stokerdata/stoker/internal/units"
)

// Kind is the kind of a metric.
type Kind int

const (
	// Gauge is a value now.
	Gauge Kind = iota
	// Counter is a total whose rate is shown.
	Counter
	// Summary is the number, sum and quantiles of waits. Share is shown: the seconds per second.
	Summary
	// State has the value 1 for the label that is in effect.
	State
)

// Width is the width of the terminal from which a metric is a column of `stoker top`.
type Width int

const (
	// Narrow is 80 columns.
	Narrow Width = iota
	// Wide is 140 columns.
	Wide
	// Detail is only shown for the selected loader.
	Detail
)

// Metric is one value of a loader. Its name is the name in Prometheus and the head of the column in `stoker top`.
type Metric struct {
	// Name is without prefix and without the suffix of counters. A unit is its last word.
	Name string
	Kind Kind
	Help string
	// Label is the name of a label that the values have.
	Label string
	// Process marks a value of the engine process with all its loaders.
	Process bool
	Width   Width
	// One of them returns the value, or the values by label. Those of a Counter get Totals.
	total  func(*Totals) float64
	totals func(*Totals) map[string]float64
	now    func(*Status) float64
	state  func(*Status) string
}

// Metrics are all metrics of loaders, in the order of the columns. docs/how-to/watch.md lists them.
var Metrics = []Metric{
	{Name: "waiting_seconds", Kind: Summary, Help: "Waits of the training process for a batch."},
	{Name: "batches", Kind: Counter, Help: "Batches delivered, with those that the loop has not taken yet.", total: func(t *Totals) float64 { return float64(t.Batches) }},
	{Name: "records", Kind: Counter, Help: "Records delivered, with those that the loop has not taken yet.", Width: Wide, total: func(t *Totals) float64 { return float64(t.Records) }},
	{Name: "limit", Kind: State, Label: "stage", Help: "1 for the stage that limited the last seconds: read, decode, transform, collate, handoff, accelerator (the step) or idle.", state: func(s *Status) string { return s.Limit }},
	{Name: "stage_seconds", Kind: Counter, Label: "stage", Width: Detail, Help: "Time that the threads of a stage worked.", totals: func(t *Totals) map[string]float64 { return t.Stages }},
	{Name: "ready", Kind: Gauge, Help: "Batches that are ready and not yet sent.", Width: Detail, now: func(s *Status) float64 { return float64(s.Ready) }},
	{Name: "read_bytes", Kind: Counter, Help: "Bytes read from the source.", Width: Wide, total: func(t *Totals) float64 { return float64(t.ReadBytes) }},
	{Name: "cache_ratio", Kind: Gauge, Help: "Share of the last seconds' reads that a cache answered.", now: cacheRatio},
	{Name: "cache_hits", Kind: Counter, Label: "cache", Help: "Reads that a cache answered: records of the cache of records, otherwise bytes.", Width: Detail, totals: func(t *Totals) map[string]float64 { return t.CacheHits }},
	{Name: "cache_misses", Kind: Counter, Label: "cache", Help: "Reads that a cache did not answer: records of the cache of records, otherwise bytes.", Width: Detail, totals: func(t *Totals) map[string]float64 { return t.CacheMisses }},
	{Name: "requests", Kind: Counter, Process: true, Help: "Requests to servers, with retries.", total: func(t *Totals) float64 { return float64(t.Requests) }},
	{Name: "request_retries", Kind: Counter, Process: true, Width: Detail, Help: "Requests that were repeated after a failure.", total: func(t *Totals) float64 { return float64(t.RequestRetries) }},
	{Name: "request_errors", Kind: Counter, Process: true, Width: Detail, Help: "Requests that failed.", total: func(t *Totals) float64 { return float64(t.RequestErrors) }},
	{Name: "memory_bytes", Kind: Gauge, Help: "Memory that the loader uses of its budget.", now: func(s *Status) float64 { return float64(s.Memory) }},
	{Name: "resident_bytes", Kind: Gauge, Process: true, Width: Detail, Help: "Resident memory of the engine, with the batches.", now: func(s *Status) float64 { return float64(s.Resident) }},
	{Name: "skipped", Kind: Counter, Width: Detail, Help: "Bad records that were replaced.", total: func(t *Totals) float64 { return float64(t.Skipped) }},
}

// AcceleratorMetrics are those of the accelerators of the node, with the label "accelerator".
var AcceleratorMetrics = []struct {
	Name, Help string
	Value      func(*gpu.Reading) float64
}{
	{"accelerator_ratio", "Share of the time in which a kernel ran.", func(r *gpu.Reading) float64 { return r.Utilisation }},
	{"accelerator_memory_bytes", "Used memory of the accelerator.", func(r *gpu.Reading) float64 { return float64(r.MemoryUsed) }},
}

// unit is the unit that a name ends with, "" for a plain number.
func (m *Metric) unit() string {
	for _, unit := range []string{"seconds", "bytes", "ratio"} {
		if strings.HasSuffix(m.Name, "_"+unit) {
			return unit
		}
	}
	return ""
}

// FullName is the name in Prometheus.
func (m *Metric) FullName() string {
	name := "stoker_" + m.Name
	if m.Kind == Counter {
		name += "_total"
	}
	return name
}

// Head is the head of the column.
func (m *Metric) Head() string {
	unit := m.unit()
	head := strings.ReplaceAll(strings.TrimSuffix(m.Name, "_"+unit), "_", " ")
	if m.Kind == Counter && m.Label == "" {
		head += "/s"
	}
	return head
}

// Value is the number that is shown and sorted by: a rate, a share or a value. It is NaN if it is unknown, and for
// metrics with labels.
func (m *Metric) Value(s *Status) float64 {
	switch {
	case m.Kind == Summary:
		return s.WaitShare()
	case m.Kind == Counter && m.total != nil && s.Seconds > 0:
		return m.total(&s.Last) / s.Seconds
	case m.now != nil:
		return m.now(s)
	}
	return math.NaN()
}

// Text is the cell of the column.
func (m *Metric) Text(s *Status) string {
	if m.state != nil {
		return m.state(s)
	}
	v := m.Value(s)
	switch {
	case math.IsNaN(v):
		return "-"
	case m.Kind == Summary || m.unit() == "ratio":
		return units.Whole(v)
	case m.unit() == "bytes":
		return units.Bytes(v)
	}
	return Number(v)
}

// Details are the values by label, for the view of one loader.
func (m *Metric) Details(s *Status) map[string]float64 {
	if m.totals == nil || s.Seconds <= 0 {
		return nil
	}
	out := map[string]float64{}
	for label, v := range m.totals(&s.Last) {
		out[label] = v / s.Seconds
	}
	return out
}

// Number shows a rate or a count in at most 6 characters or so.
func Number(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 9.95:
		return units.Digits(v)
	}
	return units.Int(int64(math.Round(v)))
}

// cacheRatio is the share of the first cache in use.
func cacheRatio(s *Status) float64 {
	for _, name := range []string{"records", "memory", "disk"} {
		if hits, misses := s.Last.CacheHits[name], s.Last.CacheMisses[name]; hits+misses > 0 {
			return hits / (hits + misses)
		}
	}
	return math.NaN()
}

// Names returns the names of all series, for tests of dashboards.
func Names() []string {
	var names []string
	for i := range Metrics {
		names = append(names, Metrics[i].FullName())
		if Metrics[i].Kind == Summary {
			names = append(names, Metrics[i].FullName()+"_sum", Metrics[i].FullName()+"_count")
		}
	}
	for _, a := range AcceleratorMetrics {
		names = append(names, "stoker_"+a.Name)
	}
	return names
}
