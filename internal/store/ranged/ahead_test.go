package ranged

import (
	"bytes"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Requests use connections that were opened ahead, with and without TLS. Unused connections are closed.
func TestConnectionsAhead(t *testing.T) {
	const n = 8
	data := content(1000)
	for _, secure := range []bool{false, true} {
		var opened, open atomic.Int64
		var together sync.WaitGroup
		together.Add(n)
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			together.Done()
			together.Wait()
			w.Header().Set("ETag", `"1"`)
			http.ServeContent(w, r, "", time.Unix(1e9, 0), bytes.NewReader(data))
		}))
		s.Config.ConnState = func(_ net.Conn, to http.ConnState) {
			switch to {
			case http.StateNew:
				opened.Add(1)
				open.Add(1)
			case http.StateClosed:
				open.Add(-1)
			}
		}
		opt := Options{}
		if secure {
			s.StartTLS()
			opt.CABundle = filepath.Join(t.TempDir(), "bundle.pem")
			if err := os.WriteFile(opt.CABundle, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
				t.Fatal(err)
			}
		} else {
			s.Start()
		}
		c := client(t, s, opt)
		ahead := c.rt.(*connections).ahead
		wait := func(is func() bool) {
			for !is() {
				time.Sleep(time.Millisecond)
			}
		}
		c.Warm(n)
		c.Warm(n)
		wait(func() bool { return len(ahead.there) == n })
		var wg sync.WaitGroup
		for range n {
			wg.Go(func() {
				p := make([]byte, 100)
				if _, err := c.Get(t.Context(), Request{URL: s.URL + "/x", Version: `"1"`, Total: 1000}, p); err != nil || !bytes.Equal(p, data[:100]) {
					t.Errorf("%v", err)
				}
			})
		}
		wg.Wait()
		if got := opened.Load(); got != n {
			t.Errorf("TLS %v: %d connections for %d concurrent requests", secure, got, n)
		}
		c.Warm(3)
		wait(func() bool { return len(ahead.there) == 3 })
		CloseIdle()
		wait(func() bool { return open.Load() == 0 })
		if ahead.coming.Load() != 0 {
			t.Errorf("%d are still to come", ahead.coming.Load())
		}
		// A connection that cannot be opened is an error only for the request that needs it.
		s.Close()
		c.Warm(2)
		wait(func() bool { return len(ahead.there) == 2 })
		ahead.drop()
	}
}

// A guard ends an attempt that stalls or takes too long in total, and no other.
func TestGuard(t *testing.T) {
	for _, c := range []struct {
		name         string
		total, first time.Duration
		do           func(g *guard)
		want         error
		after        time.Duration
	}{
		{"nothing moves", time.Hour, time.Second, func(*guard) {}, errStall, time.Second},
		{"it moves and takes too long", time.Minute, time.Hour, func(g *guard) {
			for range 100 {
				g.moved(5 * time.Second)
				time.Sleep(time.Second)
			}
		}, errTotal, time.Minute},
		{"it moves and stops", time.Hour, time.Second, func(g *guard) {
			for range 10 {
				g.moved(2 * time.Second)
				time.Sleep(time.Second)
			}
		}, errStall, 11 * time.Second},
		{"what was expected later is expected sooner", time.Hour, time.Hour, func(g *guard) { g.expect(time.Second) }, errStall, time.Second},
		{"it has ended", time.Hour, time.Second, func(g *guard) { g.stop(); g.expect(0) }, nil, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				type ended struct {
					err   error
					after time.Duration
				}
				all := make(chan ended, 10)
				start := time.Now()
				g := newGuard(c.total, c.first, func(err error) { all <- ended{err, time.Since(start)} })
				c.do(g)
				time.Sleep(3 * time.Hour)
				g.stop()
				var got ended
				select {
				case got = <-all:
				default:
				}
				if got != (ended{c.want, c.after}) || len(all) > 0 {
					t.Errorf("%v, want %v after %v", got, c.want, c.after)
				}
			})
		})
	}
}
