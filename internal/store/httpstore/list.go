package httpstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/stokerdata/stoker/store"
)

const (
	// maxList is the size limit of a listing page.
	maxList = 256 << 20
	// maxDepth limits the nesting of folders, because a server may have loops.
	maxDepth = 64
	// listThreads is the maximum number of concurrent requests of a listing.
	listThreads = 16
)

// errNoList is the error for a server without listings.
var errNoList = errors.New("the web server does not list the folder: turn listings on (nginx: autoindex on, autoindex_format json), name one object, or pack the data, as a pack needs no listing")

// item is an entry of a listing.
type item struct {
	own      string // name in the folder
	dir      bool
	known    bool // whether size and modified are known
	size     int64
	modified time.Time
	err      error // why it cannot be listed
}

// key sorts items like the paths of the objects, or of the objects in a folder.
func (it item) key() string {
	if it.dir {
		return it.own + "/"
	}
	return it.own
}

// List requests the listings of a folder and its subfolders.
func (s *Store) List(ctx context.Context, dir string, opt *store.ListOptions, f func(store.Entry) error) error {
	if err := s.check(ctx, "list", dir); err != nil {
		return err
	}
	l := &lister{s: s, f: f}
	if opt != nil {
		l.opt = *opt
	}
	if dir == "" && !l.opt.Folder && !s.seen.folder.Load() && !strings.HasSuffix(s.root.Path, "/") && s.root.Path != "" {
		e, err := s.Stat(ctx, "")
		if err != nil {
			return err
		}
		if !e.Dir {
			return f(e)
		}
	}
	n := l.opt.Threads
	if n <= 0 {
		n = listThreads
	}
	l.slots = make(chan struct{}, n)
	ctx, cancel := context.WithCancel(ctx)
	defer l.wg.Wait() // runs after cancel
	defer cancel()
	if l.opt.Guess != "" {
		l.guess = l.ask(ctx, dir, item{own: l.opt.Guess})
	}
	items, err := s.page(ctx, dir)
	if err != nil {
		return err
	}
	return l.walk(ctx, dir, items, 0)
}

// lister is the state of one List.
type lister struct {
	s     *Store
	opt   store.ListOptions
	f     func(store.Entry) error
	slots chan struct{}
	wg    sync.WaitGroup
	// tags is true if the server's entity tags are made from time and size, as nginx's are. tried is true if this
	// is known.
	tags, tried bool
	// guess gets the result for the guessed object, nil for none. guessed is its entry.
	guess   chan found
	guessed store.Entry
}

// found is the result for an item.
type found struct {
	entry store.Entry
	items []item
	err   error
}

func below(dir, own string) string {
	if dir == "" {
		return own
	}
	return dir + "/" + own
}

// walk passes the content of a folder to f.
func (l *lister) walk(ctx context.Context, dir string, items []item, depth int) error {
	items = slices.DeleteFunc(items, func(it item) bool {
		return !l.opt.Hidden && strings.HasPrefix(it.own, ".") && it.err == nil || !it.dir && l.opt.Keep != nil && !l.opt.Keep(below(dir, it.own))
	})
	slices.SortFunc(items, func(a, b item) int { return strings.Compare(a.key(), b.key()) })
	items = slices.CompactFunc(items, func(a, b item) bool { return a.key() == b.key() })
	if err := l.try(ctx, dir, items); err != nil {
		return err
	}
	ahead := make([]chan found, len(items))
	next := 0
	for i, it := range items {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		for ; next < len(items) && next < i+2*cap(l.slots); next++ {
			ahead[next] = l.ask(ctx, dir, items[next])
		}
		name := below(dir, it.own)
		var err error
		switch {
		case it.err != nil:
			err = l.bad(store.Entry{Name: name, Dir: it.dir}, &store.Error{Op: "look at", Path: l.s.Path(dir) + "/" + it.own, Err: it.err})
		case it.dir && l.opt.Shallow:
			err = l.f(store.Entry{Name: name, Dir: true})
		case !it.dir && l.guessed.Name == name && name != "":
			err = l.f(l.guessed)
		case !it.dir && l.opt.Names && !(it.known && l.tags):
			err = l.f(store.Entry{Name: name, Size: it.size})
		case ahead[i] == nil: // no request is needed
			err = l.f(it.entry(name))
		default:
			r := <-ahead[i]
			ahead[i] = nil
			switch {
			case ctx.Err() != nil:
				err = context.Cause(ctx)
			case r.err != nil:
				err = l.bad(store.Entry{Name: name, Dir: it.dir}, r.err)
			case !it.dir:
				err = l.f(r.entry)
			case depth >= maxDepth:
				err = l.bad(store.Entry{Name: name, Dir: true}, &store.Error{Op: "list", Path: l.s.Path(name), Err: fmt.Errorf("folders are nested more than %d deep", maxDepth)})
			default:
				err = l.walk(ctx, name, r.items, depth+1)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ask requests an item in the background. It returns nil if no request is needed.
func (l *lister) ask(ctx context.Context, dir string, it item) chan found {
	name := below(dir, it.own)
	guess := l.guess == nil && it.own == l.opt.Guess
	if it.err != nil || it.dir && l.opt.Shallow || !it.dir && !guess && (l.opt.Names || it.known && l.tags || l.guessed.Name == name) {
		return nil
	}
	out := make(chan found, 1)
	l.wg.Go(func() {
		select {
		case l.slots <- struct{}{}:
			defer func() { <-l.slots }()
		case <-ctx.Done():
			out <- found{err: context.Cause(ctx)}
			return
		}
		var r found
		if it.dir {
			r.items, r.err = l.s.page(ctx, name)
		} else {
			r.entry, r.err = l.s.Stat(ctx, name)
			if r.err == nil && r.entry.Dir {
				r.err = &store.Error{Op: "look at", Path: l.s.Path(name), Err: errors.New("it was an object and is now a folder")}
			}
		}
		out <- r
	})
	return out
}

// try probes one object of a listing. If nginx's formula of time and size gives its version, the formula is used
// for all others. If it is wrong for one, a read reports that object as changed.
func (l *lister) try(ctx context.Context, dir string, items []item) error {
	if l.tried {
		return nil
	}
	if l.opt.Guess != "" {
		if i := slices.IndexFunc(items, func(it item) bool { return !it.dir && it.own == l.opt.Guess }); i >= 0 {
			select {
			case r := <-l.guess:
				if r.err == nil && !r.entry.Dir {
					l.guessed = r.entry
					l.tried, l.tags = items[i].known, items[i].known && r.entry == items[i].entry(r.entry.Name)
				}
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		l.opt.Guess = "" // it does not apply to other folders
	}
	i := slices.IndexFunc(items, func(it item) bool { return !it.dir && it.known && it.err == nil })
	if l.tried || i < 0 || l.opt.Names {
		return nil
	}
	l.tried = true
	name := below(dir, items[i].own)
	e, err := l.s.Stat(ctx, name)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	l.tags = err == nil && e == items[i].entry(name)
	return nil
}

// entry returns the entry of an object in nginx's listing.
func (it item) entry(name string) store.Entry {
	return store.Entry{Name: name, Size: it.size, ModTime: it.modified, Version: fmt.Sprintf("\"%x-%x\"", it.modified.Unix(), it.size)}
}

func (l *lister) bad(e store.Entry, err error) error {
	if l.opt.Bad == nil {
		return err
	}
	return l.opt.Bad(e, err)
}

// page requests the listing of one folder.
func (s *Store) page(ctx context.Context, dir string) ([]item, error) {
	failed := func(err error) error {
		return &store.Error{Op: "list", Path: s.Path(dir), Err: err}
	}
	u := s.url(dir)
	if !strings.HasSuffix(u.Path, "/") {
		u.Path += "/"
		if u.RawPath != "" {
			u.RawPath += "/"
		}
	}
	r := s.request(dir)
	r.URL = u.String()
	body, info, err := s.c.Body(ctx, r, maxList)
	switch {
	case ctx.Err() != nil:
		return nil, failed(context.Cause(ctx))
	case errors.Is(err, store.ErrPermission):
		return nil, failed(fmt.Errorf("%w (%w)", errNoList, store.ErrPermission))
	case err != nil:
		return nil, failed(store.Cause(err))
	}
	kind := info.Header.Get("Content-Type")
	items, ok := parseList(body, kind, u)
	if !ok {
		return nil, failed(errNoList)
	}
	s.seen.json.Store(isJSON(kind))
	return items, nil
}

func isJSON(kind string) bool {
	kind, _, _ = strings.Cut(kind, ";")
	return strings.EqualFold(strings.TrimSpace(kind), "application/json")
}

// parseList parses a listing. ok is false if it is not one. at is the URL of the folder.
func parseList(body []byte, kind string, at *url.URL) ([]item, bool) {
	if isJSON(kind) {
		return parseJSON(body)
	}
	kind, _, _ = strings.Cut(kind, ";")
	switch strings.TrimSpace(strings.ToLower(kind)) {
	case "text/html", "application/xhtml+xml":
		return parseHTML(body, at)
	}
	return nil, false
}

// parseJSON parses nginx's autoindex_format json.
func parseJSON(body []byte) ([]item, bool) {
	var list []struct {
		Name, Type, MTime string
		Size              *int64
	}
	if json.Unmarshal(marked(body), &list) != nil {
		return nil, false
	}
	out := make([]item, 0, len(list))
	for _, e := range list {
		it := item{own: unmarked(e.Name), dir: e.Type == "directory"}
		switch {
		case it.own == "" || it.own == "." || it.own == "..":
			continue
		case !plain(it.own):
			it.err = fmt.Errorf("%w: %q", store.ErrName, it.own)
		case e.Type != "directory" && e.Type != "file":
			it.err = store.ErrIrregular
		}
		if t, err := http.ParseTime(e.MTime); err == nil && e.Size != nil && *e.Size >= 0 {
			it.known, it.size, it.modified = true, *e.Size, t
		}
		out = append(out, it)
	}
	return out, true
}

// plain reports whether a name is valid directly in a folder.
func plain(own string) bool {
	return own != "" && !strings.Contains(own, "/") && store.CheckName(own) == nil
}

// Names need not be UTF-8, but JSON must be. Other bytes are mapped to unused characters.
const byteMark = 0x10ff00

func marked(body []byte) []byte {
	if utf8.Valid(body) {
		return body
	}
	out := make([]byte, 0, len(body)+64)
	for len(body) > 0 {
		r, n := utf8.DecodeRune(body)
		if r == utf8.RuneError && n == 1 {
			out = utf8.AppendRune(out, byteMark+rune(body[0]))
		} else {
			out = append(out, body[:n]...)
		}
		body = body[n:]
	}
	return out
}

func unmarked(s string) string {
	if !strings.Contains(s, "\U0010ff00"[:2]) {
		return s
	}
	var out []byte
	for _, r := range s {
		if r >= byteMark+0x80 && r <= byteMark+0xff {
			out = append(out, byte(r-byteMark))
		} else {
			out = utf8.AppendRune(out, r)
		}
	}
	return string(out)
}

var (
	link   = regexp.MustCompile(`(?i)<a\s[^>]*?href\s*=\s*(?:"([^"]*)"|'([^']*)')`)
	listed = regexp.MustCompile(`(?i)<(?:title|h1)>\s*(?:index of|directory listing)`)
)

// parseHTML returns the links of a page to direct content of the folder.
func parseHTML(body []byte, at *url.URL) ([]item, bool) {
	var out []item
	for _, m := range link.FindAllSubmatch(body, -1) {
		u, err := at.Parse(html.UnescapeString(string(m[1]) + string(m[2])))
		if err != nil || u.Host != at.Host || u.Scheme != at.Scheme || u.RawQuery != "" && u.RawQuery != at.RawQuery || u.Fragment != "" {
			continue
		}
		own, ok := strings.CutPrefix(u.Path, at.Path)
		it := item{own: strings.TrimSuffix(own, "/"), dir: strings.HasSuffix(own, "/")}
		if ok && plain(it.own) {
			out = append(out, it)
		}
	}
	return out, len(out) > 0 || listed.Match(body)
}
