package steplog

import (
	"slices"
	"time"
)

// Summary is what the records of some time say together.
type Summary struct {
	// Steps are the times from the end of one step to the end of the next, or,
	// where the program marks no steps, from one batch to the next.
	Steps []time.Duration
	// Waits are the times that the loop waited for each batch, with its rows.
	Waits []time.Duration
	Rows  int64
	// Stages are the times spent in each stage, by its number, and how often.
	Stages map[uint32]StageTime
	// Marked says that the program marks its steps.
	Marked bool
	// First and Last are the times of the first and the last record, on the
	// clock of Now. WaitingSince is when a wait that has not ended began, 0 when
	// there is none.
	First, Last, WaitingSince int64
}

// StageTime is the time spent in a stage.
type StageTime struct {
	Time  time.Duration
	Count int
}

// Summarise adds records up. Waits and stages that began before the first
// record count from there.
func Summarise(records []Record) Summary {
	s := Summary{Stages: map[uint32]StageTime{}}
	if len(records) == 0 {
		return s
	}
	s.First, s.Last = records[0].NS, records[len(records)-1].NS
	s.Marked = slices.ContainsFunc(records, func(r Record) bool { return r.Kind == Step })
	var waitFrom, stepFrom int64
	open := map[uint32]int64{}
	for _, r := range records {
		switch r.Kind {
		case WaitBegin:
			waitFrom, s.WaitingSince = r.NS, r.NS
		case WaitEnd:
			if waitFrom == 0 {
				waitFrom = s.First
			}
			s.Waits = append(s.Waits, time.Duration(r.NS-waitFrom))
			s.WaitingSince = 0
			s.Rows += int64(r.Arg)
			if !s.Marked {
				if stepFrom != 0 {
					s.Steps = append(s.Steps, time.Duration(r.NS-stepFrom))
				}
				stepFrom = r.NS
			}
		case Step:
			if stepFrom != 0 {
				s.Steps = append(s.Steps, time.Duration(r.NS-stepFrom))
			}
			stepFrom = r.NS
		case StageBegin:
			open[r.Arg] = r.NS
		case StageEnd:
			from, ok := open[r.Arg]
			if !ok {
				from = s.First
			}
			delete(open, r.Arg)
			t := s.Stages[r.Arg]
			t.Time += time.Duration(r.NS - from)
			t.Count++
			s.Stages[r.Arg] = t
		}
	}
	return s
}
