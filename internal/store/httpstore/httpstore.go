// Package httpstore is a store of what a web server has: one object, or the folder
// below a URL. Objects are read by ranges, each of the version that was opened; a
// server that does not read ranges is refused.
//
// A web server has no list of its own. Those that show one as a page, or as nginx's
// autoindex_format json, are understood; of others only objects whose names are known
// can be read, such as those of a pack.
package httpstore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stokerdata/stoker/internal/store/ranged"
	"github.com/stokerdata/stoker/store"
)

// Options change how a server is asked. Nil means the defaults.
type Options struct {
	// CABundle is a file of certificates that are trusted beside the system's; ""
	// stands for the one that STOKER_CA_BUNDLE names, if any.
	CABundle string
	// Header is sent with each request, but to no other host that a server sends
	// us on to.
	Header http.Header
	// Attempts is how often a request is made at most, 0 for the default.
	Attempts int

	// backoff is for tests.
	backoff time.Duration
	stall   time.Duration
}

// Store is an object or a folder of a web server. It holds nothing open.
type Store struct {
	c     *ranged.Client
	opt   Options
	root  url.URL // with user and query, which are secret
	shown string  // without
	shut  bool    // there is nothing in it
	seen  *seen
}

// seen is what was seen of a store so far.
type seen struct {
	// folder: the root is one. json: its lists are nginx's in JSON, which show all there is.
	folder, json atomic.Bool
}

var (
	_ store.EntryOpener = (*Store)(nil)
	_ store.Identifier  = (*Store)(nil)
	_ store.Neighbour   = (*Store)(nil)
	_ store.Examiner    = (*Store)(nil)
	_ store.Warmer      = (*Store)(nil)
	_ store.Complete    = (*Store)(nil)
)

// New returns the store of a URL of the scheme http or https. What is behind a
// question mark is sent with each request. It asks nothing.
func New(rawURL string, opt *Options) (*Store, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, fmt.Errorf("cannot open %s: it is no URL", ranged.Public(rawURL))
	}
	s := &Store{root: *u, seen: &seen{}}
	if opt != nil {
		s.opt = *opt
	}
	if s.opt.CABundle == "" {
		s.opt.CABundle = os.Getenv("STOKER_CA_BUNDLE")
	}
	s.root.Fragment, s.root.RawFragment = "", ""
	s.setShown()
	s.c, err = ranged.New(ranged.Options{
		Endpoint: strings.ToLower(u.Scheme) + "://" + u.Host, CABundle: s.opt.CABundle, Attempts: s.opt.Attempts,
		Backoff: s.opt.backoff, MaxBackoff: s.opt.backoff, FirstByte: s.opt.stall, Stall: s.opt.stall,
	})
	if err != nil {
		return nil, fmt.Errorf("cannot open %s: %w", s.shown, err)
	}
	return s, nil
}

func (s *Store) setShown() {
	shown := url.URL{Scheme: s.root.Scheme, Host: s.root.Host, Path: s.root.Path}
	s.shown = shown.Scheme + "://" + shown.Host + strings.TrimSuffix(shown.Path, "/")
}

// String is the URL without what may be secret.
func (s *Store) String() string { return s.shown }

// Path names an object for messages.
func (s *Store) Path(name string) string {
	if name == "" {
		return s.shown
	}
	return s.shown + "/" + name
}

// Close does nothing: connections belong to the process.
func (s *Store) Close() error { return nil }

// Complete implements store.Complete.
func (s *Store) Complete() bool { return s.seen.json.Load() }

// Warm implements store.Warmer.
func (s *Store) Warm(n int) { s.c.Warm(n) }

// Identity implements store.Identifier.
func (s *Store) Identity() (name string, fixed bool) { return s.shown, true }

// At implements store.Neighbour, for paths of the same server: data from elsewhere does
// not choose whom we ask.
func (s *Store) At(place string) store.Store {
	to := *s
	to.seen = &seen{}
	rest, ok := strings.CutPrefix(place, s.root.Scheme+"://"+s.root.Host)
	if !ok || rest != "" && rest[0] != '/' {
		to.shut = true
		rest = ""
	}
	if dir := strings.HasSuffix(rest, "/"); rest != "" {
		if rest = path.Clean(rest); dir && rest != "/" {
			rest += "/"
		}
	}
	to.root.Path, to.root.RawPath = rest, ""
	to.setShown()
	return &to
}

// url is that of an object.
func (s *Store) url(name string) *url.URL {
	u := s.root
	if name != "" {
		u.Path = strings.TrimSuffix(u.Path, "/") + "/" + name
		u.RawPath = ""
		if s.root.RawPath != "" { // as it was written, such as with %2F
			var b strings.Builder
			b.WriteString(strings.TrimSuffix(s.root.RawPath, "/"))
			for part := range strings.SplitSeq(name, "/") {
				b.WriteString("/" + url.PathEscape(part))
			}
			u.RawPath = b.String()
		}
	}
	return &u
}

func (s *Store) request(name string) ranged.Request {
	return ranged.Request{URL: s.url(name).String(), Name: s.Path(name), Header: s.opt.Header}
}

func (s *Store) check(ctx context.Context, op, name string) error {
	err := store.CheckName(name)
	if s.shut {
		err = fmt.Errorf("%w: it lies on another server", store.ErrNotExist)
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return &store.Error{Op: op, Path: s.Path(name), Err: err}
	}
	return nil
}

// Stat asks for an object's header.
func (s *Store) Stat(ctx context.Context, name string) (store.Entry, error) {
	e, _, err := s.look(ctx, "look at", name)
	return e, err
}

// look describes an object or a folder.
func (s *Store) look(ctx context.Context, op, name string) (store.Entry, ranged.Info, error) {
	if err := s.check(ctx, op, name); err != nil {
		return store.Entry{}, ranged.Info{}, err
	}
	r := s.request(name)
	info, err := s.c.Head(ctx, r)
	// What a server sends on to the same with a slash is a folder, and so is a URL
	// that ends in one; it need not show a list of it.
	if isFolder(info.URL) && (err == nil || errors.Is(err, store.ErrPermission) || s.noList(err)) {
		if name == "" {
			s.seen.folder.Store(true)
		}
		return store.Entry{Name: name, Dir: true}, info, nil
	}
	if err != nil {
		var own *store.Error
		if errors.As(err, &own) {
			own.Op = op
		}
		return store.Entry{}, info, err
	}
	return entry(name, info), info, nil
}

// noList says whether an error is that of a folder without a list.
func (s *Store) noList(err error) bool {
	var f *ranged.Failure
	return errors.As(err, &f) && (f.Status == http.StatusMethodNotAllowed || f.Status == http.StatusNotImplemented)
}

func isFolder(rawURL string) bool {
	u, err := url.Parse(rawURL)
	return err == nil && rawURL != "" && (strings.HasSuffix(u.Path, "/") || u.Path == "")
}

func entry(name string, i ranged.Info) store.Entry {
	e := store.Entry{Name: name, Size: i.Size, Version: i.Strong()}
	if t, err := http.ParseTime(i.Modified); err == nil {
		e.ModTime = t
	}
	if e.Version == "" {
		e.Version = i.Modified + modifiedMark + strconv.FormatInt(i.Size, 36)
	}
	return e
}

// modifiedMark stands between time and size in a version that is no entity tag.
const modifiedMark = " # "

// Open opens an object.
func (s *Store) Open(ctx context.Context, name string) (store.Object, error) {
	e, info, err := s.look(ctx, "open", name)
	if err != nil {
		return nil, err
	}
	switch {
	case e.Dir:
		err = errors.New("it is a folder")
	case e.Size < 0:
		err = errors.New("the server does not say how large it is")
	case !info.Ranges:
		err = fmt.Errorf("%w (Range:), so every read would fetch the whole; put it behind a server that does, such as nginx, Apache or Caddy, or into a bucket, or copy it to this machine first", ranged.ErrNoRanges)
	}
	if err != nil {
		return nil, &store.Error{Op: "open", Path: s.Path(name), Err: err}
	}
	return s.OpenEntry(ctx, e)
}

// OpenEntry implements store.EntryOpener.
func (s *Store) OpenEntry(ctx context.Context, e store.Entry) (store.Object, error) {
	if err := s.check(ctx, "open", e.Name); err != nil {
		return nil, err
	}
	o := &object{s: s, size: e.Size, version: e.Version, r: s.request(e.Name)}
	o.r.Total = e.Size
	if at, _, ok := strings.Cut(e.Version, modifiedMark); ok {
		o.r.Modified = at
	} else {
		o.r.Version = e.Version
	}
	return o, nil
}

// Examine implements store.Examiner.
func (s *Store) Examine(ctx context.Context, e store.Entry) (store.Manners, error) {
	if err := s.check(ctx, "look at", e.Name); err != nil {
		return store.Manners{}, err
	}
	r := s.request(e.Name)
	r.Total = e.Size
	return s.c.Examine(ctx, r, ranged.Request{})
}

type object struct {
	s       *Store
	size    int64
	version string
	r       ranged.Request
}

func (o *object) Size() int64     { return o.size }
func (o *object) Version() string { return o.version }
func (o *object) Close() error    { return nil }

// ReadAt reads a range of the version that was opened.
func (o *object) ReadAt(ctx context.Context, p []byte, off int64) error {
	r := o.r
	r.Offset = off
	if ctx.Err() == nil && (off < 0 || off > o.size-int64(len(p))) {
		return &store.Error{Op: "read", Path: r.Name, Off: off, Len: int64(len(p)), Err: store.ErrShort}
	}
	_, err := o.s.c.Get(ctx, r, p)
	return err
}
