package doctor

// handoffCheck detects a limit by the transfer of batches to the trainer.
type handoffCheck struct{ resource }

func (handoffCheck) about() about {
	return about{name: "handoff", verdict: Handoff, cause: causeHandoff, short: "hand-off-bound", removed: "handing batches over", doing: "handing over"}
}

func (c handoffCheck) gain(f *findings) float64 { return c.gainOf(f, Handoff) }

func (handoffCheck) evidence(f *findings) {
	if w := f.c.topWhere(causeHandoff); w != "" {
		f.say("most of it is in %s", w)
	}
	if f.per(gShm) > 0.5 {
		f.say("/dev/shm is %.0f%% full", 100*f.per(gShm))
	}
}

func (handoffCheck) advise(f *findings) {
	c, r, s := f.c, f.r, f.s
	where := c.topWhere(causeHandoff)
	if where != "" {
		where = "; most of it in " + where
	}
	copies := c.copies > s.serial[causeHandoff]/2
	if copies {
		title, do := "begin to copy the next batch before the step, without waiting for it", other("images.to(device, non_blocking=True)")
		if torchBased(r.Loader.Kind) && !r.Loader.PinMemory {
			title, do = "pin batches in a thread of its own, and copy without waiting: .to(device, non_blocking=True)", dataLoader(option("pin_memory", true))
		}
		f.add(1/s.timeWithLess(Handoff, c.copies/s.serial[causeHandoff]), title, do,
			"copying to the device takes the trainer's time, and for %.0f%% of it the device has nothing else to do", 100*c.copies)
	}
	collates := f.sum.laneParts[partCollate] + f.sum.trainerParts[partCollate] + f.sum.laneParts[partPickle] + f.sum.trainerParts[partPickle]
	if collates > 0 && torchBased(r.Loader.Kind) {
		f.add(r.Gains[Handoff], "return arrays instead of Python objects, and collate them into one",
			dataLoader(option("collate_fn", code("lambda items: torch.from_numpy(np.stack(items))"))),
			"handing batches over takes the trainer %.0f%% and the workers %.0f%% of their time%s",
			100*s.serial[causeHandoff], 100*s.use[causeHandoff], where)
	} else {
		f.add(r.Gains[Handoff], "hand over fewer and larger things: arrays instead of Python objects", other("np.stack(examples)   # one array instead of a list of objects"),
			"handing batches over takes the trainer %.0f%% and the workers %.0f%% of their time%s",
			100*s.serial[causeHandoff], 100*s.use[causeHandoff], where)
	}
	if d := c.findData(); r.Loader.Kind != "stoker" && d.Path != "" {
		f.add(1/s.timeWithLess(Handoff, 0.8), "hand batches over without a copy", stokerLoader(d.Path),
			"Stoker's batches are views of shared memory: nothing is pickled, one slab for each batch")
	}
	switch {
	case copies || c.sys.host.Accelerators == nil:
	case !r.Loader.PinMemory:
		f.add(1/s.timeWithLess(Handoff, 0.3), "pin in a thread of its own", dataLoader(option("pin_memory", true)),
			"no thread that pins was seen; copying to the device then takes the trainer's time")
	default:
		f.add(1/s.timeWithLess(Handoff, 0.5), "send u8 instead of f32, and convert on the device", other("images.to(device, non_blocking=True).float().div_(255)"),
			"a quarter of the bytes to collate, copy and pin")
	}
}
