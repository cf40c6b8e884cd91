package proc

import (
	"time"

	"golang.org/x/sys/unix"
)

// Usage is the resource use of a process tree.
type Usage struct {
	// CPU is user and system time, of children that have ended as well.
	CPU time.Duration
	// BlockBytes were read from storage, ReadBytes by read() from anywhere, the page cache included. Reads through a
	// mapping are in neither, except for pages that came from storage.
	BlockBytes, ReadBytes int64
	// PSS is the memory in use: shared pages count for each process in part.
	PSS int64
	// Processes is their number.
	Processes int
}

// Sub returns the use between before and u; PSS and Processes are those of u.
func (u Usage) Sub(before Usage) Usage {
	u.CPU -= before.CPU
	u.BlockBytes -= before.BlockBytes
	u.ReadBytes -= before.ReadBytes
	return u
}

// Add returns the sum.
func (u Usage) Add(v Usage) Usage {
	return Usage{u.CPU + v.CPU, u.BlockBytes + v.BlockBytes, u.ReadBytes + v.ReadBytes, u.PSS + v.PSS, u.Processes + v.Processes}
}

// UsageOf sums the use of processes. withMemory also reads their PSS, which takes the kernel a millisecond for each.
func (fs FS) UsageOf(pids []int, withMemory bool) Usage {
	var u Usage
	buf := make([]byte, 4096)
	for _, pid := range pids {
		data, err := fs.Process(buf, pid, "stat")
		if err != nil {
			continue
		}
		s, err := ParseStat(data)
		if err != nil {
			continue
		}
		u.Processes++
		u.CPU += time.Duration(s.UTime+s.STime+s.CUTime+s.CSTime) * time.Second / Ticks
		// Values of another user's process that may not be read count as zero.
		if data, err := fs.Process(buf, pid, "io"); err == nil {
			if io, err := ParseIO(data); err == nil {
				u.BlockBytes += int64(io.ReadBytes)
				u.ReadBytes += int64(io.ReadChars)
			}
		}
		if withMemory {
			if data, err := fs.Process(buf, pid, "smaps_rollup"); err == nil {
				u.PSS += int64(ParsePSS(data))
			}
		}
	}
	return u
}

// OwnCPU is the CPU time of this process, to the microsecond.
func OwnCPU() time.Duration {
	var r unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &r) != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// ThreadCPU is the CPU time of the calling thread.
func ThreadCPU() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts) != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// IdleTime returns the total idle time of the given CPUs, and false if the system does not report it.
func (fs FS) IdleTime(cpus []int) (time.Duration, bool) {
	data, err := fs.Read(nil, "stat")
	if err != nil {
		return 0, false
	}
	ticks, err := ParseIdle(data, cpus)
	return time.Duration(ticks) * time.Second / Ticks, err == nil
}
