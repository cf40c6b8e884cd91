// Package blockcache keeps what sources decompress for many records at a time, outside
// of Go's heap.
package blockcache

import (
	"errors"
	"sync"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/source/driver"
)

// First is what a Cache should keep until somebody says how much it may.
const First = 64 << 20

// Budget does not bound what is taken of it: the Cache does.
var Budget = arena.NewBudget(1 << 60)

// Cache keeps what was used last, as far as it fits, and all that is in use. Records
// come in a random order, so that one page is as likely to be wanted next as any other.
type Cache struct {
	mu    sync.Mutex
	limit int64
	used  int64
	all   map[Key]*Entry
	// newest and oldest are the ends of the list of those that nobody uses.
	newest, oldest *Entry
	closed         bool
}

// Key says what something is, by numbers that only the source knows.
type Key struct {
	Column, N int32
	Dict      bool
}

// Entry is something unpacked.
type Entry struct {
	Key
	// What is for the source. Other is another one that it needs, which it holds.
	What  any
	Other *Entry

	mem  *arena.Bump
	size int64
	refs int
	dead bool          // no longer in the table
	made chan struct{} // closed when What or err is there
	err  error

	newer, older *Entry
}

// New returns an empty Cache.
func New() *Cache { return &Cache{limit: First, all: map[Key]*Entry{}} }

// Alloc returns n bytes that live as long as the entry. It fails with a
// driver.MemoryError.
func (e *Entry) Alloc(n int) ([]byte, error) {
	b, err := e.mem.Alloc(n)
	if err != nil {
		return nil, &driver.MemoryError{Err: err}
	}
	return b, nil
}

var errUnfinished = errors.New("internal error: something was not unpacked")

// Get returns an entry, which fill makes when it is not there: what it allocates is
// counted. The entry is the caller's to Put back.
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
		<-e.made // another worker unpacks it
	}
	if e.err != nil {
		c.Put(e)
		return nil, e.err
	}
	return e, nil
}

// make makes an entry. Whoever waits for it is told, whatever happens.
func (c *Cache) make(e *Entry, fill func(e *Entry) error) {
	e.mem = arena.NewBump(Budget, arena.PurposeRead)
	defer close(e.made)
	e.err = errUnfinished // what is seen of a panic
	e.err = fill(e)
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.err == nil {
		e.size = int64(e.mem.Used())
		c.used += e.size
		c.shrink()
		return
	}
	delete(c.all, e.Key) // the next one tries again
	e.dead = true
}

// Put gives an entry back.
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

// unlink takes an entry off the list of those that nobody uses.
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

// shrink frees what is too much.
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

// Keep sets how much may be kept.
func (c *Cache) Keep(n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limit = n
	c.shrink()
}

// Limit is how much may be kept.
func (c *Cache) Limit() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.limit
}

// Close frees all that nobody uses.
func (c *Cache) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.limit = -1
	c.shrink()
}
