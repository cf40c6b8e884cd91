package ranged

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// ahead are connections that are opened before somebody needs them, with TLS where that
// belongs to them: it takes two or three ways there and back, and many are needed at once.
type ahead struct {
	open func(ctx context.Context) (net.Conn, error)
	// within bounds the opening of one.
	within time.Duration

	// coming counts those that are there or will be, and are nobody's yet; for each there is
	// something in there, or will be.
	coming atomic.Int64
	there  chan opened
	mu     sync.Mutex
	timer  *time.Timer
}

// opened is a connection; without one it could not be opened.
type opened struct {
	conn net.Conn
	at   time.Time
}

const (
	// maxAhead bounds them.
	maxAhead = 64
	// keepAhead is how long one waits for its first request: servers do not wait for ever.
	keepAhead = 5 * time.Second
)

func newAhead(within time.Duration, open func(ctx context.Context) (net.Conn, error)) *ahead {
	return &ahead{open: open, within: within, there: make(chan opened, maxAhead)}
}

// begin opens connections until n are there or on their way.
func (a *ahead) begin(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.coming.Load() < int64(min(n, maxAhead)) {
		a.coming.Add(1)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), a.within)
			defer cancel()
			c, err := a.open(ctx)
			if err != nil {
				c = nil // who needs one finds out why
			}
			a.there <- opened{c, time.Now()}
		}()
	}
	if a.timer == nil {
		a.timer = time.AfterFunc(keepAhead, a.tidy)
	}
}

// reserve takes one of those that are coming.
func (a *ahead) reserve() bool {
	for {
		n := a.coming.Load()
		if n <= 0 {
			return false
		}
		if a.coming.CompareAndSwap(n, n-1) {
			return true
		}
	}
}

// take returns a connection, or nil when there is none and none on its way.
func (a *ahead) take(ctx context.Context) net.Conn {
	for a.reserve() {
		select {
		case o := <-a.there:
			switch {
			case o.conn == nil:
			case time.Since(o.at) < keepAhead:
				return o.conn
			default:
				_ = o.conn.Close() // nothing was sent on it
			}
		case <-ctx.Done():
			a.coming.Add(1)
			return nil
		}
	}
	return nil
}

// tidy closes those that nobody has used, and comes back while there are any.
func (a *ahead) tidy() {
	a.drop()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.timer = nil; a.coming.Load() > 0 {
		a.timer = time.AfterFunc(keepAhead, a.tidy)
	}
}

// drop closes those that are there.
func (a *ahead) drop() {
	for a.reserve() {
		select {
		case o := <-a.there:
			if o.conn != nil {
				_ = o.conn.Close() // nothing was sent on it
			}
		default: // it is on its way
			a.coming.Add(1)
			return
		}
	}
}

// Warm opens connections before they are needed, n at most; it waits for nothing. Those
// that nobody uses are closed soon. Through a proxy there are none.
func (c *Client) Warm(n int) {
	conns, ok := c.rt.(*connections)
	if !ok {
		return
	}
	r, err := http.NewRequest(http.MethodGet, c.opt.Endpoint, nil)
	if err != nil {
		return // New has seen that it is a URL
	}
	if through, err := proxy(r); err == nil && through == nil {
		conns.ahead.begin(n)
	}
}
