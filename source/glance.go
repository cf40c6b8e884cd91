package source

import (
	"context"
	"errors"
	"sync"

	"github.com/stokerdata/stoker/store"
	"github.com/stokerdata/stoker/store/stores"
)

// glance is a store that is looked at by each format in turn until one knows it. Over a
// network each look is a way to another machine and back, so what one has seen is kept
// for the next: the first names, the first bytes, what is there and what not.
type glance struct {
	store.Store

	mu    sync.Mutex
	lists map[glanceList]*glanced
	stats map[string]glanceStat
	heads map[string][]byte
}

type glanceList struct {
	dir             string
	shallow, hidden bool
}

type glanced struct {
	entries []store.Entry
	whole   bool
	err     error
}

type glanceStat struct {
	e   store.Entry
	err error
}

// headBytes is how much of an object is kept.
const headBytes = 64 << 10

// glanceAt is st with what was seen kept, where a look costs something.
func glanceAt(st store.Store) store.Store {
	if !stores.IsURL(st.Path("")) {
		return st
	}
	return &glance{Store: st, lists: map[glanceList]*glanced{}, stats: map[string]glanceStat{}, heads: map[string][]byte{}}
}

// Unwrap finds the abilities of the store below.
func (g *glance) Unwrap() store.Store { return g.Store }

func (g *glance) Stat(ctx context.Context, name string) (store.Entry, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s, ok := g.stats[name]
	if !ok {
		s.e, s.err = g.Store.Stat(ctx, name)
		if s.err == nil || errors.Is(s.err, store.ErrNotExist) {
			g.stats[name] = s
		}
	}
	return s.e, s.err
}

// List gives the first names from memory; whoever wants more has the store asked.
func (g *glance) List(ctx context.Context, dir string, opt *store.ListOptions, f func(store.Entry) error) error {
	if opt == nil {
		opt = &store.ListOptions{}
	}
	key := glanceList{dir, opt.Shallow, opt.Hidden}
	l, err := g.first(ctx, key)
	if err != nil {
		return err
	}
	given := 0
	for _, e := range l.entries {
		given++
		if !e.Dir && opt.Keep != nil && !opt.Keep(e.Name) {
			continue
		}
		if err := f(e); err != nil {
			return err
		}
	}
	if l.whole {
		return l.err
	}
	at := 0
	rest := *opt
	rest.Keep = nil
	return g.Store.List(ctx, dir, &rest, func(e store.Entry) error {
		if at++; at <= given || !e.Dir && opt.Keep != nil && !opt.Keep(e.Name) {
			return nil
		}
		return f(e)
	})
}

func (g *glance) first(ctx context.Context, key glanceList) (*glanced, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if l := g.lists[key]; l != nil {
		return l, nil
	}
	enough := errors.New("enough")
	l := &glanced{whole: true}
	opt := &store.ListOptions{Shallow: key.shallow, Hidden: key.hidden, Names: true, Threads: 1}
	err := g.Store.List(ctx, key.dir, opt, func(e store.Entry) error {
		if len(l.entries) == lookAt {
			l.whole = false
			return enough
		}
		l.entries = append(l.entries, e)
		return nil
	})
	switch {
	case err == nil || err == enough:
	case errors.Is(err, store.ErrNotExist):
		l.err = err
	default:
		return nil, err
	}
	g.lists[key] = l
	return l, nil
}

// Open opens an object whose first bytes are read once.
func (g *glance) Open(ctx context.Context, name string) (store.Object, error) {
	e, err := g.Stat(ctx, name)
	if err != nil || e.Dir {
		return g.Store.Open(ctx, name)
	}
	o, err := store.OpenEntry(ctx, g.Store, e)
	if err != nil {
		return nil, err
	}
	return &glanceObject{o, g, name}, nil
}

type glanceObject struct {
	store.Object
	g    *glance
	name string
}

func (o *glanceObject) ReadAt(ctx context.Context, p []byte, off int64) error {
	n := min(o.Size(), headBytes)
	if off < 0 || off > n || int64(len(p)) > n-off {
		return o.Object.ReadAt(ctx, p, off)
	}
	o.g.mu.Lock()
	defer o.g.mu.Unlock()
	head, ok := o.g.heads[o.name]
	if !ok {
		head = make([]byte, n)
		if err := o.Object.ReadAt(ctx, head, 0); err != nil {
			return err
		}
		o.g.heads[o.name] = head
	}
	copy(p, head[off:])
	return nil
}
