package pipeline

import (
	"fmt"
	"strings"

	"github.com/stokerdata/stoker/internal/budget"
	"github.com/stokerdata/stoker/internal/cache"
	"github.com/stokerdata/stoker/internal/localcache"
	"github.com/stokerdata/stoker/internal/proc"
	"github.com/stokerdata/stoker/internal/sampler"
	"github.com/stokerdata/stoker/internal/units"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// autoWindow is the window for stores with slow random reads. It is the smallest window with well-mixed batches for
// data sorted by class. Compared with a full permutation, its classes have 0.82 of the chi-square and its accuracy is
// 81.8% instead of 82.7% (docs/internals/shuffle-quality.md).
const autoWindow = 256

// auto chooses the order for the data and returns the reason. The ranks of a job must choose the same, so auto uses
// nothing that differs between similar machines, such as free memory.
func (p *Pipeline) auto(info *driver.Info) string {
	cfg := &p.cfg
	cfg.Window = 0
	switch {
	case cfg.Bucket != nil:
		return "all records: bucket says which come together"
	case p.records.epochs || cfg.Sequence != nil:
		return "all records: they are others in each epoch"
	case info.Sequential || info.Objects == 0:
		return "all records: they do not lie in objects of a store that could be read in pieces"
	}
	dear, where := isRemote(p.data())
	if !dear {
		return "all records: they lie " + where + ", where reading at random costs little more"
	}
	starts, own := p.chunks(info)
	size := int64(0)
	if own != nil {
		for c := range len(starts) - 1 {
			size += own.Chunk(c).Size
		}
	} else {
		size = int64(p.recordBytes(info) * float64(info.Len))
	}
	if where := p.heldBy(size); where != "" {
		return fmt.Sprintf("all records: %s holds their %d MiB from the second epoch on", where, units.MiB(size))
	}
	chunks := len(starts) - 1
	if localcache.Local(p.data()) != "" && size > 0 && size <= proc.Live.TotalMemory()/2 {
		return fmt.Sprintf("all records: they lie %s, and their %d MiB stay in the system's cache from the second epoch on", where, units.MiB(size))
	}
	if chunks <= autoWindow {
		return fmt.Sprintf("all records: they lie %s, and are no more than a window, %d chunks", where, chunks)
	}
	cfg.Window = autoWindow
	for cfg.Window < cfg.WorldSize && cfg.Window < sampler.MaxWindow { // so that each rank has chunks of its own
		cfg.Window *= 2
	}
	return fmt.Sprintf("they lie %s, where %d reads of a chunk cost less than %d of a record", where, chunks, info.Len)
}

// heldBy returns the cache that can hold all of the data, "" for none. A folder's own limit or its free disk space may
// differ between the machines of a job.
func (p *Pipeline) heldBy(size int64) string {
	cfg := &p.cfg
	if size <= 0 || localcache.Local(p.data()) != "" {
		return ""
	}
	if cfg.CacheMemory >= size {
		return "cache_memory"
	}
	limit := cfg.CacheLimit
	if limit == 0 && cfg.WorldSize == 1 {
		if d, err := cache.At(cfg.CacheDir, 0); err == nil {
			limit, _ = d.Limit()
		}
	}
	if cfg.Cache == CacheOn && len(cfg.Peers) == 0 && limit >= size {
		return "the cache on the disk"
	}
	return ""
}

// data returns the store of the records. Cached copies are in another store.
func (p *Pipeline) data() store.Store {
	if p.caches.kept.src != nil {
		return p.caches.kept.src.Data()
	}
	return p.src.Object(0).Store
}

// overNetwork reports whether each read is a request to a bucket or a web server.
func (p *Pipeline) overNetwork() bool {
	if p.src.Info().Objects == 0 {
		return false
	}
	id, ok := store.As[store.Identifier](p.data())
	if !ok {
		return false
	}
	name, _ := id.Identity()
	return strings.Contains(name, "://")
}

// isRemote reports whether random reads from a store are slow, and where the store is.
func isRemote(s store.Store) (dear bool, where string) {
	path := localcache.Local(s)
	if path == "" {
		return true, "in " + s.String()
	}
	m, ok := proc.Live.MountOf(path)
	switch {
	case !ok:
		return false, "in local files"
	case proc.RemoteFiles(m.Type) != "":
		return true, "on a file system of another machine (" + m.Type + ")"
	}
	if turns, _ := proc.Live.Rotational(proc.Live.BlockDevice(uint32(m.Major), uint32(m.Minor))); turns {
		return true, "on a disk that turns"
	}
	return false, "in local files"
}

// shrink reduces an automatic window until it fits the memory, and reports that.
func (p *Pipeline) shrink(r *budget.Request) error {
	w := p.order.window
	if p.order.why == "" || p.cfg.WorldSize > 1 {
		return nil // an explicit window is refused later; ranks may have unequal memory
	}
	for n := w.Window(); n > 1; n /= 2 {
		r.Window = int64(n) * (w.largest + perChunk)
		if _, err := budget.Make(r); err == nil {
			if n < w.Window() {
				p.order.why += fmt.Sprintf("; a window of %d chunks would be better than %d, and does not fit the memory", w.Window(), n)
				p.cfg.Window = n
				return p.useWindow(w.starts, w.own)
			}
			return nil
		}
	}
	return nil
}
