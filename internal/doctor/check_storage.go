package doctor

import (
	"fmt"
	"strings"

	"github.com/stokerdata/stoker/internal/units"
)

// storageCheck detects a limit by reads of files.
type storageCheck struct{ resource }

func (storageCheck) about() about {
	return about{name: "storage", verdict: Storage, cause: causeStorage, short: "storage-bound", removed: "reading files", doing: "waiting for files"}
}

func (c storageCheck) gain(f *findings) float64 { return c.gainOf(f, Storage) }

func (storageCheck) evidence(f *findings) { f.readsEvidence() }

// readsEvidence reports the amount and origin of reads.
func (f *findings) readsEvidence() {
	if read, calls := f.per(mReadBytes), f.per(mReadChars); calls > 0 {
		f.say("%s come from block devices, %s through read calls: %.0f%% missed the page cache", units.Bandwidth(read), units.Bandwidth(calls), 100*min(1, read/calls))
	}
	if n := f.sum.v[mDiskReads]; n > 0 && f.c.sys.disk != "" {
		f.say("%s: %s reads/s of %s, %s each, busy %.0f%% of the time", f.c.sys.disk, units.Count(n/f.sum.dt), units.Bytes(f.sum.v[mDiskRead]/n),
			units.Seconds(f.sum.v[mDiskTime]/n), 100*min(1, f.per(mDiskBusy)))
	}
	if t, file := f.c.slowFile(); t != "" {
		f.say("the files waited for lie on %s (%s)", t, file)
	}
}

func (storageCheck) advise(f *findings) {
	c, r, s, sum := f.c, f.r, f.s, f.sum
	kind, file := c.slowFile()
	size := 0.0
	if sum.v[mDiskReads] > 0 {
		size = sum.v[mDiskRead] / sum.v[mDiskReads]
	}
	remote := remoteFS(kind)
	do, packs := f.pack("train/")
	if remote {
		f.add(r.Gains[Storage], "copy the data to a local disk before the job starts", f.staged(),
			"the files lie on %s, where each read waits for another program or machine", kind)
	}
	small := size > 0 && size < 256e3
	if r.Loader.Kind != "stoker" && packs && small && !remote && !(s.capped() && size > bulk) {
		why := "reading is %.0f%% of what making a batch takes; the disk reads " + units.Bytes(size) + " at a time, which is the small-file problem"
		if file != "" {
			why += "; for example " + strings.ReplaceAll(file, "%", "%%")
		}
		f.add(1/s.timeWithLess(Storage, 0.8), "put the examples into one file that is read in order", do, why, 100*s.cost(causeStorage))
	}
	if s.capped() {
		f.add(1/s.timeWithLess(Storage, 0.5), "read half as much: "+c.sys.disk+" can give no more", f.smaller(),
			"%s; more workers would only wait in its queue", f.capText())
	}
	free := float64(c.sys.memory.Available)
	if c.sys.limit.Limit > 0 {
		free = min(free, float64(c.sys.limit.Limit)-float64(min(c.sys.limit.Usage, c.sys.limit.Limit))+float64(c.sys.limit.Reusable))
	}
	f.add(r.Gains[Storage], "keep the data, or a part of it, in memory", f.cached(),
		"%s of memory are free for it; every example in memory is one read less", units.Bytes(free))
}

// smaller returns the action that stores the job's data in fewer bytes.
func (f *findings) smaller() Action {
	if do, ok := f.pack("train/", "--images", "raw", "--resize", "256"); ok && f.c.findData().Images {
		return do
	}
	return other("np.save(path, array.astype(np.float16))   # or a pack: stoker pack compresses")
}

// bulk is the read size from which a device's limit is bytes and not the number of reads.
const bulk = 64 << 10

// capText returns the reason why a device is at its limit.
func (f *findings) capText() string {
	if most := f.c.sys.readBytes; most > 0 && f.per(mDiskRead) > cappedFrom*most {
		return "the control group lets through " + units.Bandwidth(most)
	}
	if most := f.c.sys.readCount; most > 0 && f.per(mDiskReads) > cappedFrom*most {
		return "the control group lets through " + units.Count(most) + " reads a second"
	}
	if f.per(mDiskBusy) > cappedFrom {
		return fmt.Sprintf("it is busy %.0f%% of the time", 100*min(1, f.per(mDiskBusy)))
	}
	return "its rate does not depend on the number of concurrent requests"
}

// cached returns the action for Stoker's loader with a cache on the job's data, or no action if the data cannot be
// read.
func (f *findings) cached() Action {
	if d := f.c.findData(); d.Path != "" {
		return stokerLoader(d.Path, option("cache", true))
	}
	return other("stoker.Loader(..., cache=True)   # or copy the data to /dev/shm")
}

// remoteFS reports whether the files of a file system type come from another program or machine.
func remoteFS(kind string) bool {
	switch kind {
	case "lustre", "ceph", "cifs", "9p":
		return true
	}
	return strings.HasPrefix(kind, "fuse") || strings.HasPrefix(kind, "nfs")
}
