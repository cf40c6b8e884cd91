package steptime

import "github.com/stokerdata/stoker/internal/doctor/steplog"

// TraceEvent is an event of the Chrome trace event format: a complete event (X),
// with its start and length in microseconds, or metadata (M).
type TraceEvent struct {
	Name string         `json:"name"`
	Cat  string         `json:"cat,omitempty"`
	Ph   string         `json:"ph"`
	TS   float64        `json:"ts"`
	Dur  float64        `json:"dur"`
	PID  int            `json:"pid"`
	TID  int            `json:"tid"`
	Args map[string]any `json:"args,omitempty"`
}

// TraceFile is a Chrome trace, which opens in Perfetto and chrome://tracing.
type TraceFile struct {
	TraceEvents     []TraceEvent `json:"traceEvents"`
	DisplayTimeUnit string       `json:"displayTimeUnit"`
}

// The threads of a trace.
const (
	loopThread = 1
	waitThread = 2
)

// Tracing is the input of a trace.
type Tracing struct {
	Title   string
	PID     int
	Records []steplog.Record
	Names   map[uint32]string
	// Marked reports that the loop marks its steps. Otherwise a step ends when the next wait begins.
	Marked bool
	// Spans are events inside the waits.
	Spans []Span
}

// Trace returns the trace.
func (t *Tracing) Trace() *TraceFile {
	out := &TraceFile{DisplayTimeUnit: "ms", TraceEvents: []TraceEvent{
		t.meta("process_name", 0, t.Title),
		t.meta("thread_name", loopThread, "training loop"),
	}}
	if len(t.Spans) > 0 {
		out.TraceEvents = append(out.TraceEvents, t.meta("thread_name", waitThread, "loading (inside the wait)"))
	}
	origin := int64(0)
	event := func(name, cat string, thread int, from, to int64) {
		if origin == 0 || from < origin {
			origin = from
		}
		out.TraceEvents = append(out.TraceEvents, TraceEvent{Name: name, Cat: cat, Ph: "X", TS: float64(from) / 1e3, Dur: float64(to-from) / 1e3, PID: t.PID, TID: thread})
	}
	var wait, computing int64
	open := map[uint32]int64{}
	for _, x := range t.Records {
		switch x.Kind {
		case steplog.WaitBegin:
			wait = x.NS
			if computing != 0 && !t.Marked {
				event("step", "step", loopThread, computing, x.NS)
				computing = 0
			}
		case steplog.WaitEnd:
			name := "wait"
			if computing = x.NS; x.Arg == steplog.NoBatch {
				name, computing = "end of epoch", 0
			}
			if wait != 0 {
				event(name, "wait", loopThread, wait, x.NS)
			}
		case steplog.Step:
			if computing != 0 {
				event("step", "step", loopThread, computing, x.NS)
				computing = 0
			}
		case steplog.StageBegin:
			open[x.Arg] = x.NS
		case steplog.StageEnd:
			if from, ok := open[x.Arg]; ok {
				delete(open, x.Arg)
				event(stageName(t.Names, x.Arg), "stage", loopThread, from, x.NS)
			}
		}
	}
	first := origin
	for _, s := range t.Spans {
		if s.From >= first { // events before the first record are not from this run
			event(s.Name, "loading", waitThread, s.From, s.To)
		}
	}
	return out
}

func (t *Tracing) meta(name string, thread int, value string) TraceEvent {
	return TraceEvent{Name: name, Ph: "M", PID: t.PID, TID: thread, Args: map[string]any{"name": value}}
}

// Trace returns a trace of the part of a step log that a program reports; its steps are marked.
func (l *Log) Trace(title string, pid int) *TraceFile {
	t := Tracing{Title: title, PID: pid, Records: l.records(), Names: l.Names, Marked: true, Spans: l.Spans}
	return t.Trace()
}
