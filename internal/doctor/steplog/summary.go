package steplog

import "time"

// Summary is a summary of consecutive records. The zero value is empty; Add records to it in their order.
type Summary struct {
	// Steps are the times from the end of one step to the end of the next or, without marked steps, from one batch to
	// the next. So the first step is omitted.
	Steps []time.Duration
	// Waits are the times that the loop waited for each batch, and Rows the examples that it got. The wait at the end
	// of an epoch without a batch belongs to the next batch.
	Waits []time.Duration
	Rows  int64
	// Stages are the times spent in each stage, by its number, and how often.
	Stages map[uint32]StageTime
	// Marked reports that the program marks its steps.
	Marked bool
	// First and Last are the times of the first and the last record, on the clock of Now. WaitingSince is the start of
	// a wait in progress, 0 if there is none.
	First, Last, WaitingSince int64

	waitFrom, stepFrom int64
	endless            time.Duration // waits without a batch since the last batch
	open               map[uint32]int64
}

// StageTime is the time spent in a stage.
type StageTime struct {
	Time  time.Duration
	Count int
}

// Summarise adds records up.
func Summarise(records []Record) Summary {
	var s Summary
	s.Add(records)
	return s
}

// Add adds consecutive records. Waits and stages that began before the very first record count from there.
func (s *Summary) Add(records []Record) {
	if len(records) == 0 {
		return
	}
	if s.First == 0 {
		s.First = records[0].NS
		s.Stages, s.open = map[uint32]StageTime{}, map[uint32]int64{}
	}
	s.Last = records[len(records)-1].NS
	for _, r := range records {
		switch r.Kind {
		case WaitBegin:
			s.waitFrom, s.WaitingSince = r.NS, r.NS
		case WaitEnd:
			s.endWait(r)
		case Step:
			if !s.Marked {
				// The intervals between batches that were counted so far were not steps.
				s.Marked, s.stepFrom, s.Steps = true, 0, nil
			}
			s.endStep(r.NS)
		case StageBegin:
			s.open[r.Arg] = r.NS
		case StageEnd:
			from, ok := s.open[r.Arg]
			if !ok {
				from = s.First
			}
			delete(s.open, r.Arg)
			t := s.Stages[r.Arg]
			t.Time += time.Duration(r.NS - from)
			t.Count++
			s.Stages[r.Arg] = t
		}
	}
}

func (s *Summary) endWait(r Record) {
	from := s.waitFrom
	if from == 0 {
		from = s.First
	}
	s.WaitingSince = 0
	if r.Arg == NoBatch {
		s.endless += time.Duration(r.NS - from)
		return
	}
	s.Waits = append(s.Waits, s.endless+time.Duration(r.NS-from))
	s.endless = 0
	s.Rows += int64(r.Arg)
	if !s.Marked {
		s.endStep(r.NS)
	}
}

func (s *Summary) endStep(ns int64) {
	if s.stepFrom != 0 {
		s.Steps = append(s.Steps, time.Duration(ns-s.stepFrom))
	}
	s.stepFrom = ns
}
