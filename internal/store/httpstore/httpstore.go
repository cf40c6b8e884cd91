// Package httpstore is a store for a web server: one object, or the folder below a URL. Objects are read by range
// requests, each for the opened version. A server without range requests is refused.
//
// HTTP has no listings. The store understands HTML index pages and nginx's autoindex_format json. From other
// servers only objects with known names can be read, such as those of a pack.
package httpstore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stokerdata/stoker/internal/store/ranged"
	"github.com/stokerdata/stoker/store"
)

// Options configure a Store. Nil means the defaults.
type Options struct {
	// CABundle is a file of certificates to trust in addition to the system's. "" means the one in
	// STOKER_CA_BUNDLE, if any.
	CABundle string
	// Header is sent with each request, but not to other hosts after a redirect.
	Header http.Header
	// Attempts is the maximum number of attempts per request, 0 for the default.
	Attempts int

	// backoff is for tests.
	backoff time.Duration
	stall   time.Duration
}

// Store is an object or a folder on a web server. It holds no resources.
type Store struct {
	c     *ranged.Client
	opt   Options
	root  url.URL // with user and query, which are secret
	shown string  // without them
	shut  bool    // the store is empty
	seen  *seen
}

// seen is what the store has learnt about its server.
type seen struct {
	// folder: the root is a folder. json: the server sends nginx's JSON listings, which are complete.
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

// New returns the store of a URL with scheme http or https. The query is sent with each request. New sends no
// request.
func New(rawURL string, opt *Options) (*Store, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, fmt.Errorf("cannot open %s: not a URL", ranged.Public(rawURL))
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

// String returns the URL without secrets.
func (s *Store) String() string { return s.shown }

// Path names an object for messages.
func (s *Store) Path(name string) string {
	if name == "" {
		return s.shown
	}
	return s.shown + "/" + name
}

// Close has no effect: connections belong to the process.
func (s *Store) Close() error { return nil }

// Complete implements store.Complete.
func (s *Store) Complete() bool { return s.seen.json.Load() }

// Warm implements store.Warmer.
func (s *Store) Warm(n int) { s.c.Warm(n) }

// Identity implements store.Identifier.
func (s *Store) Identity() (name string, fixed bool) { return s.shown, true }

// At implements store.Neighbour for paths on the same server. Data must not make us contact other servers.
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

// url returns the URL of an object.
func (s *Store) url(name string) *url.URL {
	u := s.root
	if name != "" {
		u.Path = strings.TrimSuffix(u.Path, "/") + "/" + name
		u.RawPath = ""
		if s.root.RawPath != "" { // keep the given escapes, for example %2F
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
		err = fmt.Errorf("%w: it is on another server", store.ErrNotExist)
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return &store.Error{Op: op, Path: s.Path(name), Err: err}
	}
	return nil
}

// Stat requests an object's headers.
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
	// A redirect to the same URL with a slash means a folder. So does a URL that ends with a slash, even if the
	// server shows no listing.
	if isFolder(info.URL) && (err == nil || noList(err)) {
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

// noList reports whether an error means a folder without a listing.
func noList(err error) bool {
	var f *ranged.Failure
	if !errors.As(err, &f) {
		return false
	}
	switch f.Status {
	case http.StatusMethodNotAllowed, http.StatusNotImplemented, http.StatusForbidden, http.StatusUnauthorized:
		return true
	}
	return false
}

func isFolder(rawURL string) bool {
	u, err := url.Parse(rawURL)
	return err == nil && rawURL != "" && (strings.HasSuffix(u.Path, "/") || u.Path == "")
}

func entry(name string, i ranged.Info) store.Entry {
	t, _ := http.ParseTime(i.Modified) // zero if unknown
	return store.Entry{Name: name, Size: i.Size, ModTime: t, Version: ranged.VersionOf(i.ETag, t, i.Size)}
}

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
		err = errors.New("the server does not send its size")
	case !info.Ranges:
		err = fmt.Errorf("%w (Range:), so every read would fetch the whole object: use a server that does, such as nginx, Apache or Caddy, use a bucket, or copy it to this machine first", ranged.ErrNoRanges)
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
	o.r.Expect(e.Version)
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
