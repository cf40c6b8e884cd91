package doctor

import (
	"strings"

	"github.com/stokerdata/stoker/internal/doctor/pystack"
)

// The main thread need not be the one that trains. An event loop passes its steps to an executor, and a program with a
// window or a server has a thread for its training. The main thread then waits for that thread, so its wait is the step
// and not a batch.

// aside reports whether a thread of a pool is in a training step.
type aside uint8

const (
	asideNone aside = iota
	asideStep       // by a word that functions which make batches may have too
	asideSure       // a model learns there
)

// elsewhere has the samples of threads that train instead of the main thread.
type elsewhere struct {
	steps, sure int // samples with a thread in a step while the main thread waited
	works       int // samples with the main thread at work itself
	thread      int // the thread with the training loop; 0 if it is the main thread
}

// fewSteps is the number of samples in which a thread must have been in a step.
const fewSteps = 3

// accepted reports whether the threads in steps are the job's training. Either their work can only be training, or the
// main thread has no work of its own.
func (e *elsewhere) accepted() bool {
	return e.sure >= fewSteps || e.steps >= fewSteps && 5*e.works <= e.steps
}

// trainsIn reports whether a thread trains instead of the main thread.
func (p *process) trainsIn(t *thread) bool { return t.trained >= fewSteps && p.elsewhere.accepted() }

// loopThread is the thread with the training loop.
func (p *process) loopThread() int {
	if p.elsewhere.thread != 0 {
		return p.elsewhere.thread
	}
	return p.pid
}

// lead returns the thread that represents the trainer at this moment. It is the thread in a training step for which the
// main thread waits, otherwise the thread with the training loop.
func (c *collector) lead(p *process) int {
	main := p.frames[p.pid]
	if !main.known {
		return p.pid
	}
	e := &p.elsewhere
	found := 0
	switch {
	case main.rests:
		for tid, v := range p.frames {
			if tid == p.pid || !v.known || p.threads[tid] == nil {
				continue
			}
			own := v.duty == dutyUnknown && v.steps && !v.saves && (v.user || v.learns) // a thread with a loop
			if !own && v.aside == asideNone {
				continue
			}
			t := p.threads[tid]
			t.trained++
			e.steps++
			if v.aside == asideSure || own && v.learns {
				e.sure++
			}
			if t.trained >= fewSteps && e.accepted() && (found == 0 || tid < found) {
				found = tid
				if own {
					e.thread = tid
				}
			}
		}
	case main.part != partImport && !eventLoop(main.leaf.file):
		e.works++
	}
	switch {
	case found != 0:
		return found
	case e.thread != 0 && e.accepted() && p.threads[e.thread] != nil && p.frames[e.thread].known:
		return e.thread
	}
	return p.pid
}

// asTrainer returns the view of a thread that trains instead of the main thread.
func (v view) asTrainer() view {
	if v.aside != asideNone {
		v.part, v.duty, v.steps = partStep, dutyUnknown, true
	}
	return v
}

// asideOf reports whether a stack only waits for other threads, and whether it is a job of a pool that trains. The
// innermost frame with a duty is at dutyAt.
func (v view) asideOf(frames []pystack.Frame, dutyAt int) (bool, aside) {
	if dutyAt > 0 && strings.HasSuffix(frames[dutyAt].File, "/concurrent/futures/thread.py") {
		job := frames[:dutyAt]
		switch {
		case !steps(job) || makes(job):
			return false, asideNone
		case learns(job):
			return false, asideSure
		}
		return false, asideStep
	}
	if v.duty != dutyUnknown || v.steps {
		return false, asideNone
	}
	leaf := frames[0].File
	switch {
	case eventLoop(leaf), strings.HasSuffix(leaf, "/selectors.py") && len(frames) > 1 && eventLoop(frames[1].File):
		return true, asideNone
	case strings.HasSuffix(leaf, "/threading.py"):
		for _, f := range frames[:min(3, len(frames))] {
			if strings.HasSuffix(f.File, "/queue.py") || strings.Contains(f.File, "/multiprocessing/") {
				return false, asideNone
			}
		}
		return true, asideNone
	}
	return false, asideNone
}

func eventLoop(file string) bool {
	return strings.Contains(file, "/asyncio/") || strings.Contains(file, "/uvloop/") || strings.Contains(file, "/trio/_core/")
}

// makes reports whether a stack has a function of the user whose name indicates that it makes batches.
func makes(frames []pystack.Frame) bool {
	for i := range frames {
		if !installed(frames[i].File) && (wordOf(frames[i].Func) != partUnknown || ownPart(frames[i:i+1]) != partStep) {
			return true
		}
	}
	return false
}

// learns reports whether a stack is of a model that learns, and not only of one that is
// used: examples may be made with one.
func learns(frames []pystack.Frame) bool {
	for i := range frames {
		name := strings.ToLower(frames[i].Func)
		if containsAny(name, []string{"train", "backward", "optim"}) && !installed(frames[i].File) ||
			containsAny(frames[i].File, []string{"/torch/optim/", "/torch/autograd/", "/optax/", "/torch/_tensor.py"}) {
			return true
		}
	}
	return false
}
