package httpfaulttest

import (
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// Throttle has a handler answer late, and all its answers together be sent at most at a
// rate.
type Throttle struct {
	Handler http.Handler
	// Latency is how long each answer waits, and Jitter how much longer at most, drawn
	// each time. BytesPerSecond what all bodies get together,
	// 0 for all there is.
	Latency        time.Duration
	Jitter         time.Duration
	BytesPerSecond float64

	mu   sync.Mutex
	next time.Time // when the next piece may be sent
}

// pieceBytes is what is sent at once.
const pieceBytes = 64 << 10

// ServeHTTP answers a request.
func (t *Throttle) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	wait := t.Latency
	if t.Jitter > 0 {
		wait += rand.N(t.Jitter)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
		return
	}
	if t.BytesPerSecond > 0 {
		w = &throttled{ResponseWriter: w, t: t, r: r}
	}
	t.Handler.ServeHTTP(w, r)
}

// turn takes room for n bytes and says when they may be sent.
func (t *Throttle) turn(n int) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	// What a sleep was late is made up, and no more.
	if least := time.Now().Add(-10 * time.Millisecond); t.next.Before(least) {
		t.next = least
	}
	t.next = t.next.Add(time.Duration(float64(n) / t.BytesPerSecond * float64(time.Second)))
	return t.next
}

type throttled struct {
	http.ResponseWriter
	t *Throttle
	r *http.Request
}

// Unwrap is for http.ResponseController.
func (w *throttled) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *throttled) Write(b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		piece := b[n:min(n+pieceBytes, len(b))]
		if wait := time.Until(w.t.turn(len(piece))); wait > 0 {
			select {
			case <-time.After(wait):
			case <-w.r.Context().Done():
				return n, w.r.Context().Err()
			}
		}
		var m int
		m, err = w.ResponseWriter.Write(piece)
		n += m
	}
	return n, err
}
