package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zeebo/xxh3"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "a secret of all nodes"

// memory is a chunk.
type memory []byte

func (m memory) Size() int64 { return int64(len(m)) }

func (m memory) ReadAt(ctx context.Context, p []byte, off int64) error {
	copy(p, m[off:])
	return ctx.Err()
}

var large = bytes.Repeat([]byte("0123456789abcdef"), 100_000)

func find(_ context.Context, name string) (Chunk, bool) {
	if name == "large" {
		return memory(large), true
	}
	return nil, false
}

// serve starts a node at its own address.
func serve(t *testing.T, find func(context.Context, string) (Chunk, bool)) (string, *Server) {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		address := l.Addr().String()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		s, err := Serve(address, token, find)
		if err != nil {
			continue // another process took the port
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		return address, s
	}
	t.Fatal("there is no free port")
	return "", nil
}

// asks returns a node without a server that knows one with a server.
func asks(t *testing.T, address, token string) *Peers {
	t.Helper()
	p, err := New(Options{Nodes: []string{"self:1", address}, Self: "self:1", Token: token})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	// On a busy machine a node that answers late must not count as gone.
	p.waits = waits{sign: time.Minute, answer: time.Minute, stall: time.Minute, leastRate: 1 << 10}
	return p
}

// theirs returns a hash of a chunk that the other node keeps.
func theirs(p *Peers) uint64 {
	for h := uint64(0); ; h++ {
		if !p.Mine(h) {
			return h
		}
	}
}

func TestRead(t *testing.T) {
	address, s := serve(t, find)
	p := asks(t, address, token)
	h := theirs(p)
	for _, r := range [][2]int{{0, len(large)}, {0, 1}, {5, pieceBytes}, {pieceBytes - 1, 2}, {len(large) - 7, 7}, {100, 3*pieceBytes + 11}} {
		b := make([]byte, r[1])
		if !p.Read(t.Context(), "large", h, b, int64(r[0])) || !bytes.Equal(b, large[r[0]:r[0]+r[1]]) {
			t.Errorf("bytes %d to %d", r[0], r[0]+r[1])
		}
	}
	if n, bytes := s.Served(); n != 6 || bytes != p.Stats().HitBytes || p.Stats().Hits != 6 || p.Stats().Failed != 0 {
		t.Errorf("%d, %d, %+v", n, bytes, p.Stats())
	}
	// A missing chunk is not a failure of the node, and a range outside the chunk is a failure of the caller.
	if p.Read(t.Context(), "none", h, make([]byte, 5), 0) || p.Mine(h) || p.Stats().Failed != 0 {
		t.Error("what is not there")
	}
	if p.Read(t.Context(), "large", h, make([]byte, 5), int64(len(large))-4) {
		t.Error("bytes after the end are given")
	}
	var wg sync.WaitGroup
	for range 100 { // more than the maximum: they fail or are right
		wg.Go(func() {
			b := make([]byte, 100)
			if p.Read(t.Context(), "large", h, b, 16) && !bytes.Equal(b, large[16:116]) {
				t.Error("other bytes")
			}
		})
	}
	wg.Wait()
}

// A client without the token gets nothing, and a response without the token is refused.
func TestToken(t *testing.T) {
	found := false
	address, _ := serve(t, func(ctx context.Context, name string) (Chunk, bool) {
		found = true
		return find(ctx, name)
	})
	p := asks(t, address, "another secret, as long")
	if p.Read(t.Context(), "large", theirs(p), make([]byte, 5), 0) || found {
		t.Error("the token is not looked at")
	}
	resp, err := http.Get("http://" + address + prefix + "large?from=0&n=5")
	if err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized || strings.Contains(string(b), token) {
		t.Errorf("%d %s", resp.StatusCode, b)
	}
	http.DefaultClient.CloseIdleConnections()
}

// Invalid requests are refused without a lookup.
func TestBadRequests(t *testing.T) {
	s := &Server{token: token, served: make(chan struct{}, 1), find: find}
	for _, path := range []string{
		"/", prefix + "large", prefix + "large?from=0", prefix + "large?from=-1&n=5", prefix + "large?from=0&n=0", prefix + "large?from=x&n=5",
		prefix + "large?from=0&n=99999999999", prefix + "large?from=9223372036854775807&n=5", prefix + strings.Repeat("x", 300) + "?from=0&n=1", "/v1/other/large?from=0&n=5",
		prefix + "large?from=1599999&n=5",
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Header.Set(proofHeader, proof(token, "ask\n"+path))
		if s.answer(w, r); w.Code != http.StatusBadRequest {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	w := httptest.NewRecorder()
	path := prefix + "large?from=0&n=5"
	r := httptest.NewRequest(http.MethodPost, path, nil)
	r.Header.Set(proofHeader, proof(token, "ask\n"+path))
	if s.answer(w, r); w.Code != http.StatusBadRequest {
		t.Errorf("POST: %d", w.Code)
	}
	s.served <- struct{}{}
	w = httptest.NewRecorder()
	r = httptest.NewRequest(http.MethodGet, path, nil)
	r.Header.Set(proofHeader, proof(token, "ask\n"+path))
	if s.answer(w, r); w.Code != http.StatusServiceUnavailable {
		t.Errorf("too many: %d", w.Code)
	}
}

// A node that lies, breaks off or is gone causes no wrong byte and gets no requests for a while: other nodes then
// keep its part.
func TestFaults(t *testing.T) {
	good := func(w http.ResponseWriter, r *http.Request, body []byte) {
		path := r.URL.RequestURI()
		sum := fmt.Sprintf("%016x", xxh3.Hash(large[:5]))
		w.Header().Set("Trailer", sumHeader+", "+proofHeader)
		_, _ = w.Write(body)
		w.Header().Set(sumHeader, sum)
		w.Header().Set(proofHeader, proof(token, "answer\n"+path+"\n"+sum))
	}
	for name, answer := range map[string]http.HandlerFunc{
		"other bytes": func(w http.ResponseWriter, r *http.Request) { good(w, r, []byte("01x34")) },
		"fewer":       func(w http.ResponseWriter, r *http.Request) { good(w, r, large[:4]) },
		"more":        func(w http.ResponseWriter, r *http.Request) { good(w, r, large[:6]) },
		"no trailers": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(large[:5]) },
		"breaks off":  func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(large[:3]); panic(http.ErrAbortHandler) },
		"an error":    func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusInternalServerError) },
		"elsewhere": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
		},
		"an endless header": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", 1<<20)) },
	} {
		server := httptest.NewServer(answer)
		u, err := url.Parse(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		p := asks(t, u.Host, token)
		h := theirs(p)
		if p.Read(t.Context(), "large", h, make([]byte, 5), 0) || p.Stats().Failed != 1 || !p.Mine(h) {
			t.Errorf("%s: %+v", name, p.Stats())
		}
		p.Close()
		server.Close()
	}
	// The node is gone.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := asks(t, l.Addr().String(), token)
	_ = l.Close()
	h := theirs(p)
	if p.Read(t.Context(), "large", h, make([]byte, 5), 0) || !p.Mine(h) {
		t.Error("who is gone answers")
	}
	// A cancelled request says nothing about the node.
	address, _ := serve(t, find)
	p = asks(t, address, token)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	if h := theirs(p); p.Read(ctx, "large", h, make([]byte, 5), 0) || p.Mine(h) {
		t.Error("who gives up")
	}
}

// A node with invalid HTTP, or with no response at all, causes no wrong byte, and the wait for it ends.
func TestRawFaults(t *testing.T) {
	sum := fmt.Sprintf("%016x", xxh3.Hash(large[:5]))
	for name, answer := range map[string]string{
		"nothing":             "",
		"another protocol":    "SSH-2.0-OpenSSH_9.6\r\n",
		"no end of the head":  "HTTP/1.1 200 OK\r\nX-A: ",
		"the head alone":      "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
		"a part":              "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n012",
		"without trailers":    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n01234",
		"sums as headers":     "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nStoker-Sum: " + sum + "\r\n\r\n01234",
		"a longer length":     "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999\r\n\r\n01234",
		"a negative length":   "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n01234",
		"a shorter length":    "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n01234",
		"a chunk that lies":   "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffff\r\n01234",
		"no proof":            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: Stoker-Sum\r\n\r\n5\r\n01234\r\n0\r\nStoker-Sum: " + sum + "\r\n\r\n",
		"trailers for ever":   "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: Stoker-Sum\r\n\r\n5\r\n01234\r\n0\r\nStoker-Sum: ",
		"first something":     "HTTP/1.1 102 Processing\r\n\r\n",
		"a later version":     "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
		"bytes of its choice": "HTTP/1.1 206 Partial Content\r\nContent-Length: 5\r\nContent-Range: bytes 0-4/5\r\n\r\n01234",
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			wg.Go(func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					wg.Go(func() {
						defer c.Close()
						_, _ = io.WriteString(c, answer)
						_, _ = io.Copy(io.Discard, c) // until the client gives up
					})
				}
			})
			p := asks(t, l.Addr().String(), token)
			p.waits = waits{sign: 50 * time.Millisecond, answer: 50 * time.Millisecond, stall: 50 * time.Millisecond, leastRate: 1e9}
			h := theirs(p)
			if p.Read(t.Context(), "large", h, make([]byte, 5), 0) || p.Stats().Failed != 1 || !p.Mine(h) {
				t.Errorf("%+v", p.Stats())
			}
			p.Close()
			_ = l.Close()
			wg.Wait()
		})
	}
}

// A node that has to read from the store first sends 102, and the client waits for it.
func TestSign(t *testing.T) {
	gone := make(chan struct{})
	address, _ := serve(t, func(ctx context.Context, name string) (Chunk, bool) {
		<-gone // longer than the wait for a node that sends nothing
		return find(ctx, name)
	})
	p := asks(t, address, token)
	p.signed = func() { close(gone) }
	b := make([]byte, 5)
	if !p.Read(t.Context(), "large", theirs(p), b, 0) || !bytes.Equal(b, large[:5]) {
		t.Errorf("%+v", p.Stats())
	}
}

// A node that sends single bytes slowly is not waited for longer than the limit for all of it.
func TestSlowNode(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			_, _ = w.Write(large[:1])
			_ = http.NewResponseController(w).Flush()
			time.Sleep(time.Millisecond)
		}
	}))
	defer server.Close()
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	p := asks(t, u.Host, token)
	p.waits = waits{sign: time.Minute, answer: 100 * time.Millisecond, stall: time.Minute, leastRate: 1e9}
	if p.Read(t.Context(), "large", theirs(p), make([]byte, 1<<20), 0) || p.Stats().Failed != 1 {
		t.Errorf("%+v", p.Stats())
	}
	p.Close()
}

// All nodes find the same owners, with about the same number of chunks each. Without one node the others keep their
// chunks and share its part.
func TestOwners(t *testing.T) {
	nodes := []string{"a:1", "b:1", "c:1", "d:1"}
	var all []*Peers
	for _, n := range nodes {
		p, err := New(Options{Nodes: nodes, Self: n, Token: token})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	fewer, err := New(Options{Nodes: nodes[:3], Self: "a:1", Token: token})
	if err != nil {
		t.Fatal(err)
	}
	const n = 20_000
	count := map[string]int{}
	for h := range uint64(n) {
		owner := all[0].owner(h).address
		for i, p := range all {
			if p.owner(h).address != owner || p.Mine(h) != (nodes[i] == owner) {
				t.Fatalf("chunk %d is of %s, and for %s of %s", h, owner, nodes[i], p.owner(h).address)
			}
		}
		count[owner]++
		if now := fewer.owner(h).address; owner != "d:1" && now != owner {
			t.Fatalf("chunk %d moves from %s to %s", h, owner, now)
		}
	}
	for node, c := range count {
		if c < n/4*9/10 || c > n/4*11/10 {
			t.Errorf("%s keeps %d of %d", node, c, n)
		}
	}
	for _, bad := range []Options{
		{Nodes: []string{"a"}, Self: "a", Token: token}, {Nodes: nodes, Self: "e:1", Token: token}, {Nodes: nodes, Self: "a:1", Token: "short"},
		{Nodes: []string{"a:1", "a:1"}, Self: "a:1", Token: token}, {},
	} {
		if _, err := New(bad); err == nil {
			t.Errorf("%+v", bad)
		}
	}
}
