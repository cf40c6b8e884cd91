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

// probe is the store that all formats probe until one matches. A probe over a network is a round
// trip, so probe caches the answers: first names, first bytes, and which objects exist. It sends
// the probes that every format needs in advance, all at the same time.
type probe struct {
	store.Store
	// web is set for a web server, which must be asked for the listing of each folder.
	web bool

	lists asked[probeList, *probed]
	stats asked[string, store.Entry]
	heads asked[string, []byte]
}

// probeList identifies a listing. A shallow listing includes hidden names.
type probeList struct {
	dir             string
	shallow, hidden bool
}

func keyOf(dir string, opt *store.ListOptions) probeList {
	return probeList{dir, opt.Shallow, opt.Hidden || opt.Shallow}
}

// rootList is the shallow listing of the root.
var rootList = probeList{shallow: true, hidden: true}

// probed has the first names of a listing.
type probed struct {
	entries []store.Entry
	whole   bool
	err     error // why there is no listing
}

// headBytes is the number of bytes cached at the start of an object.
const headBytes = 64 << 10

// aheadOnWeb is the number of folders of a web server to list at the same time.
const aheadOnWeb = 8

// probeAt returns st with a cache for probes if st is remote. The probes in advance end with ctx.
func probeAt(ctx context.Context, st store.Store) store.Store {
	place := st.Path("")
	if !stores.IsURL(place) {
		return st
	}
	g := &probe{Store: st, web: stores.IsWeb(place)}
	if likelyFolder(place) {
		go pack.ReadEarly(ctx, st)
		ctx, cancel := context.WithCancel(ctx)
		listed := make(chan struct{})
		go func() {
			defer close(listed)
			_, _ = g.first(ctx, rootList, true) // callers that need the listing get the error
		}()
		go func() {
			defer cancel() // stop the listing if the root is not a folder
			if e, err := g.Stat(ctx, ""); err == nil && e.Dir {
				<-listed
			}
		}()
	}
	return g
}

// likelyFolder reports whether a URL looks like the URL of a folder: without an extension, or with
// .pack or a number as extension.
func likelyFolder(place string) bool {
	ext := path.Ext(place)
	return ext == "" || ext == ".pack" || strings.Trim(ext, ".0123456789") == ""
}

// Unwrap returns the store below, whose interfaces store.As finds.
func (g *probe) Unwrap() store.Store { return g.Store }

// Stat asks the store once per object. It does not ask if the listing of the root has the answer.
func (g *probe) Stat(ctx context.Context, name string) (store.Entry, error) {
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

// listed returns the answer of Stat if the listing of the root has it.
func (g *probe) listed(name string) (e store.Entry, known bool, err error) {
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

// List returns the first names from memory, and reads further names from the store.
func (g *probe) List(ctx context.Context, dir string, opt *store.ListOptions, f func(store.Entry) error) error {
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

// order returns the sort key of an entry in a listing.
func order(e store.Entry) string {
	if e.Dir {
		return e.Name + "/"
	}
	return e.Name
}

// first lists the first names. early is set if the name may not be a folder. A missing folder is
// then not cached as an error.
func (g *probe) first(ctx context.Context, key probeList, early bool) (*probed, error) {
	return g.lists.get(ctx, key, func() (*probed, use, error) {
		enough := errors.New("enough")
		l := &probed{whole: true}
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
		default: // the server would answer the same again
			*l = probed{whole: true, err: err}
		}
		return l, keepIt, nil
	})
}

// isFolder reports whether name is known to be a folder.
func (g *probe) isFolder(name string) bool {
	e, ok := g.stats.have(name)
	return ok && e.Dir
}

// Open opens an object whose first bytes are read only once.
func (g *probe) Open(ctx context.Context, name string) (store.Object, error) {
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
	return &probeObject{o, g, name}, nil
}

type probeObject struct {
	store.Object
	g    *probe
	name string
}

func (o *probeObject) ReadAt(ctx context.Context, p []byte, off int64) error {
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

// asked caches answers. Concurrent callers with the same question share one request.
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

// use selects the callers that may use an answer: only the caller that asked (ownIt), also the
// callers that wait for it (shareIt), or all later callers (keepIt).
type use int

const (
	ownIt use = iota
	shareIt
	keepIt
)

// have returns the cached answer, if there is one.
func (a *asked[K, V]) have(key K) (v V, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if x := a.of[key]; x != nil && x.use == keepIt && x.err == nil {
		return x.v, true
	}
	return v, false
}

// get returns the answer to a question. At most one caller at a time asks it.
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
		as = ownIt // the caller gave up
	}
	return x.v, x.err
}
