package doctor

import (
	"fmt"
	"math"
)

// series writes the timeline for plots.
func (c *collector) series(l *timeline) Series {
	out := Series{}
	n := len(l.bins)
	add := func(name string, f func(b *bin) float64) {
		v := make(Values, n)
		some := false
		for i := range l.bins {
			v[i] = f(&l.bins[i])
			some = some || !math.IsNaN(v[i])
		}
		if some {
			out[name] = v
		}
	}
	cores := max(1, c.sys.cores)
	all := max(1, float64(c.sys.cpu.Cores))
	rate := func(m metric, scale float64) func(*bin) float64 {
		return func(b *bin) float64 { return l.rate(b, m) * scale }
	}
	share := func(f func(b *bin) float64) func(*bin) float64 {
		return func(b *bin) float64 {
			if n := b.trainer.total(); n > 0 {
				return f(b) / n
			}
			return math.NaN()
		}
	}
	add("t", func(b *bin) float64 { return b.t })
	add("cpu", rate(mRun, 1/cores))
	add("cpu_machine", rate(mBusy, 1/all))
	add("cpu_user", rate(mUser, 1/all))
	add("cpu_system", rate(mSystem, 1/all))
	add("iowait", rate(mIOWait, 1/all))
	add("steal", rate(mSteal, 1/all))
	add("run_queue", rate(mDelay, 1/cores))
	add("throttled", rate(mThrottled, 1/cores))
	add("wait", func(b *bin) float64 {
		if b.v[mLogTime] > 0 {
			return min(1, b.v[mLogWait]/b.v[mLogTime])
		}
		return share(func(b *bin) float64 { return b.trainer.total() - b.trainer[causeStep] - b.trainer[causeOther] })(b)
	})
	add("step", share(func(b *bin) float64 { return b.trainer[causeStep] }))
	for _, v := range Causes {
		x := resources[v]
		add("worker_"+string(v), func(b *bin) float64 {
			if n := b.lanes.total(); n > 0 {
				return b.lanes[x] / n
			}
			return math.NaN()
		})
	}
	add("workers", rate(gWorkers, 1))
	add("read_MBps", rate(mReadBytes, 1e-6))
	add("read_calls_MBps", rate(mReadChars, 1e-6))
	add("disk_busy", rate(mDiskBusy, 1))
	add("disk_read_MBps", rate(mDiskRead, 1e-6))
	add("disk_read_ms", func(b *bin) float64 {
		if !l.known[mDiskReads] || b.v[mDiskReads] == 0 {
			return math.NaN()
		}
		return 1000 * b.v[mDiskTime] / b.v[mDiskReads]
	})
	add("net_MBps", rate(mNetReceived, 1e-6))
	add("loopback_MBps", rate(mLoopback, 1e-6))
	add("memory", rate(gMemory, 1))
	add("swap", rate(gSwap, 1))
	add("shm", rate(gShm, 1))
	add("rss_MB", rate(gRSS, 1e-6))
	add("load", rate(gLoad, 1))
	add("major_faults", rate(mMajorFaults, 1))
	add("switches", rate(mSwitches, 1))
	add("psi_cpu", func(b *bin) float64 { return min(1, l.rate(b, mPSICPU)) })
	add("psi_io", func(b *bin) float64 { return min(1, l.rate(b, mPSIIO)) })
	add("psi_memory", func(b *bin) float64 { return min(1, l.rate(b, mPSIMemory)) })
	add("steps_per_s", rate(mLogSteps, 1))
	add("rows_per_s", rate(mLogRows, 1))
	gpus := 0
	for i := range l.bins {
		gpus = max(gpus, len(l.bins[i].gpus))
	}
	for g := range gpus {
		add(fmt.Sprintf("gpu%d", g), func(b *bin) float64 {
			if g >= len(b.gpus) || b.dt <= 0 {
				return math.NaN()
			}
			return b.gpus[g] / b.dt
		})
	}
	if gpus > 0 {
		add("gpu_memory", rate(gGPUMemory, 1))
		add("gpu_clock", rate(gGPUClock, 1))
		add("pcie_read_MBps", rate(mPCIeRead, 1e-6))
		add("pcie_write_MBps", rate(mPCIeWrite, 1e-6))
	}
	return out
}
