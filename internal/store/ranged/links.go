package ranged

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"
)

// keepIdle is how long an idle connection stays open.
const keepIdle = 60 * time.Second

// links are the connections to an endpoint for requests without a body, handled in the caller's goroutine.
// http.Transport has two goroutines per connection, whose switches cost as much as copying 100 KB.
type links struct {
	// scheme and host are the endpoint's, origin is both as in a URL.
	scheme, host, origin string
	open                 func(ctx context.Context) (net.Conn, error)
	// direct reports whether there is no proxy.
	direct func() bool

	mu      sync.Mutex
	idle    []*link // the most recently used one is last
	waiting []*wanting
	timer   *time.Timer // for the first idle link
}

// wanting is a request that waits for a connection: the one opened for it, or another one that is available first.
type wanting struct {
	got chan got
}

// got is a connection or an error.
type got struct {
	link *link
	err  error
}

// newLinks returns the links to an endpoint, nil if only http.Transport can write its name.
func newLinks(u *url.URL, open func(ctx context.Context) (net.Conn, error)) *links {
	if !plainHost(u) {
		return nil
	}
	return &links{scheme: u.Scheme, host: u.Host, origin: u.Scheme + "://" + u.Host, open: open, direct: sync.OnceValue(func() bool {
		through, err := proxy(&http.Request{URL: u})
		return err == nil && through == nil
	})}
}

// texts are buffers for requests.
var texts = sync.Pool{New: func() any { return new([]byte) }}

// roundTrip sends a request and returns its response. ours is false if the request is not for links: it has a body,
// is to another host, or needs a proxy.
func (s *links) roundTrip(req *http.Request) (resp *http.Response, ours bool, err error) {
	if s == nil || req.URL.Host != s.host || req.URL.Scheme != s.scheme || !s.direct() {
		return nil, false, nil
	}
	text := texts.Get().(*[]byte)
	defer texts.Put(text)
	if *text, ours = appendRequest((*text)[:0], req); !ours {
		return nil, false, nil
	}
	if resp, err = s.ask(req.Context(), req.Method, *text); err == nil {
		resp.Request = req
	}
	return resp, true, err
}

// get is roundTrip for a URL. The headers in more override those in of.
func (s *links) get(ctx context.Context, method, at string, of, more http.Header) (resp *http.Response, ours bool, err error) {
	if method != http.MethodGet && method != http.MethodHead || !s.direct() {
		return nil, false, nil
	}
	text := texts.Get().(*[]byte)
	defer texts.Put(text)
	if *text, ours = appendURL((*text)[:0], method, at, s.origin, s.host, of, more); !ours {
		return nil, false, nil
	}
	resp, err = s.ask(ctx, method, *text)
	return resp, true, err
}

func (s *links) ask(ctx context.Context, method string, text []byte) (*http.Response, error) {
	l, err := s.take(ctx)
	if err != nil {
		return nil, err
	}
	resp, err := l.exchange(ctx, method, text)
	if err == nil || !l.used || l.came || ctx.Err() != nil {
		return resp, err
	}
	// The server has closed the connection before the request arrived, as it may at any time. A request without a
	// body can be repeated.
	conn, err := s.open(ctx)
	if err != nil {
		return nil, causeOf(ctx, err)
	}
	return newLink(conn, s).exchange(ctx, method, text)
}

// take returns a connection for exclusive use: an idle one, or the first that is released or opened.
func (s *links) take(ctx context.Context) (*link, error) {
	for {
		s.mu.Lock()
		if n := len(s.idle); n > 0 {
			l := s.idle[n-1]
			s.idle[n-1] = nil
			s.idle = s.idle[:n-1]
			s.mu.Unlock()
			if l.ready() {
				return l, nil
			}
			l.close()
			continue
		}
		w := &wanting{got: make(chan got, 1)}
		s.waiting = append(s.waiting, w)
		s.mu.Unlock()
		// It is opened even if another one is available first. The next request uses it.
		octx, end := context.WithCancel(context.WithoutCancel(ctx))
		go func() {
			defer end()
			conn, err := s.open(octx)
			s.opened(w, conn, err)
		}()
		select {
		case g := <-w.got:
			if g.err == nil && g.link.used && !g.link.ready() {
				g.link.close()
				continue
			}
			return g.link, g.err
		case <-ctx.Done():
			end()
			s.leave(w)
			return nil, context.Cause(ctx)
		}
	}
}

// drop removes a waiting request and reports whether it was waiting. The lock is held.
func (s *links) drop(w *wanting) bool {
	i := slices.Index(s.waiting, w)
	if i < 0 {
		return false
	}
	s.waiting = slices.Delete(s.waiting, i, i+1)
	return true
}

// opened is called with the connection opened for w.
func (s *links) opened(w *wanting, conn net.Conn, err error) {
	var l *link
	if err == nil {
		l = newLink(conn, s)
	}
	s.mu.Lock()
	waits := s.drop(w)
	s.mu.Unlock()
	switch {
	case waits:
		w.got <- got{l, err}
	case l != nil:
		s.put(l)
	}
}

// leave is called by a request that no longer waits.
func (s *links) leave(w *wanting) {
	s.mu.Lock()
	waits := s.drop(w)
	s.mu.Unlock()
	if waits {
		return
	}
	if g := <-w.got; g.link != nil {
		s.put(g.link)
	}
}

// put passes a connection to the first waiting request, or makes it idle.
func (s *links) put(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case len(s.waiting) > 0:
		w := s.waiting[0]
		s.drop(w)
		w.got <- got{link: l}
	case len(s.idle) >= maxIdle:
		l.close()
	default:
		l.since = time.Now()
		s.idle = append(s.idle, l)
		if s.timer == nil {
			s.timer = time.AfterFunc(keepIdle, s.tidy)
		}
	}
}

// tidy closes links that were idle for too long, and runs again while there are any.
func (s *links) tidy() {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for n < len(s.idle) && time.Since(s.idle[n].since) >= keepIdle {
		s.idle[n].close()
		n++
	}
	s.idle = slices.Delete(s.idle, 0, n)
	if s.timer = nil; len(s.idle) > 0 {
		s.timer = time.AfterFunc(keepIdle-time.Since(s.idle[0].since), s.tidy)
	}
}

// closeIdle closes all idle links.
func (s *links) closeIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.idle {
		l.close()
	}
	if s.idle = nil; s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
}
