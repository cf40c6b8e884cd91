package doctor

import (
	"math"
	"testing"
	"time"
)

// second is one of a training: how busy the device was, and samples of the trainer at its
// step and waiting.
func deviceSecond(device, memory, step, wait float64) bin {
	b := bin{dt: 1, training: step + wait, gpus: []float64{device}}
	b.trainer[causeStep], b.trainer[causeWait] = step, wait
	b.v[gGPUMemory] = memory
	return b
}

func lineOf(bins ...bin) timeline {
	var l timeline
	for i, b := range bins {
		b.t = float64(i)
		l.add(b)
	}
	return l
}

// A job whose first step compiles for four seconds and which then waits for data, as seen on an H100. Its first step
// does not show how long the other steps wait.
func TestFirstStepOfADevice(t *testing.T) {
	starved := lineOf(
		bin{dt: 1, gpus: []float64{0.2}}, deviceSecond(0.01, 0.03, 9, 1), deviceSecond(0.08, 0.09, 10, 0), deviceSecond(0, 0.09, 10, 0),
		deviceSecond(0.7, 0.1, 0, 10), deviceSecond(0, 0.1, 1, 9), deviceSecond(0, 0.1, 1, 9),
	)
	ends := deviceSecond(0.4, 0.1, 4, 6) // the first step does, in its middle
	ends.opening = 3
	for _, c := range []struct {
		name    string
		line    timeline
		samples float64 // of the trainer that count
		warming float64 // seconds longer
	}{
		{"compiles, then waits", starved, 30, 3},
		{"the device is busy at once", lineOf(deviceSecond(0.9, 0.1, 10, 0), deviceSecond(0.9, 0.1, 10, 0), deviceSecond(0.9, 0.1, 10, 0)), 30, 0},
		{"ends within a second", lineOf(bin{dt: 1, gpus: []float64{0}}, deviceSecond(0, 0.1, 10, 0), ends, deviceSecond(0.4, 0.1, 1, 9), deviceSecond(0, 0.1, 1, 9)), 20, 2},
		{"trains on the CPU", lineOf(deviceSecond(0, 0.1, 10, 0), deviceSecond(0, 0.1, 10, 0), deviceSecond(0, 0.1, 10, 0)), 30, 0},
		{"still compiles", lineOf(bin{dt: 1, gpus: []float64{0}}, deviceSecond(0, 0.1, 10, 0), deviceSecond(0, 0.1, 10, 0), deviceSecond(0, 0.1, 10, 0)), 30, 3},
		{"waits for its first batches", lineOf(deviceSecond(0, 0.1, 1, 9), deviceSecond(0.9, 0.1, 10, 0), deviceSecond(0.9, 0.1, 10, 0)), 30, 0},
		{"hardly anything would be left", lineOf(deviceSecond(0, 0.1, 10, 0), deviceSecond(0.9, 0.1, 10, 0)), 20, 0},
		{"no accelerator", seconds3(), 30, 0},
		{"nothing yet", timeline{}, 0, 0},
	} {
		l := c.line.warmed()
		sum := l.sum(func(b *bin) bool { return b.training > 0 })
		if got := sum.trainer.total(); got != c.samples {
			t.Errorf("%s: %v samples count, want %v", c.name, got, c.samples)
		}
		if got := c.line.warming(); got != c.warming {
			t.Errorf("%s: watched %v s longer, want %v", c.name, got, c.warming)
		}
	}
	if starved.bins[1].training == 0 {
		t.Error("the timeline itself was changed")
	}
}

// seconds3 are three of a job without an accelerator.
func seconds3() timeline {
	b := bin{dt: 1, training: 10}
	b.trainer[causeStep] = 10
	return lineOf(b, b, b)
}

// Watching ends so much later.
func TestFirstStepIsNoTimeOfWatching(t *testing.T) {
	c := &collector{}
	c.start = time.Unix(100, 0)
	c.training = c.start
	c.line = lineOf(bin{dt: 1, gpus: []float64{0}}, deviceSecond(0, 0.1, 10, 0), deviceSecond(0, 0.1, 10, 0))
	c.warming = c.line.warming()
	if c.after(12, c.start.Add(13*time.Second)) || !c.after(12, c.start.Add(14*time.Second)) {
		t.Errorf("%v s are added", c.warming)
	}
	for range 100 {
		c.line.add(deviceSecond(0, 0.1, 10, 0))
	}
	if got := c.line.warming(); got != mostWarmUp {
		t.Errorf("%v s are added to what compiles for ever", got)
	}
}

// Copies from memory that is not pinned take the trainer's time. They are hand-off as far as the device is idle
// meanwhile.
func TestCopiesToADevice(t *testing.T) {
	for _, c := range []struct {
		name string
		busy float64
		want float64 // samples that are hand-off
	}{
		{"the device waits", 0.7, 15},
		{"the device waits longer", 0.2, 20},
		{"the device computes meanwhile", 1, 0},
		{"another job's device", 0, 0},
	} {
		b := deviceSecond(c.busy, 0.1, 50, 0)
		// Its generator is not on the stack while it copies: only the innermost line shows it.
		b.own.put(ownKey{loopAt{place{"train.py", 3}, "forever"}, 0, place{"train.py", 7}}, ownStat{all: 20, ran: 20})
		b.own.put(ownKey{loopAt{place{"train.py", 3}, "forever"}, 0, place{"train.py", 9}}, ownStat{all: 30, step: 30})
		b.trainerRan[causeStep] = 50
		k := &collector{}
		k.sources = map[string][]string{"train.py": {7: "", 6: "    yield x.to(device), y", 8: "    loss.backward()"}}
		got := k.settle(lineOf(b)).bins[0].trainer[causeHandoff]
		if math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: %v samples are hand-off, want %v", c.name, got, c.want)
		}
		if math.Abs(k.copies-c.want/50) > 1e-9 {
			t.Errorf("%s: copies take %v of the time", c.name, k.copies)
		}
	}
}
