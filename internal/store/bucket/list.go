package bucket

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/stokerdata/stoker/internal/store/ranged"
	"github.com/stokerdata/stoker/store"
)

const (
	// listThreads is the maximum number of concurrent list requests.
	listThreads = 16
	// worthSplitting is the number of folders from which they are listed separately.
	worthSplitting = 2
	// emptyPages is the maximum number of consecutive empty pages.
	emptyPages = 1000
	// mostSorted is the maximum number of objects of a listing that is sorted here.
	mostSorted = 10_000_000
)

// List lists a folder. If it has more than a page and has subfolders, these are listed ahead, several concurrently.
func (s *Store) List(ctx context.Context, dir string, opt *store.ListOptions, f func(store.Entry) error) error {
	if err := s.check(ctx, dir); err != nil {
		return s.failed("list", dir, err)
	}
	l := &lister{s: s, f: f, below: s.prefix(""), dir: s.prefix(dir)}
	if opt != nil {
		l.opt = *opt
	}
	threads := l.opt.Threads
	if threads <= 0 {
		threads = listThreads
	}
	l.slots = make(chan struct{}, threads)
	ctx, cancel := context.WithCancelCause(ctx)
	defer l.wg.Wait() // runs after cancel
	defer cancel(nil)
	l.cancel = cancel
	err := l.segment(ctx, s.prefix(dir), nil)
	if err == nil {
		err = l.flush()
	}
	if err == nil && !l.some {
		if l.opt.Folder && s.key(dir) != "" {
			return s.failed("list", dir, store.ErrNotExist)
		}
		return s.nothing(ctx, dir, f)
	}
	if l.stop != nil {
		return l.stop
	}
	if err != nil {
		if ctx.Err() != nil && !errors.Is(err, context.Cause(ctx)) {
			err = context.Cause(ctx)
		}
		return s.failed("list", dir, err)
	}
	return nil
}

// nothing handles an empty listing: the store is an object, the bucket is empty, or the folder does not exist.
func (s *Store) nothing(ctx context.Context, dir string, f func(store.Entry) error) error {
	if s.key(dir) == "" {
		return nil
	}
	if dir == "" && !s.folder {
		e, _, err := s.stat(ctx, "")
		if err == nil && !e.Dir {
			return f(e)
		}
		if err != nil && !errors.Is(err, store.ErrNotExist) {
			return s.failed("list", dir, err)
		}
	}
	return s.failed("list", dir, store.ErrNotExist)
}

// lister is the state of one List.
type lister struct {
	s      *Store
	opt    store.ListOptions
	f      func(store.Entry) error
	below  string // prefix of the store's keys
	dir    string // prefix of the listed keys
	slots  chan struct{}
	wg     sync.WaitGroup
	cancel context.CancelCauseFunc

	some  bool // whether the server returned anything
	given int64
	last  string // the last key
	left  *left  // current unfinished upload
	of    string // its name
	stop  error  // error of f or Bad
}

// page requests and validates a page.
func (l *lister) page(ctx context.Context, q Query) (Page, error) {
	select {
	case l.slots <- struct{}{}:
	case <-ctx.Done():
		return Page{}, context.Cause(ctx)
	}
	defer func() { <-l.slots }()
	p, err := l.s.d.List(ctx, q)
	if err != nil {
		return p, err
	}
	for _, i := range p.Objects {
		if !strings.HasPrefix(i.Key, q.Prefix) {
			return p, ranged.Invalid("the server lists %q, which does not begin with %q", i.Key, q.Prefix)
		}
	}
	for _, k := range p.Prefixes {
		if !q.Folders || !strings.HasPrefix(k, q.Prefix) || len(k) == len(q.Prefix) || strings.IndexByte(k[len(q.Prefix):], '/') != len(k)-len(q.Prefix)-1 {
			return p, ranged.Invalid("the server lists the folder %q below %q", k, q.Prefix)
		}
	}
	return p, nil
}

// endless is the failure for a page that leads to itself or to an earlier page.
func endless() error {
	return ranged.Invalid("the server's listing does not end: a page leads to itself or to an earlier page")
}

// ahead is the first page of a folder that is listed ahead.
type ahead struct {
	page Page
	err  error
}

// segment lists everything below a prefix. first is its first page, if it is known.
func (l *lister) segment(ctx context.Context, prefix string, first *ahead) error {
	q := Query{Prefix: prefix, Folders: l.opt.Shallow}
	if first == nil {
		first = &ahead{}
		first.page, first.err = l.page(ctx, q)
	}
	if first.err != nil {
		return first.err
	}
	if !first.page.sorted() || l.s.unordered() {
		var err error
		if first.page, err = l.gather(ctx, q, first.page); err != nil {
			return err
		}
	}
	if !l.opt.Shallow && first.page.Next != "" && cap(l.slots) > 1 {
		folders, err := l.page(ctx, Query{Prefix: prefix, Folders: true})
		if err != nil {
			return err
		}
		if folders.Next == "" && len(folders.Prefixes) >= worthSplitting {
			folders.sort()
			return l.split(ctx, folders)
		}
	}
	empty := 0
	for p := first.page; ; {
		if err := l.merge(ctx, p, func(folder string) error { return l.folder(ctx, folder) }); err != nil {
			return err
		}
		if p.Next == "" {
			return nil
		}
		if empty++; len(p.Objects)+len(p.Prefixes) > 0 {
			empty = 0
		}
		if empty > emptyPages {
			return ranged.Invalid("the server's listing does not end: %d pages in a row were empty", empty)
		}
		q.Next = p.Next
		var err error
		if p, err = l.page(ctx, q); err != nil {
			return err
		}
		if p.Next == q.Next {
			return endless()
		}
	}
}

func byKey(a, b Info) int { return strings.Compare(a.Key, b.Key) }

// sorted reports whether the entries of a page are in the order of their keys.
func (p *Page) sorted() bool {
	return slices.IsSortedFunc(p.Objects, byKey) && slices.IsSorted(p.Prefixes)
}

func (p *Page) sort() {
	slices.SortFunc(p.Objects, byKey)
	slices.Sort(p.Prefixes)
}

// gather returns all entries of a listing in order, for servers that list in another order.
func (l *lister) gather(ctx context.Context, q Query, p Page) (Page, error) {
	all, seen := p, map[string]bool{}
	for p.Next != "" {
		if seen[p.Next] || len(seen) > mostSorted {
			return p, endless()
		}
		seen[p.Next] = true
		q.Next = p.Next
		var err error
		if p, err = l.page(ctx, q); err != nil {
			return p, err
		}
		all.Objects, all.Prefixes = append(all.Objects, p.Objects...), append(all.Prefixes, p.Prefixes...)
		if n := len(all.Objects) + len(all.Prefixes); n > mostSorted {
			return p, ranged.Invalid("the server's listing is not in order, and has more than %d entries", mostSorted)
		}
	}
	all.Next = ""
	all.sort()
	return all, nil
}

// split lists the folders separately, ahead of the current position.
func (l *lister) split(ctx context.Context, folders Page) error {
	waiting := map[string]chan *ahead{}
	next := 0
	start := func() {
		for ; next < len(folders.Prefixes) && len(waiting) < 2*cap(l.slots); next++ {
			prefix := folders.Prefixes[next]
			ch := make(chan *ahead, 1)
			waiting[prefix] = ch
			l.wg.Go(func() {
				p, err := l.page(ctx, Query{Prefix: prefix})
				ch <- &ahead{p, err}
			})
		}
	}
	return l.merge(ctx, folders, func(folder string) error {
		start()
		first := <-waiting[folder]
		delete(waiting, folder)
		start()
		return l.segment(ctx, folder, first)
	})
}

// merge iterates over the objects and folders of a page in the order of their keys.
func (l *lister) merge(ctx context.Context, p Page, folder func(prefix string) error) error {
	for i, j := 0, 0; i < len(p.Objects) || j < len(p.Prefixes); {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var err error
		if j >= len(p.Prefixes) || i < len(p.Objects) && p.Objects[i].Key < p.Prefixes[j] {
			err = l.object(p.Objects[i])
			i++
		} else {
			err = folder(p.Prefixes[j])
			j++
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// forward checks that keys are ascending and that the listing ends.
func (l *lister) forward(key string) error {
	if l.some && key == l.last {
		return ranged.Invalid("the server's listing has %q twice", key)
	}
	if l.some && key < l.last {
		return ranged.Invalid("the server's listing is not in order: %q comes after %q", key, l.last)
	}
	l.some, l.last = true, key
	if l.given++; l.given > l.s.limit {
		return ranged.Invalid("the server lists more than %d objects", l.s.limit)
	}
	return nil
}

// object passes an object on.
func (l *lister) object(i Info) error {
	if err := l.forward(i.Key); err != nil {
		return err
	}
	if whole, piece, ok := cutPiece(i.Key); ok && strings.HasPrefix(whole, l.dir) && whole != l.dir {
		name := strings.TrimPrefix(whole, l.below) + store.PartialSuffix
		if l.left == nil || l.of != name {
			if err := l.flush(); err != nil {
				return err
			}
			l.left, l.of = &left{}, name
		}
		l.left.add(piece, i)
		return nil
	}
	if err := l.flush(); err != nil {
		return err
	}
	if strings.HasSuffix(i.Key, "/") && i.Size == 0 {
		return nil // a folder marker of some programs
	}
	name := strings.TrimPrefix(i.Key, l.below)
	if err := checkName(name); err != nil {
		return l.bad(store.Entry{Name: name}, &store.Error{Op: "look at", Path: l.s.d.URL() + "/" + i.Key, Err: err})
	}
	if err := sane(i); err != nil {
		return l.bad(store.Entry{Name: name}, l.s.failed("look at", name, err))
	}
	if i.Archived != "" && l.opt.Bad != nil && !l.opt.Names {
		return l.bad(store.Entry{Name: name}, l.s.failed("read", name, i.readable()))
	}
	return l.give(entry(name, i))
}

// checkName returns an error for a name that nothing below a folder may have.
func checkName(name string) error {
	if name == "" {
		return fmt.Errorf("%w: it is empty", store.ErrName)
	}
	return store.CheckName(name)
}

// flush passes on the unfinished upload whose pieces came last.
func (l *lister) flush() error {
	if l.left == nil {
		return nil
	}
	e := l.left.entry(l.of)
	l.left = nil
	return l.give(e)
}

// folder passes on a folder of a shallow listing, or the unfinished upload that it is.
func (l *lister) folder(ctx context.Context, prefix string) error {
	if err := l.forward(prefix); err != nil {
		return err
	}
	name := strings.TrimSuffix(strings.TrimPrefix(prefix, l.below), "/")
	if err := checkName(name); err != nil {
		return l.bad(store.Entry{Name: name, Dir: true}, &store.Error{Op: "look at", Path: l.s.d.URL() + "/" + prefix, Err: err})
	}
	if whole, ok := strings.CutSuffix(name, store.PartialSuffix); ok && store.CheckName(whole) == nil {
		got, err := l.s.leftOf(ctx, whole)
		if err != nil {
			return err
		}
		if got.some() {
			return l.give(got.entry(name))
		}
	}
	return l.give(store.Entry{Name: name, Dir: true})
}

// give passes on a wanted entry.
func (l *lister) give(e store.Entry) error {
	if l.wanted(e) {
		l.stop = l.f(e)
	}
	return l.stop
}

// wanted reports whether an entry is listed.
func (l *lister) wanted(e store.Entry) bool {
	rest := strings.TrimPrefix(l.below+e.Name, l.dir)
	if !l.opt.Hidden && strings.Contains("/"+rest, "/.") {
		for part := range strings.SplitSeq(rest, "/") {
			if strings.HasPrefix(part, ".") && part != "." && part != ".." {
				return false
			}
		}
	}
	return e.Dir || l.opt.Keep == nil || l.opt.Keep(e.Name)
}

func (l *lister) bad(e store.Entry, err error) error {
	switch {
	case !l.wanted(e):
		return nil
	case l.opt.Bad == nil:
		return err
	}
	l.stop = l.opt.Bad(e, err)
	return l.stop
}
