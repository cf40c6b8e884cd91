package doctor

import (
	"errors"
	"os"
	"strconv"
	"time"

	"github.com/stokerdata/stoker/internal/counters"
	"github.com/stokerdata/stoker/internal/proc"
)

// members reads the figures of each process and thread.
func (c *collector) members(now time.Time, dt float64, put func(metric, float64), since func(a, b uint64) float64) {
	var rss, procs, workers float64
	budget := 512                       // threads read in this second
	every := 1 + len(c.tree.members)/64 // cumulative figures are read in turns if there are many processes
	longest := 0.0
	for _, p := range c.tree.members {
		procs++
		rss += float64(p.stat.RSS) * float64(os.Getpagesize())
		if p.role == roleWorker {
			workers++
		}
		put(mMajorFaults, since(p.stat.MajFlt, p.majfltOr(p.stat.MajFlt)))
		p.majflt = p.stat.MajFlt
		if p.stime > 0 {
			put(mKernel, since(p.stat.STime, p.stime)/proc.Ticks)
		}
		p.stime = max(1, p.stat.STime)
		if (c.seconds+p.pid)%every != 0 {
			// It is read on a later turn.
		} else if data, err := c.fs.Process(c.buf, p.pid, "io"); err == nil {
			if io, err := proc.ParseIO(data); err == nil {
				if p.ioKnown || now.Sub(p.since) < 2*time.Second && now.Sub(c.start) > 2*time.Second {
					put(mReadBytes, since(io.ReadBytes, p.io.ReadBytes))
					put(mReadChars, since(io.ReadChars, p.io.ReadChars))
					put(mWriteBytes, since(io.WriteBytes, p.io.WriteBytes))
					put(mReadCalls, since(io.ReadCalls, p.io.ReadCalls))
				}
				p.io, p.ioKnown = io, true
			}
		}
		if c.seconds%rareEvery != 0 {
			// Its context switches can wait.
		} else if data, err := c.fs.Process(c.buf, p.pid, "status"); err == nil {
			st := proc.ParseStatus(data)
			if p.switches != [2]uint64{} {
				put(mSwitches, since(st.Voluntary+st.Involuntary, p.switches[0]+p.switches[1]))
			}
			p.switches = [2]uint64{st.Voluntary, st.Involuntary}
		}
		p.beside = besideTimes{}
		c.threads(p, now, dt, &budget, put, since)
		longest = max(longest, p.beside.least(c.sys.cores))
	}
	put(mBeside, longest)
	c.childrenTime(put)
	put(gRSS, rss*dt)
	put(gProcs, procs*dt)
	put(gWorkers, workers*dt)
}

// childrenTime adds the CPU time that samples of threads miss: that of processes that began and ended between two
// samples. The kernel adds a child's time to the parent that waits for it, so the sum over all members only grows. It
// is too low while an ended child has not been waited for.
func (c *collector) childrenTime(put func(metric, float64)) {
	var ticks uint64
	for _, p := range c.tree.members {
		ticks += p.stat.UTime + p.stat.STime + p.stat.CUTime + p.stat.CSTime
	}
	seen := c.bin.v[mRun]
	if !c.tree.ticked {
		c.tree.ticks, c.tree.ticked = ticks, true
		return
	}
	if ticks <= c.tree.ticks {
		c.tree.missed -= seen
		return
	}
	c.tree.missed += float64(ticks-c.tree.ticks)/proc.Ticks - seen
	c.tree.ticks = ticks
	// A few ticks are rounding of the kernel.
	if more := c.tree.missed; more > 0.05 {
		put(mRun, more)
		c.tree.missed = 0
	}
	c.tree.missed = max(c.tree.missed, -0.5)
}

func (p *process) majfltOr(now uint64) uint64 {
	if p.majflt == 0 {
		return now
	}
	return p.majflt
}

// threads reads the CPU time of the threads of a process. Threads that stay idle are read less and less often.
func (c *collector) threads(p *process, now time.Time, dt float64, budget *int, put func(metric, float64), since func(a, b uint64) float64) {
	if p.stat.Threads != p.count || now.Sub(p.listed) > 5*time.Second {
		tids, err := c.fs.Numbers(strconv.Itoa(p.pid), "task")
		if err != nil {
			return
		}
		for _, t := range p.threads {
			t.seen = false
		}
		for _, tid := range tids {
			t := p.threads[tid]
			if t == nil {
				if len(p.threads) >= 4096 {
					continue
				}
				t = &thread{tid: tid}
				p.threads[tid] = t
			}
			if t.comm == "" {
				if data, err := c.fs.Thread(c.buf, p.pid, tid, "comm"); err == nil {
					t.comm = string(trimSpace(data))
				}
			}
			t.seen = true
			if t.comm == "pt_data_pin" {
				p.pinSeen = true
			}
		}
		for tid, t := range p.threads {
			if !t.seen {
				t.close()
				delete(p.threads, tid)
			}
		}
		p.count, p.listed = p.stat.Threads, now
	}
	for tid, t := range p.threads {
		if t.next > 0 {
			t.next--
			continue
		}
		if *budget <= 0 {
			return
		}
		*budget--
		data, err := c.fs.Thread(c.buf, p.pid, tid, "schedstat")
		if err != nil {
			if errors.Is(err, os.ErrNotExist) {
				c.schedFallback(p, t, dt, put)
			}
			continue
		}
		sched, err := proc.ParseSched(data)
		if err != nil {
			continue
		}
		if t.known {
			run, delay := since(sched.Run, t.sched.Run)/1e9, since(sched.Delay, t.sched.Delay)/1e9
			t.share = (run + delay) / dt
			put(mRun, run)
			put(mDelay, delay)
			c.noteBeside(p, t, run)
			if p.trainer != nil && (tid == p.pid || p.trainsIn(t)) {
				passed := dt
				if tid != p.pid {
					passed = 0 // the main thread waits for it meanwhile
				}
				put(mTrainerRun, run)
				put(mTrainerDelay, delay)
				put(mTrainerTime, passed)
				c.ofRank(p.pid, func(r *rankCounts) {
					r.run += run
					r.delay += delay
					r.time += passed
				})
			}
			if run == 0 {
				t.idle = min(t.idle+1, 8)
				t.next = t.idle / 2
			} else {
				t.idle = 0
			}
			if p.trainer == nil && tid == p.pid {
				p.guessCPU += run
			}
		}
		t.sched, t.known = sched, true
	}
}

// schedFallback takes the CPU time of a thread from its stat file if the kernel was built without schedstat. Its
// waiting time for a core is then unknown.
func (c *collector) schedFallback(p *process, t *thread, dt float64, put func(metric, float64)) {
	data, err := c.fs.Thread(c.buf, p.pid, t.tid, "stat")
	if err != nil {
		return
	}
	s, err := proc.ParseStat(data)
	if err != nil {
		return
	}
	run := (s.UTime + s.STime) * (1e9 / proc.Ticks)
	if t.known && run >= t.sched.Run {
		delta := float64(run-t.sched.Run) / 1e9
		t.share = delta / dt
		put(mRun, delta)
		if p.trainer != nil && (t.tid == p.pid || p.trainsIn(t)) {
			put(mTrainerRun, delta)
		}
	}
	t.sched, t.known = proc.Sched{Run: run}, true
	c.skip("time that threads wait for a core: this kernel has no schedstat")
}

// readEngines reads the stage counters of the engines in the tree.
func (c *collector) readEngines(now time.Time, put func(metric, float64)) {
	for _, p := range c.tree.members {
		if p.role != roleEngine {
			continue
		}
		e := c.engines[p.pid]
		if e == nil {
			stages, err := counters.OpenStages(p.pid)
			if err != nil {
				continue
			}
			e = &engineReader{stages: stages, last: map[int64]counters.Snapshot{}}
			c.engines[p.pid] = e
		}
		all, err := e.stages.Read()
		if err != nil {
			continue
		}
		for _, s := range all {
			before, ok := e.last[s.Opened]
			e.last[s.Opened] = s
			if !ok {
				continue
			}
			d := s.Sub(before)
			seconds := float64(s.At-before.At) / 1e9
			if seconds <= 0 {
				continue
			}
			put(mEngineRead, float64(d.Read)/1e9)
			put(mEngineDecode, float64(d.Decode)/1e9)
			put(mEngineTransform, float64(d.Transform)/1e9)
			put(mEngineCollate, float64(d.Collate+d.Sample)/1e9)
			put(mEngineReadCap, seconds*float64(max(1, d.ReadWorkers)))
			put(mEngineDecodeCap, seconds*float64(max(1, d.DecodeWorkers)))
			put(mEngineFull, float64(d.RingFull)/1e9)
			put(mEngineEmpty, float64(d.RingEmpty)/1e9)
			put(mEngineTime, seconds)
			put(mEngineBatches, float64(d.Batches))
			put(mEngineRecords, float64(d.Records))
			put(mEngineBytes, float64(d.Bytes))
		}
		if !c.engine.socketsLooked || now.Sub(c.engine.lookedAt) > 10*time.Second {
			c.engine.network = c.hasInternetSockets(p.pid)
			c.engine.socketsLooked, c.engine.lookedAt = true, now
		}
	}
}

// engineTotals has the engine data beyond the counters.
type engineTotals struct {
	network       bool // reads through sockets
	socketsLooked bool
	lookedAt      time.Time
}

// hasInternetSockets reports whether a process holds connections: an engine
// that does reads from an object store.
func (c *collector) hasInternetSockets(pid int) bool {
	fds, err := c.fs.Numbers(strconv.Itoa(pid), "fd")
	if err != nil {
		return false
	}
	for _, fd := range fds[:min(len(fds), 256)] {
		if b, _ := c.socks.ofDescriptor(c.fs, pid, fd); b == blockNetwork {
			return true
		}
	}
	return false
}
