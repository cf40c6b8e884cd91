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
	"time"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/doctor/gpu"
	"github.com/stokerdata/stoker/internal/doctor/libprofile"
	"github.com/stokerdata/stoker/internal/doctor/pystack"
	"github.com/stokerdata/stoker/internal/proc"
)

// Options select the job and the time of observation.
type Options struct {
	// PID is the root of the process tree.
	PID int
	// Seconds ends the observation that long after the first batch; 0 continues until the job ends.
	Seconds float64
	// Patience is the time to wait for the first batch before Seconds begin to count anyway. 0 means 60 s; the doctor
	// attached to a running job uses less.
	Patience float64
	// Most ends the observation that many seconds after its start in any case; 0 sets no limit.
	Most float64
	// First is called once, [FirstVerdict] after the first batch or, without one, after Patience. It gets a report of
	// the observations so far, without advice, and must not keep it. May be nil.
	First func(*Report)
	// Alone reports that this process only observes. All its CPU time then counts as the cost of observation, not only
	// that of the sampling thread.
	Alone bool
	// NoFrames leaves the Python frames alone.
	NoFrames bool
	// FS is the location of /proc and /sys; the zero value is this machine.
	FS proc.FS
	// Progress is called about once a second with the observations so far, and must not keep them. May be nil.
	Progress func(seconds float64, training bool)
	// Live is called about once a second with a report of the last seconds, for
	// --watch. May be nil.
	Live func(*Report)
	// LiveWindow is the number of seconds that a live report covers; 0 means 10.
	LiveWindow float64
	// Inspect returns how the program sees the data at a path, for advice that names it, or an error if it cannot be
	// read. May be nil.
	Inspect func(path string) (Data, error)
	// Stoker is this program's version, for the report.
	Stoker string
}

// FirstVerdict is the time from the first batch to the first verdict. It is three seconds less than fifteen, because
// figures have a grain of a second and a tick may take as long with very many threads.
const FirstVerdict = 12 * time.Second

// meanTick is the mean time between two samples of the trainers. Each interval is random around it. A fixed interval
// could fall into step with a loop of the same period and see the same part of it every time.
const meanTick = 40 * time.Millisecond

// earlyTick is the interval before the training begins. Only the beginning is looked for then.
const earlyTick = 200 * time.Millisecond

// wideEvery is the number of ticks between samples of the workers. The gain depends on the division of the trainer's
// own time, and the trainer is one thread. There are many workers, so each sample of all of them gives as much
// information.
const wideEvery = 3

// slowEvery is the interval between reads of the other figures.
const slowEvery = time.Second

// maxHot limits the number of threads that are sampled in each tick.
const maxHot = 64

// collector observes one job. It belongs to one goroutine. Its state has four subjects, each in its own file.
type collector struct {
	opt  Options
	fs   proc.FS
	line timeline
	bin  bin

	trainingState // the state of the trainers: trainer.go
	memberState   // the job's processes: members.go
	machineState  // the machine: machine.go
	dataState     // the data and the code: data.go
	partnerState  // which process waits for which: partners.go
	nativeState   // in which libraries the data path runs: native.go

	denied     bool // the kernel hides from this user what the job waits for
	start      time.Time
	wall       time.Time
	lastSlow   time.Time
	seconds    int  // readings of the slow kind
	saidFirst  bool // First was called
	pace       pace
	cpuAtStart time.Duration

	skipped   []string
	skipSeen  map[string]bool
	buf, buf2 []byte
}

// maxSkipped limits the lines on unavailable data.
const maxSkipped = 20

// skip records once that data is unavailable.
func (c *collector) skip(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	if c.skipSeen[line] || len(c.skipped) >= maxSkipped {
		return
	}
	c.skipSeen[line] = true
	c.skipped = append(c.skipped, line)
}

// skips returns what could not be observed so far.
func (c *collector) skips() []string {
	lines := slices.Concat(c.skipped, c.tree.unread)
	if c.tree.full {
		lines = append(lines, fmt.Sprintf("the job has more than %d processes: the others are not looked at", c.tree.most))
	}
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

// Watch observes a job until it ends, ctx ends or the time is over, and returns a report. It fails only if the process
// does not exist.
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
		opt: opt, fs: opt.FS, skipSeen: map[string]bool{}, buf: make([]byte, 4096), buf2: make([]byte, 4096),
		trainingState: trainingState{trainers: map[key]bool{}, collectives: map[string]int{}, votes: map[string]int{}},
		memberState: memberState{
			tree: newTree(opt.FS, opt.PID), view: newViewer(), engines: map[int]*engineReader{}, laneLoaders: map[string]int{},
		},
		machineState: machineState{throttles: map[string]int{}},
		nativeState:  nativeState{spent: map[string]int{}, spentAt: map[ownKey]map[string]int{}, faults: map[string]int{}},
		dataState:    dataState{files: map[string]int{}, fsTypes: map[string]int{}, wheres: map[siteKey]int{}, locks: map[string]int{}, sources: map[string][]string{}},
	}
	if _, err := c.fs.Process(c.buf, opt.PID, "stat"); err != nil {
		if os.IsPermission(err) {
			return nil, fmt.Errorf("process %d may not be looked at: %w", opt.PID, err)
		}
		return nil, fmt.Errorf("there is no process %d", opt.PID)
	}
	if !opt.NoFrames && opt.FS.Proc == proc.Live.Proc {
		c.open = func(pid int) (stacks, error) {
			if like := c.tree.sameProgram(pid); like != nil {
				if p, err := like.Fork(pid); err == nil {
					return p, nil
				}
			}
			p, err := pystack.Open(pid)
			if err != nil {
				return nil, err
			}
			return p, nil
		}
	}
	if opt.FS.Proc == proc.Live.Proc {
		c.libs = libprofile.New(opt.FS)
	}
	c.start, c.wall = time.Now(), time.Now()
	c.cpuAtStart = proc.OwnCPU()
	if c.pace.cpu = proc.ThreadCPU; opt.Alone && opt.Live == nil { // drawing does not count as observing
		c.pace.cpu = proc.OwnCPU
	}
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

// checkAccess reports once which data the kernel hides from this user.
func (c *collector) checkAccess() {
	if _, err := c.fs.Process(c.buf, c.opt.PID, "io"); err != nil {
		if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
			c.denied = true
			c.skip("disk reads per process and system calls: process %d belongs to another user or protects itself; run doctor as its user or as root", c.opt.PID)
		}
	}
}

func (c *collector) close() {
	c.tree.close()
	c.log.close()
	c.notes.close()
	if c.libs != nil {
		c.libs.Close()
	}
	if c.gpus != nil {
		c.gpus.Close()
	}
}

// run samples until the end.
func (c *collector) run(ctx context.Context) {
	runtime.LockOSThread() // reading /proc on one thread wakes no other threads
	defer runtime.UnlockOSThread()
	timer := time.NewTimer(0)
	defer timer.Stop()
	c.lastSlow = c.start
	c.pace.begin(c.start)
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			c.flush(time.Now())
			return
		case <-timer.C:
		}
		now := time.Now()
		over := c.over(now)
		first := c.opt.First != nil && !c.saidFirst && c.after(FirstVerdict.Seconds(), now)
		if over || first || now.Sub(c.lastSlow) >= c.pace.nextSlow(now) {
			before := c.pace.cpu()
			// Thousands of processes are asked whether they are still there more rarely.
			alive := true
			if now.Sub(c.treeAt) >= slowEvery*time.Duration(1+len(c.tree.members)/256) {
				alive = c.updateTree(now)
			}
			c.flush(now)
			c.pace.slowed(c.pace.cpu() - before)
			if !alive || over {
				return
			}
			if first {
				c.saidFirst = true
				c.opt.First(c.judge(c.line).r)
			}
		}
		if c.lost && now.Sub(c.treeAt) > 250*time.Millisecond {
			// Workers exit and start at the end of an epoch: do not miss the new ones.
			c.updateTree(now)
		}
		before := c.pace.cpu()
		if n%wideEvery == 0 || c.training.IsZero() {
			c.tick(now)
		} else {
			c.tickTrainers(now)
		}
		c.pace.ticked(c.pace.cpu() - before)
		least := meanTick
		if c.training.IsZero() {
			least = earlyTick
		}
		wait := c.pace.nextTick(time.Now(), least)
		timer.Reset(min(wait/2+rand.N(wait), c.left(time.Now())))
	}
}

// left returns the time until the limit for observing a job is reached, so that rare samples do not delay the verdict.
func (c *collector) left(now time.Time) time.Duration {
	end := c.start.Add(time.Duration(c.opt.Most * float64(time.Second)))
	if c.opt.Most <= 0 || !end.After(now) {
		return time.Hour
	}
	return end.Sub(now)
}

// over reports whether the time is up.
func (c *collector) over(now time.Time) bool {
	if c.opt.Most > 0 && now.Sub(c.start).Seconds() >= c.opt.Most {
		return true
	}
	return c.opt.Seconds > 0 && c.after(c.opt.Seconds, now)
}

// after reports whether so many seconds have passed since the first batch and since the first step of an accelerator.
// If no batch came, they count from the end of the time in which one may come.
func (c *collector) after(seconds float64, now time.Time) bool {
	var from time.Time
	switch {
	case !c.training.IsZero():
		from = c.training.Add(time.Duration(c.warming * float64(time.Second)))
	case now.Sub(c.start).Seconds() < c.opt.Patience:
		return false
	default:
		from = c.start.Add(time.Duration(c.opt.Patience * float64(time.Second)))
	}
	return now.Sub(from).Seconds() >= seconds
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
	c.warming = c.line.warming()
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
