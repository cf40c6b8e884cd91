package ndarray

import (
	"runtime"
	"sync"

	"github.com/stokerdata/stoker/internal/source/fixedrecords"
)

// Chunks that have many rows and were decoded are kept: those that follow in the
// file, or come again soon, are then only copied. What is kept is bounded, and a part
// of the memory that the source holds (driver.Holder) from the beginning.

const (
	// cacheBytes is what is kept of all fields together, as far as minSlots allow.
	cacheBytes = 64 << 20
	// slotBytes bounds what is kept of one field so that all threads have a chunk.
	slotBytes = 32 << 20
)

// cache keeps decoded chunks of a field.
type cache struct {
	size  int64 // of a chunk
	count int64 // of slots

	mu    sync.Mutex
	mem   *fixedrecords.Memory
	room  []byte // of all slots, once one is needed
	slots []*slot
	index map[key]*slot
	hand  int
}

type key struct {
	a *Array
	n int64
}

// slot is a chunk that is kept. Fields but ready and err are guarded by cache.mu.
type slot struct {
	key   key
	mem   []byte
	users int
	used  bool          // since the hand came by
	ready chan struct{} // closed when mem is filled
	err   error
}

// newCache makes a cache for chunks of a size, of which there are count in all, with
// a share of cacheBytes.
func newCache(mem *fixedrecords.Memory, size, count, share int64) *cache {
	least := min(int64(runtime.GOMAXPROCS(0))+2, max(slotBytes/size, 1))
	n := min(max(share/size, least), count)
	return &cache{size: size, count: n, mem: mem, index: map[key]*slot{}}
}

// held is how much memory the cache may come to have.
func (c *cache) held() int64 { return c.size * c.count }

// get returns a chunk, filled by fill if it is not there, nil where all slots are in
// use. It is given back with put.
func (c *cache) get(a *Array, n int64, fill func(dst []byte) error) (*slot, error) {
	k := key{a, n}
	c.mu.Lock()
	if s := c.index[k]; s != nil {
		s.users++
		s.used = true
		c.mu.Unlock()
		// Another goroutine may be decoding it, which waits for nobody.
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

// free returns a slot that nobody uses, with c.mu held.
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

// put gives a chunk back.
func (c *cache) put(s *slot) {
	c.mu.Lock()
	s.users--
	c.mu.Unlock()
}
