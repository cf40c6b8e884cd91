package source

import (
	"context"
	"errors"
	"path"
	"strings"
	"sync"

	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/source/format"
	"github.com/stokerdata/stoker/internal/store/stores"
	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/store"
)

// glance is a store that is looked at by each format in turn until one knows it. Over a
// network each look is a way to another machine and back, so what one has seen is kept
// for the next: the first names, the first bytes, what is there and what not. The first
// looks are those of all formats, and are made at once.
type glance struct {
	store.Store
	// web says that it is of a web server, of which lists of folders are asked one by one.
	web bool

	lists asked[glanceList, *glanced]
	stats asked[string, store.Entry]
	heads asked[string, []byte]
}

// glanceList is a listing. One that is shallow has what is hidden, too.
type glanceList struct {
	dir             string
	shallow, hidden bool
}

func keyOf(dir string, opt *store.ListOptions) glanceList {
	return glanceList{dir, opt.Shallow, opt.Hidden || opt.Shallow}
}

// rootList is what lies directly in the root.
var rootList = glanceList{shallow: true, hidden: true}

// glanced are the first names of a listing.
type glanced struct {
	entries []store.Entry
	whole   bool
	err     error // there is nothing to list, or no list of it
}

// headBytes is how much of an object is kept.
const headBytes = 64 << 10

// aheadOnWeb is how many folders of a web server are listed at once.
const aheadOnWeb = 8

// glanceAt is st with what was seen kept, where a look costs something. The first looks
// end with ctx.
func glanceAt(ctx context.Context, st store.Store) store.Store {
	place := st.Path("")
	if !stores.IsURL(place) {
		return st
	}
	g := &glance{Store: st, web: stores.IsWeb(place)}
	if likelyFolder(place) {
		go pack.ReadEarly(ctx, st)
		ctx, cancel := context.WithCancel(ctx)
		listed := make(chan struct{})
		go func() {
			defer close(listed)
			_, _ = g.first(ctx, rootList, true) // whoever needs it is told
		}()
		go func() {
			defer cancel() // a list of what is no folder is of no use
			if e, err := g.Stat(ctx, ""); err == nil && e.Dir {
				<-listed
			}
		}()
	}
	return g
}

// likelyFolder says whether a URL looks like one of a folder: files have extensions, which
// are no numbers.
func likelyFolder(place string) bool {
	ext := path.Ext(place)
	return ext == "" || ext == ".pack" || strings.Trim(ext, ".0123456789") == ""
}

// Unwrap finds the abilities of the store below.
func (g *glance) Unwrap() store.Store { return g.Store }

// Stat asks about an object once, and not where a listing of its folder has said it.
func (g *glance) Stat(ctx context.Context, name string) (store.Entry, error) {
	if e, known, err := g.listed(name); known {
		return e, err
	}
	return g.stats.get(ctx, name, func() (store.Entry, use, error) {
		e, err := g.Store.Stat(ctx, name)
		if err == nil || errors.Is(err, store.ErrNotExist) {
			return e, keepIt, err
		}
		return e, shareIt, err
	})
}

// listed is what the listing of the root says of something.
func (g *glance) listed(name string) (e store.Entry, known bool, err error) {
	l, ok := g.lists.have(rootList)
	if name == "" || !ok || l.err != nil {
		return e, false, nil
	}
	top, _, deep := strings.Cut(name, "/")
	for _, e := range l.entries {
		switch {
		case e.Name != top:
		case deep && e.Dir:
			return store.Entry{}, false, nil
		case !deep:
			return e, e.Dir || e.Version != "", nil
		}
	}
	all, ok := store.As[store.Complete](g.Store)
	if !ok || !l.whole || !all.Complete() || g.web && strings.HasPrefix(name, ".") {
		return e, false, nil
	}
	return e, true, &store.Error{Op: "look at", Path: g.Path(name), Err: store.ErrNotExist}
}

// List gives the first names from memory; whoever wants more has the store asked.
func (g *glance) List(ctx context.Context, dir string, opt *store.ListOptions, f func(store.Entry) error) error {
	if opt == nil {
		opt = &store.ListOptions{}
	}
	l, err := g.first(ctx, keyOf(dir, opt), false)
	if err != nil {
		return err
	}
	last := ""
	for _, e := range l.entries {
		last = order(e)
		if !opt.Hidden && strings.HasPrefix(path.Base(e.Name), ".") || !e.Dir && opt.Keep != nil && !opt.Keep(e.Name) {
			continue
		}
		if err := f(e); err != nil {
			return err
		}
	}
	if l.whole {
		return l.err
	}
	rest := *opt
	rest.Keep, rest.Folder = nil, opt.Folder || g.isFolder(dir)
	return g.Store.List(ctx, dir, &rest, func(e store.Entry) error {
		if order(e) <= last || !e.Dir && opt.Keep != nil && !opt.Keep(e.Name) {
			return nil
		}
		return f(e)
	})
}

// order is what entries of a listing are sorted by.
func order(e store.Entry) string {
	if e.Dir {
		return e.Name + "/"
	}
	return e.Name
}

// first lists the first names. With early nobody knows yet that it is a folder: what goes
// wrong then says nothing.
func (g *glance) first(ctx context.Context, key glanceList, early bool) (*glanced, error) {
	return g.lists.get(ctx, key, func() (*glanced, use, error) {
		enough := errors.New("enough")
		l := &glanced{whole: true}
		opt := &store.ListOptions{Shallow: key.shallow, Hidden: key.hidden, Names: true, Threads: 1, Folder: early || g.isFolder(key.dir), Bad: filelist.LeaveOut}
		if g.web {
			opt.Threads = aheadOnWeb
		}
		if key.dir == "" && key.shallow {
			opt.Guess = pack.ManifestName
		}
		err := g.Store.List(ctx, key.dir, opt, func(e store.Entry) error {
			if len(l.entries) == format.MaxNames {
				l.whole = false
				return enough
			}
			l.entries = append(l.entries, e)
			return nil
		})
		switch {
		case err == nil || err == enough:
		case ctx.Err() != nil:
			return nil, ownIt, err
		case early && errors.Is(err, store.ErrNotExist):
			return nil, ownIt, err
		default: // as the server says, however often it is asked
			*l = glanced{whole: true, err: err}
		}
		return l, keepIt, nil
	})
}

// isFolder says whether something is known to be one.
func (g *glance) isFolder(name string) bool {
	e, ok := g.stats.have(name)
	return ok && e.Dir
}

// Open opens an object whose first bytes are read once.
func (g *glance) Open(ctx context.Context, name string) (store.Object, error) {
	e, err := g.Stat(ctx, name)
	switch {
	case errors.Is(err, store.ErrNotExist):
		return nil, &store.Error{Op: "open", Path: g.Path(name), Err: store.ErrNotExist}
	case err != nil || e.Dir:
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
	head, err := o.g.heads.get(ctx, o.name, func() ([]byte, use, error) {
		b := make([]byte, n)
		err := o.Object.ReadAt(ctx, b, 0)
		if err != nil {
			return nil, shareIt, err
		}
		return b, keepIt, nil
	})
	if err == nil {
		copy(p, head[off:])
	}
	return err
}

// asked keeps answers to questions that several may ask at once.
type asked[K comparable, V any] struct {
	mu sync.Mutex
	of map[K]*answer[V]
}

type answer[V any] struct {
	done chan struct{}
	v    V
	err  error
	use  use
}

// use is what becomes of an answer: it is for whoever asked alone, for those too who
// waited for it, or for all who will ask.
type use int

const (
	ownIt use = iota
	shareIt
	keepIt
)

// have is the answer that is kept, if there is one.
func (a *asked[K, V]) have(key K) (v V, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if x := a.of[key]; x != nil && x.use == keepIt && x.err == nil {
		return x.v, true
	}
	return v, false
}

// get returns the answer to a question, which is asked by one at a time.
func (a *asked[K, V]) get(ctx context.Context, key K, ask func() (V, use, error)) (V, error) {
	x := &answer[V]{done: make(chan struct{})}
	for {
		a.mu.Lock()
		other := a.of[key]
		if other == nil {
			break
		}
		a.mu.Unlock()
		select {
		case <-other.done:
		case <-ctx.Done():
			return x.v, context.Cause(ctx)
		}
		if other.use != ownIt {
			return other.v, other.err
		}
	}
	if a.of == nil {
		a.of = map[K]*answer[V]{}
	}
	a.of[key] = x
	a.mu.Unlock()
	var as use
	defer func() { // also when the store panics
		a.mu.Lock()
		if x.use = as; as != keepIt {
			delete(a.of, key)
		}
		a.mu.Unlock()
		close(x.done)
	}()
	x.v, as, x.err = ask()
	if ctx.Err() != nil && x.err != nil {
		as = ownIt // it is no answer
	}
	return x.v, x.err
}
