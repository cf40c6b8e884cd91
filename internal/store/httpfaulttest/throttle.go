package httpfaulttest

import (
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// Throttle wraps a handler: responses come late, and all of them together have a limited rate.
type Throttle struct {
	Handler http.Handler
	// Latency is the delay of each response, plus a random time up to Jitter. BytesPerSecond is the limit for all
	// bodies together, 0 for none.
	Latency        time.Duration
	Jitter         time.Duration
	BytesPerSecond float64

	mu   sync.Mutex
	next time.Time // when the next piece may be sent
}

// pieceBytes is the size of the pieces that are sent.
const pieceBytes = 64 << 10

// ServeHTTP answers a request slowly.
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

// turn reserves n bytes and returns when they may be sent.
func (t *Throttle) turn(n int) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	// A sleep may end late: up to 10 ms of that are made up.
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
