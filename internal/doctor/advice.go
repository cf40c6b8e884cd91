package doctor

import (
	"fmt"
	"math"
	"sort"
	"strings"

	"github.com/stokerdata/stoker/internal/units"
)

// maxAdvice is how many things to do a report lists.
const maxAdvice = 3

// adviser collects things to do.
type adviser struct {
	out []Advice
}

func (a *adviser) add(gain float64, title, command, why string, args ...any) {
	a.out = append(a.out, Advice{Title: title, Why: fmt.Sprintf(why, args...), Command: command, Gain: round(gain, 2)})
}

// advise lists what to do about the verdict, for the loader that was recognised.
func (c *collector) advise(r *Report, s *shares, sum *bin) []Advice {
	a := &adviser{}
	if s.samples == 0 {
		return []Advice{}
	}
	kind, workers := r.Loader.Kind, r.Loader.Workers
	torch := kind == "torch" || kind == "unknown" || kind == "webdataset" || kind == "mosaic" || kind == "litdata" || kind == "datasets"
	waits := 100 * r.Waiting
	if r.Verdict == CPU || r.Verdict == Storage || r.Verdict == Network || r.Verdict == Handoff && workers == 0 {
		if torch {
			c.adviseWorkers(a, r, s, waits)
		}
	}
	if r.Loader.Restarted && r.Verdict != Healthy && r.Verdict != Accelerator {
		a.add(0, "keep the workers alive between epochs", "DataLoader(..., persistent_workers=True)",
			"workers were started again %s while watching; each start takes the time of an import", often(c.workersEver/max(1, workers)-1))
	}
	if r.Loader.Trainers == 0 && (r.Verdict == Healthy || r.Verdict == Accelerator) {
		a.add(0, "watch the process that runs the training loop, while it trains", "stoker doctor --seconds 60 --pid PID   # or: stoker doctor -- python train.py",
			"no data loader was seen at work, so nothing is known of one")
		return a.out
	}
	switch r.Verdict {
	case CPU:
		c.adviseCPU(a, r, s)
	case Storage:
		c.adviseStorage(a, r, s, sum)
	case Network:
		a.add(r.Gains[Network], "stage the data on a local disk before the job starts",
			"stoker pack SOURCE /local/train/   # then read the pack", "reading from the network is %.0f%% of what making a batch takes", 100*s.cost(causeNetwork))
		a.add(0, "have more requests under way at once", "DataLoader(..., num_workers=N, prefetch_factor=8)",
			"a worker waits for one request at a time; latency hides behind many")
		a.add(0, "read few large objects instead of one per example", "stoker pack SOURCE train/",
			"each request costs its round trip, whatever its size")
	case Memory:
		c.adviseMemory(a, r, s, sum)
	case Handoff:
		c.adviseHandoff(a, r, s)
	case Accelerator:
		a.add(r.Gain, "make the step faster: that is all that helps now", "",
			"the trainer waits for data %.0f%% of its time; the loader has room for a step %s as fast", waits, times(r.Gain))
		a.add(0, "see what the step does", "stoker profile -- python train.py --profiling",
			"forward, backward and optimiser apart; mixed precision, torch.compile and a larger batch are the usual steps")
		if r.Loader.Workers > 2 && s.busy < 0.3 {
			a.add(1, fmt.Sprintf("use fewer workers: %d will do", max(1, int(math.Ceil(1.5*s.busy*s.lanes)))),
				fmt.Sprintf("DataLoader(..., num_workers=%d)", max(1, int(math.Ceil(1.5*s.busy*s.lanes)))),
				"%d workers are without work %.0f%% of the time; they cost memory", workers, 100*(1-s.busy))
		}
	case Healthy:
		a.add(1, "change nothing: the loader keeps up", "stoker doctor --save healthy.json ...",
			"keep this report to compare with when something gets slow")
	}
	if sum.dt > 0 && c.line.known[gShm] && sum.v[gShm]/sum.dt > 0.8 {
		a.add(0, "give the container more shared memory", "docker run --shm-size=8g ...",
			"/dev/shm is %.0f%% full; workers die with a bus error when it is", 100*sum.v[gShm]/sum.dt)
	}
	if sum.dt > 0 && sum.v[mThrottleGPU]/sum.dt > 0.3 {
		reason := ""
		for _, name := range sortedKeys(c.throttles) {
			if reason == "" || c.throttles[name] > c.throttles[reason] {
				reason = name
			}
		}
		a.add(0, "see why the accelerator is slowed down: "+reason, "nvidia-smi -q -d PERFORMANCE",
			"%.0f%% of the time its driver held the clock down", 100*sum.v[mThrottleGPU]/sum.dt)
	}
	sort.SliceStable(a.out, func(i, j int) bool { return a.out[i].Gain > a.out[j].Gain })
	return a.out[:min(len(a.out), maxAdvice)]
}

// cost is the share of a cause in what loading takes: of the workers where there
// are any, else of the trainer's own loading.
func (s *shares) cost(x cause) float64 {
	if s.lanes > 0 {
		return s.part(x)
	}
	sum := 0.0
	for _, v := range s.serial {
		sum += v
	}
	if sum == 0 {
		return 0
	}
	return s.serial[x] / sum
}

// adviseWorkers says how many workers to use, if that helps.
func (c *collector) adviseWorkers(a *adviser, r *Report, s *shares, waits float64) {
	trainers := max(1, r.Loader.Trainers)
	// Waiting workers need no core of their own; computing ones do.
	most := math.Max(1, math.Floor(c.sys.cores))
	if r.Verdict == Storage || r.Verdict == Network {
		most = max(4*most, 16)
	}
	now := int(math.Round(s.lanes))
	best, time := now, s.timeWithWorkers(float64(max(1, now)))
	if now == 0 {
		time = 1
	}
	for n := now + 1; n <= int(most); n++ {
		// A further worker must bring something.
		if t := s.timeWithWorkers(float64(n)); t < time*0.97 {
			best, time = n, t
		}
	}
	gain := 1 / time
	if best == now || gain < 1.05 {
		return
	}
	per := max(1, best/trainers)
	command := fmt.Sprintf("DataLoader(..., num_workers=%d, persistent_workers=True, prefetch_factor=4)", per)
	if now == 0 {
		a.add(gain, fmt.Sprintf("load in %s beside the step", processes(per)), command,
			"the trainer loads its data itself for %.0f%% of its time, with no step meanwhile", waits)
		return
	}
	a.add(gain, fmt.Sprintf("use %d workers instead of %d", per, max(1, now/trainers)), command,
		"%s at work %.0f%% of the time each, trainer waits %.0f%%; the machine has %.3g cores, %.2f in use",
		units.Plural(now, "worker"), 100*s.busy, waits, s.cores, min(s.cores, s.tree+s.outside))
}

func processes(n int) string {
	if n == 1 {
		return "1 worker process"
	}
	return fmt.Sprintf("%d worker processes", n)
}

func (c *collector) adviseCPU(a *adviser, r *Report, s *shares) {
	load := 100 * s.cost(causeCPU)
	if s.limited > 0.05 {
		a.add(c.gainOfCores(s), "raise the CPU quota", "docker update --cpus=N CONTAINER   # Kubernetes: resources.limits.cpu",
			"the quota of %.3g cores stops the job %.0f%% of the time", c.sys.throttle.Quota, 100*min(1, s.limited))
	} else if s.outside > 0.25*s.cores && (s.lag > 0.15 || s.delay > 0.15) {
		what := "other programs"
		if c.topOther != "" {
			what = c.topOther
		}
		a.add(c.gainOfCores(s), "stop or move what else runs here", "taskset -c ... or another machine",
			"threads that could run wait for a core %.0f%% of that time; %s", 100*max(s.lag, s.delay), what)
	}
	where := ""
	if w := c.topWhere(); w != "" {
		where = "; most of it in " + w
	}
	switch r.Loader.Kind {
	case "stoker":
		a.add(r.Gains[CPU], "decode less per example: pack coefficients or a smaller size", "stoker pack --images dct SOURCE train/",
			"decoding and transforming is what the engine's threads do%s", where)
		a.add(0, "give the engine more cores", "taskset, --cpus or a larger machine", "the job uses %.2f of %.3g cores", s.tree, s.cores)
	default:
		a.add(min(r.Gains[CPU], s.gainOfEngine()), "decode and transform in Stoker's engine instead of Python", "stoker pack SOURCE train/ && stoker bench train/",
			"computing is %.0f%% of what making a batch takes%s", load, where)
		a.add(0, "do once what gives the same result every time", "stoker pack --images raw --resize 256 SOURCE train/",
			"decoding, resizing and tokenising need not be done again in every epoch")
	}
}

// engineCost is the CPU time that Stoker's engine takes for what a PyTorch loader
// takes 1 for: 0.94 against 2.10 s per 1,000 photographs that are decoded, cropped
// and resized (docs/benchmarks.md, table of the photographs).
const engineCost = 0.45

// gainOfEngine is the gain when the engine computes what Python computes now:
// beside the step, on the cores that other programs leave.
func (s *shares) gainOfEngine() float64 {
	compute := engineCost * (s.serial[causeCPU]*(1-s.delay) + s.lanes*s.use[causeCPU]*(1-s.lag))
	free := max(0.5, s.cores-s.outside)
	return 1 / min(1, max(s.step+s.other, (compute+s.ran*(1-s.delay))/free, minTime))
}

// gainOfCores is the gain when every thread that could run does.
func (c *collector) gainOfCores(s *shares) float64 {
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

func (c *collector) adviseStorage(a *adviser, r *Report, s *shares, sum *bin) {
	kind, file := c.slowFile()
	size := 0.0
	if sum.v[mDiskReads] > 0 {
		size = sum.v[mDiskRead] / sum.v[mDiskReads]
	}
	remote := strings.HasPrefix(kind, "fuse") || strings.HasPrefix(kind, "nfs") || kind == "lustre" || kind == "ceph" || kind == "cifs" || kind == "9p"
	if remote {
		a.add(r.Gains[Storage], "copy the data to a local disk before the job starts", "stoker pack SOURCE /local/train/",
			"the files lie on %s, where each read waits for another program or machine", kind)
	}
	if r.Loader.Kind != "stoker" {
		why := "reading is %.0f%% of what making a batch takes"
		if size > 0 && size < 256e3 && !remote {
			why += fmt.Sprintf("; the disk reads %s at a time, which is the small-file problem", units.Bytes(size))
		}
		if file != "" && !remote {
			why += "; for example " + strings.ReplaceAll(file, "%", "%%")
		}
		a.add(r.Gains[Storage], "put the examples into one file that is read in order", "stoker pack SOURCE train/", why, 100*s.cost(causeStorage))
	}
	free := float64(c.sys.memory.Available)
	if c.sys.limit.Limit > 0 {
		free = min(free, float64(c.sys.limit.Limit)-float64(min(c.sys.limit.Usage, c.sys.limit.Limit))+float64(c.sys.limit.Reusable))
	}
	a.add(0, "keep the data, or a part of it, in memory", "stoker.Loader(\"train/\", cache=\"auto\")",
		"%s of memory are free for it; every example in memory is one read less", units.Bytes(free))
}

func (c *collector) adviseMemory(a *adviser, r *Report, s *shares, sum *bin) {
	limit := "of the machine"
	if c.sys.limit.Limit > 0 {
		limit = fmt.Sprintf("that the control group allows (%s)", units.Bytes(c.sys.limit.Limit))
	}
	a.add(r.Gains[Memory], "give the job more memory", "docker run --memory=N ...   # Kubernetes: resources.limits.memory; Slurm: --mem",
		"it uses all of the memory %s; something stood still for it %.0f%% of the time", limit, 100*s.memory)
	if r.Loader.Workers > 1 {
		a.add(0, "use fewer workers, or a smaller prefetch factor", fmt.Sprintf("DataLoader(..., num_workers=%d, prefetch_factor=2)", max(1, r.Loader.Workers/2)),
			"each of the %d workers holds its own copy of the dataset object and of %d batches", r.Loader.Workers, 2)
	}
	a.add(0, "use a loader whose memory does not grow with its workers", "stoker.Loader(\"train/\", memory=\"1GB\")",
		"the processes of the job hold %s", units.Bytes(sum.v[gRSS]/max(sum.dt, 1e-9)))
}

func (c *collector) adviseHandoff(a *adviser, r *Report, s *shares) {
	where := c.topWhere()
	if where != "" {
		where = "; most of it in " + where
	}
	a.add(r.Gains[Handoff], "return arrays instead of Python objects, and collate them into one",
		"collate_fn=lambda items: torch.from_numpy(np.stack(items))",
		"handing batches over takes the trainer %.0f%% and the workers %.0f%% of their time%s",
		100*s.serial[causeHandoff], 100*s.use[causeHandoff], where)
	if r.Loader.Kind != "stoker" {
		a.add(0, "hand batches over without a copy", "stoker.Loader(\"train/\", batch_size=...)",
			"Stoker's batches are views of shared memory: nothing is pickled, one slab for each batch")
	}
	if !r.Loader.PinMemory && c.sys.host.Accelerators != nil {
		a.add(0, "pin in a thread of its own", "DataLoader(..., pin_memory=True)", "no thread that pins was seen; copying to the device then takes the trainer's time")
	} else {
		a.add(0, "send u8 instead of f32, and convert on the device", "images.to(device, non_blocking=True).float().div_(255)",
			"a quarter of the bytes to collate, copy and pin")
	}
}
