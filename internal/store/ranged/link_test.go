package ranged

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// wire is a server that sends given bytes, and counts.
type wire struct {
	*links
	opened, asked atomic.Int64
	served        sync.WaitGroup
}

// newWire returns a wire that calls answer with each connection, once per request, until it returns false. At the
// end of the test the client must have closed all connections.
func newWire(t *testing.T, answer func(c net.Conn, opened, asked int64) (goOn bool)) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{}
	w.served.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			opened := w.opened.Add(1)
			w.served.Go(func() {
				defer c.Close()
				for in := bufio.NewReader(c); ; {
					if _, err := http.ReadRequest(in); err != nil {
						return
					}
					if !answer(c, opened, w.asked.Add(1)) {
						return
					}
				}
			})
		}
	})
	u := &url.URL{Scheme: "http", Host: l.Addr().String()}
	w.links = newLinks(u, func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", u.Host)
		if err != nil {
			return nil, err
		}
		return newSocket(c), nil
	})
	t.Cleanup(func() {
		_ = l.Close()
		w.closeIdle()
		w.served.Wait()
	})
	return w
}

// request sends a request and reads its body.
func (w *wire) request(ctx context.Context, method string) (resp *http.Response, body string, err error) {
	resp, ours, err := w.get(ctx, method, w.origin+"/x", nil, nil)
	if !ours {
		return nil, "", errors.New("it is not taken")
	}
	if err != nil {
		return nil, "", err
	}
	b, err := io.ReadAll(resp.Body)
	return resp, string(b), errors.Join(err, resp.Body.Close())
}

// until waits for a condition that is true soon.
func until(t *testing.T, is func() bool) {
	t.Helper()
	for range 10_000 {
		if is() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("it does not come")
}

// The meaning of responses, and whether their connection is reused.
func TestAnswers(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\n"
	long := strings.Repeat("X-Long: "+strings.Repeat("x", 1000)+"\r\n", 200)
	for _, c := range []struct {
		name, answer string
		body         string // with its status
		method       string // "" for GET
		again        bool   // whether the connection is reused
		ends         bool   // whether the server closes it
		err          string
	}{
		{name: "length", answer: head + "Content-Length: 5\r\n\r\nhello", body: "200 hello", again: true},
		{name: "part", answer: "HTTP/1.1 206\r\ncontent-length:5 \r\n\r\nhello", body: "206 hello", again: true},
		{name: "nothing", answer: head + "Content-Length: 0\r\n\r\n", body: "200 ", again: true},
		{name: "an error", answer: "HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nhello", body: "404 hello", again: true},
		{name: "HEAD", answer: head + "Content-Length: 5\r\n\r\n", method: "HEAD", body: "200 ", again: true},
		{name: "HEAD in chunks", answer: head + "Transfer-Encoding: chunked\r\n\r\n", method: "HEAD", body: "200 ", again: true},
		{name: "HEAD with a body", answer: head + "Content-Length: 5\r\n\r\nhello", method: "HEAD", body: "200 "},
		{name: "no content", answer: "HTTP/1.1 204 No Content\r\n\r\n", body: "204 ", again: true},
		{name: "not modified", answer: "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", body: "304 ", again: true},
		{name: "chunks", answer: head + "Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n", body: "200 hello", again: true},
		{name: "chunks with a trailer", answer: head + "Transfer-Encoding: chunked\r\nTrailer: X\r\n\r\n5\r\nhello\r\n0\r\nX: y\r\n\r\n", body: "200 hello", again: true},
		{name: "chunks and more", answer: head + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\nmore", body: "200 hello"},
		{name: "bad chunks", answer: head + "Transfer-Encoding: chunked\r\n\r\nhello\r\n", err: "chunk"},
		{name: "chunks without an end", answer: head + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", ends: true, err: "EOF"},
		{name: "the last one", answer: head + "Connection: close\r\nContent-Length: 5\r\n\r\nhello", body: "200 hello"},
		{name: "1.0", answer: "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", body: "200 hello"},
		{name: "1.0 goes on", answer: "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello", body: "200 hello", again: true},
		{name: "to the end", answer: head + "\r\nhello", ends: true, body: "200 hello"},
		{name: "line feeds", answer: "HTTP/1.1 200 OK\nContent-Length: 5\n\nhello", body: "200 hello", again: true},
		{name: "interim", answer: "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + head + "Content-Length: 5\r\n\r\nhello", body: "200 hello", again: true},
		{name: "interim without an end", answer: strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 100), err: "malformed HTTP"},
		{name: "another protocol", answer: "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", err: "malformed HTTP"},
		{name: "twice the same length", answer: head + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", body: "200 hello", again: true},
		{name: "two lengths", answer: head + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", err: "Content-Length"},
		{name: "less than nothing", answer: head + "Content-Length: -5\r\n\r\nhello", err: "Content-Length"},
		{name: "a length with a sign", answer: head + "Content-Length: +5\r\n\r\nhello", err: "Content-Length"},
		{name: "chunks and a length", answer: head + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", err: "malformed HTTP"},
		{name: "a length and chunks", answer: head + "content-length: 5\r\nTransfer-encoding:chunked\r\n\r\n0\r\n\r\n", err: "malformed HTTP"},
		{name: "another encoding", answer: head + "Transfer-Encoding: gzip\r\n\r\nhello", err: "transfer encoding"},
		{name: "chunks of 1.0", answer: "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", err: "malformed HTTP"},
		{name: "more than its length", answer: head + "Content-Length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad", body: "200 hello"},
		{name: "less than its length", answer: head + "Content-Length: 6\r\n\r\nhello", ends: true, err: "unexpected EOF"},
		{name: "a long header", answer: head + long + "Content-Length: 5\r\n\r\nhello", body: "200 hello", again: true},
		{name: "too long a header", answer: head + long + long, err: "headers"},
		{name: "a header without an end", answer: head + "Content-Length: 5\r\n", ends: true, err: "EOF"},
		{name: "no answer", answer: "", ends: true, err: "EOF"},
		{name: "no HTTP", answer: "220 smtp ready\r\n", err: "malformed HTTP"},
		{name: "HTTP/2", answer: "HTTP/2.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", err: "malformed HTTP"},
		{name: "no status", answer: "HTTP/1.1 2x0 OK\r\nContent-Length: 5\r\n\r\nhello", err: "malformed HTTP"},
		{name: "no header", answer: head + "hello\r\nContent-Length: 5\r\n\r\nhello", err: "malformed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWire(t, func(conn net.Conn, _, _ int64) bool {
				_, _ = io.WriteString(conn, c.answer)
				return !c.ends
			})
			if c.method == "" {
				c.method = http.MethodGet
			}
			for range 2 {
				resp, body, err := w.request(t.Context(), c.method)
				if c.err != "" {
					if err == nil || !strings.Contains(err.Error(), c.err) {
						t.Fatalf("%v, want %s", err, c.err)
					}
					continue
				}
				if err != nil || fmt.Sprint(resp.StatusCode, " ", body) != c.body {
					t.Fatalf("%q, %v", body, err)
				}
			}
			if n := w.opened.Load(); (n == 1) != c.again {
				t.Errorf("%d connections", n)
			}
		})
	}
}

// A connection closed by the server is not used. If that is noticed too late, the request is sent again, except
// after a partial response.
func TestClosedByServer(t *testing.T) {
	const answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	for _, c := range []struct {
		name          string
		do            func(conn net.Conn, opened, asked int64) bool
		seen          bool // wait until it is noticed
		opened, asked int64
		err           string
	}{
		{"idle", func(conn net.Conn, _, _ int64) bool {
			_, _ = io.WriteString(conn, answer)
			return false
		}, true, 2, 2, ""},
		{"with bytes that nobody has asked for", func(conn net.Conn, opened, _ int64) bool {
			_, _ = io.WriteString(conn, answer)
			if opened == 1 {
				time.Sleep(10 * time.Millisecond) // so that they arrive after the body
				_, _ = io.WriteString(conn, "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
			}
			return true
		}, true, 2, 2, ""},
		{"when it is used", func(conn net.Conn, opened, asked int64) bool {
			if asked == 2 {
				return false
			}
			_, _ = io.WriteString(conn, answer)
			return true
		}, false, 2, 3, ""},
		{"always", func(conn net.Conn, opened, asked int64) bool {
			if asked > 1 {
				return false
			}
			_, _ = io.WriteString(conn, answer)
			return true
		}, false, 2, 3, "EOF"},
		{"in the answer", func(conn net.Conn, opened, asked int64) bool {
			if asked > 1 {
				_, _ = io.WriteString(conn, answer[:20])
				return false
			}
			_, _ = io.WriteString(conn, answer)
			return true
		}, false, 1, 2, "EOF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWire(t, c.do)
			if _, body, err := w.request(t.Context(), http.MethodGet); err != nil || body != "ok" {
				t.Fatal(body, err)
			}
			if c.seen {
				// Bytes that came with the body are noticed immediately.
				until(t, func() bool { return len(w.idle) == 0 || !w.idle[0].ready() })
			}
			_, body, err := w.request(t.Context(), http.MethodGet)
			if c.err == "" && (err != nil || body != "ok") || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("%q, %v", body, err)
			}
			if w.opened.Load() != c.opened || w.asked.Load() != c.asked {
				t.Errorf("%d connections, %d requests", w.opened.Load(), w.asked.Load())
			}
		})
	}
}

// Cancelling a request ends it at any stage, and its connection.
func TestLinkCancelled(t *testing.T) {
	why := errors.New("enough")
	for name, c := range map[string]struct {
		answer string
		body   bool // whether it reaches the body
	}{
		"no answer":          {"", false},
		"part of a header":   {"HTTP/1.1 200 OK\r\nContent-", false},
		"interim":            {"HTTP/1.1 100 Continue\r\n\r\n", false},
		"part of a body":     {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe", true},
		"part of chunks":     {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe", true},
		"a body without end": {"HTTP/1.1 200 OK\r\n\r\nhe", true},
	} {
		t.Run(name, func(t *testing.T) {
			sent := make(chan bool)
			w := newWire(t, func(conn net.Conn, _, _ int64) bool {
				_, _ = io.WriteString(conn, c.answer)
				close(sent)
				return true // and wait for the end
			})
			ctx, cancel := context.WithCancelCause(t.Context())
			soon := func() {
				<-sent
				time.Sleep(5 * time.Millisecond) // so that it usually waits for more
				cancel(why)
			}
			if !c.body {
				go soon()
			}
			resp, _, err := w.get(ctx, http.MethodGet, w.origin+"/x", nil, nil)
			if c.body {
				if err != nil {
					t.Fatal(err)
				}
				b := make([]byte, 2)
				if n, err := io.ReadFull(resp.Body, b); n != 2 || err != nil {
					t.Error(n, err)
				}
				go soon()
				_, err = resp.Body.Read(b)
				if _, again := resp.Body.Read(make([]byte, 1)); again != err {
					t.Errorf("%v and then %v", err, again)
				}
			}
			if err != why {
				t.Error(err)
			}
			if len(w.idle) > 0 {
				t.Error("the connection is used again")
			}
		})
	}
	t.Run("writing", func(t *testing.T) {
		near, far := net.Pipe() // which is never read
		defer far.Close()
		s := newLinks(&url.URL{Scheme: "http", Host: "x"}, func(context.Context) (net.Conn, error) { return near, nil })
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(5*time.Millisecond, func() { cancel(why) })
		if _, _, err := s.get(ctx, http.MethodGet, "http://x/", nil, nil); err != why {
			t.Error(err)
		}
	})
	t.Run("opening", func(t *testing.T) {
		ended := make(chan error, 1)
		s := newLinks(&url.URL{Scheme: "http", Host: "x"}, func(ctx context.Context) (net.Conn, error) {
			<-ctx.Done()
			ended <- ctx.Err()
			return nil, ctx.Err()
		})
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(5*time.Millisecond, func() { cancel(why) })
		if _, _, err := s.get(ctx, http.MethodGet, "http://x/", nil, nil); err != why {
			t.Error(err)
		}
		if err := <-ended; err == nil || len(s.waiting) > 0 {
			t.Error(err, len(s.waiting))
		}
	})
}

// A context that ends after the response was read does not affect the next request on the connection.
func TestCancelledBehind(t *testing.T) {
	w := newWire(t, func(conn net.Conn, _, _ int64) bool {
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		return true
	})
	for range 100 {
		ctx, cancel := context.WithCancel(t.Context())
		_, body, err := w.request(ctx, http.MethodGet)
		cancel()
		if err != nil || body != "ok" {
			t.Fatal(body, err)
		}
	}
	if n := w.opened.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// A body closed before its end closes its connection. A body read to its end returns io.EOF again, and Close has no
// effect.
func TestBodyClosed(t *testing.T) {
	w := newWire(t, func(conn net.Conn, _, _ int64) bool {
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
		return true
	})
	resp, _, err := w.get(t.Context(), http.MethodGet, w.origin+"/x", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.ReadFull(resp.Body, make([]byte, 3)); n != 3 || err != nil {
		t.Error(n, err)
	}
	if err := errors.Join(resp.Body.Close(), resp.Body.Close()); err != nil {
		t.Error(err)
	}
	if _, err := resp.Body.Read(make([]byte, 1)); err == nil || err == io.EOF {
		t.Error(err)
	}
	resp, _, err = w.get(t.Context(), http.MethodGet, w.origin+"/x", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := resp.Body.Read(make([]byte, 9)); n != 5 || err != io.EOF {
		t.Error(n, err)
	}
	other, _, err := w.get(t.Context(), http.MethodGet, w.origin+"/x", nil, nil) // on the same connection
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if n, err := resp.Body.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Error(n, err)
	}
	if b, err := io.ReadAll(other.Body); string(b) != "hello" || err != nil || w.opened.Load() != 2 {
		t.Errorf("%q, %v, %d connections", b, err, w.opened.Load())
	}
}

// A request that waits for a new connection takes a released one if that is available first. The new one is for the
// next request.
func TestWaiting(t *testing.T) {
	w := newWire(t, func(conn net.Conn, _, _ int64) bool {
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		return true
	})
	first, _, err := w.get(t.Context(), http.MethodGet, w.origin+"/x", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	open, slow := w.open, make(chan bool)
	w.open = func(ctx context.Context) (net.Conn, error) {
		<-slow
		return open(ctx)
	}
	done := make(chan error)
	go func() {
		_, body, err := w.request(t.Context(), http.MethodGet)
		if body != "ok" && err == nil {
			err = errors.New(body)
		}
		done <- err
	}()
	state := func() (idle, waiting int) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.idle), len(w.waiting)
	}
	until(t, func() bool { _, n := state(); return n == 1 })
	if b, err := io.ReadAll(first.Body); string(b) != "ok" || err != nil {
		t.Error(b, err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	close(slow)
	until(t, func() bool { n, waiting := state(); return n == 2 && waiting == 0 })
	// A connection that cannot be opened is an error of the request that needed it.
	w.closeIdle()
	why := errors.New("no way")
	w.open = func(context.Context) (net.Conn, error) { return nil, why }
	if _, _, err := w.request(t.Context(), http.MethodGet); err != why {
		t.Error(err)
	}
}

// Idle connections are closed after a while, and their number is limited.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var open atomic.Int64
		s := newLinks(&url.URL{Scheme: "http", Host: "x"}, nil)
		put := func() {
			near, far := net.Pipe()
			open.Add(1)
			go func() {
				_, _ = io.Copy(io.Discard, far)
				open.Add(-1)
			}()
			s.put(newLink(near, s))
		}
		is := func(want int64) {
			t.Helper()
			synctest.Wait()
			if n := open.Load(); n != want {
				t.Errorf("%d are open, want %d", n, want)
			}
		}
		for range maxIdle + 3 {
			put()
		}
		is(maxIdle)
		time.Sleep(keepIdle / 2)
		l, err := s.take(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s.put(l)
		time.Sleep(keepIdle/2 - time.Second)
		is(maxIdle)
		time.Sleep(2 * time.Second)
		is(1)
		time.Sleep(keepIdle / 2)
		is(0)
		put()
		put()
		s.closeIdle()
		is(0)
		if s.timer != nil {
			t.Error("a timer is left")
		}
	})
}

// With TLS connections are reused, except if data came after a response.
func TestLinksTLS(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	for _, more := range []string{"", "more"} {
		var opened atomic.Int64
		l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: server.TLS.Certificates})
		if err != nil {
			t.Fatal(err)
		}
		var served sync.WaitGroup
		served.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				opened.Add(1)
				served.Go(func() {
					defer c.Close()
					for in := bufio.NewReader(c); ; {
						if _, err := http.ReadRequest(in); err != nil {
							return
						}
						// One TLS record, of which only the body is read.
						body := strings.Repeat("x", 2*headerBytes)
						_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s%s", len(body), body, more)
					}
				})
			}
		})
		d := &dialer{net: net.Dialer{Timeout: 10 * time.Second}}
		conf := &tls.Config{RootCAs: server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}
		s := newLinks(&url.URL{Scheme: "https", Host: l.Addr().String()}, func(ctx context.Context) (net.Conn, error) {
			return d.dialTLS(ctx, "tcp", l.Addr().String(), conf, 10*time.Second)
		})
		for range 3 {
			resp, _, err := s.get(t.Context(), http.MethodGet, s.origin+"/", nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			if b, err := io.ReadAll(resp.Body); len(b) != 2*headerBytes || err != nil {
				t.Error(len(b), err)
			}
		}
		if want := map[string]int64{"": 1, "more": 3}[more]; opened.Load() != want {
			t.Errorf("%q after a response: %d connections", more, opened.Load())
		}
		_ = l.Close()
		s.closeIdle()
		served.Wait()
	}
}

// Unusual requests are left to net/http.
func TestNotTaken(t *testing.T) {
	s := newLinks(&url.URL{Scheme: "http", Host: "x:1"}, func(context.Context) (net.Conn, error) { return nil, errors.New("it is asked") })
	for _, c := range []struct {
		method, url string
		header      http.Header
	}{
		{"POST", "http://x:1/", nil}, {"GET", "http://x:10/", nil}, {"GET", "https://x:1/", nil}, {"GET", "http://u@x:1/", nil}, {"GET", "http://x:1", nil},
		{"GET", "http://x:1/#f", nil}, {"GET", "http://x:1/%zz", nil}, {"GET", "http://x:1/a b", nil}, {"GET", "http://x:1/ü", nil}, {"GET", "http://x:1/?\r\nX: y", nil},
		{"GET", "http://x:1/", http.Header{"A": {"b\r\nX: y"}}}, {"GET", "http://x:1/", http.Header{"A\r\nB": {"c"}}}, {"GET", "http://x:1/", http.Header{"": {"c"}}},
		{"GET", "http://x:1/", http.Header{"host": {"c"}}}, {"GET", "http://x:1/", http.Header{"Connection": {"close"}}}, {"GET", "http://x:1/", http.Header{"User-Agent": {""}}},
	} {
		if _, ours, _ := s.get(t.Context(), c.method, c.url, c.header, nil); ours {
			t.Errorf("%v is taken", c)
		}
		if _, ours, _ := s.get(t.Context(), c.method, c.url, nil, c.header); ours {
			t.Errorf("%v is taken", c)
		}
		req, err := http.NewRequest(c.method, c.url, nil)
		if err != nil || c.header["User-Agent"] != nil || c.url == "http://x:1" || strings.HasSuffix(c.url, "ü") || strings.HasSuffix(c.url, "#f") {
			continue
		}
		req.Header = c.header
		if _, ours, _ := s.roundTrip(req); ours && !strings.Contains(c.url, " ") {
			t.Errorf("%v is taken", c)
		}
	}
	for _, host := range []string{"", "x:", "[fe80::1%eth0]", "ü", "x y"} {
		if newLinks(&url.URL{Scheme: "http", Host: host}, nil) != nil {
			t.Errorf("%q", host)
		}
	}
	req, err := http.NewRequest(http.MethodGet, "http://x:1/", strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	if _, ours, _ := s.roundTrip(req); ours {
		t.Error("one with a body")
	}
}

// life behaves like other contexts.
func TestLife(t *testing.T) {
	why := errors.New("enough")
	for name, end := range map[string]func(l *life, cancel context.CancelCauseFunc){
		"itself": func(l *life, _ context.CancelCauseFunc) { l.end(why); l.end(nil) },
		"outer":  func(_ *life, cancel context.CancelCauseFunc) { cancel(why) },
	} {
		outer, cancel := context.WithCancelCause(context.WithValue(t.Context(), t, "value"))
		defer cancel(nil)
		l := newLife(outer)
		child, stop := context.WithCancel(l)
		ran, not := make(chan bool), afterFunc(l, func() { t.Error("it was taken back") })
		taken := afterFunc(l, func() { close(ran) })
		if l.Err() != nil || l.why() != nil || l.Value(t) != "value" || !not() || not() {
			t.Error(name, "it has ended")
		}
		end(l, cancel)
		<-ran
		<-child.Done()
		<-l.Done()
		if l.Err() != context.Canceled || l.why() != why || taken() {
			t.Error(name, l.Err(), l.why())
		}
		late := make(chan bool)
		if stop := l.AfterFunc(func() { close(late) }); stop() {
			t.Error(name)
		}
		<-late
		stop()
		l.end(nil)
	}
	l := newLife(t.Context())
	l.end(nil)
	if <-l.Done(); l.Err() == nil {
		t.Error("it has not ended")
	}
}

// The parsed header and its end equal those of net/http.
func FuzzAnswer(f *testing.F) {
	for _, s := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "HTTP/1.1 206\r\nETag: \"x\"\r\nContent-Length: 5\r\nX:\r\nX: \t a \r\n\r\n", "HTTP/1.1 200 OK\nContent-Length: 5\n\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.1 200 OK\r\nA: b\r\n c\r\nContent-Length: 1\r\n\r\n",
		"HTTP/1.1 200  OK\r\nPragma: no-cache\r\nContent-Length: 18446744073709551615\r\n\r\n", "HTTP/1.0 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\n",
		"HTTP/1.1 200 OK\r\n\r\r\nContent-Length: 5\r\n\r\n", "HTTP/1.1 200\r\nTransfer-Encoding : chunked\r\nContent-Length: 5\r\n\r\n", "HTTP/1.1 206 \xff\r\nkeep-alive: \xc3\r\nConnection: Keep-Alive\r\nContent-Length: 007\r\n\r\n",
	} {
		f.Add([]byte(s), 3)
	}
	f.Fuzz(func(t *testing.T, all []byte, cut int) {
		n := headerEnd(all, 0)
		if cut = max(0, min(cut, len(all))); headerEnd(all[:cut], 0) == 0 && headerEnd(all, cut) != n {
			t.Fatalf("its end is another one when it comes in two parts")
		}
		if n == 0 {
			return
		}
		in := bufio.NewReaderSize(bytes.NewReader(all), len(all)+16)
		want, err := http.ReadResponse(in, nil)
		got := plainAnswer(all[:n])
		if got == nil {
			if got, gerr := otherAnswer(all[:n], http.MethodGet); gerr == nil && (err != nil || got.StatusCode != want.StatusCode || got.ContentLength != want.ContentLength || got.Close != want.Close || in.Buffered() != len(all)-n) {
				t.Fatalf("%+v, %+v, %v", got, want, err)
			}
			return
		}
		if err != nil || in.Buffered() != len(all)-n {
			t.Fatalf("%+v: %v, %d bytes behind it of %d", got, err, in.Buffered(), len(all)-n)
		}
		if (got.Body == http.NoBody) != true || want.Close || want.TransferEncoding != nil || want.Trailer != nil {
			t.Fatalf("%+v, %+v", got, want)
		}
		want.Body, want.Request, got.Request = http.NoBody, nil, nil
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v, want %+v", got, want)
		}
	})
}

// Written requests equal those of net/http.
func FuzzRequest(f *testing.F) {
	for _, s := range [][3]string{
		{"/a/b%20c?x=1&y=%2F", "X-Token", "t"}, {"//x", "authorization", "Basic =="}, {"/a[1];b='(c)!'*?", "A", " b\t"}, {"/?a=b?c#d", "Range", "bytes=0-1"}, {"/%2f%41?%", "If-Match", `"ü"`}, {"/a/../b", "A", "\x00"},
	} {
		f.Add(s[0], s[1], s[2])
	}
	f.Fuzz(func(t *testing.T, path, name, value string) {
		const origin, host = "http://example.org:80", "example.org:80"
		of, more := http.Header{name: {value}, "Range": {"bytes=9-"}}, http.Header{"Range": {"bytes=0-1"}}
		text, ok := appendURL(nil, http.MethodGet, origin+path, origin, host, of, more)
		if !ok {
			return
		}
		want, err := http.NewRequest(http.MethodGet, origin+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		in := bufio.NewReader(bytes.NewReader(text))
		got, err := http.ReadRequest(in)
		if err != nil || in.Buffered() > 0 {
			t.Fatalf("%q: %v, %d bytes behind it", text, err, in.Buffered())
		}
		if name == "Range" {
			value = "bytes=0-1"
		}
		key := http.CanonicalHeaderKey(name)
		if got.RequestURI != want.URL.RequestURI() || got.Host != want.Host || got.ContentLength != 0 || got.Close {
			t.Fatalf("%q: %+v", text, got)
		}
		// If a name is written in two ways, both are sent.
		if vs := got.Header[key]; len(vs) == 0 || key != "Range" && key != "User-Agent" && key != "Cache-Control" && vs[0] != strings.Trim(value, " \t") {
			t.Fatalf("%q: %+v", text, got.Header)
		}
		if key != "Range" && !reflect.DeepEqual(got.Header["Range"], []string{"bytes=0-1"}) || len(got.Header) > 4 {
			t.Fatalf("%q: %+v", text, got.Header)
		}
		want.Header = http.Header{name: {value}, "Range": {"bytes=0-1"}}
		again, ok := appendRequest(nil, want)
		if in = bufio.NewReader(bytes.NewReader(again)); !ok {
			t.Fatal("as a request it is not taken")
		}
		if same, err := http.ReadRequest(in); err != nil || same.RequestURI != got.RequestURI || same.Host != got.Host {
			t.Fatalf("%q, %v", again, err)
		}
	})
}
