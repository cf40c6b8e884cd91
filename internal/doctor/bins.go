package doctor

import (
	"maps"
	"math"
)

// A metric is a figure of the system or of the process tree over time. Most are amounts that add up. Those up to
// numGauges are levels, which are multiplied by seconds so that they also add up.
type metric uint8

const (
	// Levels.
	gMemory      metric = iota // share of the memory that the job may use, 0..1
	gSwap                      // share of the swap space in use
	gLoad                      // load of the last minute per core
	gShm                       // share of /dev/shm in use
	gRSS                       // bytes of all members
	gProcs                     // members
	gWorkers                   // lanes: worker processes
	gDiskLatency               // seconds per read of the busiest device
	gGPU                       // utilisation of the accelerators, 0..1, mean
	gGPUMemory                 // share of their memory
	gGPUClock                  // share of the highest clock
	numGauges
)

const (
	// Seconds of cores, over the machine.
	mUser metric = iota + numGauges
	mSystem
	mIOWait
	mSteal
	mBusy
	// Seconds of threads, over the tree.
	mRun       // on a core
	mKernel    // of that, in the kernel
	mDelay     // waiting for one
	mThrottled // stopped by the quota, summed over cores
	mTrainerRun
	mTrainerDelay
	mTrainerTime // that passed for the two
	mBeside      // minimum time of a step in the threads that compute it in parallel to the trainer
	// Amounts.
	mReadBytes  // from block devices
	mReadChars  // by read calls
	mWriteBytes // to block devices
	mReadCalls
	mMajorFaults
	mSwitches
	mNetReceived
	mNetSent
	mLoopback
	mDiskBusy  // seconds, of the busiest device that the tree reads from
	mDiskRead  // bytes
	mDiskReads // operations
	mDiskTime  // seconds of reads summed
	mRefaults  // pages
	mSwapIn    // pages
	mFailures  // times the memory limit was hit
	mPSICPU    // seconds in which some tasks were blocked
	mPSIIO
	mPSIMemory
	mPCIeRead // bytes to the device
	mPCIeWrite
	mThrottleGPU // seconds with a reason to run slower
	// From the step logs of the trainers: seconds.
	mLogTime
	mLogWait
	mLogSteps
	mLogRows
	// From the engines' stage counters: seconds of goroutines, and their capacity.
	mEngineRead
	mEngineDecode
	mEngineTransform
	mEngineCollate
	mEngineReadCap
	mEngineDecodeCap
	mEngineFull
	mEngineEmpty
	mEngineTime
	mEngineBatches
	mEngineRecords
	mEngineBytes
	numMetrics
)

// counts are samples by cause; several lanes may count in one tick.
type counts [numCauses]float64

func (c *counts) total() float64 {
	sum := 0.0
	for _, v := range c {
		sum += v
	}
	return sum
}

func (c *counts) add(d counts) {
	for i := range c {
		c[i] += d[i]
	}
}

// busy returns the samples that are neither idle nor the trainer's own.
func (c *counts) busy() float64 {
	return c[causeCPU] + c[causeStorage] + c[causeNetwork] + c[causeMemory] + c[causeHandoff] + c[causeLatency] + c[causeOther]
}

// trainerCounts are samples of trainers and of their workers.
type trainerCounts struct {
	// trainer counts samples of the main threads, and lanes those of workers.
	trainer, lanes counts
	// stalled counts the work of the workers while a trainer waited for them. Each sample counts once, shared among the
	// workers that were not idle.
	stalled counts
	// trainerRan counts the trainers' samples in which the thread was on a core or waited for one.
	trainerRan counts
	// own counts the trainers' samples outside any loader, and ready those in which they prepared a batch there.
	own   ownCounts
	ready float64
	// restart counts the samples in which it waited for restarted workers.
	restart float64
}

func (t *trainerCounts) add(o *trainerCounts) {
	t.trainer.add(o.trainer)
	t.lanes.add(o.lanes)
	t.stalled.add(o.stalled)
	t.trainerRan.add(o.trainerRan)
	t.own.add(o.own)
	t.ready += o.ready
	t.restart += o.restart
}

// rankCounts are the counts of one of several trainers.
type rankCounts struct {
	trainerCounts
	run, delay, time float64 // seconds of its main thread on a core, waiting for one, in all
	training         float64 // wide samples
	together         float64 // samples in which it waited for other ranks
}

func (r *rankCounts) add(o *rankCounts) {
	r.trainerCounts.add(&o.trainerCounts)
	r.run += o.run
	r.delay += o.delay
	r.time += o.time
	r.training += o.training
	r.together += o.together
}

// A bin has the measurements of a second or, in long runs, of several.
type bin struct {
	t, dt         float64 // start after the report's start, length; seconds
	trainerCounts         // of all trainers and workers
	// ranks has the same by trainer, if there are several.
	ranks map[int]rankCounts
	// parts counts samples by the part in their frames: of trainers in a loader, and of workers at work.
	trainerParts, laneParts [numParts]float64
	// training counts the wide samples while a trainer was past its first batch.
	training float64
	// opening counts samples of trainers that had not requested a second batch yet.
	opening float64
	// threadLanes counts samples of lanes that are threads, and interpreter those that waited for the interpreter's
	// lock.
	threadLanes, interpreter float64
	// laneFaults counts samples of workers that waited for a page of a mapped file.
	laneFaults float64
	v          [numMetrics]float64
	gpus       []float64 // utilisation times seconds, by device
}

func (b *bin) add(o *bin) {
	b.dt += o.dt
	b.trainerCounts.add(&o.trainerCounts)
	for pid, r := range o.ranks {
		if b.ranks == nil {
			b.ranks = map[int]rankCounts{}
		}
		sum := b.ranks[pid]
		sum.own = maps.Clone(sum.own)
		sum.add(&r)
		b.ranks[pid] = sum
	}
	b.training += o.training
	b.opening += o.opening
	b.threadLanes += o.threadLanes
	b.interpreter += o.interpreter
	b.laneFaults += o.laneFaults
	for i := range b.trainerParts {
		b.trainerParts[i] += o.trainerParts[i]
		b.laneParts[i] += o.laneParts[i]
	}
	for i := range b.v {
		b.v[i] += o.v[i]
	}
	for i := range o.gpus {
		if i >= len(b.gpus) {
			b.gpus = append(b.gpus, 0)
		}
		b.gpus[i] += o.gpus[i]
	}
}

// maxBins limits the length of the series. When they are full, neighbours are merged, so that a job of days is stored
// as minutes.
const maxBins = 1200

// timeline is the bins of a run.
type timeline struct {
	bins  []bin
	width float64 // seconds per bin
	known [numMetrics]bool
}

// add appends a second.
func (l *timeline) add(b bin) {
	if l.width == 0 {
		l.width = 1
	}
	if n := len(l.bins); n > 0 && l.bins[n-1].dt+b.dt/2 < l.width {
		l.bins[n-1].add(&b)
		return
	}
	if len(l.bins) >= maxBins {
		half := l.bins[:0]
		for i := 0; i+1 < len(l.bins); i += 2 {
			m := l.bins[i]
			m.add(&l.bins[i+1])
			half = append(half, m)
		}
		l.bins = half
		l.width *= 2
	}
	l.bins = append(l.bins, b)
}

// pointers are the bins themselves.
func (l *timeline) pointers() []*bin {
	out := make([]*bin, len(l.bins))
	for i := range l.bins {
		out[i] = &l.bins[i]
	}
	return out
}

// sum adds up the bins for which want returns true.
func (l *timeline) sum(want func(*bin) bool) bin {
	var s bin
	for i := range l.bins {
		if want(&l.bins[i]) {
			if s.dt == 0 {
				s.t = l.bins[i].t
			}
			s.add(&l.bins[i])
		}
	}
	return s
}

// rate returns a metric per second: a share, bytes per second, or a level's mean. It is NaN if the metric is unknown.
func (l *timeline) rate(b *bin, m metric) float64 {
	if !l.known[m] || b.dt <= 0 {
		return math.NaN()
	}
	return b.v[m] / b.dt
}
