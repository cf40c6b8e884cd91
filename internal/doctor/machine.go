package doctor

import (
	"fmt"
	"math"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/doctor/gpu"
	"github.com/stokerdata/stoker/internal/proc"
)

// machineState is the state of the machine and of other programs on it.
type machineState struct {
	sys       systemState
	gpus      *gpu.Devices
	topOther  string         // the busiest program outside of the job, for the evidence
	others    map[int]uint64 // CPU ticks of programs outside of the job
	othersAt  time.Time
	throttles map[string]int // seconds by reason for which an accelerator runs slower
}

// systemState is the result of the last second's reading.
type systemState struct {
	cpu      proc.CPU
	group    proc.Group
	throttle proc.Throttle
	limit    proc.MemoryLimit
	memory   proc.Memory
	disks    map[[2]int]proc.Disk
	net      proc.Net
	psi      [3]proc.Pressure // cpu, io, memory
	psiKnown [3]bool
	vmstat   map[string]uint64
	load     float64
	mounts   []proc.Mount
	mountsAt time.Time

	cores   float64 // that the job may use
	limited string  // their limit: "affinity", "quota" or ""
	bytes   uint64  // memory that it may use
	host    Host
	known   struct{ cpu, net, vm bool }
	shm     unix.Statfs_t
	shmOK   bool
	// short reports that memory is short: the limit was hit or pages were swapped in during the last seconds.
	short   bool
	shortAt time.Time
	disk    string // the busiest device that the tree reads from
	// The control group's limits for reads from that device per second; 0 for no limit.
	readBytes, readCount float64
	// partitions records which devices are parts of others.
	partitions map[string]bool
}

var psiNames = [3]string{"cpu", "io", "memory"}

var psiMetrics = [3]metric{mPSICPU, mPSIIO, mPSIMemory}

// init reads everything once, so that the first second can be compared with something, and records what is missing.
func (s *systemState) init(c *collector) {
	s.partitions = map[string]bool{}
	s.group = c.fs.Group(c.opt.PID)
	for i, name := range psiNames {
		if _, ok := c.pressure(i); !ok {
			c.skip("pressure stall information (%s): this kernel has none or it is switched off (psi=1 on its command line)", name)
			if i == 0 {
				break
			}
		}
	}
	s.read(c, true)
	cores := float64(s.cpu.Cores)
	if data, err := c.fs.Process(c.buf, c.opt.PID, "status"); err == nil {
		if st := proc.ParseStatus(data); st.CPUs > 0 && float64(st.CPUs) < cores {
			cores, s.limited = float64(st.CPUs), "affinity"
		}
	}
	if q := s.throttle.Quota; q > 0 && q < cores {
		cores, s.limited = q, "quota"
	}
	if cores <= 0 {
		cores = 1
	}
	s.cores = cores
	s.bytes = s.memory.Total
	if s.limit.Limit > 0 && s.limit.Limit < s.bytes {
		s.bytes = s.limit.Limit
	}
	s.host = Host{Cores: cores, Memory: int64(min(s.bytes, math.MaxInt64))}
	if data, err := c.fs.Read(nil, "cpuinfo"); err == nil {
		s.host.CPU = proc.ParseModel(data)
	}
	if data, err := c.fs.Read(nil, "sys/kernel/osrelease"); err == nil {
		s.host.Kernel = string(trimSpace(data))
	}
}

func trimSpace(b []byte) []byte {
	for len(b) > 0 && (b[len(b)-1] == '\n' || b[len(b)-1] == ' ') {
		b = b[:len(b)-1]
	}
	return b
}

// pressure reads a pressure file: that of the job's control group if it has one, otherwise that of the machine.
func (c *collector) pressure(i int) (proc.Pressure, bool) {
	if p, ok := c.fs.GroupPressure(c.sys.group, psiNames[i]); ok && c.sys.group.Unified != "fs/cgroup/unified" && c.sys.group.Unified != "fs/cgroup" {
		return p, true
	}
	data, err := c.fs.Read(c.buf, "pressure", psiNames[i])
	if err != nil {
		return proc.Pressure{}, false
	}
	p, err := proc.ParsePressure(data)
	return p, err == nil
}

// wantVM selects the lines of /proc/vmstat.
func wantVM(name string) bool {
	switch name {
	case "pswpin", "pswpout", "pgmajfault", "workingset_refault_file":
		return true
	}
	return false
}

// rareEvery is the number of seconds between reads of values that change slowly or are expensive for the kernel.
const rareEvery = 4

// read updates the state. rare reports that the values that are not read every second are due.
func (s *systemState) read(c *collector, rare bool) {
	if data, err := c.fs.Read(c.buf, "stat"); err == nil {
		if v, err := proc.ParseCPU(data); err == nil {
			s.cpu, s.known.cpu = v, true
		}
	}
	if data, err := c.fs.Read(c.buf, "diskstats"); err == nil {
		s.disks = map[[2]int]proc.Disk{}
		for _, d := range proc.ParseDisks(data) {
			if d.Reads+d.Writes > 0 {
				s.disks[[2]int{d.Major, d.Minor}] = d
			}
		}
	}
	if data, err := c.fs.Process(c.buf, c.opt.PID, "net/dev"); err == nil {
		s.net, s.known.net = proc.ParseNet(data), true
	}
	for i := range psiNames {
		s.psi[i], s.psiKnown[i] = c.pressure(i)
	}
	// A limit that does not exist now seldom appears; an existing one has figures.
	if rare || s.throttle.Quota > 0 {
		s.throttle = c.fs.Throttle(s.group)
	}
	if rare || s.limit.Limit > 0 {
		s.limit = c.fs.MemoryLimit(s.group)
	}
	if !rare {
		return
	}
	if data, err := c.fs.Read(c.buf, "meminfo"); err == nil {
		if v, err := proc.ParseMemory(data); err == nil {
			s.memory = v
		}
	}
	if data, err := c.fs.Read(c.buf, "vmstat"); err == nil {
		s.vmstat, s.known.vm = proc.ParseCounters(data, wantVM), true
	}
	if data, err := c.fs.Read(c.buf, "loadavg"); err == nil {
		if v, err := proc.ParseLoad(data); err == nil {
			s.load = v
		}
	}
	s.shmOK = c.fs.Proc == proc.Live.Proc && unix.Statfs("/dev/shm", &s.shm) == nil && s.shm.Blocks > 0
}

// slow takes the readings of each second, and adds the differences to the bin.
func (c *collector) slow(now time.Time, dt float64) {
	before := c.sys
	c.seconds++
	rare := c.seconds%rareEvery == 0
	c.sys.read(c, rare)
	s, v, known := &c.sys, &c.bin.v, &c.line.known
	put := func(m metric, x float64) {
		if x < 0 || math.IsNaN(x) {
			x = 0 // a restarted counter
		}
		v[m] += x
		known[m] = true
	}
	since := func(a, b uint64) float64 {
		if a < b {
			return 0
		}
		return float64(a - b)
	}
	if s.known.cpu {
		put(mUser, since(s.cpu.User+s.cpu.Nice, before.cpu.User+before.cpu.Nice)/proc.Ticks)
		put(mSystem, since(s.cpu.System+s.cpu.IRQ+s.cpu.SoftIRQ, before.cpu.System+before.cpu.IRQ+before.cpu.SoftIRQ)/proc.Ticks)
		put(mIOWait, since(s.cpu.IOWait, before.cpu.IOWait)/proc.Ticks)
		put(mSteal, since(s.cpu.Steal, before.cpu.Steal)/proc.Ticks)
		put(mBusy, since(s.cpu.Busy(), before.cpu.Busy())/proc.Ticks)
		put(gLoad, s.load/max(1, float64(s.cpu.Cores))*dt)
	}
	if s.throttle.Quota > 0 {
		put(mThrottled, since(s.throttle.Time, before.throttle.Time)/1e9)
	}
	if s.limit.Limit > 0 {
		used := since(s.limit.Usage, s.limit.Reusable)
		put(gMemory, used/float64(s.limit.Limit)*dt)
		put(mFailures, since(s.limit.Failures, before.limit.Failures))
		put(mRefaults, since(s.limit.Refaults, before.limit.Refaults))
	} else if s.memory.Total > 0 {
		put(gMemory, (1-float64(s.memory.Available)/float64(s.memory.Total))*dt)
		if s.known.vm {
			put(mRefaults, since(s.vmstat["workingset_refault_file"], before.vmstat["workingset_refault_file"]))
		}
	}
	hit := s.limit.Limit > 0 && s.limit.Failures > before.limit.Failures
	if rare && s.known.vm {
		hit = hit || s.vmstat["pswpin"] > before.vmstat["pswpin"]
		put(mSwapIn, since(s.vmstat["pswpin"], before.vmstat["pswpin"]))
	}
	if hit {
		s.shortAt = now
	}
	s.short = !s.shortAt.IsZero() && now.Sub(s.shortAt) < 2*rareEvery*time.Second
	if s.memory.SwapTotal > 0 {
		put(gSwap, (1-float64(s.memory.SwapFree)/float64(s.memory.SwapTotal))*dt)
	}
	if s.known.net {
		put(mNetReceived, since(s.net.Received, before.net.Received))
		put(mNetSent, since(s.net.Sent, before.net.Sent))
		put(mLoopback, since(s.net.Loopback, before.net.Loopback))
	}
	for i, m := range psiMetrics {
		if s.psiKnown[i] && before.psiKnown[i] {
			put(m, since(s.psi[i].Some, before.psi[i].Some)/1e6)
		}
	}
	if s.shmOK {
		put(gShm, (1-float64(s.shm.Bfree)/float64(s.shm.Blocks))*dt)
	}
	c.disks(before.disks, put, since)
	c.members(now, dt, put, since)
	if (v[mBusy]-v[mRun])/dt > 0.3 {
		c.readOthers(now)
	}
	if rare {
		c.findOutsider()
	}
	c.readEngines(now, put)
	c.log.read(c, now, dt, put)
	c.notes.read(c, now)
	c.readGPUs(dt, put)
}

// disks finds the device with most reads and records its utilization.
func (c *collector) disks(before map[[2]int]proc.Disk, put func(metric, float64), since func(a, b uint64) float64) {
	if len(before) == 0 {
		return
	}
	var best proc.Disk
	most := -1.0
	for id, d := range c.sys.disks {
		b, ok := before[id]
		if !ok || c.partition(d.Name) {
			continue
		}
		read := since(d.ReadBytes, b.ReadBytes)
		if read > most || read == most && since(d.BusyMS, b.BusyMS) > float64(best.BusyMS) {
			most = read
			best = proc.Disk{
				Major: d.Major, Minor: d.Minor, Name: d.Name, ReadBytes: d.ReadBytes - b.ReadBytes, Reads: d.Reads - b.Reads,
				ReadMS: d.ReadMS - b.ReadMS, BusyMS: d.BusyMS - b.BusyMS,
			}
		}
	}
	if most < 0 {
		return
	}
	if c.sys.disk != best.Name || c.seconds%rareEvery == 0 {
		c.sys.readBytes, c.sys.readCount = c.fs.ReadLimits(c.sys.group, uint32(best.Major), uint32(best.Minor))
	}
	c.sys.disk = best.Name
	put(mDiskBusy, float64(best.BusyMS)/1000)
	put(mDiskRead, float64(best.ReadBytes))
	put(mDiskReads, float64(best.Reads))
	put(mDiskTime, float64(best.ReadMS)/1000)
}

// partition reports whether a device is a part of another, whose counters
// include its own.
func (c *collector) partition(name string) bool {
	is, known := c.sys.partitions[name]
	if !known {
		_, err := c.fs.ReadSys(c.buf2, "class/block", name, "partition")
		is = err == nil
		c.sys.partitions[name] = is
	}
	return is
}

// readOthers finds the program outside the job that takes most CPU time. It reads every process of the machine, so it
// runs rarely and only if other programs are busy.
func (c *collector) readOthers(now time.Time) {
	dt := now.Sub(c.othersAt).Seconds()
	if dt < 3 && c.others != nil {
		return
	}
	pids, err := c.fs.Numbers()
	if err != nil || len(pids) > 5000 {
		return
	}
	ticks := make(map[int]uint64, len(pids))
	self, most := os.Getpid(), 0.0
	for _, pid := range pids {
		if c.tree.members[pid] != nil || pid == self {
			continue
		}
		data, err := c.fs.Process(c.buf, pid, "stat")
		if err != nil {
			continue
		}
		s, err := proc.ParseStat(data)
		if err != nil {
			continue
		}
		ticks[pid] = s.UTime + s.STime
		if before, ok := c.others[pid]; ok && ticks[pid] >= before && dt < 30 {
			if cores := float64(ticks[pid]-before) / proc.Ticks / dt; cores > most && cores > 0.1 {
				most = cores
				c.topOther = fmt.Sprintf("%s (process %d, %.2f cores)", printable(s.Comm), pid, cores)
			}
		}
	}
	c.others, c.othersAt = ticks, now
}

// printable removes characters that would move a terminal's cursor.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, s)
}

// readGPUs reads the accelerators.
func (c *collector) readGPUs(dt float64, put func(metric, float64)) {
	if c.gpus == nil {
		return
	}
	readings := c.gpus.Read()
	if len(readings) == 0 {
		return
	}
	if c.sys.host.Accelerators == nil {
		for _, r := range readings {
			c.sys.host.Accelerators = append(c.sys.host.Accelerators, r.Name)
		}
	}
	n := float64(len(readings))
	for _, r := range readings {
		c.bin.gpus = append(c.bin.gpus, r.Utilisation*dt)
		put(gGPU, r.Utilisation*dt/n)
		if r.MemoryTotal > 0 {
			put(gGPUMemory, float64(r.MemoryUsed)/float64(r.MemoryTotal)*dt/n)
		}
		if r.ClockMax > 0 {
			put(gGPUClock, float64(r.Clock)/float64(r.ClockMax)*dt/n)
		}
		put(mPCIeRead, r.PCIeReceive*dt)
		put(mPCIeWrite, r.PCIeSend*dt)
		slowed := 0.0
		if r.Throttled != "" {
			slowed = dt
			c.throttles[r.Throttled]++
		}
		put(mThrottleGPU, slowed/n)
	}
}
