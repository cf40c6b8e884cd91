package doctor

// A cause is the use of one moment of a thread, as far as it matters for a verdict.
type cause uint8

const (
	causeIdle    cause = iota // no work, or the result is not taken
	causeCPU                  // runs, or waits for a core
	causeStorage              // waits for a file
	causeNetwork              // waits for a socket
	causeMemory               // waits for memory
	causeHandoff              // runs for the hand-off: collate, pickle, copy, pin
	causeLatency              // sleeps or waits for a lock in the dataset's own code: a late answer
	causeOther                // sleeps for no known reason
	// The trainer's own:
	causeStep // the training step
	causeWait // waits for a batch that others make
	numCauses
)

// A moment is one sample of one thread.
type moment struct {
	state byte // as in /proc/PID/stat
	block blocker
	view  view
	// others is the work of the other threads of the same process, or of its helper processes, while this thread waits
	// for one of them. It is causeIdle if nothing is known.
	others cause
	// timed reports that the wait for the lock has a time limit, as for the interpreter's lock.
	timed bool
	// writes reports that the thread waits for its own writes.
	writes bool
	// short reports that memory is short now: a missing page was evicted.
	short bool
}

// settled replaces a page fault by the object that it waits for.
func (m moment) settled() moment {
	if m.block == blockFault {
		m.block = blockStorage
		if m.short {
			m.block = blockMemory
		}
	}
	return m
}

// interpreter reports whether a thread waits for the interpreter's lock: in Python code that could run, and for a few
// milliseconds at a time. Libraries that wait with a limit do so in functions that are known to wait.
func (m moment) interpreter() bool {
	return m.block == blockLock && m.timed && m.view.known && m.view.part != partUnknown && m.view.part != partWait && m.view.part != partPut && !m.view.steps
}

// workerCause returns the cause for a thread that makes batches.
func workerCause(m moment) cause {
	m = m.settled()
	p := m.view.part
	switch m.block {
	case blockNone:
		if p.handoff() {
			return causeHandoff
		}
		if p == partWait {
			// Running in a queue's get is taking the message apart.
			return causeHandoff
		}
		return causeCPU
	case blockMemory:
		return causeMemory
	case blockStorage:
		return causeStorage
	case blockStopped:
		return causeOther
	}
	// Asleep, and not on a device. In a queue, that means no work, or no space for its result.
	switch {
	case m.block == blockFlock:
		return causeLatency
	case m.interpreter():
		return causeCPU
	}
	if p == partWait || p == partPut || m.view.duty == dutyFeeder || m.view.duty == dutyPin && !m.view.known {
		return m.others
	}
	switch m.block {
	case blockNetwork:
		return causeNetwork
	case blockLocal:
		if p == partPickle {
			return causeHandoff
		}
		return m.others
	case blockPipe:
		if p == partPickle {
			return m.others
		}
		// Reading a pipe in the dataset's own code is usually a command that fetches, as in "pipe:curl ...". The work
		// of that command is the better answer.
		if m.others != causeIdle {
			return m.others
		}
		if p == partRead || p == partFetch || p == partDecode {
			return causeNetwork
		}
		return causeIdle
	case blockLock, blockChild:
		if m.others != causeIdle {
			return m.others
		}
		if m.view.known && p != partUnknown && p != partStep && !p.handoff() {
			return causeLatency
		}
		return causeIdle
	case blockSleep:
		if m.view.known && m.view.duty != dutyUnknown {
			return causeLatency
		}
		return causeIdle
	case blockUnknown:
		if m.view.known && p == partRead {
			return causeStorage
		}
		return causeIdle
	}
	if m.view.known && m.view.duty != dutyUnknown {
		return causeOther
	}
	return causeIdle
}

// trainerCause returns the cause for the main thread of a training process. Without frames (guess), the object of its
// wait decides. A timer or a driver is the step. A pipe, a lock or a socket is a batch that does not come.
func trainerCause(m moment, guess bool) cause {
	m = m.settled()
	p := m.view.part
	if guess || !m.view.known {
		switch m.block {
		case blockNone, blockSleep, blockDevice, blockStopped, blockChild:
			return causeStep
		case blockMemory:
			return causeMemory
		case blockStorage:
			return causeStorage
		case blockNetwork:
			return causeNetwork
		}
		return causeWait
	}
	inLoader := m.view.duty == dutyTrainer || p == partWait
	// A rank that multiprocessing started has a worker's frames at its root.
	if !inLoader && (p == partStep || p == partUnknown || (p == partPrepare || p == partFetch) && m.block != blockNone) {
		switch {
		case m.writes || m.view.saves:
			// A checkpoint, a log: the step's own.
		case m.block == blockStorage:
			return causeStorage
		case m.block == blockMemory:
			return causeMemory
		case m.block == blockNetwork:
			return causeNetwork
		}
		return causeStep
	}
	switch m.block {
	case blockNone:
		if p.handoff() || p == partWait || m.view.loader == "stoker" {
			return causeHandoff
		}
		return causeCPU
	case blockStorage:
		return causeStorage
	case blockMemory:
		return causeMemory
	case blockStopped:
		return causeStep
	}
	switch {
	case m.block == blockFlock:
		return causeLatency
	case m.interpreter() && inLoader:
		return causeCPU
	}
	if p == partWait {
		return causeWait
	}
	switch m.block {
	case blockNetwork:
		return causeNetwork
	case blockLocal:
		// In the middle of receiving a batch, the trainer waits for a thread of the process that made it. That
		// process's own work delays it: Python code of its main thread holds the interpreter's lock for milliseconds.
		return causeWait
	case blockSleep, blockDevice:
		if !inLoader {
			return causeStep
		}
		if m.block == blockSleep {
			return causeLatency
		}
		return causeOther
	case blockLock, blockChild:
		// In the dataset's own code: a lock that others hold, or a command that it started.
		if p == partFetch || p == partRead || p == partDecode || p == partTransform {
			return causeLatency
		}
	}
	if p == partManage || p == partPin || p == partCollate {
		return causeHandoff
	}
	return causeWait
}
