// Package httpfaulttest is for tests: a proxy for a web server or a bucket that sometimes changes a response in a
// chosen way. It works at the level of HTTP, not below.
package httpfaulttest

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"sync"
)

// Kind is a kind of fault.
type Kind string

// The kinds.
const (
	Unavailable Kind = "503"      // the server is overloaded
	Failure     Kind = "500"      // the server has failed
	Truncate    Kind = "truncate" // the response ends early
	Whole       Kind = "whole"    // the whole object instead of a range
	Version     Kind = "version"  // the entity tag of a different version
	Stall       Kind = "stall"    // the response stops in the middle and does not end
	Flip        Kind = "flip"     // one bit is inverted
	Reset       Kind = "reset"    // the connection is reset in the middle of the response
	Shift       Kind = "shift"    // a different range of the same length
)

// Kinds are all kinds.
var Kinds = []Kind{Unavailable, Failure, Truncate, Whole, Version, Stall, Flip, Reset, Shift}

// Proxy forwards requests. Its fields must not be changed once it is in use.
type Proxy struct {
	// Target is the server, scheme://host.
	Target string
	// Kinds are the faults, with equal probability each: a kind may be in it twice. Chance, from 0 to 1, is the
	// probability of a fault, for GET requests with a range.
	Kinds  []Kind
	Chance float64
	// Digest adds a checksum of the right bytes to ranges (Content-Digest), like some servers.
	Digest bool
	// Client sends requests to the target. nil means the default client.
	Client *http.Client

	mu   sync.Mutex
	rng  *rand.Rand
	done map[Kind]int
}

// Done returns the number of faults so far, by kind.
func (p *Proxy) Done() map[Kind]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[Kind]int{}
	for k, n := range p.done {
		out[k] = n
	}
	return out
}

// choose draws the fault of a request, "" for none.
func (p *Proxy) choose() (k Kind, at float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rng == nil {
		p.rng, p.done = rand.New(rand.NewPCG(7, 7)), map[Kind]int{}
	}
	at = p.rng.Float64()
	if len(p.Kinds) == 0 || p.rng.Float64() >= p.Chance {
		return "", at
	}
	k = p.Kinds[p.rng.IntN(len(p.Kinds))]
	p.done[k]++
	return k, at
}

// ServeHTTP forwards a request, maybe with a fault.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var k Kind
	at := 0.0
	if r.Method == http.MethodGet && r.Header.Get("Range") != "" {
		k, at = p.choose()
	}
	switch k {
	case Unavailable:
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case Failure:
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	resp, body, err := p.ask(r, k)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	h := w.Header()
	for name, v := range resp.Header {
		h[name] = v
	}
	part := resp.StatusCode == http.StatusPartialContent || resp.StatusCode == http.StatusOK
	if p.Digest && resp.StatusCode == http.StatusPartialContent {
		sum := sha256.Sum256(body)
		h.Set("Content-Digest", "sha-256=:"+base64.StdEncoding.EncodeToString(sum[:])+":")
	}
	n := int(at * float64(len(body)))
	if !part || len(body) == 0 {
		k = ""
	}
	switch k {
	case Version:
		h.Set("ETag", `"another"`)
	case Flip:
		body = bytes.Clone(body)
		body[n] ^= 1 << (n % 8)
	case Truncate, Stall, Reset:
		h.Set("Content-Length", fmt.Sprint(len(body)))
		w.WriteHeader(resp.StatusCode)
		_, _ = w.Write(body[:n])
		c := http.NewResponseController(w)
		_ = c.Flush()
		switch k {
		case Stall:
			<-r.Context().Done()
		case Reset:
			if conn, _, err := c.Hijack(); err == nil {
				if tcp, ok := conn.(*net.TCPConn); ok {
					_ = tcp.SetLinger(0)
				}
				_ = conn.Close()
			}
			return
		}
		panic(http.ErrAbortHandler)
	}
	if r.Method == http.MethodHead {
		h.Set("Content-Length", resp.Header.Get("Content-Length"))
	} else {
		h.Set("Content-Length", fmt.Sprint(len(body)))
	}
	w.WriteHeader(resp.StatusCode)
	_, _ = w.Write(body)
}

// ask sends the request to the target and reads all of the response.
func (p *Proxy) ask(r *http.Request, k Kind) (*http.Response, []byte, error) {
	to, err := url.Parse(p.Target)
	if err != nil {
		return nil, nil, err
	}
	u := *r.URL
	u.Scheme, u.Host = to.Scheme, to.Host
	out, err := http.NewRequestWithContext(r.Context(), r.Method, u.String(), r.Body)
	if err != nil {
		return nil, nil, err
	}
	out.Header, out.ContentLength, out.Host = r.Header.Clone(), r.ContentLength, r.Host
	switch k {
	case Whole:
		out.Header.Del("Range")
	case Shift:
		var from, last int64
		if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &from, &last); err == nil && from > 0 {
			out.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", from-1, last-1))
		}
	}
	rt := http.DefaultTransport
	if p.Client != nil && p.Client.Transport != nil {
		rt = p.Client.Transport
	}
	resp, err := rt.RoundTrip(out)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp, body, err
}
