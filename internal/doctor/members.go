package doctor

import (
	"errors"
	"fmt"
	"time"

	"github.com/stokerdata/stoker/internal/doctor/pystack"
	"github.com/stokerdata/stoker/internal/proc"
)

// memberState is the state of the job's processes other than its trainers.
type memberState struct {
	tree        *tree
	view        *viewer
	open        func(pid int) (stacks, error) // nil if frames are not read
	socks       sockets
	hot         int // threads sampled in the last tick
	framesOK    int
	workersEver int
	atOnce      map[int]int // the number of samples with so many workers
	notes       noteState
	pinned      bool
	treeAt      time.Time
	lost        bool // a worker ended since the tree was brought up to date
	engines     map[int]*engineReader
	engine      engineTotals
	sawPython   bool
	otherPython string   // why frames of a Python that is not CPython cannot be read
	turn        int      // the next workers to sample, if there are many
	weight      float64  // of each sample of one
	command     []string // of the root
	// laneLoaders counts samples of workers by the loader that their frames show.
	laneLoaders map[string]int
	collates    collates
}

// updateTree finds new members, and saves the figures of members that have exited.
func (c *collector) updateTree(now time.Time) bool {
	for _, p := range c.tree.members {
		if p.trainer == nil {
			continue
		}
		c.pinned = c.pinned || p.pinSeen
		for kind, n := range p.trainer.loaders {
			c.votes[kind] = max(c.votes[kind], n)
		}
	}
	if len(c.trainers) == 0 {
		c.lastGuess = c.guessed()
	}
	alive := c.tree.update(now)
	c.keepNative()
	for _, p := range c.tree.members {
		c.sawPython = c.sawPython || p.isPython
		if p.role == roleWorker && !p.counted {
			p.counted = true
			c.workersEver++
			if parent := c.tree.members[p.ppid]; c.libs != nil && parent != nil && forked(p, parent) {
				c.libs.Forked(p.pid, parent.pid)
			}
			c.renewed(p)
		}
	}
	c.lost, c.treeAt = false, now
	return alive
}

// sampleFrames reads the Python frames of a process, if it can.
func (c *collector) sampleFrames(p *process, now time.Time) {
	if c.open == nil {
		return
	}
	if p.python == nil {
		if p.pythonTry >= maxTries || now.Before(p.nextTry) {
			return
		}
		opened, err := c.open(p.pid)
		if err != nil {
			c.notRead(p, err, now)
			return
		}
		p.python, p.pythonTry, p.framesWhy = opened, 0, ""
	}
	threads, err := p.python.Sample()
	if err != nil {
		p.python.Close()
		p.python = nil
		p.pythonTry++
		p.nextTry = now.Add(time.Second)
		return
	}
	for _, t := range threads {
		if t.Torn || t.TID == 0 {
			continue
		}
		v := c.view.look(t.Frames)
		if v.ownCollate {
			v = c.collates.judge(v.toldByLine(c.sourceLine(v.leaf)))
		}
		if s := p.trainer; t.TID == p.loopThread() && s != nil && v.known && v.duty == dutyUnknown && v.part != partImport {
			if v.loop = s.loop; v.loop.line == 0 {
				s.follow(t.Frames)
				if at := c.trainsAt(t.Frames); at.fn != "" {
					v.loop = at
				} else if len(s.chain) > 0 {
					v.loop = s.chain[len(s.chain)-1]
				}
			}
			v.body = v.loop.lineIn(t.Frames)
		}
		p.frames[t.TID] = v
		c.framesOK++
	}
}

// maxTries is the number of attempts in a row to read the frames of a program. They last 8 s, because a program that is
// still loading may take that long to look like Python.
const maxTries = 8

// notRead records why the frames of a process could not be read, and when to try again, because the reason may be
// temporary during its start.
func (c *collector) notRead(p *process, err error, now time.Time) {
	p.pythonTry++
	p.nextTry = now.Add(time.Duration(p.pythonTry) * 300 * time.Millisecond)
	var e *pystack.Error
	if !errors.As(err, &e) {
		return
	}
	switch e.Kind {
	case pystack.Gone:
	case pystack.Starting:
		// Continue however long it takes: if files come from a busy server, minutes.
		if p.pythonTry == maxTries {
			p.pythonTry--
			p.framesWhy = fmt.Sprintf("Python frames of process %d: %s", p.pid, e.Msg)
		}
	case pystack.NotPython:
		if p.isPython && p.pythonTry == maxTries {
			p.framesWhy = fmt.Sprintf("Python frames of process %d: %s", p.pid, e.Msg)
		}
	case pystack.OtherPython:
		p.pythonTry = maxTries
		p.framesWhy = fmt.Sprintf("Python frames of process %d: %s", p.pid, e.Msg)
		c.otherPython = e.Msg
	case pystack.Permission:
		p.pythonTry = maxTries
		p.framesWhy = fmt.Sprintf("Python frames: %s%s", e.Msg, hinted(e.Hint))
	default:
		// An interpreter whose library is not mapped yet appears to have no symbols.
		if p.pythonTry > 1 {
			p.framesWhy = fmt.Sprintf("Python frames: %s%s", e.Msg, hinted(e.Hint))
		}
	}
}

func hinted(hint string) string {
	if hint == "" {
		return ""
	}
	return " (" + hint + ")"
}

// look samples the activity of a thread.
func (c *collector) look(p *process, tid int, others func() cause) (moment, string, bool) {
	t := p.threads[tid]
	if t == nil {
		t = &thread{tid: tid}
		p.threads[tid] = t
	}
	c.hot++
	if t.stat == nil && !t.closed {
		f, err := c.fs.OpenThread(p.pid, tid, "stat")
		if err != nil {
			t.closed = true
			return moment{}, "", false
		}
		t.stat = f
		t.syscall, _ = c.fs.OpenThread(p.pid, tid, "syscall")
	}
	if t.stat == nil {
		return moment{}, "", false
	}
	data, err := t.stat.ReadOnce(c.buf)
	if err != nil {
		t.close()
		t.closed = true
		return moment{}, "", false
	}
	m := moment{state: proc.StateOf(data), view: p.frames[tid], short: c.sys.short}
	if m.state == 0 || m.state == 'Z' || m.state == 'X' {
		return moment{}, "", false
	}
	file := ""
	t.call = proc.Syscall{Running: true}
	if m.state != 'R' {
		var sc *proc.Syscall
		if t.syscall != nil {
			if data, err := t.syscall.ReadOnce(c.buf2); err == nil {
				if s, err := proc.ParseSyscall(data); err == nil {
					sc, t.call = &s, s
				}
			}
		}
		wchan := ""
		if sc == nil || m.state == 'D' || calls[sc.NR] == callFD || calls[sc.NR] == callOther {
			if t.wchan == nil && !t.noWchan {
				t.wchan, err = c.fs.OpenThread(p.pid, tid, "wchan")
				t.noWchan = err != nil
			}
			if t.wchan != nil {
				if data, err := t.wchan.ReadOnce(c.buf2); err == nil {
					wchan = string(data)
				}
			}
		}
		m.writes = sc != nil && !sc.Running && (calls[sc.NR] == callWrite || calls[sc.NR] == callSync)
		m.timed = sc != nil && !sc.Running && calls[sc.NR] == callLock && sc.Args[3] != 0
		if t.sameWait(c.seconds) && m.state == 'S' {
			m.block = t.wait.block
		} else {
			m.block, file = c.socks.blockerOf(c.fs, p.pid, m.state, wchan, sc)
			t.wait.call, t.wait.second, t.wait.block, t.wait.asked = t.call, c.seconds+1, m.block, false
		}
	} else {
		m.block = blockNone
	}
	if m.block >= blockLocal && m.block != blockFault && others != nil {
		m.others = others()
	}
	return m, file, true
}

// sameWait reports whether a thread waits for the same descriptors as at their last lookup, in the same second.
func (t *thread) sameWait(second int) bool {
	switch calls[t.call.NR] {
	case callPoll, callSelect, callEpoll:
		return !t.call.Running && t.wait.second == second+1 && t.wait.call == t.call
	}
	return false
}

// renewed records that the trainer of a worker has to wait for the first batch of a new worker.
func (c *collector) renewed(worker *process) {
	if p := c.tree.starter(worker); p != nil && p.trainer != nil && p.trainer.phase > 0 {
		p.trainer.fresh = true
	}
}

// sampleWorker determines the current work of a worker process: its main thread, or the thread that sends for it.
func (c *collector) sampleWorker(p *process) {
	m, file, ok := c.look(p, p.pid, func() cause {
		if found := c.helperCause(p); found != causeIdle {
			return found
		}
		return c.sideCause(p, p.pid)
	})
	if !ok {
		c.lost = true
		c.renewed(p)
		return
	}
	if m.view.duty == dutyTrainer && m.view.loader != "" && p.workerSeen {
		// A rank that multiprocessing started.
		p.role = roleTrainer
		p.trainer = &trainerState{since: time.Now(), loaders: map[string]int{}}
		c.trainers[key{p.pid, p.start}] = true
		c.tree.retire(p)
		return
	}
	if p.partner {
		m.view = m.view.asFeeder()
		c.meet(p) // its partners also make batches
	}
	p.sampled = true
	p.cause, p.block = workerCause(m), m.block
	c.noteNative(p.pid, p.pid)
	if m.block == blockFault {
		c.bin.laneFaults++
		c.noteFault(p)
	}
	if m.block == blockFlock {
		c.noteLock(file)
	}
	if m.view.loader != "" {
		c.laneLoaders[m.view.loader]++
	}
	if p.cause == causeStorage {
		c.noteFile(p.pid, file)
	}
}

// helperCause returns the cause for the commands that p started.
func (c *collector) helperCause(p *process) cause {
	for _, child := range c.tree.childrenOf(p.pid) {
		if child.role == roleHelper && child.cause != causeIdle {
			return child.cause
		}
	}
	return causeIdle
}

// sideCause returns the cause for the threads of a process other than except: the first one found, work before waiting.
func (c *collector) sideCause(p *process, except int) cause {
	best := causeIdle
	looked := 0
	for tid, t := range p.threads {
		if tid == except {
			continue
		}
		v := p.frames[tid]
		busy := t.share > 0.01 || v.known && (v.duty != dutyUnknown || v.part == partRead || v.part == partPickle) || except == 0 && tid == p.pid
		if !busy || looked >= 16 || c.hot >= maxHot {
			continue
		}
		looked++
		m, file, ok := c.look(p, tid, nil)
		if !ok {
			continue
		}
		found := causeIdle
		switch m.settled().block {
		case blockNone:
			found = causeCPU
			if v.part.handoff() || v.duty == dutyFeeder || v.duty == dutyPin {
				found = causeHandoff
			}
		case blockStorage:
			found = causeStorage
			c.noteFile(p.pid, file)
		case blockMemory:
			found = causeMemory
		case blockNetwork:
			// A thread that waits for a socket may be idle, as an event loop is
			// between requests: only one that reads for the loader counts.
			if !v.known && except == 0 || v.part == partRead || v.part == partFetch {
				found = causeNetwork
			}
		}
		if rank(found) > rank(best) {
			best = found
		}
	}
	return best
}

// rank orders causes by how well they explain that another thread waits.
func rank(c cause) int {
	switch c {
	case causeCPU, causeHandoff:
		return 3
	case causeStorage, causeMemory:
		return 2
	case causeNetwork:
		return 1
	}
	return 0
}

// retire turns the members above a trainer into launchers: they do not train.
func (t *tree) retire(p *process) {
	for q := t.members[p.ppid]; q != nil; q = t.members[q.ppid] {
		// If it has ranks below it, its own "workers" are those ranks.
		if q.role == roleTrainer && (q.trainer == nil || q.trainer.phase == 0) {
			q.role, q.trainer = roleIgnored, nil
		}
		if q.pid == q.ppid {
			return
		}
	}
}
