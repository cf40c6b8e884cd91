package doctor

import (
	"fmt"

	"github.com/stokerdata/stoker/internal/units"
)

// memoryCheck is about shortage of memory.
type memoryCheck struct{ resource }

func (memoryCheck) about() about {
	return about{name: "memory", verdict: Memory, cause: causeMemory, short: "memory-bound", removed: "shortage of memory", doing: "short of memory"}
}

func (c memoryCheck) gain(f *findings) float64 { return c.gainOf(f, Memory) }

func (memoryCheck) evidence(f *findings) {
	f.say("memory: %.0f%% in use; something stood still for want of it %.0f%% of the time; the limit was hit %.0f times a second",
		100*f.per(gMemory), 100*f.s.memory, f.per(mFailures))
	if n := f.per(mRefaults); n > 1 {
		f.say("%s are read again after they had been pushed out of memory", units.Bandwidth(n*4096))
	}
	f.readsEvidence()
}

func (memoryCheck) advise(f *findings) {
	c, r := f.c, f.r
	limit := "of the machine"
	if c.sys.limit.Limit > 0 {
		limit = fmt.Sprintf("that the control group allows (%s)", units.Bytes(c.sys.limit.Limit))
	}
	f.add(r.Gains[Memory], "give the job more memory", other("docker run --memory=N ...   # Kubernetes: resources.limits.memory; Slurm: --mem"),
		"it uses all of the memory %s; something stood still for it %.0f%% of the time", limit, 100*f.s.memory)
	if r.Loader.Workers > 1 {
		f.add(1/f.s.timeWithLess(Memory, 0.5), "use fewer workers, or a smaller prefetch factor", dataLoader(option("num_workers", max(1, r.Loader.Workers/2)), option("prefetch_factor", 2)),
			"each of the %d workers holds its own copy of the dataset object and of %d batches", r.Loader.Workers, 2)
	}
	if d := c.findData(); d.Path != "" {
		f.add(1/f.s.timeWithLess(Memory, 0.5), "use a loader whose memory does not grow with its workers", stokerLoader(d.Path, option("limits", code(`stoker.Limits(memory="1GB")`))),
			"the processes of the job hold %s", units.Bytes(f.sum.v[gRSS]/max(f.sum.dt, 1e-9)))
	}
}
