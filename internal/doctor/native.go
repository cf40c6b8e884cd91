package doctor

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/stokerdata/stoker/internal/doctor/libprofile"
	"github.com/stokerdata/stoker/internal/proc"
)

// Python frames end at native code. The kernel shows the work of native code: the library in which a thread runs, and
// the library that touched a missing page.

// nativeState has the libraries in which the data path runs.
type nativeState struct {
	libs    *libprofile.Sampler
	spent   map[string]int            // samples of CPU time by library
	spentAt map[ownKey]map[string]int // the same of trainers outside of any loader, by the line of the loop
	faults  map[string]int            // page faults that waited, by the library that needed the page
	mapped  map[int]mappedFile        // the largest data file that a process maps
	made    map[ownKey]bool           // the lines of a loop that make its batches
	shown   bool                      // the source of a loop shows that it trains
	copies  float64                   // share of the trainers' time in which the device waits for copies to it
}

type mappedFile struct {
	path string
	at   time.Time
}

// maxLibraries limits the number of stored names.
const maxLibraries = 256

func tally(in map[string]int, name string) {
	if name != "" && (len(in) < maxLibraries || in[name] > 0) {
		in[name]++
	}
}

// drain takes the libraries in which a thread was seen running since the last call.
func (c *collector) drain(pid, tid int, found func(library string)) {
	if c.libs == nil {
		return
	}
	c.libs.Follow(tid)
	c.libs.Take(tid, func(address uint64) { found(c.libs.Library(pid, address)) })
}

// noteNative records the library in which a thread of the data path runs.
func (c *collector) noteNative(pid, tid int) {
	c.drain(pid, tid, func(library string) { tally(c.spent, library) })
}

// noteTrainerNative does the same for a trainer. The time since the last sample counts if the trainer had the same
// activity then.
func (c *collector) noteTrainerNative(p *process, tid int, x cause, at ownKey) {
	s := p.trainer
	same := s.lastCause == x && s.lastAt == at
	s.lastCause, s.lastAt = x, at
	c.drain(p.pid, tid, func(library string) {
		switch {
		case !same:
		case x == causeCPU || x == causeHandoff:
			tally(c.spent, library)
		case x == causeStep && at.body > 0:
			if c.spentAt[at] == nil {
				if len(c.spentAt) >= maxOwn {
					return
				}
				c.spentAt[at] = map[string]int{}
			}
			tally(c.spentAt[at], library)
		}
	})
}

// noteFault records the code that needed a missing page, and the page's file.
func (c *collector) noteFault(p *process) {
	t := p.threads[p.pid]
	if t == nil || c.libs == nil {
		return
	}
	tally(c.faults, c.libs.Library(p.pid, t.call.PC))
	c.noteFile(p.pid, c.largestMapped(p.pid))
}

// largestMapped is the largest file of data that a process maps.
func (c *collector) largestMapped(pid int) string {
	if m, ok := c.mapped[pid]; ok && time.Since(m.at) < 10*time.Second {
		return m.path
	}
	var best mappedFile
	var size uint64
	sizes := map[string]uint64{}
	_, err := c.fs.Mappings(pid, func(m *proc.Mapping) bool {
		if m.Exec || m.Inode == 0 || !strings.HasPrefix(m.Name, "/") || installed(m.Name) || strings.HasPrefix(m.Name, "/dev/") ||
			strings.HasPrefix(m.Name, "/memfd:") || strings.Contains(filepath.Base(m.Name), ".so") || strings.HasSuffix(m.Name, " (deleted)") {
			return false
		}
		sizes[m.Name] += m.End - m.Start
		if sizes[m.Name] > size || sizes[m.Name] == size && m.Name < best.path {
			best.path, size = m.Name, sizes[m.Name]
		}
		return false
	})
	if err != nil || size < 1<<20 {
		best.path = ""
	}
	best.at = time.Now()
	if c.mapped == nil || len(c.mapped) > maxMembers {
		c.mapped = map[int]mappedFile{}
	}
	c.mapped[pid] = best
	return best.path
}

// frameworks are libraries that compute training steps and do not make batches.
var frameworks = []string{"jaxlib", "libtpu", "libxla", "xla_", "libtensorflow", "tensorflow"}

func framework(library string) bool {
	return slices.ContainsFunc(frameworks, func(name string) bool { return strings.HasPrefix(library, name) })
}

// inFramework reports whether a line of a loop computes in one of them.
func (c *collector) inFramework(at ownKey) bool {
	n, all := 0, 0
	for name, k := range c.spentAt[at] {
		all += k
		if framework(name) {
			n += k
		}
	}
	return n >= 3 && 3*n >= all
}

// hasFramework reports whether a process has loaded a framework for models.
func (c *collector) hasFramework(p *process) bool {
	if p.frameworkAsked {
		return p.framework
	}
	p.frameworkAsked = true
	_, _ = c.fs.Mappings(p.pid, func(m *proc.Mapping) bool {
		if m.Exec {
			name := libprofile.Name(m.Name)
			p.framework = p.framework || framework(name) || strings.HasPrefix(name, "libtorch") || strings.HasPrefix(name, "libjax")
		}
		return false
	})
	return p.framework
}

// keepNative stops following threads of processes that have ended.
func (c *collector) keepNative() {
	if c.libs == nil {
		return
	}
	alive := map[int]bool{}
	for _, p := range c.tree.members {
		alive[p.pid] = true
		for tid := range p.threads {
			alive[tid] = true
		}
	}
	c.libs.Retain(func(tid int) bool { return alive[tid] })
}

// nativeShares are the shares of libraries in samples, the largest first. made are the
// lines of a loop that make its batches.
func (c *collector) nativeShares() ([]library, int) {
	all := map[string]int{}
	total := 0
	for name, n := range c.spent {
		all[name] += n
		total += n
	}
	for at, spent := range c.spentAt {
		if !c.made[at] {
			continue
		}
		for name, n := range spent {
			all[name] += n
			total += n
		}
	}
	var out []library
	for _, name := range sortedKeys(all) {
		out = append(out, library{name, float64(all[name]) / float64(total)})
	}
	slices.SortStableFunc(out, func(a, b library) int {
		switch {
		case a.share > b.share:
			return -1
		case a.share < b.share:
			return 1
		}
		return 0
	})
	return out, total
}

type library struct {
	name  string
	share float64
}

// fewSamples is the minimum number of samples for statements on the use of time.
const fewSamples = 15

// nativeText returns the libraries in which the data path computes: "libz 61% (gzip inside HDF5), Python 20%". It
// returns "" if too little is known.
func (c *collector) nativeText() string {
	shares, n := c.nativeShares()
	if n < fewSamples {
		return ""
	}
	hdf5 := slices.ContainsFunc(shares, func(l library) bool { return l.name == "libhdf5" || l.name == "h5py" })
	var parts []string
	known := false
	for _, l := range shares {
		if l.share < 0.05 || len(parts) == 3 {
			break
		}
		text := fmt.Sprintf("%s %.0f%%", l.name, 100*l.share)
		does := libprofile.Does(l.name)
		if hdf5 && (strings.HasPrefix(l.name, "libz") || l.name == "zlib") && l.name != "libzstd" {
			does = "gzip inside HDF5"
		}
		if does != "" {
			text += " (" + does + ")"
		}
		known = known || l.name != libprofile.Python
		parts = append(parts, text)
	}
	if !known {
		return ""
	}
	return strings.Join(parts, ", ")
}

// faultText returns the code that needed the missing pages.
func (c *collector) faultText() string {
	best, most, all := "", 0, 0
	for _, name := range sortedKeys(c.faults) {
		all += c.faults[name]
		if c.faults[name] > most {
			best, most = name, c.faults[name]
		}
	}
	if most < partnerLooks || 2*most < all {
		return ""
	}
	if does := libprofile.Does(best); does != "" && does != best {
		best += " (" + does + ")"
	}
	return best
}

// nativeCheck reports the libraries in which examples are computed.
type nativeCheck struct{ remedy }

func (nativeCheck) about() about { return about{name: "native"} }

func (nativeCheck) evidence(f *findings) {
	if f.r.Verdict == CPU || f.r.Verdict == Handoff {
		if text := f.c.nativeText(); text != "" {
			f.say("that time is spent in %s", text)
		}
	}
	if f.r.Verdict == Storage || f.r.Verdict == Memory {
		if text := f.c.faultText(); text != "" {
			f.say("pages of mapped files are waited for in %s", text)
		}
	}
}

func (nativeCheck) advise(*findings) {}
