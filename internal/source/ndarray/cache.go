package ndarray

import (
	"runtime"
	"sync"

	"github.com/stokerdata/stoker/internal/source/fixedrecords"
)

// Decoded chunks of several rows are cached. Neighbouring rows, and rows that are read again soon,
// are then only copied. The cache is bounded and counts as memory of the source (driver.Holder)
// from the start.

const (
	// cacheBytes is the target size of the caches of all fields together. Caches with few, large
	// chunks can exceed it: newCache.
	cacheBytes = 64 << 20
	// slotBytes limits the minimum cache of a field. Below it there is a chunk for each thread.
	slotBytes = 32 << 20
)

// cache has decoded chunks of a field. It evicts them by the clock algorithm.
type cache struct {
	size  int64 // bytes of a chunk
	count int64 // largest number of slots

	mu    sync.Mutex
	mem   *fixedrecords.Memory
	room  []byte // memory for all slots, allocated with the first slot
	slots []*slot
	index map[key]*slot
	hand  int
}

type key struct {
	a *Array
	n int64
}

// slot is a cached chunk. cache.mu guards all its fields except ready and err.
type slot struct {
	key   key
	mem   []byte
	users int
	used  bool          // since the clock hand last passed
	ready chan struct{} // closed when mem is filled or err is set
	err   error
}

// newCache makes a cache for chunks of size bytes, of which there are count. share is its share of
// cacheBytes.
func newCache(mem *fixedrecords.Memory, size, count, share int64) *cache {
	least := min(int64(runtime.GOMAXPROCS(0))+2, max(slotBytes/size, 1))
	n := min(max(share/size, least), count)
	return &cache{size: size, count: n, mem: mem, index: map[key]*slot{}}
}

// held returns the largest size of the cache in bytes.
func (c *cache) held() int64 { return c.size * c.count }

// get returns chunk n of a. If the chunk is not cached, fill decodes it. get returns nil if all
// slots are in use. The caller must release the slot with put.
func (c *cache) get(a *Array, n int64, fill func(dst []byte) error) (*slot, error) {
	k := key{a, n}
	c.mu.Lock()
	if s := c.index[k]; s != nil {
		s.users++
		s.used = true
		c.mu.Unlock()
		// The goroutine that decodes the chunk waits for no other, so this wait ends.
		<-s.ready
		if s.err != nil {
			c.put(s)
			return nil, s.err
		}
		return s, nil
	}
	s, err := c.free()
	if s == nil || err != nil {
		c.mu.Unlock()
		return nil, err
	}
	s.key, s.users, s.used, s.err, s.ready = k, 1, true, nil, make(chan struct{})
	c.index[k] = s
	c.mu.Unlock()

	err = fill(s.mem)
	if err != nil {
		c.mu.Lock()
		s.err = err
		delete(c.index, k)
		c.mu.Unlock()
	}
	close(s.ready)
	if err != nil {
		c.put(s)
		return nil, err
	}
	return s, nil
}

// free returns an unused slot, nil if all are in use. The caller holds c.mu.
func (c *cache) free() (*slot, error) {
	if int64(len(c.slots)) < c.count {
		if c.room == nil {
			room, err := c.mem.Take(c.held())
			if err != nil {
				return nil, err
			}
			c.room = room
		}
		at := int64(len(c.slots)) * c.size
		s := &slot{mem: c.room[at : at+c.size : at+c.size]}
		c.slots = append(c.slots, s)
		return s, nil
	}
	for range 2 * len(c.slots) {
		s := c.slots[c.hand]
		c.hand = (c.hand + 1) % len(c.slots)
		if s.users > 0 {
			continue
		}
		if s.used {
			s.used = false
			continue
		}
		if c.index[s.key] == s {
			delete(c.index, s.key)
		}
		return s, nil
	}
	return nil, nil
}

// put releases a slot.
func (c *cache) put(s *slot) {
	c.mu.Lock()
	s.users--
	c.mu.Unlock()
}
