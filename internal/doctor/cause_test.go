package doctor

import "testing"

// TestLateAnswers checks that waiting for external answers differs from being idle.
func TestLateAnswers(t *testing.T) {
	in := func(p part, d duty) view { return view{known: true, part: p, duty: d, loader: "torch"} }
	for _, c := range []struct {
		name    string
		m       moment
		worker  cause
		trainer cause // for the same sample of a trainer that loads its own data
	}{
		{"a sleep in __getitem__", moment{state: 'S', block: blockSleep, view: in(partFetch, dutyWorker)}, causeLatency, causeLatency},
		{"a mutex in __getitem__", moment{state: 'S', block: blockLock, view: in(partFetch, dutyWorker)}, causeLatency, causeLatency},
		{"the lock of a file", moment{state: 'S', block: blockFlock, view: in(partRead, dutyWorker)}, causeLatency, causeLatency},
		{"a command that sleeps", moment{state: 'S', block: blockChild, view: in(partFetch, dutyWorker)}, causeLatency, causeLatency},
		{"a command that computes", moment{state: 'S', block: blockChild, view: in(partFetch, dutyWorker), others: causeCPU}, causeCPU, causeLatency},
		{"turns at the interpreter's lock", moment{state: 'S', block: blockLock, timed: true, view: in(partFetch, dutyWorker)}, causeCPU, causeCPU},
		{"a queue with a limit", moment{state: 'S', block: blockLock, timed: true, view: in(partWait, dutyWorker)}, causeIdle, causeWait},
		{"a client of an engine", moment{state: 'S', block: blockLock, timed: true, view: in(partUnknown, dutyWorker)}, causeIdle, causeWait},
		{"no work", moment{state: 'S', block: blockLock, view: in(partWait, dutyWorker)}, causeIdle, causeWait},
		{"a poll with a timeout in a queue", moment{state: 'S', block: blockSleep, view: in(partWait, dutyWorker)}, causeIdle, causeWait},
		{"it computes", moment{state: 'R', view: in(partFetch, dutyWorker)}, causeCPU, causeCPU},
	} {
		if got := workerCause(c.m); got != c.worker {
			t.Errorf("%s: a worker's cause is %d, want %d", c.name, got, c.worker)
		}
		c.m.view.duty, c.m.others = dutyTrainer, causeIdle
		if got := trainerCause(c.m, false); got != c.trainer {
			t.Errorf("%s: a trainer's cause is %d, want %d", c.name, got, c.trainer)
		}
	}
	for _, c := range []struct {
		name string
		m    moment
		want cause
	}{
		{"a log that is flushed", moment{state: 'D', block: blockStorage, writes: true, view: view{known: true, part: partStep}}, causeStep},
		{"a checkpoint that reads its folder", moment{state: 'D', block: blockStorage, view: view{known: true, part: partStep, saves: true}}, causeStep},
		{"a file that the loop reads", moment{state: 'D', block: blockStorage, view: view{known: true, part: partStep}}, causeStorage},
	} {
		if got := trainerCause(c.m, false); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
	takes := moment{state: 'S', block: blockLocal, view: view{known: true, part: partPickle, duty: dutyTrainer, loader: "torch"}}
	if got := trainerCause(takes, false); got != causeWait {
		t.Errorf("a batch whose worker does not answer is %d", got)
	}
	takes.state, takes.block = 'R', blockNone
	if got := trainerCause(takes, false); got != causeHandoff {
		t.Errorf("a batch that is taken apart is %d", got)
	}
	step := moment{state: 'S', block: blockSleep, view: view{known: true, part: partStep}}
	if got := trainerCause(step, false); got != causeStep {
		t.Errorf("a step that sleeps is %d", got)
	}
}

// TestNeverFedWhileItWaits checks the rule that a trainer that waits is starved, even if the resource is unknown.
func TestNeverFedWhileItWaits(t *testing.T) {
	for _, wait := range []float64{0, 0.05, 0.14, 0.16, 0.3, 0.7, 1} {
		for _, busy := range []float64{0, 0.01, 0.5, 1} {
			s := shares{samples: 400, step: 1 - wait, wait: wait, lanes: 2, busy: busy, cores: 2}
			s.use[causeIdle] = 1 - busy
			c := &collector{}
			r := &Report{Gains: map[Verdict]float64{}, Waiting: s.loading()}
			f := &findings{c: c, r: r, s: &s, sum: &bin{}}
			for _, x := range checks {
				if a := x.about(); a.cause != causeIdle || a.verdict == Accelerator {
					r.Gains[a.verdict] = x.gain(f)
				}
			}
			c.decide(r, &s, &bin{})
			if fed := r.Verdict == Healthy || r.Verdict == Accelerator; fed != (wait <= mostWaiting) && fed {
				t.Errorf("waits %.2f, workers busy %.2f: %s", wait, busy, r.Verdict)
			}
			if fed := r.Verdict == Healthy || r.Verdict == Accelerator; fed && r.Gain != 1 {
				t.Errorf("waits %.2f, workers busy %.2f: %s, and a gain of %.2f", wait, busy, r.Verdict, r.Gain)
			}
			if r.Verdict == Unknown && (r.Gain != 1 || r.Confidence > 0.3) {
				t.Errorf("unknown with gain %v, confidence %v", r.Gain, r.Confidence)
			}
		}
	}
}
