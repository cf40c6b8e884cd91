package ranged

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// ahead has connections that are opened before they are needed, including TLS. Opening takes two or three round
// trips, and many connections are needed at the same time.
type ahead struct {
	open func(ctx context.Context) (net.Conn, error)
	// within limits the time to open one.
	within time.Duration

	// coming counts the connections that exist or are being opened and are not taken. For each there is, or will
	// be, an element in there.
	coming atomic.Int64
	there  chan opened
	mu     sync.Mutex
	timer  *time.Timer
}

// opened is a connection, or nil if it could not be opened.
type opened struct {
	conn net.Conn
	at   time.Time
}

const (
	// maxAhead is the maximum number of connections.
	maxAhead = 64
	// keepAhead is how long a connection may wait for its first request. Servers close connections that wait
	// longer.
	keepAhead = 5 * time.Second
)

func newAhead(within time.Duration, open func(ctx context.Context) (net.Conn, error)) *ahead {
	return &ahead{open: open, within: within, there: make(chan opened, maxAhead)}
}

// begin opens connections until there are n, including those being opened.
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
				c = nil // the request that needs a connection reports the error
			}
			a.there <- opened{c, time.Now()}
		}()
	}
	if a.timer == nil {
		a.timer = time.AfterFunc(keepAhead, a.tidy)
	}
}

// reserve takes a share of coming.
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

// take returns a connection, or nil if there is none and none is being opened.
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

// tidy closes unused connections, and runs again while there are any.
func (a *ahead) tidy() {
	a.drop()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.timer = nil; a.coming.Load() > 0 {
		a.timer = time.AfterFunc(keepAhead, a.tidy)
	}
}

// drop closes the connections that are open.
func (a *ahead) drop() {
	for a.reserve() {
		select {
		case o := <-a.there:
			if o.conn != nil {
				_ = o.conn.Close() // nothing was sent on it
			}
		default: // it is still being opened
			a.coming.Add(1)
			return
		}
	}
}

// Warm opens connections before they are needed, at most n. It does not wait. Unused ones are closed soon. It has
// no effect if there is a proxy.
func (c *Client) Warm(n int) {
	conns, ok := c.rt.(*connections)
	if !ok {
		return
	}
	r, err := http.NewRequest(http.MethodGet, c.opt.Endpoint, nil)
	if err != nil {
		return // New has checked the URL
	}
	if through, err := proxy(r); err == nil && through == nil {
		conns.ahead.begin(n)
	}
}
