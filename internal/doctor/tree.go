package doctor

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stokerdata/stoker/internal/counters"
	"github.com/stokerdata/stoker/internal/doctor/pystack"
	"github.com/stokerdata/stoker/internal/proc"
)

// A role is the purpose of a process in a training job.
type role uint8

const (
	roleUnknown role = iota
	roleTrainer      // runs training steps, or may
	roleWorker       // makes batches for its parent
	roleEngine       // stoker serve
	roleHelper       // a command that a worker started, such as curl
	roleIgnored      // a shell, a launcher, Python's resource tracker
)

// stacks reads Python frames; pystack.Process does.
type stacks interface {
	Sample() ([]pystack.Thread, error)
	Owns(address uint64) (owns, known bool)
	Close() error
}

// A process is one member of the tree.
type process struct {
	pid   int
	start uint64 // with pid, its identity
	ppid  int
	comm  string
	cmd   []string
	role  role
	since time.Time

	threads map[int]*thread
	count   int // threads when they were listed
	listed  time.Time

	python    stacks // nil if frames cannot be read
	pythonTry int    // attempts in a row that failed
	nextTry   time.Time
	framesWhy string // for the report: why its frames cannot be read; "" while they can, or may soon
	isPython  bool
	frames    map[int]view // by thread, of the current tick

	trainer *trainerState // nil unless it shows that it trains
	sampled bool          // its main thread was sampled in the current tick
	cause   cause         // the cause for the process in the current tick
	block   blocker       // the object that its main thread waits for
	stalled bool          // its main thread waits for a batch
	mayWait ownKey        // where it waits for others outside any loader: for a batch or in the step

	io       proc.IO
	ioKnown  bool
	majflt   uint64
	stime    uint64 // ticks in the kernel; 0 before the first reading
	switches [2]uint64
	stat     proc.Stat

	partner bool // a trainer was seen to wait for it again and again
	awaited int  // such samples
	turns   int  // times that it went on after it was seen waiting for another process
	fedLast bool // it did so in the last sample
	ranOwn  int  // samples with computation in the user's own code
	// Looks that found it there waiting for a device or a timer.
	sleptOwn int
	// Samples in which it waited for other threads there, in a function that is not known to wait.
	lockedOwn int
	elsewhere elsewhere
	beside    besideTimes
	xla       bool // it has threads that XLA has given a name
	// It has loaded a framework for models; that is looked up once.
	framework, frameworkAsked bool
	guess                     counts // of the main thread, before anything shows that it trains
	guessCPU                  float64
	stepsSeen                 int  // samples in a training step
	waitsSeen                 int  // samples of waiting for others
	feeders                   bool // threads of it make its batches
	workerSeen                bool // has had children that are workers
	pinSeen                   bool
	counted                   bool // in collector.workersEver
}

// trainerState is the state of a process that trains.
type trainerState struct {
	phase   int  // 0: evidence, the first batch is not there yet; 1: counting
	asked   bool // it did other work than a step since its first batch
	since   time.Time
	loaders map[string]int // samples by kind of loader
	fresh   bool           // its workers were restarted, and have made no batch yet
	loop    loopAt         // the place that requests batches
	// The result of the last sample, for the time until the next one.
	lastCause cause
	lastAt    ownKey
	weak      bool     // its loaded libraries are the only evidence that it trains
	chain     []loopAt // functions that were on the stack whenever it was in no loader
	// The number of stacks since chain last changed, and of those that lacked part of it.
	stacks, lacking int
}

// A thread is one thread of a member.
type thread struct {
	tid   int
	comm  string
	feeds feeding
	// Samples of its CPU time, and the number of them in code of XLA.
	native, xla int
	// trained counts samples in which it was in a training step while the main thread waited.
	trained int
	call    proc.Syscall // its system call in the last sample
	// The result of a wait for several descriptors, and the second of its lookup: mostly the same wait repeats.
	wait struct {
		call   proc.Syscall
		second int
		block  blocker
		ends   []end
		asked  bool // ends is filled
	}
	sched proc.Sched
	known bool    // sched holds a value
	share float64 // of a core in the last second, running or waiting for a core
	idle  int     // checks in a row without CPU time
	next  int     // checks to leave out

	// Kept open while the thread is sampled often.
	stat, syscall, wchan *proc.File
	noWchan              bool
	closed               bool
	seen                 bool
}

func (t *thread) close() {
	for _, f := range []*proc.File{t.stat, t.syscall, t.wchan} {
		if f != nil {
			f.Close()
		}
	}
	t.stat, t.syscall, t.wchan = nil, nil, nil
}

func (p *process) close() {
	for _, t := range p.threads {
		t.close()
	}
	if p.python != nil {
		p.python.Close()
		p.python = nil
	}
}

// renew discards the data on the program of a process that has started another program or found a better name. Many
// jobs start as another program: a wrapper, a version manager's python, a launcher that ends in exec. On a loaded
// machine that takes seconds.
func (p *process) renew(now time.Time, another bool) {
	if another && p.python != nil {
		p.python.Close()
		p.python = nil
	}
	p.pythonTry, p.nextTry, p.framesWhy = 0, now, ""
	p.cmd = nil
	if p.trainer == nil && (another || !p.partner) {
		p.role, p.partner, p.awaited = roleUnknown, false, 0
	}
}

// key identifies a process permanently.
type key struct {
	pid   int
	start uint64
}

// tree is the set of processes of a job: the root, its descendants, and descendants whose parent has exited.
type tree struct {
	fs      proc.FS
	root    int
	members map[int]*process
	// others are processes that do not belong to the job, by PID, so that the parent of a process is read once.
	others map[int]struct{}
	swept  time.Time
	// noChildren reports that this kernel does not list children.
	noChildren bool
	ended      int    // members that have ended
	ticks      uint64 // CPU time of the job, of members that have ended too
	ticked     bool
	missed     float64  // seconds of that which no sample of a thread has shown
	unread     []string // why the frames of some of those could not be read
	started    int      // members that appeared after the first sample
	looked     bool
	most       int  // how many are followed
	full       bool // there are more
}

func newTree(fs proc.FS, root int) *tree {
	return &tree{fs: fs, root: root, most: maxMembers, members: map[int]*process{}, others: map[int]struct{}{}}
}

// maxMembers bounds how many processes are followed.
const maxMembers = 4096

// update finds new members and drops those that have exited. It reports whether the root still exists.
func (t *tree) update(now time.Time) bool {
	buf := make([]byte, 1024)
	stat := func(pid int) (proc.Stat, bool) {
		data, err := t.fs.Process(buf, pid, "stat")
		if err != nil {
			return proc.Stat{}, false
		}
		s, err := proc.ParseStat(data)
		return s, err == nil
	}
	for pid, p := range t.members {
		s, ok := stat(pid)
		if !ok || s.Start != p.start || s.State == 'Z' || s.State == 'X' {
			if p.framesWhy != "" && len(t.unread) < maxSkipped && !slices.Contains(t.unread, p.framesWhy) {
				t.unread = append(t.unread, p.framesWhy)
			}
			p.close()
			delete(t.members, pid)
			t.ended++
			continue
		}
		// Another program may have the same name: a script called python that ends in
		// exec has it before and after.
		if another := s.Stack != 0 && p.stat.Stack != 0 && s.Stack != p.stat.Stack; another || p.comm != s.Comm && p.trainer == nil {
			p.renew(now, another)
		}
		p.stat, p.comm, p.ppid = s, s.Comm, s.PPID
	}
	parents := map[int]proc.Stat{}
	if !t.children(now, parents, stat) {
		t.sweep(now, parents, stat)
	}
	for grown := true; grown; {
		grown = false
		for pid, s := range parents {
			if pid != t.root && t.members[s.PPID] == nil {
				continue
			}
			if len(t.members) >= t.most {
				t.full = true
				continue
			}
			t.members[pid] = &process{
				pid: pid, start: s.Start, ppid: s.PPID, comm: s.Comm, stat: s, since: now, nextTry: now,
				threads: map[int]*thread{}, frames: map[int]view{},
			}
			if t.looked {
				t.started++
			}
			delete(parents, pid)
			grown = true
		}
	}
	if t.noChildren {
		for pid := range parents {
			t.others[pid] = struct{}{}
		}
	}
	t.looked = true
	all := make([]*process, 0, len(t.members))
	for _, p := range t.members {
		t.name(p)
		all = append(all, p)
	}
	// Parents before their children, because the role of a process depends on its parent.
	slices.SortFunc(all, func(a, b *process) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.pid, b.pid))
	})
	for _, p := range all {
		t.assign(p)
	}
	return t.members[t.root] != nil
}

// children reads the list of children of each member, which is cheap: listing all processes of a machine takes
// milliseconds. It reports whether this kernel has such lists. Children that a thread other than the first started are
// found every few seconds.
func (t *tree) children(now time.Time, found map[int]proc.Stat, stat func(int) (proc.Stat, bool)) bool {
	if t.noChildren {
		return false
	}
	everyThread := now.Sub(t.swept) > 5*time.Second
	if everyThread {
		t.swept = now
	}
	self := os.Getpid()
	queue := []int{t.root}
	for pid := range t.members {
		if pid != t.root {
			queue = append(queue, pid)
		}
	}
	buf := make([]byte, 4096)
	for i := 0; i < len(queue) && i < t.most; i++ {
		pid := queue[i]
		if t.members[pid] == nil {
			s, ok := stat(pid)
			if !ok || s.State == 'Z' || s.State == 'X' {
				continue
			}
			found[pid] = s
		}
		tids := []int{pid}
		if p := t.members[pid]; everyThread && p != nil && p.stat.Threads > 1 {
			if all, err := t.fs.Numbers(strconv.Itoa(pid), "task"); err == nil {
				tids = all
			}
		}
		for _, tid := range tids {
			data, err := t.fs.Thread(buf, pid, tid, "children")
			if err != nil {
				if _, ok := stat(pid); ok && tid == pid && pid == t.root {
					t.noChildren = true
					clear(found)
					return false
				}
				continue
			}
			for _, child := range proc.ParseChildren(data) {
				if t.members[child] == nil && child != self {
					if _, ok := found[child]; !ok {
						queue = append(queue, child)
					}
				}
			}
		}
	}
	t.full = t.full || len(queue) > t.most
	return true
}

// sweep reads every process of the machine whose parent is not known yet.
func (t *tree) sweep(now time.Time, found map[int]proc.Stat, stat func(int) (proc.Stat, bool)) {
	pids, err := t.fs.Numbers()
	if err != nil {
		pids = []int{t.root}
	}
	// Process numbers are reused, so read all of them again from time to time.
	if now.Sub(t.swept) > 20*time.Second {
		clear(t.others)
		t.swept = now
	}
	self := os.Getpid()
	seen := make(map[int]struct{}, len(pids))
	for _, pid := range pids {
		seen[pid] = struct{}{}
		if t.members[pid] != nil || pid == self {
			continue
		}
		if _, ok := t.others[pid]; ok && pid != t.root {
			continue
		}
		if s, ok := stat(pid); ok && s.State != 'Z' && s.State != 'X' {
			found[pid] = s
		}
	}
	for pid := range t.others {
		if _, ok := seen[pid]; !ok {
			delete(t.others, pid)
		}
	}
}

// close closes all open files.
func (t *tree) close() {
	for _, p := range t.members {
		p.close()
	}
}

// name reads the command line of a process whose role is not known. In the middle of an
// exec it is empty: then it is read again.
func (t *tree) name(p *process) {
	if len(p.cmd) == 0 || p.role == roleUnknown {
		p.cmd = t.fs.Command(p.pid)
		p.isPython = looksPython(p) || t.runsPython(p)
	}
}

// assign determines the purpose of a process from the outside. The frames may correct it.
func (t *tree) assign(p *process) {
	if p.role == roleWorker || p.role == roleEngine || p.trainer != nil {
		return
	}
	line := strings.Join(p.cmd, " ")
	parent := t.members[p.ppid]
	underTrainer := parent != nil && (parent.role == roleTrainer || parent.role == roleWorker || parent.role == roleHelper)
	switch {
	case p.comm == "pt_data_worker", forked(p, parent) && isForkServer(parent):
		p.role = roleWorker
	case strings.Contains(line, "multiprocessing.resource_tracker"), isForkServer(p):
		p.role = roleIgnored
	case strings.HasPrefix(p.comm, "ray::"), strings.Contains(line, "/ray/"):
		p.role = rayRole(p.comm, line)
	case len(p.cmd) > 1 && p.cmd[1] == "serve" && strings.HasPrefix(filepath.Base(p.cmd[0]), "stoker"):
		p.role = roleEngine
	case len(p.cmd) > 1 && p.cmd[1] == "doctor" && strings.HasPrefix(filepath.Base(p.cmd[0]), "stoker"):
		p.role = roleIgnored
	case strings.Contains(line, "multiprocessing.spawn"):
		p.role = roleWorker
	case p.isPython && forked(p, parent):
		// A fork without exec, as DataLoader, multiprocessing and Grain start workers.
		p.role = roleWorker
	case p.isPython:
		p.role = roleTrainer
	case underTrainer:
		p.role = roleHelper
	case isShell(p.comm):
		p.role = roleIgnored
	default:
		p.role = roleTrainer
	}
	if starter := t.starter(p); p.role == roleWorker && starter != nil {
		starter.workerSeen = true
	}
}

// rayRole returns the role of a process of a Ray cluster, which is part of the process name.
func rayRole(name, line string) role {
	name, named := strings.CutPrefix(name, "ray::")
	switch {
	case named && strings.Contains(name, "Train"):
		return roleTrainer
	case named && (strings.HasPrefix(name, "_") || strings.HasPrefix(name, "Dashboard") || strings.HasPrefix(name, "RuntimeEnv")):
		return roleIgnored // it manages the cluster
	case named:
		return roleWorker
	case strings.Contains(line, "/ray/core/src/"), strings.Contains(line, "/site-packages/ray/"):
		return roleIgnored
	}
	return roleTrainer
}

// starter returns the process that requested another one: its parent, or the client of a fork server.
func (t *tree) starter(p *process) *process {
	parent := t.members[p.ppid]
	if parent != nil && isForkServer(parent) {
		return t.members[parent.ppid]
	}
	return parent
}

// isForkServer reports whether a process only starts others on request: Python's default from 3.14 on.
func isForkServer(p *process) bool {
	return p != nil && slices.ContainsFunc(p.cmd, func(word string) bool { return strings.Contains(word, "multiprocessing.forkserver") })
}

// forked reports whether a process is its parent's fork with the same program. Its command line equals the parent's,
// unless one of them has renamed itself, and its stack begins at the same address.
func forked(p, parent *process) bool {
	if parent == nil {
		return false
	}
	return len(p.cmd) > 0 && sameCommand(p.cmd, parent.cmd) || p.stat.Stack != 0 && p.stat.Stack != 1 && p.stat.Stack == parent.stat.Stack
}

// sameProgram returns the interpreter of a member that runs the same program as a forked process: its parent, its child
// or a sibling. It is nil if there is none, or if its frames cannot be read.
func (t *tree) sameProgram(pid int) *pystack.Process {
	p := t.members[pid]
	if p == nil || p.stat.Stack <= 1 {
		return nil
	}
	for _, q := range t.members {
		if q.stat.Stack != p.stat.Stack || q.pid != p.ppid && q.ppid != p.ppid && q.ppid != p.pid {
			continue
		}
		if like, ok := q.python.(*pystack.Process); ok && like != nil {
			return like
		}
	}
	return nil
}

// runsPython reports whether a process's program is an interpreter, whatever its name.
func (t *tree) runsPython(p *process) bool {
	name := filepath.Base(t.fs.Program(p.pid))
	return strings.HasPrefix(name, "python") || strings.HasPrefix(name, "pypy")
}

func looksPython(p *process) bool {
	if len(p.cmd) > 0 && strings.HasPrefix(filepath.Base(p.cmd[0]), "python") {
		return true
	}
	return strings.HasPrefix(p.comm, "python") || strings.HasPrefix(p.comm, "pt_")
}

func isShell(comm string) bool {
	switch comm {
	case "sh", "bash", "dash", "zsh", "fish", "make", "sudo", "env", "time", "timeout", "nohup", "tmux", "srun", "screen", "su":
		return true
	}
	return false
}

func sameCommand(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// workersOf returns the workers that descend from a process.
func (t *tree) workersOf(pid int, workers []*process) []*process {
	var out []*process
	for _, w := range workers {
		for q, n := w, 0; q != nil && n < 64; q, n = t.members[q.ppid], n+1 {
			if q.pid == pid {
				out = append(out, w)
				break
			}
		}
	}
	return out
}

// childrenOf lists the members whose parent is pid.
func (t *tree) childrenOf(pid int) []*process {
	var out []*process
	for _, p := range t.members {
		if p.ppid == pid && p.pid != pid {
			out = append(out, p)
		}
	}
	return out
}

// engineReader follows the stage counters of one engine.
type engineReader struct {
	stages *counters.Stages
	last   map[int64]counters.Snapshot // by when the pipeline was opened
}
