package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/gpu"
	"github.com/stokerdata/stoker/internal/proc"
	"github.com/stokerdata/stoker/internal/pystack"
)

// Options say what to watch and for how long.
type Options struct {
	// PID is the root of the process tree.
	PID int
	// Seconds ends the watching that long after the first batch was seen; 0
	// goes on until the job ends.
	Seconds float64
	// Patience is how long to wait for the first batch before Seconds begin to
	// count anyway. 0 means 60 s; the doctor attached to a running job uses less.
	Patience float64
	// NoFrames leaves the Python frames alone.
	NoFrames bool
	// FS is where to read; the zero value is this machine.
	FS proc.FS
	// Progress is called about once a second with what was seen so far; it must
	// not keep it. May be nil.
	Progress func(seconds float64, training bool)
	// Live is called about once a second with a report of the last seconds, for
	// --watch. May be nil.
	Live func(*Report)
	// LiveWindow is how many seconds a live report looks back; 0 means 10.
	LiveWindow float64
	// Stoker is this program's version, for the report.
	Stoker string
}

// meanTick is the mean time between two looks at the trainers. Each wait is
// drawn at random around it: a fixed one would fall into step with a loop of
// the same period and see the same part of it every time.
const meanTick = 40 * time.Millisecond

// wideEvery is how often the workers are looked at too: every so many ticks. The
// gain hangs on how the trainer's own time divides, and it is one thread; of
// workers there are many, and each look at all of them tells as much.
const wideEvery = 3

// tickBudget is how many times longer than a tick's CPU time the time between
// ticks is at least: 0.4% of one core. What is read every second takes as much.
const tickBudget = 250

// slowEvery is how often the rest is read.
const slowEvery = time.Second

// maxHot bounds how many threads are looked at in each tick.
const maxHot = 64

// collector watches one job. It belongs to one goroutine.
type collector struct {
	opt   Options
	fs    proc.FS
	tree  *tree
	view  *viewer
	open  func(pid int) (stacks, error) // nil where frames are left alone
	socks sockets
	line  timeline
	bin   bin
	sys   systemState
	gpus  *gpu.Devices

	start      time.Time
	wall       time.Time
	lastSlow   time.Time
	seconds    int       // readings of the slow kind
	training   time.Time // first sample that counted; zero before
	cpuAtStart time.Duration

	engines map[int]*engineReader
	engine  engineTotals
	log     stepTotals

	skipped   []string
	skipSeen  map[string]bool
	files     map[string]int // samples of workers that waited for a file, by path
	buf, buf2 []byte
	framesOK  int
	samples   int // of trainers and lanes that count
	hot       int // threads looked at in the last tick

	trainers    map[key]bool
	wheres      map[string]int // functions in which lanes ran
	fsTypes     map[string]int
	command     []string
	votes       map[string]int // samples of trainers by kind of loader, those that ended too
	workersEver int
	pinned      bool
	lastGuess   counts
	treeAt      time.Time
	lost        bool           // a worker ended since the tree was brought up to date
	topOther    string         // the busiest program outside of the job, for the evidence
	others      map[int]uint64 // CPU ticks of programs outside of the job
	othersAt    time.Time
	throttles   map[string]int      // seconds by reason for which an accelerator runs slower
	sources     map[string][]string // lines of the job's source files
	// laneLoaders counts samples of workers by the loader that their frames show.
	laneLoaders map[string]int
}

// maxSkipped bounds the lines of what could not be looked at.
const maxSkipped = 20

// skip notes once what could not be looked at.
func (c *collector) skip(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	if c.skipSeen[line] || len(c.skipped) >= maxSkipped {
		return
	}
	c.skipSeen[line] = true
	c.skipped = append(c.skipped, line)
}

// skips is what could not be looked at until now.
func (c *collector) skips() []string {
	lines := slices.Concat(c.skipped, c.tree.unread)
	for _, pid := range slices.Sorted(maps.Keys(c.tree.members)) {
		lines = append(lines, c.tree.members[pid].framesWhy)
	}
	out := []string{}
	for _, line := range lines {
		if line != "" && !slices.Contains(out, line) && len(out) < maxSkipped {
			out = append(out, line)
		}
	}
	return out
}

// Watch looks at a job until it ends, ctx ends or the time is over, and reports.
// It fails only where there is nothing to say at all: no such process.
func Watch(ctx context.Context, opt Options) (*Report, error) {
	c, err := newCollector(opt)
	if err != nil {
		return nil, err
	}
	defer c.close()
	c.run(ctx)
	return c.report(c.line), nil
}

func newCollector(opt Options) (*collector, error) {
	if opt.FS == (proc.FS{}) {
		opt.FS = proc.Live
	}
	if opt.Patience == 0 {
		opt.Patience = 60
	}
	if opt.LiveWindow == 0 {
		opt.LiveWindow = 10
	}
	c := &collector{
		opt: opt, fs: opt.FS, tree: newTree(opt.FS, opt.PID), view: newViewer(),
		engines: map[int]*engineReader{}, skipSeen: map[string]bool{}, files: map[string]int{},
		buf: make([]byte, 4096), buf2: make([]byte, 4096),
		trainers: map[key]bool{}, wheres: map[string]int{}, fsTypes: map[string]int{},
		votes: map[string]int{}, laneLoaders: map[string]int{}, throttles: map[string]int{},
	}
	if _, err := c.fs.Process(c.buf, opt.PID, "stat"); err != nil {
		if os.IsPermission(err) {
			return nil, fmt.Errorf("process %d may not be looked at: %w", opt.PID, err)
		}
		return nil, fmt.Errorf("there is no process %d", opt.PID)
	}
	if !opt.NoFrames && opt.FS.Proc == proc.Live.Proc {
		c.open = func(pid int) (stacks, error) {
			p, err := pystack.Open(pid)
			if err != nil {
				return nil, err
			}
			return p, nil
		}
	}
	c.start, c.wall = time.Now(), time.Now()
	c.cpuAtStart = proc.OwnCPU()
	if !c.tree.update(c.start) {
		return nil, fmt.Errorf("process %d has ended", opt.PID)
	}
	c.checkAccess()
	c.sys.init(c)
	devices, notes := gpu.Open()
	c.gpus = devices
	for _, n := range notes {
		c.skip("%s", n)
	}
	return c, nil
}

// checkAccess says once what the kernel keeps from this user.
func (c *collector) checkAccess() {
	if _, err := c.fs.Process(c.buf, c.opt.PID, "io"); err != nil {
		if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
			c.skip("disk reads per process and system calls: process %d belongs to another user or protects itself; run doctor as its user or as root", c.opt.PID)
		}
	}
}

func (c *collector) close() {
	c.tree.close()
	c.log.close()
	if c.gpus != nil {
		c.gpus.Close()
	}
}

// run samples until the end.
func (c *collector) run(ctx context.Context) {
	runtime.LockOSThread() // reading /proc on one thread wakes no others
	defer runtime.UnlockOSThread()
	timer := time.NewTimer(0)
	defer timer.Stop()
	c.lastSlow = c.start
	var tickCost time.Duration // CPU time, a running mean
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			c.flush(time.Now())
			return
		case <-timer.C:
		}
		now := time.Now()
		if now.Sub(c.lastSlow) >= slowEvery {
			alive := c.updateTree(now)
			c.flush(now)
			if !alive {
				return
			}
			if c.over(now) {
				return
			}
		}
		if c.lost && now.Sub(c.treeAt) > 250*time.Millisecond {
			// Workers end and begin at the end of an epoch: do not miss the new ones.
			c.updateTree(now)
		}
		cpuBefore := proc.ThreadCPU()
		if n%wideEvery == 0 || c.training.IsZero() {
			c.tick(now)
		} else {
			c.tickTrainers(now)
		}
		// With many threads ticks become rarer, so that they stay cheap.
		spent := proc.ThreadCPU()
		tickCost += (spent - cpuBefore - tickCost) / (4 * wideEvery)
		wait := max(meanTick, min(tickCost*tickBudget, time.Second))
		if c.training.IsZero() {
			wait *= 2 * wideEvery // only to see when the training begins
		}
		timer.Reset(wait/2 + rand.N(wait))
	}
}

// updateTree finds new members, and keeps what a member's end would lose.
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
	for _, p := range c.tree.members {
		if p.role == roleWorker && !p.counted {
			p.counted = true
			c.workersEver++
		}
	}
	c.lost, c.treeAt = false, now
	return alive
}

// over reports whether the time is up.
func (c *collector) over(now time.Time) bool {
	if c.opt.Seconds <= 0 {
		return false
	}
	var from time.Time
	switch {
	case !c.training.IsZero():
		from = c.training
	case now.Sub(c.start).Seconds() < c.opt.Patience:
		return false
	default:
		from = c.start.Add(time.Duration(c.opt.Patience * float64(time.Second)))
	}
	return now.Sub(from).Seconds() >= c.opt.Seconds
}

// flush ends the second that was being filled.
func (c *collector) flush(now time.Time) {
	dt := now.Sub(c.lastSlow).Seconds()
	if dt <= 0.05 {
		return
	}
	b := &c.bin
	b.t, b.dt = c.lastSlow.Sub(c.start).Seconds(), dt
	c.slow(now, dt)
	c.line.add(*b)
	c.bin = bin{}
	c.lastSlow = now
	if c.opt.Progress != nil {
		c.opt.Progress(now.Sub(c.start).Seconds(), !c.training.IsZero())
	}
	if c.opt.Live != nil {
		c.opt.Live(c.report(c.line.last(c.opt.LiveWindow)))
	}
}

// last returns the bins of the last seconds.
func (l *timeline) last(seconds float64) timeline {
	n := len(l.bins)
	i := n
	for sum := 0.0; i > 0 && sum < seconds; i-- {
		sum += l.bins[i-1].dt
	}
	return timeline{bins: l.bins[i:], width: l.width, known: l.known}
}

// tick looks at the threads that matter, once.
func (c *collector) tick(now time.Time) {
	c.hot = 0
	for _, p := range c.tree.members {
		p.sampled, p.cause, p.stalled = false, causeIdle, false
		clear(p.frames)
		if p.role == roleTrainer || p.role == roleWorker {
			c.sampleFrames(p, now)
		}
	}
	// Leaves of the tree first: what a helper is at explains what its parent
	// waits for.
	order := make([]*process, 0, len(c.tree.members))
	for _, p := range c.tree.members {
		order = append(order, p)
	}
	depth := func(p *process) int {
		d := 0
		for q := c.tree.members[p.ppid]; q != nil && d < 64; q = c.tree.members[q.ppid] {
			d++
		}
		return d
	}
	slices.SortFunc(order, func(a, b *process) int {
		if d := depth(b) - depth(a); d != 0 {
			return d
		}
		return a.pid - b.pid
	})
	var trainers, workers []*process
	for _, p := range order {
		switch p.role {
		case roleHelper:
			p.cause = c.sideCause(p, 0)
		case roleWorker:
			c.sampleWorker(p)
			workers = append(workers, p)
		case roleTrainer:
			trainers = append(trainers, p)
		}
	}
	waits := false
	counting := false
	for _, p := range trainers {
		c.sampleTrainer(p, now)
		if p.trainer != nil && p.trainer.phase > 0 {
			counting = true
			waits = waits || p.stalled
		}
	}
	if !counting {
		return
	}
	if c.training.IsZero() {
		c.training = now
	}
	c.bin.training++
	if waits {
		c.countStall(workers)
	}
	for _, p := range workers {
		if !p.sampled {
			continue
		}
		c.countLane(p.cause)
		if v := p.frames[p.pid]; v.known && p.cause != causeIdle {
			c.bin.laneParts[v.part]++
			if p.cause == causeCPU || p.cause == causeHandoff {
				c.noteWhere(v.where)
			}
		}
	}
	if len(workers) == 0 {
		// Loaders with threads: what the trainer's other threads are at while it
		// waits for them.
		for _, p := range trainers {
			if !p.stalled {
				continue
			}
			if cause := c.sideCause(p, p.pid); cause != causeIdle {
				c.countLane(cause)
				c.bin.stalled[cause]++
			}
		}
	}
}

// tickTrainers looks at the main threads of the trainers alone.
func (c *collector) tickTrainers(now time.Time) {
	for _, p := range c.tree.members {
		if p.role == roleTrainer && p.trainer != nil && p.trainer.phase > 0 {
			clear(p.frames)
			c.sampleFrames(p, now)
			c.sampleTrainer(p, now)
		}
	}
}

// countStall notes what workers are at while a trainer waits for them. Where each
// of them has nothing to do, the batch is on its way.
func (c *collector) countStall(workers []*process) {
	busy, idle := 0, 0
	for _, p := range workers {
		switch {
		case !p.sampled:
		case p.cause != causeIdle:
			busy++
		case p.frames[p.pid].part == partWait:
			idle++
		}
	}
	for _, p := range workers {
		if p.sampled && p.cause != causeIdle {
			c.bin.stalled[p.cause] += 1 / float64(busy)
		}
	}
	if busy == 0 && idle > 0 {
		c.bin.stalled[causeHandoff]++
	}
}

func (c *collector) noteWhere(where string) {
	if where == "" || len(c.wheres) > 1000 && c.wheres[where] == 0 {
		return
	}
	c.wheres[where]++
}

func (c *collector) countLane(cause cause) {
	c.bin.lanes[cause]++
	c.samples++
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
			p.notRead(err, now)
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
		if s := p.trainer; t.TID == p.pid && s != nil && v.duty == dutyUnknown && v.part != partImport {
			if v.loop = s.loop; v.loop.line == 0 {
				if s.chain = common(s.chain, t.Frames); len(s.chain) > 0 {
					v.loop = s.chain[len(s.chain)-1]
				}
			}
			v.body = v.loop.lineIn(t.Frames)
		}
		p.frames[t.TID] = v
		c.framesOK++
	}
}

// maxTries is how often in a row the frames of a program are tried: for 8 s, which
// a program that is only being loaded may take to look like Python.
const maxTries = 8

// notRead notes why the frames of a process could not be read, and when to try
// again: what is true of a program while it starts need not stay true.
func (p *process) notRead(err error, now time.Time) {
	p.pythonTry++
	p.nextTry = now.Add(time.Duration(p.pythonTry) * 300 * time.Millisecond)
	var e *pystack.Error
	if !errors.As(err, &e) {
		return
	}
	switch e.Kind {
	case pystack.Gone:
	case pystack.Starting:
		// However long it takes: where files come from a busy server, minutes.
		if p.pythonTry == maxTries {
			p.pythonTry--
			p.framesWhy = fmt.Sprintf("Python frames of process %d: %s", p.pid, e.Msg)
		}
	case pystack.NotPython:
		if p.isPython && p.pythonTry == maxTries {
			p.framesWhy = fmt.Sprintf("Python frames of process %d: %s", p.pid, e.Msg)
		}
	case pystack.Permission:
		p.pythonTry = maxTries
		p.framesWhy = fmt.Sprintf("Python frames: %s%s", e.Msg, hinted(e.Hint))
	default:
		// An interpreter whose library is not mapped yet looks as if it had no symbols.
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

// look reads what a thread is at.
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
	if m.state != 'R' {
		var sc *proc.Syscall
		if t.syscall != nil {
			if data, err := t.syscall.ReadOnce(c.buf2); err == nil {
				if s, err := proc.ParseSyscall(data); err == nil {
					sc = &s
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
		m.block, file = c.socks.blockerOf(c.fs, p.pid, m.state, wchan, sc)
	} else {
		m.block = blockNone
	}
	if m.block >= blockLocal && m.block != blockFault && others != nil {
		m.others = others()
	}
	return m, file, true
}

// sampleWorker says what a worker process is at: its main thread, or the thread
// that sends for it.
func (c *collector) sampleWorker(p *process) {
	m, file, ok := c.look(p, p.pid, func() cause {
		if found := c.helperCause(p); found != causeIdle {
			return found
		}
		return c.sideCause(p, p.pid)
	})
	if !ok {
		c.lost = true
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
	p.sampled = true
	p.cause = workerCause(m)
	if m.view.loader != "" {
		c.laneLoaders[m.view.loader]++
	}
	if p.cause == causeStorage {
		c.noteFile(p.pid, file)
	}
}

// helperCause is what the commands that p started are at.
func (c *collector) helperCause(p *process) cause {
	for _, child := range c.tree.childrenOf(p.pid) {
		if child.role == roleHelper && child.cause != causeIdle {
			return child.cause
		}
	}
	return causeIdle
}

// sideCause is what the threads of a process other than except are at: the
// first cause found, work before waiting.
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

// rank orders causes by how much they explain that somebody else waits.
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

// noteFile remembers which files are waited for, for the evidence.
func (c *collector) noteFile(pid int, file string) {
	if file == "" || strings.HasSuffix(file, " (deleted)") {
		return
	}
	if len(c.files) < 1000 || c.files[file] > 0 {
		c.files[file]++
	}
	if data, err := c.mounts(pid); err == nil {
		if m, ok := proc.MountOf(data, file); ok {
			c.fsTypes[m.Type]++
		}
	}
}

// mounts reads the mount table, at most every ten seconds.
func (c *collector) mounts(pid int) ([]proc.Mount, error) {
	if c.sys.mounts != nil && time.Since(c.sys.mountsAt) < 10*time.Second {
		return c.sys.mounts, nil
	}
	data, err := c.fs.Process(nil, pid, "mountinfo")
	if err != nil {
		return nil, err
	}
	c.sys.mounts, c.sys.mountsAt = proc.ParseMounts(data), time.Now()
	return c.sys.mounts, nil
}

// sampleTrainer says what the main thread of a process that may train is at, and
// whether it trains.
func (c *collector) sampleTrainer(p *process, now time.Time) {
	m, file, ok := c.look(p, p.pid, nil)
	if !ok {
		return
	}
	p.sampled = true
	v := m.view
	if v.known && v.duty == dutyWorker && p.trainer == nil {
		// It was taken for a trainer because its command line is its own, as
		// with spawned workers.
		p.role = roleWorker
		return
	}
	if p.trainer == nil && c.trains(p, v) {
		p.trainer = &trainerState{since: now, loaders: map[string]int{}}
		c.trainers[key{p.pid, p.start}] = true
		c.tree.retire(p)
	}
	if t := p.trainer; t != nil {
		// The statement that asks for the next batch also frees the one before,
		// which takes long for many small objects; no function tells of it.
		if v.asks.line > 0 {
			t.loop = v.asks
		} else if v.part == partStep && m.block == blockNone && v.leaf.line > 0 && v.leaf == t.loop.place {
			v.part, v.duty = partRelease, dutyTrainer
			m.view = v
		}
	}
	cause := trainerCause(m, !v.known)
	if cause == causeStorage {
		c.noteFile(p.pid, file)
	}
	if v.part == partImport {
		cause = causeOther
	}
	if p.trainer == nil {
		p.guess[cause]++
		return
	}
	s := p.trainer
	if v.loader != "" {
		s.loaders[v.loader]++
	}
	if s.phase == 0 {
		// The first batch takes as long as it takes to start everything: it is
		// left out, as in every measure of utilisation.
		first := cause == causeStep && v.part != partImport || now.Sub(s.since) > 5*time.Second
		if !first {
			return
		}
		s.phase = 1
	}
	p.cause, p.stalled = cause, cause == causeWait
	if !v.known && p.python != nil && m.block == blockNone {
		// Its frames changed while they were read. That it ran is known exactly from
		// its CPU time; what it ran, the other samples have to tell.
		return
	}
	b := &c.bin
	b.trainer[cause]++
	c.samples++
	if m.block == blockNone {
		b.trainerRan[cause]++
	}
	if cause == causeHandoff && (v.part == partPrepare || v.part == partRelease) {
		b.ready++
	}
	if cause == causeStep && v.known && v.loop.fn != "" {
		b.own.note(ownKey{v.loop, v.body, v.leaf}, v.steps || m.block == blockSleep || m.block == blockDevice, m.block == blockNone)
	}
	if v.known && cause != causeStep && cause != causeWait {
		b.trainerParts[v.part]++
		if cause == causeCPU || cause == causeHandoff {
			c.noteWhere(v.where)
		}
	}
}

// trains reports whether a process shows that it trains: it is in a loader, has
// workers, or keeps a step log.
func (c *collector) trains(p *process, v view) bool {
	if v.known && v.duty == dutyTrainer && v.loader != "" {
		return true
	}
	if p.workerSeen || p.pinSeen {
		return true
	}
	return c.log.has(p.pid)
}

// retire makes launchers of the members above a trainer: they do not train.
func (t *tree) retire(p *process) {
	for q := t.members[p.ppid]; q != nil; q = t.members[q.ppid] {
		// With ranks below it, its own "workers" are those ranks.
		if q.role == roleTrainer && (q.trainer == nil || q.trainer.phase == 0) {
			q.role, q.trainer = roleIgnored, nil
		}
		if q.pid == q.ppid {
			return
		}
	}
}
