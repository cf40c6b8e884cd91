// Package blockcache caches decompressed blocks that several records share, for example pages of columns. Their
// memory is outside of Go's heap.
package blockcache

import (
	"errors"
	"sync"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/source/driver"
)

// First is the limit of a Cache until Keep is called.
const First = 64 << 20

// Budget only counts the memory. The limit is enforced by each Cache.
var Budget = arena.NewBudget(1 << 60)

// Cache holds all entries in use, and the most recently used others up to its limit. Records are read in random
// order, so each entry is equally likely to be needed next.
type Cache struct {
	mu    sync.Mutex
	limit int64
	used  int64
	all   map[Key]*Entry
	// newest and oldest are the ends of the list of unused entries.
	newest, oldest *Entry
	closed         bool
}

// Key identifies an entry. Its numbers are defined by the source.
type Key struct {
	Column, N int32
	Dict      bool
}

// Entry is a decompressed block.
type Entry struct {
	Key
	// What is the source's value. Other is another entry that this one needs and holds a reference to.
	What  any
	Other *Entry

	mem  *arena.Bump
	size int64
	refs int
	dead bool          // removed from all
	made chan struct{} // closed when What or err is set
	err  error

	newer, older *Entry
}

// New returns an empty Cache.
func New() *Cache { return &Cache{limit: First, all: map[Key]*Entry{}} }

// Alloc returns n bytes that live as long as the entry. The error is a driver.MemoryError.
func (e *Entry) Alloc(n int) ([]byte, error) {
	b, err := e.mem.Alloc(n)
	if err != nil {
		return nil, &driver.MemoryError{Err: err}
	}
	return b, nil
}

var errUnfinished = errors.New("internal error: a block was not decompressed")

// Get returns an entry. If it does not exist, fill creates it with memory from Entry.Alloc, which is counted. The
// caller must Put the entry.
func (c *Cache) Get(k Key, fill func(e *Entry) error) (*Entry, error) {
	c.mu.Lock()
	e := c.all[k]
	if e == nil {
		e = &Entry{Key: k, made: make(chan struct{}), refs: 1}
		c.all[k] = e
		c.mu.Unlock()
		c.make(e, fill)
	} else {
		if e.refs++; e.refs == 1 {
			c.unlink(e)
		}
		c.mu.Unlock()
		<-e.made // another goroutine may be filling it
	}
	if e.err != nil {
		c.Put(e)
		return nil, e.err
	}
	return e, nil
}

// make fills an entry. It closes e.made even if fill panics, so that no goroutine waits forever.
func (c *Cache) make(e *Entry, fill func(e *Entry) error) {
	e.mem = arena.NewBump(Budget, arena.PurposeRead)
	defer close(e.made)
	e.err = errUnfinished // the error after a panic
	e.err = fill(e)
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.err == nil {
		e.size = int64(e.mem.Used())
		c.used += e.size
		c.shrink()
		return
	}
	delete(c.all, e.Key) // the next Get tries again
	e.dead = true
}

// Put releases an entry.
func (c *Cache) Put(e *Entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.putLocked(e)
}

func (c *Cache) putLocked(e *Entry) {
	if e.refs--; e.refs > 0 {
		return
	}
	if e.dead || c.closed {
		c.free(e)
		return
	}
	if e.older = c.newest; e.older != nil {
		e.older.newer = e
	} else {
		c.oldest = e
	}
	c.newest = e
	c.shrink()
}

// unlink removes an entry from the list of unused entries.
func (c *Cache) unlink(e *Entry) {
	if e.newer != nil {
		e.newer.older = e.older
	} else {
		c.newest = e.older
	}
	if e.older != nil {
		e.older.newer = e.newer
	} else {
		c.oldest = e.newer
	}
	e.newer, e.older = nil, nil
}

// shrink frees unused entries until the limit is met.
func (c *Cache) shrink() {
	for c.used > c.limit && c.oldest != nil {
		e := c.oldest
		c.unlink(e)
		c.free(e)
	}
}

func (c *Cache) free(e *Entry) {
	if !e.dead {
		delete(c.all, e.Key)
		c.used -= e.size
		e.dead = true
	}
	e.mem.Release()
	if e.Other != nil {
		c.putLocked(e.Other)
		e.Other = nil
	}
}

// Keep sets the limit in bytes.
func (c *Cache) Keep(n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limit = n
	c.shrink()
}

// Limit returns the limit in bytes.
func (c *Cache) Limit() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.limit
}

// Close frees all unused entries. Entries in use are freed when they are Put.
func (c *Cache) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.limit = -1
	c.shrink()
}
