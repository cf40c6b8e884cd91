package doctor

import "math"

// shares is the input of the model, condensed from a timeline. Times are in units of the trainer's time: 1 is all of
// it.
type shares struct {
	samples float64 // samples of trainers
	ticks   float64

	step    float64            // in the training step
	ran     float64            // of step, on a core or waiting for one
	wait    float64            // waiting for a batch that others make
	serial  [numCauses]float64 // loading on the trainer's own thread, by cause
	ready   float64            // the part of the serial hand-off after the batch has arrived
	restart float64            // the part of wait and serial for restarted workers
	device  float64            // utilization of the busiest disk, if the job reads from disks
	peak    float64            // the device's best second relative to the mean; 0 if the job reads from none
	other   float64            // asleep in the loader for no known reason
	beside  float64            // the part of the step that other threads than the trainer's compute, at least
	delay   float64            // of the time that the trainer could run, the part it waited for a core
	lanes   float64            // workers at a time
	use     [numCauses]float64 // the time of a worker by cause; with idle they add up to 1
	busy    float64            // sum of use without idle
	stalled [numCauses]float64 // the causes of the trainer's waits; adds up to 1
	stalls  float64            // samples of that
	lag     float64            // of the time that workers could run, the part they waited for a core
	engine  *engineShares      // Stoker's engine, if the job uses it
	tree    float64            // cores that the job used
	cores   float64            // cores that it may use
	outside float64            // cores that other programs used
	limited float64            // share of the time stopped by the quota, per core of the quota
	memory  float64            // share of the time in which tasks were blocked by a lack of memory
	reclaim float64            // the part of tree in which the kernel brings in and evicts pages
	exact   bool               // wait comes from the step log
	slow    *slowRank          // the rank whose figures these are; nil for those of all
	threads bool               // the lanes are threads of the trainer
	locked  float64            // share of the lanes' work in which they wait for the interpreter's lock
}

// engineShares is the utilization of the engine's stages, 0..1 of the capacity of their goroutines.
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
	if slow := sum.slowest(); slow != nil {
		// The job runs at the pace of this rank: its figures are those of the job.
		s.slow = slow
		r := sum.ranks[slow.pid]
		sum.trainer, sum.trainerRan, sum.lanes, sum.stalled, sum.ready, sum.restart = r.trainer, r.trainerRan, r.lanes, r.stalled, r.ready, r.restart
		sum.v[mTrainerRun], sum.v[mTrainerDelay], sum.v[mTrainerTime] = r.run, r.delay, r.time
		c.rankName(slow.pid)
	}
	t, ran, ready := sum.trainer, sum.trainerRan, sum.ready
	s.samples = t.total()
	if s.samples == 0 {
		// No process was seen to train: use the activity of the busiest one.
		t = c.guessed()
		s.samples = t.total()
	} else if passed := sum.v[mTrainerTime]; passed > 1 {
		t, ran = stratified(t, ran, (sum.v[mTrainerRun]+sum.v[mTrainerDelay])/passed)
		if before := sum.trainerRan[causeHandoff]; before > 0 {
			ready *= ran[causeHandoff] / before
		}
	}
	if s.samples > 0 {
		n := s.samples
		s.step, s.wait, s.other = t[causeStep]/n, t[causeWait]/n, (t[causeOther]+t[causeIdle])/n
		s.ran = ran[causeStep] / n
		for _, x := range resources {
			s.serial[x] = t[x] / n
		}
		s.restart = min(0.95, sum.restart/max(1, sum.trainer.total()))
		s.ready = min(ready/n, s.serial[causeHandoff])
	}
	s.correct(&sum)
	if run := sum.v[mTrainerRun] + sum.v[mTrainerDelay]; run > 0 {
		s.delay = sum.v[mTrainerDelay] / run
	}
	if sum.dt > 0 {
		s.beside = sum.v[mBeside] / sum.dt
	}
	if rest := sum.v[mRun] - sum.v[mTrainerRun] + sum.v[mDelay] - sum.v[mTrainerDelay]; rest > 0 {
		s.lag = max(0, sum.v[mDelay]-sum.v[mTrainerDelay]) / rest
	}
	if sum.threadLanes > sum.lanes.total()/2 && s.loadsItself() {
		// Its threads do other work.
		sum.lanes, sum.stalled, sum.threadLanes = counts{}, counts{}, 0
	}
	if sum.laneFaults >= 0.2*sum.lanes[causeCPU] && sum.laneFaults >= fewSamples {
		// If workers also wait for pages of a mapped file, their kernel time reads those pages.
		kernel := min(1, sum.v[mKernel]/max(sum.v[mRun], 1e-9))
		for _, x := range []*counts{&sum.lanes, &sum.stalled} {
			moved := kernel * x[causeCPU]
			x[causeCPU] -= moved
			x[causeStorage] += moved
		}
	}
	if n := sum.lanes.total(); n > 0 && sum.training > 0 {
		s.lanes = n / sum.training
		for x := range s.use {
			s.use[x] = sum.lanes[x] / n
		}
		s.busy = sum.lanes.busy() / n
		s.threads = sum.threadLanes > n/2
		s.locked = sum.interpreter / max(1, sum.lanes.busy())
	}
	if s.stalls = sum.stalled.total(); s.stalls > 0 {
		for x := range s.stalled {
			s.stalled[x] = sum.stalled[x] / s.stalls
		}
	}
	if sum.dt > 0 {
		s.tree = sum.v[mRun] / sum.dt
		if s.device = c.deviceUse(l, &sum); s.device > 0 {
			s.peak = l.peak(sum.v[mDiskRead] / sum.dt)
		}
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

// stratified weighs samples so that the share of running samples is exact, from CPU time and run-queue delay. Sampling
// then only determines how running and waiting divide.
func stratified(all, ran counts, exact float64) (counts, counts) {
	n, r := all.total(), ran.total()
	exact = min(1, max(0, exact))
	// Samples miss the moments between two short waits, and few samples of a kind are inconclusive.
	if r < 3 || n-r < 3 {
		return all, ran
	}
	up, down := exact*n/r, (1-exact)*n/(n-r)
	for x := range all {
		waited := all[x] - ran[x]
		ran[x] *= up
		all[x] = ran[x] + waited*down
	}
	return all, ran
}

// correct scales the sampled shares to the exact share of waiting in the step log.
func (s *shares) correct(sum *bin) {
	if sum.v[mLogTime] < 0.5 {
		return
	}
	exact := math.Min(1, sum.v[mLogWait]/sum.v[mLogTime])
	// Preparing a batch comes after the wait of the log.
	s.ready = min(s.ready, 1-exact)
	s.serial[causeHandoff] -= s.ready
	defer func() { s.serial[causeHandoff] += s.ready }()
	loading := s.wait
	for _, v := range s.serial {
		loading += v
	}
	// Samples outside the wait, such as a page fault in the step, stay.
	s.exact = true
	if loading == 0 {
		s.wait, s.step = exact, max(0, min(s.step, 1-exact-s.ready))
		return
	}
	f := exact / loading
	s.wait *= f
	for x := range s.serial {
		s.serial[x] *= f
	}
	if s.step > 0 {
		s.ran *= max(0, 1-exact-s.other-s.ready) / s.step
	}
	s.step = max(0, 1-exact-s.other-s.ready)
	s.ran = min(max(0, s.ran), s.step)
}

// guessed returns the samples of the busiest candidate, if no process was seen to train.
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

// blameMemory moves time to memory that looks like storage or CPU but is caused by a shortage of memory. Examples are
// reclaim, and files that are read again because the limit evicted them from the cache. It needs a sign of such a
// shortage.
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
	// The fraction of the pages read that had been in memory before.
	again := 0.0
	if read := max(sum.v[mReadBytes], sum.v[mDiskRead]); read > 1<<20 {
		again = min(1, sum.v[mRefaults]*4096/read)
	}
	// Pressure counts moments in which any of n threads was blocked. The exponent is divided by n for the part of each.
	n := s.lanes + 1
	each := 1 - math.Pow(1-min(s.memory, 0.999), 1/n)
	// Bringing in and evicting pages is work of the kernel. With constant swapping, all of its work is that. With file
	// reads, the fraction is that of the pages that had been in memory before.
	kernel := 0.0
	if run := sum.v[mRun]; run > 0 {
		if kernel = min(1, sum.v[mKernel]/run); sum.v[mSwapIn]/sum.dt <= 500 {
			read := max(sum.v[mReadBytes], sum.v[mDiskRead])
			kernel *= again * min(1, read/max(read, sum.v[mReadChars], 1))
		}
		s.reclaim = kernel * run / sum.dt
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

// production returns the time that workers in parallel take per batch, relative to the trainer's time. The argument
// without names a resource to leave out.
func (s *shares) production(without Verdict) float64 {
	switch {
	case s.engine != nil:
		return s.engineProduction(without)
	case s.unseen():
		return boolToFloat(s.wait > 0.02 && !s.loadsItself())
	case without == "" || without == Accelerator:
		return s.busy
	}
	return s.busy * (1 - s.part(resources[without]))
}

// loadsItself reports whether the trainer makes its own batches. Its other waiting, such as samples without
// information, is then shorter than that.
func (s *shares) loadsItself() bool {
	return s.wait < s.loading()-s.wait-s.serial[causeHandoff]
}

// unseen reports whether the trainer waits for threads that were never seen at work.
func (s *shares) unseen() bool { return s.engine == nil && (s.lanes == 0 || s.busy == 0) }

// engineProduction is production for the stages of Stoker's engine, which work in parallel. If the trainer waits, the
// busiest stage determines the time, even if its threads seem to have breaks.
func (s *shares) engineProduction(without Verdict) float64 {
	e := *s.engine
	most := max(e.read, e.decode, e.collate, 1e-9)
	blend := min(1, s.wait/0.05)
	scale := (most + (1-most)*blend) / most
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

// uneven returns the part of the trainer's waiting that mean times do not explain. It waits although the workers have
// breaks, because batches come in bursts, in an order, or are on their way.
func (s *shares) uneven() float64 {
	switch {
	case s.unseen() && s.loadsItself():
		return s.wait // no other thread makes anything meanwhile
	case s.engine != nil || s.unseen():
		return 0
	}
	return min(s.wait, max(0, 1-max(1-s.wait, s.busy)))
}

// unevenWithout returns the part of uneven that remains without a resource.
func (s *shares) unevenWithout(v Verdict) float64 {
	w := s.uneven()
	if w == 0 || v == "" || v == Accelerator {
		return w
	}
	x := resources[v]
	if s.stalls < 10 {
		return w * (1 - s.part(x))
	}
	from := s.stalled
	if lag := from[causeHandoff] * s.lag; v == CPU {
		from[causeCPU] += lag
	}
	return w * (1 - from[x])
}

func boolToFloat(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// part returns the share of a resource in the work on a batch. A thread that runs for the hand-off also waits for
// cores. Without either of them, that waiting also disappears.
func (s *shares) part(x cause) float64 {
	if s.busy <= 0 {
		return 0
	}
	use := s.use[x]
	if x == causeCPU {
		use += s.use[causeHandoff] * s.lag
	}
	return use / s.busy
}

// timeWithout predicts the time of a step if a resource were free, relative to the present time; see
// docs/reference/doctor.md.
func (s *shares) timeWithout(v Verdict) float64 {
	step, rest := s.step+s.other, 0.0
	for x, t := range s.serial {
		switch {
		case v != "" && v != Accelerator && cause(x) == resources[v]:
		case v == CPU && cause(x) == causeHandoff:
			rest += t * (1 - s.delay)
		default:
			rest += t
		}
	}
	switch v {
	case Accelerator:
		step = 0
	case CPU:
		step -= s.ran * s.delay * s.fromOthers()
	}
	// The remaining work has to fit on the cores, and the step's own threads have to compute it.
	floor := 0.0
	if v != Accelerator {
		floor = s.computing()
	}
	if v != CPU && v != Accelerator && s.cores > 0 {
		need := s.tree
		if v == Handoff {
			need -= s.use[causeHandoff]*s.lanes*(1-s.lag) + s.serial[causeHandoff]*(1-s.delay)
		}
		if v == Memory {
			need -= s.reclaim
		}
		floor = max(floor, need/s.cores)
	}
	time := max(step+rest, s.production(v)) + s.unevenWithout(v)
	if v == Handoff {
		// Starting workers is part of the hand-off. New workers are seldom sampled: they do not exist yet or are not
		// known.
		time = min(time, 1-s.restart)
	}
	return min(1, max(time, floor, minTime))
}

// computing returns the minimum time of a step that other threads compute while the trainer makes the next batch. They
// may also compute while it waits for one.
func (s *shares) computing() float64 { return max(0, s.beside-s.wait) }

// fromOthers returns the fraction of the trainer's waiting for a core that is not caused by its own step. If no other
// thread makes batches and the trainer does not wait for one, the job's other threads belong to the step (XLA, BLAS).
// Then only other programs remain.
func (s *shares) fromOthers() float64 {
	if s.lanes > 0 || s.engine != nil || s.wait > 0.02 {
		return 1
	}
	step := max(0, s.tree-(1-s.delay)*(s.ran+s.serial[causeCPU]+s.serial[causeHandoff]))
	if step == 0 {
		return 1
	}
	return s.outside / (s.outside + step)
}

// timeWithLess predicts the time of a step without a part, 0..1, of a resource's time.
func (s *shares) timeWithLess(v Verdict, part float64) float64 {
	part = min(1, max(0, part))
	return 1 - part*(1-s.timeWithout(v))
}

// timeWithWorkers predicts the time of a step with another number of workers.
func (s *shares) timeWithWorkers(n float64) float64 {
	if n <= 0 || s.cores <= 0 {
		return 1
	}
	step := max(s.step+s.other, s.computing())
	floor := s.tree / s.cores
	if s.capped() {
		floor = max(floor, s.device) // more requests only wait in its queue
	} else if s.peak > 0 && s.part(causeStorage) > 0.5 {
		floor = max(floor, 0.5/s.peak)
	}
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
	return min(1, max(max(step+rest, s.production("")*s.lanes/n)+s.uneven()*min(1, s.lanes/n), floor, minTime))
}
