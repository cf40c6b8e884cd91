package ranged

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// throttling is a server that answers after a while, and only so many requests per
// second.
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

// A server that refuses what is above 200 requests per second is asked for about that
// much soon, and hardly more; when it refuses nothing any more it is asked for all that
// there is to ask.
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

// Who gives up waiting takes nobody's turn.
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
