// Package pooled lets the pipelines of an engine share open sources. So the index of equal data is in memory once.
//
// A caller that opens a source never gets one that was opened before its call, because the data may have changed since
// then. Callers that come while a source is opened wait, and the next opening is for all of them. If the new source has
// the fingerprint of one that is still open, the callers get the open one, and the new one is closed.
//
// Ranks of a job need not be that strict: they must have the same data, so each of them gets what the first one opened.
// A rank that opens the data again gets it opened again.
package pooled

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/stokerdata/stoker/source/driver"
)

// NoRank is the rank of a caller that is not a rank of a job.
const NoRank = -1

// Pool has the open sources of an engine.
type Pool struct {
	mu   sync.Mutex
	data map[string]*data
}

// New returns a pool without sources.
func New() *Pool { return &Pool{data: map[string]*data{}} }

// data are the sources of a key.
type data struct {
	newest           *base // nil if it is closed
	running, waiting *opening
}

// base is an open source with its users.
type base struct {
	src    driver.Source
	cancel context.CancelFunc // ends what opening it has started
	users  int
	ranks  ranks
	limits map[*Source]int64 // of its cache, as the users set them
	seeded sync.Once
	turned sync.Once
}

// opening is a source that is being opened, or will be.
type opening struct {
	open   func(context.Context) (driver.Source, error)
	ctx    context.Context
	cancel context.CancelFunc
	users  int
	ranks  ranks
	done   chan struct{}
	base   *base // once it is done, with err
	err    error
}

// ranks are the ranks that have a source. It is empty if a caller that is not a rank opened the source.
type ranks map[int]bool

// gives reports whether a source is for a caller that has come later.
func (r ranks) gives(rank int) bool { return rank >= 0 && len(r) > 0 && !r[rank] }

func (r ranks) add(rank int) {
	if rank >= 0 {
		r[rank] = true
	}
}

// Open returns the source that open opens, or an equal one. Calls with equal keys must open the same data in the same
// way, with the same seed. rank is the caller's rank in its job, or NoRank. All ranks in a pool are of one job.
func (p *Pool) Open(ctx context.Context, key string, rank int, open func(context.Context) (driver.Source, error)) (driver.Source, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.data[key]
	if d == nil {
		d = &data{}
		p.data[key] = d
	}
	if b := d.newest; b != nil && b.ranks.gives(rank) {
		b.users++
		b.ranks.add(rank)
		return p.use(key, b), nil
	}
	o := d.running
	if o == nil || !o.ranks.gives(rank) {
		if d.waiting == nil {
			d.waiting = &opening{open: open, ranks: ranks{}, done: make(chan struct{})}
			d.waiting.ctx, d.waiting.cancel = context.WithCancel(context.WithoutCancel(ctx)) // the other callers may stay
		}
		o = d.waiting
	}
	o.users++
	o.ranks.add(rank)
	p.next(key, d)
	p.mu.Unlock()
	select {
	case <-o.done:
	case <-ctx.Done():
	}
	p.mu.Lock()
	select {
	case <-o.done:
		if o.err != nil {
			return nil, o.err
		}
		return p.use(key, o.base), nil
	default:
	}
	delete(o.ranks, rank)
	if o.users--; o.users == 0 {
		o.cancel()
		if d.waiting == o {
			d.waiting = nil
		}
	}
	return nil, context.Cause(ctx)
}

// next begins the opening that waits, if none is running.
func (p *Pool) next(key string, d *data) {
	switch {
	case d.running != nil:
	case d.waiting != nil:
		d.running, d.waiting = d.waiting, nil
		go p.run(key, d)
	case d.newest == nil:
		delete(p.data, key)
	}
}

// run opens a source and gives it to those that wait for it.
func (p *Pool) run(key string, d *data) {
	o := d.running
	src, err := o.opened()
	p.mu.Lock()
	unused := src
	switch {
	case err != nil:
		o.err = err
	case o.users > 0:
		if d.newest == nil || !equal(d.newest.src.Info(), src.Info()) {
			d.newest, unused = &base{src: src, cancel: o.cancel, limits: map[*Source]int64{}}, nil
		}
		d.newest.users += o.users
		d.newest.ranks = o.ranks
		o.base = d.newest
	}
	close(o.done)
	d.running = nil
	p.next(key, d)
	p.mu.Unlock()
	if unused != nil {
		_ = unused.Close() // no records were read
	}
	if unused != nil || err != nil {
		o.cancel()
	}
}

// opened opens the source.
func (o *opening) opened() (src driver.Source, err error) {
	defer func() { // in a goroutine of its own, a panic would end the process
		if r := recover(); r != nil {
			src, err = nil, fmt.Errorf("internal error while opening data: %v\n%s", r, debug.Stack())
		}
	}()
	return o.open(o.ctx)
}

// equal reports whether two sources have the same records. A file that was bad may be good now.
func equal(a, b *driver.Info) bool {
	return a.Fingerprint != "" && a.Fingerprint == b.Fingerprint && a.Len == b.Len && a.BadFiles == 0 && b.BadFiles == 0
}

// Source is one user's source.
type Source struct {
	driver.Mapped
	pool *Pool
	key  string
	base *base
}

// use returns the source of a user, who is counted already.
func (p *Pool) use(key string, b *base) driver.Source {
	s := &Source{pool: p, key: key, base: b}
	s.Base = b.src
	if seq, ok := driver.As[driver.Sequential](b.src); ok {
		return &inOrder{s, seq}
	}
	return s
}

// Info implements driver.Source.
func (s *Source) Info() *driver.Info { return s.Base.Info() }

// Locate implements driver.Source.
func (s *Source) Locate(g *driver.Group) { s.Base.Locate(g) }

// Parse implements driver.Source.
func (s *Source) Parse(g *driver.Group) error { return s.Base.Parse(g) }

// Seed implements driver.Seeded. All users have the same seed.
func (s *Source) Seed(seed uint64) { s.base.seeded.Do(func() { driver.SeedOf(s.Base, seed) }) }

// ApplyOrientation implements driver.Turned. All users turn the images, or none does.
func (s *Source) ApplyOrientation() { s.base.turned.Do(func() { driver.ApplyOrientation(s.Base) }) }

// Useful implements driver.Cacher.
func (s *Source) Useful() int64 { return driver.Useful(s.Base) }

// Keep implements driver.Cacher. The cache has the largest limit that a user has set.
func (s *Source) Keep(n int64) {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	s.base.limits[s] = n
	for _, limit := range s.base.limits {
		n = max(n, limit)
	}
	driver.Keep(s.Base, n)
}

// Close implements driver.Source. The last user closes the source.
func (s *Source) Close() error {
	p, b := s.pool, s.base
	p.mu.Lock()
	b.users--
	delete(b.limits, s)
	last := b.users == 0
	if d := p.data[s.key]; last && d != nil && d.newest == b {
		d.newest = nil
		p.next(s.key, d)
	}
	p.mu.Unlock()
	if !last {
		return nil
	}
	defer b.cancel()
	return b.src.Close()
}

// inOrder is a source that is read in order.
type inOrder struct {
	*Source
	seq driver.Sequential
}

func (s *inOrder) Token(id int64) string { return s.seq.Token(id) }

func (s *inOrder) Memory() int64 { return s.seq.Memory() }

func (s *inOrder) Records(ctx context.Context, token string, in *driver.InOrder) error {
	return s.seq.Records(ctx, token, in)
}
