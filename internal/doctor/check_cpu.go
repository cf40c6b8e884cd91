package doctor

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// cpuCheck detects limits by computing: decoding, transforms, too few cores.
type cpuCheck struct{ resource }

func (cpuCheck) about() about {
	return about{name: "cpu", verdict: CPU, cause: causeCPU, short: "CPU-bound", removed: "computing examples", doing: "computing"}
}

func (c cpuCheck) gain(f *findings) float64 { return c.gainOf(f, CPU) }

func (cpuCheck) evidence(f *findings) {
	c, s := f.c, f.s
	if w := c.topWhere(causeCPU); w != "" {
		f.say("most of the computing is in %s", w)
	}
	if s.lag > 0.15 || s.delay > 0.15 {
		f.say("threads that could run wait for a core %.0f%% of that time; the job uses %.2f of %.3g cores, other programs %.2f", 100*max(s.lag, s.delay), s.tree, s.cores, s.outside)
	} else {
		f.say("the job uses %.2f of %.3g cores, other programs %.2f", s.tree, s.cores, s.outside)
	}
	if s.limited > 0.02 {
		f.say("the control group's quota of %.3g cores stopped it %.0f%% of the time", c.sys.throttle.Quota, 100*min(1, s.limited))
	}
	if c.topOther != "" && s.outside > 0.2 {
		f.say("busiest other program: %s", c.topOther)
	}
}

func (cpuCheck) advise(f *findings) {
	c, r, s := f.c, f.r, f.s
	load := 100 * s.cost(causeCPU)
	if s.limited > 0.05 {
		f.add(s.gainOfCores(), "raise the CPU quota", other("docker update --cpus=N CONTAINER   # Kubernetes: resources.limits.cpu"),
			"the quota of %.3g cores stops the job %.0f%% of the time", c.sys.throttle.Quota, 100*min(1, s.limited))
	} else if s.outside > 0.25*s.cores && (s.lag > 0.15 || s.delay > 0.15) {
		what := "other programs"
		if c.topOther != "" {
			what = c.topOther
		}
		f.add(s.gainOfCores(), "stop or move what else runs here", other("ps -eo pid,pcpu,args --sort=-pcpu | head   # shows it"),
			"threads that could run wait for a core %.0f%% of that time; %s", 100*max(s.lag, s.delay), what)
	}
	waits := 100 * max(s.lag, s.delay)
	if all := c.sys.cpu.Cores; c.sys.limited == "affinity" && float64(all) > s.cores && waits > 15 {
		f.add(min(s.gainOfCores(), float64(all)/s.cores), fmt.Sprintf("let it run on all %d cores", all), before(f.command(), "taskset", "-c", fmt.Sprintf("0-%d", all-1)),
			"threads that could run wait for a core %.0f%% of that time; it may use %.3g of the machine's %d cores", waits, s.cores, all)
	} else if n := c.crowd(); float64(n) > s.cores && waits > 15 && s.outside < 0.25*s.cores {
		f.add(s.gainOfCores(), "let its libraries start one thread each", before(f.command(), "env", "OMP_NUM_THREADS=1"),
			"%d threads of the trainer want one of %.3g cores at the same time, and wait %.0f%% of that time", n, s.cores, waits)
	}
	where := ""
	if w := c.topWhere(causeCPU); w != "" {
		where = "; most of it in " + w
	}
	data := c.findData()
	if r.Loader.Kind == "stoker" {
		if do, ok := f.pack("train/", "--images", "dct"); ok && data.Images {
			f.add(r.Gains[CPU], "decode less per example: pack coefficients or a smaller size", do,
				"decoding and transforming is what the engine's threads do%s", where)
		}
		f.add(s.gainOfCores(), "give the engine more cores", other("docker run --cpus=N ...   # Slurm: --cpus-per-task; or a larger machine"), "the job uses %.2f of %.3g cores", s.tree, s.cores)
		return
	}
	works, repeats := f.sum.decodes(), f.sum.share(partDecode)
	packs := false
	if r.Loader.Kind == "torch" && works > 0.3 {
		packs = f.inEngine(works, fmt.Sprintf("computing is %.0f%% of what making a batch takes%s", load, where))
	}
	// Decoding repeats in every epoch. Of transforms it is not known whether they are random.
	if do, ok := f.pack("train/", "--images", "raw", "--resize", "256"); ok && data.Images && repeats > 0.3 {
		f.add(1/(1-0.7*works*(1-s.timeWithoutComputing())), "decode once instead of in every epoch", do.then("  # then: stoker.Loader(\"train/\")"),
			"decoding is %.0f%% of the work and gives the same result every time", 100*repeats)
	} else if gain := 1 / s.timeWithoutComputing(); gain >= 1.05 && !packs {
		f.add(gain, "make computing an example cheaper", f.cProfile(),
			"computing is %.0f%% of what making a batch takes%s", load, where)
	}
	if len(f.advice) == 0 {
		// The gain would be the waiting for cores, caused by the job itself and by other programs.
		f.add(s.gainOfCores(), "give the job more cores", other("docker run --cpus=N ...   # Slurm: --cpus-per-task; or a larger machine"),
			"threads that could run wait for a core %.0f%% of that time; the job uses %.2f of %.3g cores", 100*max(s.lag, s.delay), s.tree, s.cores)
	}
}

// cProfile is the command that runs the job under Python's own profiler.
func (f *findings) cProfile() Action {
	command := f.command()
	if !strings.HasPrefix(filepath.Base(command[0]), "python") {
		command = []string{"python", "train.py"}
	}
	words := slices.Concat(command[:1], []string{"-m", "cProfile", "-s", "cumtime"}, command[1:])
	if f.r.Loader.Workers == 0 || f.s.threads {
		return other(quoteWords(words))
	}
	return other(quoteWords(words) + "   # with num_workers=0")
}

// inEngine adds the advice that moves the work of a DataLoader into Stoker's engine. The loader recognition of stoker
// run decides which advice that is. It reports whether the advice is to pack the dataset.
func (f *findings) inEngine(works float64, why string) (packs bool) {
	gain := min(f.r.Gains[CPU], f.s.gainOfEngine(1))
	note := f.c.notes.main
	switch {
	case note != nil && note.Taken:
	case note == nil || note.Engine == nil:
		f.add(gain, "ask whether Stoker's engine can make these batches, with the script as it is", f.run("--explain"),
			"%s; the table before the first batch has the answer", why)
	case *note.Engine && note.Later != "":
		f.add(gain, "let Stoker's engine make the images from the second epoch on, with the script as it is", f.run(),
			"%s; %s", why, printable(note.Later))
	case *note.Engine && len(note.Rest) > 0:
		gain = min(gain, f.s.gainOfEngine(f.sum.share(partDecode)/works))
		f.add(gain, "decode in Stoker's engine instead of Python, with the script as it is", f.run(),
			"%s; %s stays in Python", why, strings.Join(note.Rest, " and "))
	case *note.Engine:
		f.add(gain, "decode and transform in Stoker's engine instead of Python, with the script as it is", f.run(), "%s", why)
	default:
		f.add(gain, "pack the dataset once, without its random transforms, and load the pack",
			other("stoker.pack(dataset, \"packed\")   # then: stoker.Loader(\"packed\", transforms=...)"),
			"%s; the script as it is stays in Python: %s", why, printable(note.Why))
		return true
	}
	return false
}

// crowdShare is the share of a core from which a thread counts as one that needs a core.
const crowdShare = 0.2

// crowd returns the number of threads of one trainer that needed a core in the last second, for the trainer with most.
func (c *collector) crowd() int {
	most := 0
	if c.tree == nil {
		return 0
	}
	for _, p := range c.tree.members {
		if p.trainer == nil {
			continue
		}
		n := 0
		for _, t := range p.threads {
			if t.share > crowdShare {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// timeWithoutComputing predicts the time of a step if computing examples were free and other programs did not change.
func (s *shares) timeWithoutComputing() float64 {
	with := *s
	with.ran, with.delay = 0, 0
	return with.timeWithout(CPU)
}

// decodes returns the share of decoding and transforming in the work of lanes, or otherwise of trainers.
func (b *bin) decodes() float64 { return b.share(partDecode) + b.share(partTransform) }

// share returns the share of a part in the work of lanes, or otherwise of trainers.
func (b *bin) share(p part) float64 {
	for _, parts := range []*[numParts]float64{&b.laneParts, &b.trainerParts} {
		all := 0.0
		for _, n := range parts {
			all += n
		}
		if all > 0 {
			return parts[p] / all
		}
	}
	return 0
}

// engineCost is the CPU time of Stoker's engine relative to a PyTorch loader. It takes 0.94 instead of 2.10 s per 1,000
// photographs that are decoded, cropped and resized (docs/internals/benchmarks.md, table of the photographs).
const engineCost = 0.45

// gainOfEngine returns the gain if the engine computes a part of Python's work: in parallel with the step, on the cores
// that other programs leave.
func (s *shares) gainOfEngine(part float64) float64 {
	compute := (1 - part + engineCost*part) * (s.serial[causeCPU]*(1-s.delay) + s.lanes*s.use[causeCPU]*(1-s.lag))
	free := max(0.5, s.cores-s.outside)
	return 1 / min(1, max(s.step+s.other, (compute+s.ran*(1-s.delay))/free, minTime))
}

// gainOfCores is the gain when every thread that could run does.
func (s *shares) gainOfCores() float64 {
	with := *s
	step := with.step + with.other - with.ran*with.delay
	rest := 0.0
	for x, t := range with.serial {
		if cause(x) == causeCPU || cause(x) == causeHandoff {
			t *= 1 - with.delay
		}
		rest += t
	}
	produce := with.production("") * (1 - with.lag*(with.part(causeCPU)+with.part(causeHandoff)))
	return 1 / min(1, max(step+rest, produce, minTime))
}
