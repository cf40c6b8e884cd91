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

// keepIdle is how long a connection that nobody uses stays open.
const keepIdle = 60 * time.Second

// links are the connections to an endpoint over which requests without a body go, in the
// goroutine of whoever asks. http.Transport has two goroutines for each, which takes as
// long as to copy the 100 KB that are asked for.
type links struct {
	// scheme and host are those of the endpoint, origin is both as a URL begins.
	scheme, host, origin string
	open                 func(ctx context.Context) (net.Conn, error)
	// direct says that no proxy stands between.
	direct func() bool

	mu      sync.Mutex
	idle    []*link // the one that was used last is the last
	waiting []*wanting
	timer   *time.Timer // for the first of those that are idle
}

// wanting is somebody who waits for a connection: for that which was opened for him, or
// for any other one that is there before.
type wanting struct {
	got chan got
}

// got is a connection, or why there is none.
type got struct {
	link *link
	err  error
}

// newLinks returns those to an endpoint, nil where it has a name that only http.Transport
// can write.
func newLinks(u *url.URL, open func(ctx context.Context) (net.Conn, error)) *links {
	if !plainHost(u) {
		return nil
	}
	return &links{scheme: u.Scheme, host: u.Host, origin: u.Scheme + "://" + u.Host, open: open, direct: sync.OnceValue(func() bool {
		through, err := proxy(&http.Request{URL: u})
		return err == nil && through == nil
	})}
}

// texts are buffers of requests.
var texts = sync.Pool{New: func() any { return new([]byte) }}

// roundTrip sends a request and returns its answer, or says that it is none for them: it
// has a body, or is to another host, or goes by a proxy.
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

// get is roundTrip of a request for a URL, with headers of which the later stand in for
// the others.
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
	// The server has closed it before the request came, as it may at any time. What has no
	// body can be asked again.
	conn, err := s.open(ctx)
	if err != nil {
		return nil, causeOf(ctx, err)
	}
	return newLink(conn, s).exchange(ctx, method, text)
}

// take returns a connection that nobody else uses: one that is idle, or the first that
// somebody gives back or that was opened.
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
		// It is opened even if another one comes before, for whoever is next.
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

// drop takes somebody off those who wait, and says whether he was there. The lock is held.
func (s *links) drop(w *wanting) bool {
	i := slices.Index(s.waiting, w)
	if i < 0 {
		return false
	}
	s.waiting = slices.Delete(s.waiting, i, i+1)
	return true
}

// opened is called with the connection that was opened for somebody.
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

// leave is called by who does not wait any more.
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

// put gives a connection to whoever waits first, or keeps it.
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

// tidy closes those that were idle for long, and comes back while there are any.
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

// closeIdle closes those that nobody uses.
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
