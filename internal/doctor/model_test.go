package doctor

import (
	"math"
	"testing"
)

// use returns the shares of a worker's time.
func use(pairs map[cause]float64) (out [numCauses]float64) {
	for c, v := range pairs {
		out[c] = v
	}
	return out
}

func TestGains(t *testing.T) {
	for _, c := range []struct {
		name string
		s    shares
		want map[Verdict]float64
	}{
		{"no workers, half of the time decoding", shares{samples: 100, step: 0.5, serial: use(map[cause]float64{causeCPU: 0.4, causeHandoff: 0.1}), cores: 4, tree: 0.5},
			map[Verdict]float64{CPU: 1 / 0.6, Handoff: 1 / 0.9, Storage: 1, Accelerator: 2}},
		{"no workers, and a few waits that nobody can tell of", shares{samples: 72, step: 0.196, wait: 0.028, serial: use(map[cause]float64{causeNetwork: 0.776}), cores: 2, tree: 0.1},
			map[Verdict]float64{Network: 1 / 0.224, CPU: 1, Storage: 1}},
		{"waits for what nobody saw, and loads a little itself", shares{samples: 100, step: 0.3, wait: 0.6, serial: use(map[cause]float64{causeNetwork: 0.1}), cores: 2, tree: 0.1},
			map[Verdict]float64{Network: 1}},
		{"saturated workers", shares{samples: 100, step: 0.25, wait: 0.75, lanes: 2, busy: 1, use: use(map[cause]float64{causeCPU: 0.8, causeStorage: 0.2}), cores: 8, tree: 2},
			map[Verdict]float64{CPU: 4, Storage: 1.25, Handoff: 1, Accelerator: 1}},
		{"workers with room", shares{samples: 100, step: 1, lanes: 4, busy: 0.25, use: use(map[cause]float64{causeCPU: 0.25, causeIdle: 0.75}), cores: 8, tree: 1.2},
			map[Verdict]float64{CPU: 1, Storage: 1, Accelerator: 4}},
		{"the trainer unpickles", shares{samples: 100, step: 0.3, wait: 0, serial: use(map[cause]float64{causeHandoff: 0.7}), lanes: 2, busy: 0.3, use: use(map[cause]float64{causeCPU: 0.3, causeIdle: 0.7}), cores: 8, tree: 1},
			map[Verdict]float64{Handoff: 1 / 0.3, CPU: 1, Accelerator: 1 / 0.7}},
		{"other programs take the cores", shares{samples: 100, step: 0.5, ran: 0.5, wait: 0.5, delay: 0.5, lanes: 1, busy: 1, use: use(map[cause]float64{causeCPU: 1}), lag: 0.5, cores: 2, tree: 1, outside: 1},
			map[Verdict]float64{CPU: 4, Storage: 1}},
		{"the step's own threads take the cores", shares{samples: 100, step: 1, ran: 0.3, delay: 0.4, cores: 2, tree: 1.6},
			map[Verdict]float64{CPU: 1, Accelerator: 20}},
		{"XLA computes the step beside the loading", shares{samples: 100, step: 0.1, ran: 0.1, serial: use(map[cause]float64{causeCPU: 0.9}), beside: 0.4, cores: 2, tree: 1.4},
			map[Verdict]float64{CPU: 2.5, Accelerator: 1 / 0.9}},
		{"XLA computes the batches that are waited for", shares{samples: 100, step: 0.1, wait: 0.6, ran: 0.1, serial: use(map[cause]float64{causeCPU: 0.3}), beside: 0.6, lanes: 1, busy: 0.6, use: use(map[cause]float64{causeCPU: 0.6}), cores: 4, tree: 1.4},
			map[Verdict]float64{CPU: 10}},
		{"other programs take them from such a step", shares{samples: 100, step: 1, ran: 1, delay: 0.4, cores: 2, tree: 0.6, outside: 1.4},
			map[Verdict]float64{CPU: 1 / 0.6}},
		{"the cores set the pace", shares{samples: 100, step: 0.5, wait: 0.5, lanes: 2, busy: 1, use: use(map[cause]float64{causeCPU: 0.5, causeStorage: 0.5}), cores: 2, tree: 1.6},
			map[Verdict]float64{Storage: 1 / 0.8}},
		{"without the hand-off its waiting for cores goes too", shares{samples: 100, step: 0.2, serial: use(map[cause]float64{causeHandoff: 0.8}), delay: 0.4, lanes: 1, busy: 0.4, use: use(map[cause]float64{causeCPU: 0.1, causeHandoff: 0.3}), lag: 0.2, cores: 2, tree: 0.8},
			map[Verdict]float64{Handoff: 5, CPU: 1 / 0.68}},
		{"batches on their way, workers with breaks", shares{samples: 100, step: 0.3, wait: 0.1, serial: use(map[cause]float64{causeHandoff: 0.6}), lanes: 2, busy: 0.16, use: use(map[cause]float64{causeCPU: 0.12, causeHandoff: 0.04}),
			stalled: use(map[cause]float64{causeHandoff: 0.8, causeCPU: 0.2}), stalls: 40, cores: 8, tree: 1}, map[Verdict]float64{Handoff: 1 / 0.32, CPU: 1 / 0.98, Storage: 1, Accelerator: 1 / 0.7}},
		{"Stoker's engine decodes", shares{samples: 100, step: 0.4, wait: 0.6, exact: true, engine: &engineShares{read: 0.1, decode: 0.8, collate: 0.05}, cores: 8, tree: 2},
			map[Verdict]float64{CPU: 1 / 0.4, Storage: 1, Accelerator: 1}},
		{"Stoker's engine reads a network", shares{samples: 100, step: 0.1, wait: 0.9, engine: &engineShares{read: 0.9, decode: 0.3, network: true}, cores: 8},
			map[Verdict]float64{Network: 3, Storage: 1}},
	} {
		for v, want := range c.want {
			if got := 1 / c.s.timeWithout(v); math.Abs(got-want) > 0.02*want {
				t.Errorf("%s: without %s %.2f times as fast, want %.2f", c.name, v, got, want)
			}
		}
	}
}

// Waiting for restarted workers is hand-off even if their work during the wait was not sampled.
func TestRestartsAreHandoff(t *testing.T) {
	s := shares{samples: 300, step: 0.53, wait: 0.47, lanes: 1.5, busy: 0.4, use: use(map[cause]float64{causeCPU: 0.4, causeIdle: 0.6}), restart: 0.3, cores: 2, tree: 0.8}
	s.stalls, s.stalled = 50, use(map[cause]float64{causeOther: 1})
	if got := 1 / s.timeWithout(Handoff); math.Abs(got-1/0.7) > 0.01 {
		t.Errorf("without the hand-off %.2f times as fast, want %.2f", got, 1/0.7)
	}
	s.restart = 0
	if got := 1 / s.timeWithout(Handoff); got > 1.01 {
		t.Errorf("workers that stay: without the hand-off %.2f times as fast", got)
	}
}

// TestAdviceIsNeverNull: programs that read the JSON find a list.
func TestAdviceIsNeverNull(t *testing.T) {
	for _, f := range situations() {
		f.s.wait, f.s.outside, f.s.limited = 0, 0, 0
		f.s.serial, f.s.use = use(nil), use(nil)
		if advice := f.advise(); advice == nil {
			t.Errorf("%s, %+v: no list", f.r.Verdict, f.r.Loader)
		}
	}
}

func TestWorkersHelp(t *testing.T) {
	serial := shares{samples: 100, step: 0.5, serial: use(map[cause]float64{causeCPU: 0.5}), cores: 8, tree: 0.6}
	if got := serial.timeWithWorkers(1); math.Abs(got-0.5) > 0.01 {
		t.Errorf("one worker next to the step: %.2f, want 0.5", got)
	}
	serial.beside = 0.8
	if got := serial.timeWithWorkers(2); math.Abs(got-0.8) > 0.01 {
		t.Errorf("two workers next to a step that XLA computes: %.2f, want 0.8", got)
	}
	waiting := shares{samples: 100, step: 0.2, wait: 0.8, lanes: 2, busy: 1, use: use(map[cause]float64{causeCPU: 1}), cores: 8, tree: 2}
	if got := waiting.timeWithWorkers(4); math.Abs(got-0.5) > 0.01 {
		t.Errorf("twice the workers: %.2f, want 0.5", got)
	}
	waiting.cores = 2
	if got := waiting.timeWithWorkers(4); got < 0.99 {
		t.Errorf("more workers on busy cores: %.2f, want 1", got)
	}
}

func TestStepLogCorrects(t *testing.T) {
	s := shares{step: 0.8, ran: 0.4, wait: 0.1, serial: use(map[cause]float64{causeHandoff: 0.1})}
	sum := bin{}
	sum.v[mLogTime], sum.v[mLogWait] = 10, 6
	s.correct(&sum)
	if !s.exact || math.Abs(s.wait-0.3) > 1e-9 || math.Abs(s.serial[causeHandoff]-0.3) > 1e-9 || math.Abs(s.step-0.4) > 1e-9 || math.Abs(s.ran-0.2) > 1e-9 {
		t.Errorf("%+v", s)
	}
}

// Preparing a batch is not in the log's wait, and stays.
func TestStepLogLeavesReady(t *testing.T) {
	s := shares{step: 0.3, serial: use(map[cause]float64{causeHandoff: 0.7}), ready: 0.68}
	sum := bin{}
	sum.v[mLogTime], sum.v[mLogWait] = 10, 0.1
	s.correct(&sum)
	if math.Abs(s.serial[causeHandoff]-0.69) > 1e-9 || math.Abs(s.step-0.31) > 1e-9 {
		t.Errorf("%+v", s)
	}
}

// The engine's gain includes its own cost, and is never more than the step allows.
func TestGainOfEngine(t *testing.T) {
	for _, c := range []struct {
		name string
		s    shares
		want float64
	}{
		{"no workers: 0.9 of the time becomes 0.405 beside the step, on two cores", shares{step: 0.1, ran: 0.1, serial: [numCauses]float64{causeCPU: 0.9}, cores: 2}, 2 / (0.9*engineCost + 0.1)},
		{"two busy workers on two cores", shares{step: 0.1, ran: 0.1, wait: 0.9, lanes: 2, use: [numCauses]float64{causeCPU: 1}, cores: 2}, 2 / (2*engineCost + 0.1)},
		{"the step is the limit", shares{step: 0.5, ran: 0, wait: 0.5, lanes: 1, use: [numCauses]float64{causeCPU: 1}, cores: 8}, 2},
		{"other programs have the cores", shares{step: 0.2, ran: 0, wait: 0.8, lanes: 2, use: [numCauses]float64{causeCPU: 1}, cores: 2, outside: 1.5}, 1},
	} {
		if got := c.s.gainOfEngine(1); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: %.3f, want %.3f", c.name, got, c.want)
		}
	}
}

func TestBlameMemory(t *testing.T) {
	c := &collector{}
	s := shares{serial: use(map[cause]float64{causeCPU: 0.5, causeStorage: 0.2})}
	sum := bin{dt: 10}
	sum.v[mFailures], sum.v[mSwapIn], sum.v[mRun], sum.v[mKernel] = 3, 20000, 5, 4
	sum.v[mReadBytes], sum.v[mRefaults] = 100<<20, 100<<20/4096/2
	before := s
	c.blameMemory(&s, &sum)
	if got := s.serial[causeMemory]; math.Abs(got-0.5) > 1e-9 { // 80% of the CPU time, half of the reading
		t.Errorf("memory %.3f of %+v", got, s.serial)
	}
	sum.v[mPSIMemory] = 6
	s = before
	c.blameMemory(&s, &sum)
	if got := s.serial[causeMemory]; math.Abs(got-0.6) > 1e-9 {
		t.Errorf("with pressure: memory %.3f", got)
	}
	s = before
	sum.v[mFailures], sum.v[mSwapIn] = 0, 0
	c.blameMemory(&s, &sum)
	if s.serial != before.serial {
		t.Error("memory is blamed without a sign that it is short")
	}
}

// If a limit evicts files from memory, the kernel's work on reading them again also counts as memory, and not as
// computing or storage.
func TestReadingAgainIsMemory(t *testing.T) {
	for _, c := range []struct {
		name  string
		chars float64 // by read calls, of the 100 MB from the device
		again float64 // the part of those that had been in memory
		hit   float64 // the limit
		want  float64
	}{
		{"all of it was there before", 100 << 20, 1, 3, 0.1 + 0.75*0.8},
		{"half of it was", 100 << 20, 0.5, 3, 0.05 + 0.375*0.8},
		{"most of the reading is of what is in memory", 400 << 20, 1, 3, 0.1 + 0.75*0.8/4},
		{"pages of mapped files", 0, 1, 3, 0.1 + 0.75*0.8},
		{"read for the first time", 100 << 20, 0, 3, 0},
		{"no limit was hit", 100 << 20, 1, 0, 0},
	} {
		s := shares{step: 0.1, wait: 0.9, lanes: 2, busy: 0.9, cores: 2, tree: 1.9, use: use(map[cause]float64{causeCPU: 0.8, causeStorage: 0.1, causeIdle: 0.1})}
		sum := bin{dt: 10}
		sum.v[mFailures], sum.v[mRun], sum.v[mKernel] = c.hit, 19, 19*0.75
		sum.v[mReadBytes], sum.v[mReadChars], sum.v[mRefaults] = 100<<20, c.chars, c.again*(100<<20)/4096
		(&collector{}).blameMemory(&s, &sum)
		if got := s.use[causeMemory]; math.Abs(got-c.want) > 1e-6 {
			t.Errorf("%s: memory %.3f, want %.3f", c.name, got, c.want)
		}
		if got := s.use[causeMemory] + s.use[causeCPU] + s.use[causeStorage] + s.use[causeIdle]; math.Abs(got-1) > 1e-9 {
			t.Errorf("%s: the shares add up to %.3f", c.name, got)
		}
		if memory, cpu := 1/s.timeWithout(Memory), 1/s.timeWithout(CPU); c.want > 0.5 && memory <= cpu {
			t.Errorf("%s: %.2f times as fast without the shortage, %.2f without computing", c.name, memory, cpu)
		}
	}
}
