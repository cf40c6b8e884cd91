package doctor

import "math"

// shares condenses a timeline into what the model needs. Times are in units of
// the trainer's time: 1 is all of it.
type shares struct {
	samples float64 // looks at trainers
	ticks   float64

	step    float64            // in the training step
	ran     float64            // of step, on a core or waiting for one
	wait    float64            // waiting for a batch that others make
	serial  [numCauses]float64 // loading on the trainer's own thread, by cause
	other   float64            // asleep in the loader for no known reason
	delay   float64            // of the time that the trainer could run, the part it waited for a core
	lanes   float64            // workers at a time
	use     [numCauses]float64 // what a worker does, by cause; with idle they add up to 1
	busy    float64            // sum of use without idle
	stalled [numCauses]float64 // the same while the trainer waited
	stalls  float64            // samples of that
	lag     float64            // of the time that workers could run, the part they waited for a core
	engine  *engineShares      // Stoker's engine, where the job uses it
	tree    float64            // cores that the job used
	cores   float64            // cores that it may use
	outside float64            // cores that other programs used
	limited float64            // share of the time stopped by the quota, per core of the quota
	memory  float64            // share of the time in which something stood still for want of memory
	exact   bool               // wait comes from the step log
}

// engineShares is how busy the stages of the engine are, 0..1 of what their
// goroutines could do.
type engineShares struct {
	read, decode, collate float64
	network               bool
}

// measure condenses the bins in which the job trained.
func (c *collector) measure(l *timeline) (shares, bin) {
	sum := l.sum(func(b *bin) bool { return b.training > 0 })
	if sum.dt == 0 {
		sum = l.sum(func(*bin) bool { return true })
	}
	s := shares{cores: c.sys.cores, ticks: sum.training}
	t := sum.trainer
	if t.total() == 0 {
		// Nothing showed that it trains: what its busiest process was at.
		t = c.guessed()
	}
	s.samples = t.total()
	if s.samples > 0 {
		n := s.samples
		s.step, s.wait, s.other = t[causeStep]/n, t[causeWait]/n, (t[causeOther]+t[causeIdle])/n
		s.ran = sum.stepRan / n
		for _, x := range []cause{causeCPU, causeStorage, causeNetwork, causeMemory, causeHandoff} {
			s.serial[x] = t[x] / n
		}
	}
	s.correct(&sum)
	if run := sum.v[mTrainerRun] + sum.v[mTrainerDelay]; run > 0 {
		s.delay = sum.v[mTrainerDelay] / run
	}
	if rest := sum.v[mRun] - sum.v[mTrainerRun] + sum.v[mDelay] - sum.v[mTrainerDelay]; rest > 0 {
		s.lag = max(0, sum.v[mDelay]-sum.v[mTrainerDelay]) / rest
	}
	if n := sum.lanes.total(); n > 0 && sum.training > 0 {
		s.lanes = n / sum.training
		for x := range s.use {
			s.use[x] = sum.lanes[x] / n
		}
		s.busy = sum.lanes.busy() / n
	}
	if s.stalls = sum.stalled.total(); s.stalls > 0 {
		for x := range s.stalled {
			s.stalled[x] = sum.stalled[x] / s.stalls
		}
	}
	if sum.dt > 0 {
		s.tree = sum.v[mRun] / sum.dt
		s.outside = max(0, (sum.v[mBusy]-sum.v[mRun])/sum.dt)
		if q := c.sys.throttle.Quota; q > 0 {
			s.limited = sum.v[mThrottled] / sum.dt / max(1, q)
		}
	}
	if e := sum.v[mEngineTime]; e > 0 {
		s.engine = &engineShares{
			read:    sum.v[mEngineRead] / max(sum.v[mEngineReadCap], 1e-9),
			decode:  (sum.v[mEngineDecode] + sum.v[mEngineTransform]) / max(sum.v[mEngineDecodeCap], 1e-9),
			collate: sum.v[mEngineCollate] / e,
			network: c.engine.network,
		}
	}
	c.blameMemory(&s, &sum)
	return s, sum
}

// correct scales the sampled shares to the exact share of waiting that the step
// log gives.
func (s *shares) correct(sum *bin) {
	if sum.v[mLogTime] < 0.5 {
		return
	}
	exact := math.Min(1, sum.v[mLogWait]/sum.v[mLogTime])
	loading := s.wait
	for _, v := range s.serial {
		loading += v
	}
	// What is sampled outside of the wait, such as a page fault in the step, stays.
	s.exact = true
	if loading == 0 {
		s.wait, s.step = exact, max(0, s.step-exact)
		return
	}
	f := exact / loading
	s.wait *= f
	for x := range s.serial {
		s.serial[x] *= f
	}
	if s.step > 0 {
		s.ran *= (1 - exact - s.other) / s.step
	}
	s.step = max(0, 1-exact-s.other)
	s.ran = min(max(0, s.ran), s.step)
}

// guessed is what the busiest candidate was at, where no process showed that it
// trains.
func (c *collector) guessed() counts {
	var best *process
	for _, p := range c.tree.members {
		if p.role != roleTrainer {
			continue
		}
		if best == nil || p.guessCPU > best.guessCPU || p.guessCPU == best.guessCPU && p.pid < best.pid {
			best = p
		}
	}
	if best == nil {
		return c.lastGuess
	}
	g := best.guess
	g[causeOther] = 0 // imports
	return g
}

// blameMemory moves to memory what looks like storage or CPU but is there only
// because memory is short: files read again because the limit pushed them out of
// the cache, and reclaim. It needs a sign that memory is short at all.
func (c *collector) blameMemory(s *shares, sum *bin) {
	if sum.dt == 0 {
		return
	}
	full := sum.v[gMemory] / sum.dt
	short := sum.v[mFailures] > 0 || full > 0.95 || sum.v[mSwapIn] > 0
	if !short {
		return
	}
	s.memory = min(1, sum.v[mPSIMemory]/sum.dt)
	// Of the pages read, the part that had been in memory before.
	again := 0.0
	if read := max(sum.v[mReadBytes], sum.v[mDiskRead]); read > 1<<20 {
		again = min(1, sum.v[mRefaults]*4096/read)
	}
	// Pressure counts moments in which any of n threads stood still; what each
	// of them did is the n-th part of the exponent.
	n := s.lanes + 1
	each := 1 - math.Pow(1-min(s.memory, 0.999), 1/n)
	// Bringing pages in and pushing others out is work of the kernel: where
	// pages are swapped in all the time, that is what it does.
	kernel := 0.0
	if run := sum.v[mRun]; run > 0 && sum.v[mSwapIn]/sum.dt > 500 {
		kernel = min(1, sum.v[mKernel]/run)
	}
	move := func(use *[numCauses]float64) {
		fromStorage, fromCPU := use[causeStorage]*again, use[causeCPU]*kernel
		if more := each - use[causeMemory] - fromStorage - fromCPU; more > 0 {
			storage := min(more, use[causeStorage]-fromStorage)
			fromStorage += storage
			fromCPU += min(more-storage, use[causeCPU]-fromCPU)
		}
		use[causeStorage] -= fromStorage
		use[causeCPU] -= fromCPU
		use[causeMemory] += fromStorage + fromCPU
	}
	move(&s.use)
	move(&s.stalled)
	move(&s.serial)
}

// loading is the trainer's time in the loader: waiting and loading itself.
func (s *shares) loading() float64 {
	sum := s.wait
	for _, v := range s.serial {
		sum += v
	}
	return min(1, sum)
}

// minTime bounds a predicted time: a job without any cost at all does not get
// faster than this many times.
const minTime = 0.05

// resource lists the causes that a resource of the data path stands for.
var resources = map[Verdict]cause{
	CPU: causeCPU, Storage: causeStorage, Network: causeNetwork, Memory: causeMemory, Handoff: causeHandoff,
}

// production is the time that making a batch takes of the trainer's time per
// batch, with workers overlapping: 1 where the trainer waits for them. without
// leaves a resource out.
func (s *shares) production(without Verdict) float64 {
	if s.engine != nil {
		e := *s.engine
		most := max(e.read, e.decode, e.collate, 1e-9)
		scale := s.scale(most)
		switch without {
		case CPU:
			e.decode = 0
		case Handoff:
			e.collate = 0
		case Storage:
			if !e.network {
				e.read = 0
			}
		case Network:
			if e.network {
				e.read = 0
			}
		}
		return max(e.read, e.decode, e.collate) * scale
	}
	if s.lanes == 0 || s.busy == 0 {
		// Threads that were never seen at work while the trainer waits.
		return s.scale(1) * boolToFloat(s.wait > 0.02)
	}
	p := s.busy * s.scale(s.busy)
	if without == "" {
		return p
	}
	return p * (1 - s.part(resources[without]))
}

func boolToFloat(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// scale turns how busy the producers are into their share of the trainer's
// time: where it waits, they are what takes the time, even if they seem to have
// breaks (restarts between epochs, bursts, batches that come out of order).
func (s *shares) scale(busy float64) float64 {
	if busy <= 0 {
		return 1
	}
	blend := min(1, s.wait/0.05)
	return (busy + (1-busy)*blend) / busy
}

// part is the share of the work on a batch that a cause has. What workers are
// at while the trainer waits counts, if that was seen often enough.
func (s *shares) part(x cause) float64 {
	use := s.use
	if s.stalls >= 30 {
		use = s.stalled
	}
	// A thread that runs for the hand-off also waits for cores.
	lag := use[causeHandoff] * s.lag
	use[causeHandoff] -= lag
	use[causeCPU] += lag
	sum := 0.0
	for _, y := range []cause{causeCPU, causeStorage, causeNetwork, causeMemory, causeHandoff, causeOther} {
		sum += use[y]
	}
	if sum <= 0 {
		return 0
	}
	return use[x] / sum
}

// timeWithout predicts the time of a step, of the time it takes now, were a
// resource free; see docs/guides/doctor.md.
func (s *shares) timeWithout(v Verdict) float64 {
	step, serial := s.step+s.other, s.serial
	lag := serial[causeHandoff] * s.delay
	serial[causeHandoff] -= lag
	serial[causeCPU] += lag
	rest := 0.0
	for x, t := range serial {
		if v == "" || cause(x) != resources[v] || v == Accelerator {
			rest += t
		}
	}
	produce := 0.0
	switch v {
	case Accelerator:
		step = 0
		produce = s.production("")
	case CPU:
		step -= s.ran * s.delay
		produce = s.production(CPU)
	default:
		produce = s.production(v)
	}
	// What remains has to fit on the cores.
	floor := 0.0
	if v != CPU && v != Accelerator && s.cores > 0 {
		need := s.tree
		if v == Handoff {
			need -= s.use[causeHandoff]*s.lanes + s.serial[causeHandoff]
		}
		floor = need / s.cores
	}
	return min(1, max(step+rest, produce, floor, minTime))
}

// timeWithWorkers predicts the time of a step with other workers.
func (s *shares) timeWithWorkers(n float64) float64 {
	if n <= 0 || s.cores <= 0 {
		return 1
	}
	step := s.step + s.other
	floor := s.tree / s.cores
	if s.lanes == 0 {
		// Loading moves out of the trainer, and overlaps with the step.
		load := 0.0
		for _, t := range s.serial {
			load += t
		}
		return min(1, max(step, (load+s.wait)/n, floor, minTime))
	}
	rest := 0.0
	for _, t := range s.serial {
		rest += t
	}
	return min(1, max(step+rest, s.production("")*s.lanes/n, floor, minTime))
}
