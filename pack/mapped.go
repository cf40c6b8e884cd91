package pack

import (
	"sync/atomic"
	"time"

	"github.com/stokerdata/stoker/internal/arena"
)

// mapping is the view of a shard, made at the first use.
type mapping struct {
	tried atomic.Bool
	view  atomic.Pointer[arena.Mapping]
}

// mapped returns the bytes of a value where they lie in the page cache: raw
// pixels and arrays are then copied once, into the batch, of dct images only the
// tiles of the crop are touched, and JPEGs are decoded from there. It returns
// nil for what is not in memory: that is read.
func (r *Reader) mapped(shard uint32, offset, size int64, now time.Time) []byte {
	m := &r.maps[shard]
	v := m.view.Load()
	if v == nil {
		if m.tried.Load() {
			return nil
		}
		if v = r.mapShard(shard); v == nil {
			return nil
		}
	}
	return v.Resident(offset, offset+size, now)
}

func (r *Reader) mapShard(shard uint32) *arena.Mapping {
	fd, err := r.fd(shard)
	if err != nil {
		return nil // the read reports it
	}
	m := &r.maps[shard]
	r.shardMu.Lock()
	defer r.shardMu.Unlock()
	if !m.tried.Swap(true) {
		if v, err := arena.MapFile(fd, r.man.Shards[shard].Bytes); err == nil {
			m.view.Store(v)
		}
	}
	return m.view.Load()
}

func (r *Reader) closeMaps() error {
	var first error
	for i := range r.maps {
		if v := r.maps[i].view.Swap(nil); v != nil {
			if err := v.Close(); err != nil && first == nil {
				first = err
			}
		}
	}
	return first
}
