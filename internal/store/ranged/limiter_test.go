package ranged

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stokerdata/stoker/internal/store/node"
)

// throttling is a server that answers with a delay, and a limited number of requests per second.
type throttling struct {
	latency time.Duration

	mu          sync.Mutex
	limit       float64 // per second, 0 for none
	burst       float64
	tokens      float64
	at          time.Time
	ok, refused int
}

func (s *throttling) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	now := time.Now()
	s.tokens = min(s.tokens+now.Sub(s.at).Seconds()*s.limit, s.burst)
	s.at = now
	throttled := s.limit > 0 && s.tokens < 1
	if throttled {
		s.refused++
	} else {
		s.tokens--
		s.ok++
	}
	s.mu.Unlock()
	select {
	case <-time.After(s.latency):
	case <-r.Context().Done():
		return nil, context.Cause(r.Context())
	}
	if throttled {
		return &http.Response{StatusCode: http.StatusServiceUnavailable, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
	}
	h := http.Header{"Content-Range": {"bytes 0-9/10"}, "Etag": {`"v"`}}
	return &http.Response{StatusCode: http.StatusPartialContent, Header: h, ContentLength: 10, Body: io.NopCloser(strings.NewReader("0123456789")), Request: r}, nil
}

func (s *throttling) counts() (ok, refused int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ok, s.refused
}

// A server that refuses more than 200 requests per second soon gets about that rate, and hardly more. When it stops
// refusing, it gets all requests.
func TestThrottling(t *testing.T) {
	for _, c := range []struct {
		readers int
		burst   float64
		latency time.Duration
	}{{8, 20, 20 * time.Millisecond}, {64, 20, 20 * time.Millisecond}, {256, 200, 20 * time.Millisecond}, {512, 5, 60 * time.Millisecond}, {16, 10, 5 * time.Millisecond}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			if testing.Short() && c.readers > 64 {
				t.Skip("many requests")
			}
			synctest.Test(t, func(t *testing.T) {
				s := &throttling{latency: c.latency, limit: 200, burst: c.burst, tokens: c.burst, at: time.Now()}
				cl, err := New(Options{Endpoint: "http://throttling", Transport: s})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				for range c.readers {
					wg.Go(func() {
						b := make([]byte, 10)
						for ctx.Err() == nil {
							if _, err := cl.Get(ctx, Request{URL: "http://throttling/x", Version: `"v"`}, b); err != nil && ctx.Err() == nil {
								t.Error(err)
								return
							}
						}
					})
				}
				time.Sleep(10 * time.Second)
				ok, refused := s.counts()
				t.Logf("in the first 10 s: %d answered, %d refused", ok, refused)
				if refused > ok/10+c.readers {
					t.Errorf("%d refused, %d answered", refused, ok)
				}
				time.Sleep(20 * time.Second)
				ok2, refused2 := s.counts()
				ok, refused = ok2-ok, refused2-refused
				t.Logf("in the next 20 s: %d answered, %d refused", ok, refused)
				if demand := float64(c.readers) / c.latency.Seconds(); float64(ok) < 0.9*20*min(200, demand) {
					t.Errorf("%d answered", ok)
				}
				if refused > ok/10 {
					t.Errorf("%d refused, %d answered", refused, ok)
				}
				s.mu.Lock()
				s.limit = 0
				s.mu.Unlock()
				time.Sleep(5 * time.Second)
				before, _ := s.counts()
				time.Sleep(time.Second)
				after, _ := s.counts()
				all := float64(c.readers) / c.latency.Seconds()
				t.Logf("without a limit: %d per second of %.0f", after-before, all)
				if float64(after-before) < 0.9*all {
					t.Errorf("%d per second of %.0f", after-before, all)
				}
				cancel()
				wg.Wait()
			})
		})
	}
}

// A cancelled wait takes no turn.
func TestLimiterGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &limiter{}
		l.done(time.Now().Add(time.Second), true)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() { _ = l.wait(ctx) })
		}
		wg.Wait()
		for range 3 {
			if err := l.wait(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if len(l.queue) != 0 {
			t.Errorf("%d wait", len(l.queue))
		}
	})
}

// Processes of one user share the pace of an endpoint: together they send as many requests as one would, each the
// same share.
func TestThrottlingOfSeveral(t *testing.T) {
	t.Setenv(node.Env, filepath.Join(t.TempDir(), "run"))
	synctest.Test(t, func(t *testing.T) {
		const processes = 8
		s := &throttling{latency: 20 * time.Millisecond, limit: 200, burst: 20, tokens: 20, at: time.Now()}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		var got [processes]atomic.Int64
		for p := range processes {
			cl, err := New(Options{Endpoint: "http://throttling", Transport: s})
			if err != nil {
				t.Fatal(err)
			}
			cl.limit = &limiter{name: "http://throttling"} // like another process
			for range 8 {
				wg.Go(func() {
					b := make([]byte, 10)
					for ctx.Err() == nil {
						if _, err := cl.Get(ctx, Request{URL: "http://throttling/x", Version: `"v"`}, b); err != nil && ctx.Err() == nil {
							t.Error(err)
							return
						}
						got[p].Add(1)
					}
				})
			}
		}
		time.Sleep(10 * time.Second)
		ok, refused := s.counts()
		time.Sleep(20 * time.Second)
		ok2, refused2 := s.counts()
		t.Logf("in the first 10 s: %d answered, %d refused; in the next 20 s: %d, %d", ok, refused, ok2-ok, refused2-refused)
		if refused > ok/10+8*processes || ok2-ok < 0.9*20*200 || refused2-refused > (ok2-ok)/10 {
			t.Error("it was asked for too much, or too little")
		}
		for p := range processes {
			if n := got[p].Load(); n < int64(ok2)/processes/2 {
				t.Errorf("process %d got %d of %d", p, n, ok2)
			}
		}
		s.mu.Lock()
		s.limit = 0
		s.mu.Unlock()
		time.Sleep(5 * time.Second)
		before, _ := s.counts()
		time.Sleep(time.Second)
		if after, _ := s.counts(); float64(after-before) < 0.9*8*processes/s.latency.Seconds() {
			t.Errorf("without a limit %d per second", after-before)
		}
		cancel()
		wg.Wait()
	})
}

// Invalid and old paces are ignored.
func FuzzPace(f *testing.F) {
	now := time.Unix(1_800_000_000, 0)
	p := pace{Rate: 10, Next: now.UnixNano(), Seen: now.UnixNano(), Ceiling: 20, Step: 0.1}
	f.Add(p.bytes())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		var p pace
		p.parse(b)
		p.fresh(now)
		for range 3 {
			p.grow(now)
			if p.take(now); p.wait(now) > 2*farAhead || p.Rate > 0 && p.Rate < leastRate/2 {
				t.Errorf("%+v", p)
			}
			p.Answered.add(now, 1)
			p.refuse(now, now)
		}
	})
}
