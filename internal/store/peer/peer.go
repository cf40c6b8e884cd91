// Package peer lets the nodes of a job read cached remote data from each other. The hash of a chunk and the
// addresses of the nodes decide which node keeps it (rendezvous hashing). No node has to be asked where a chunk is,
// and little moves when a node goes away.
//
// Nodes use HTTP/1.1:
//
//	GET /v1/chunk/NAME?from=FROM&n=N
//	Stoker-Proof: HMAC-SHA256, in hex, of "ask\n" and path with query, keyed with the token
//
// The response 200 has N bytes of the chunk from FROM on, and two trailers: Stoker-Sum is the XXH3 of these bytes
// in hex, and Stoker-Proof is the HMAC of "answer\n", path with query, "\n" and that sum. If it takes longer than a
// second to find the chunk, 102 is sent first. Errors are 401 for a wrong proof, 404 if the node does not have the
// chunk and has no space for it, and 503 if it has too many requests. For a client, any other response and one that
// takes too long are failures: it then reads the data from the store.
package peer

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/stokerdata/stoker/internal/store/pieces"
)

const (
	prefix = "/v1/chunk/"
	// maxName is the maximum length of a chunk's name, maxBytes the maximum size of a response.
	maxName  = 256
	maxBytes = 64 << 20
	// pieceBytes is the size of the buffer for each request.
	pieceBytes = 256 << 10
	// maxServed is the maximum number of concurrent requests that a node answers, maxAsked of those that it sends.
	maxServed, maxAsked = 32, 32
	// leastToken is the minimum length of a token.
	leastToken = 16

	sumHeader, proofHeader = "Stoker-Sum", "Stoker-Proof"
)

// Time limits. A node that does not answer gets no requests for a while.
const (
	dialTime   = time.Second
	totalTime  = time.Minute
	firstPause = time.Second
	lastPause  = time.Minute
)

// waits are the time limits for a response: for the first sign of the node, for the first byte if the node reads
// from the store first, for more bytes, and for all of it at a minimum rate.
type waits struct {
	sign, answer, stall time.Duration
	leastRate           float64 // bytes per second
}

var usualWaits = waits{sign: 3 * time.Second, answer: 15 * time.Second, stall: 5 * time.Second, leastRate: 1 << 20}

// signTime is how long a node searches for a chunk before it sends 102.
const signTime = time.Second

func (w *waits) total(n int) time.Duration {
	return w.answer + time.Duration(float64(n)/w.leastRate*float64(time.Second))
}

// proof shows that the sender knows the token.
func proof(token, what string) string {
	m := hmac.New(sha256.New, []byte(token))
	_, _ = io.WriteString(m, what)
	return hex.EncodeToString(m.Sum(nil))
}

// Options are the nodes of a job.
type Options struct {
	// Nodes are the addresses of all nodes, host:port, the same on each node. Self is the address of this node.
	Nodes []string
	Self  string
	// Token is a secret that all nodes share.
	Token string
}

// Check returns an error for invalid options.
func (o *Options) Check() error {
	seen := map[string]bool{}
	for _, n := range o.Nodes {
		if _, port, err := net.SplitHostPort(n); err != nil || port == "" {
			return fmt.Errorf("peers: invalid address %q: expected host:port", n)
		}
		if seen[n] {
			return fmt.Errorf("peers: %s is listed twice", n)
		}
		seen[n] = true
	}
	if !seen[o.Self] {
		return fmt.Errorf("peers: the address of this node, %q, is not listed", o.Self)
	}
	if len(o.Token) < leastToken {
		return fmt.Errorf("peers: the shared token has %d characters: it must have at least %d", len(o.Token), leastToken)
	}
	return nil
}

// Peers are the nodes, from the view of one of them. Methods may be called from any goroutine.
type Peers struct {
	opt   Options
	nodes []*node
	asked chan struct{}
	http  *http.Client
	rt    *http.Transport
	waits waits
	// signed, for tests, is called when a node has sent 102.
	signed func()

	hits, bytes, failed atomic.Int64
}

type node struct {
	address string
	hash    uint64
	self    bool

	mu    sync.Mutex
	until time.Time // no requests before this time
	pause time.Duration
}

// New makes the view of the nodes. It sends no requests.
func New(opt Options) (*Peers, error) {
	if err := opt.Check(); err != nil {
		return nil, err
	}
	rt := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: dialTime}).DialContext,
		MaxIdleConnsPerHost: maxAsked, IdleConnTimeout: time.Minute, DisableCompression: true, MaxResponseHeaderBytes: 16 << 10,
	}
	p := &Peers{opt: opt, asked: make(chan struct{}, maxAsked), rt: rt, waits: usualWaits, http: &http.Client{
		Transport: rt, Timeout: totalTime, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	for _, n := range opt.Nodes {
		p.nodes = append(p.nodes, &node{address: n, hash: xxh3.HashString(n), self: n == opt.Self})
	}
	return p, nil
}

// owner returns the node that keeps a chunk: among those that answer, the one with the largest combined hash of
// chunk and node.
func (p *Peers) owner(hash uint64) *node {
	var best *node
	most := uint64(0)
	now := time.Now()
	for _, n := range p.nodes {
		if x := pieces.Mix(hash ^ pieces.Mix(n.hash)); (best == nil || x > most) && (n.self || n.answers(now)) {
			best, most = n, x
		}
	}
	return best
}

// Mine reports whether this node keeps a chunk.
func (p *Peers) Mine(hash uint64) bool { return p.owner(hash).self }

func (n *node) answers(now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !now.Before(n.until)
}

// answered notes whether a node has answered.
func (n *node) answered(ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if ok {
		n.pause = 0
		return
	}
	n.pause = min(max(2*n.pause, firstPause), lastPause)
	n.until = time.Now().Add(n.pause)
}

var (
	errNot  = errors.New("the node does not have it")
	errBusy = errors.New("the node has too many requests")
)

// Read fills p with bytes of a chunk from the node that keeps it, and reports whether that worked. If not, the
// caller reads the bytes from the store.
func (p *Peers) Read(ctx context.Context, name string, hash uint64, b []byte, off int64) bool {
	n := p.owner(hash)
	if n.self || len(b) == 0 || len(b) > maxBytes {
		return false
	}
	select {
	case p.asked <- struct{}{}: // requests in progress have time limits, so this ends
	case <-ctx.Done():
		return false
	}
	err := p.ask(ctx, n, name, b, off)
	<-p.asked
	switch {
	case err == nil:
		n.answered(true)
		p.hits.Add(1)
		p.bytes.Add(int64(len(b)))
		return true
	case ctx.Err() == nil && !errors.Is(err, errNot) && !errors.Is(err, errBusy):
		n.answered(false)
		p.failed.Add(1)
	}
	return false
}

func (p *Peers) ask(ctx context.Context, n *node, name string, b []byte, off int64) error {
	path := fmt.Sprintf("%s%s?from=%d&n=%d", prefix, url.PathEscape(name), off, len(b))
	ctx, cancel := context.WithTimeout(ctx, p.waits.total(len(b)))
	defer cancel()
	patience := time.AfterFunc(p.waits.sign, cancel)
	defer patience.Stop()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{Got1xxResponse: func(int, textproto.MIMEHeader) error {
		patience.Reset(p.waits.answer) // it has to read from the store first
		if p.signed != nil {
			p.signed()
		}
		return nil
	}})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.address+path, nil)
	if err != nil {
		return err
	}
	req.Header.Set(proofHeader, proof(p.opt.Token, "ask\n"+path))
	resp, err := p.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return errNot
	case http.StatusServiceUnavailable:
		return errBusy
	default:
		return fmt.Errorf("%s answers %d", n.address, resp.StatusCode)
	}
	for rest := b; len(rest) > 0; {
		patience.Reset(p.waits.stall)
		k, err := resp.Body.Read(rest)
		if rest = rest[k:]; err != nil && len(rest) > 0 {
			return err
		}
	}
	// Only the trailers may follow.
	if k, err := resp.Body.Read(make([]byte, 1)); k != 0 || err != io.EOF {
		return errors.New("the response is too long")
	}
	sum := fmt.Sprintf("%016x", xxh3.Hash(b))
	if !hmac.Equal([]byte(resp.Trailer.Get(proofHeader)), []byte(proof(p.opt.Token, "answer\n"+path+"\n"+sum))) || resp.Trailer.Get(sumHeader) != sum {
		return errors.New("the checksum of the response is wrong")
	}
	return nil
}

// Stats are the counters of exchanges with other nodes.
type Stats struct {
	// Hits is the number of reads that another node answered, HitBytes their bytes, Failed the number of reads that
	// failed. Served and ServedBytes count what this node sent to others.
	Hits        int64 `json:"hits"`
	HitBytes    int64 `json:"hit_bytes"`
	Failed      int64 `json:"failed"`
	Served      int64 `json:"served"`
	ServedBytes int64 `json:"served_bytes"`
}

// Stats returns the counters.
func (p *Peers) Stats() Stats {
	return Stats{Hits: p.hits.Load(), HitBytes: p.bytes.Load(), Failed: p.failed.Load()}
}

// Close closes the connections.
func (p *Peers) Close() { p.rt.CloseIdleConnections() }

// Chunk is a chunk that a node sends to others.
type Chunk interface {
	Size() int64
	ReadAt(ctx context.Context, p []byte, off int64) error
}

// Server sends chunks of this node to other nodes.
type Server struct {
	token  string
	find   func(ctx context.Context, name string) (Chunk, bool)
	served chan struct{}
	http   *http.Server
	done   chan struct{}

	count, bytes atomic.Int64
}

// Serve answers other nodes at an address until Close. Find finds a chunk that this node keeps or should keep, and
// may be slow. The error is that of listening.
func Serve(address, token string, find func(ctx context.Context, name string) (Chunk, bool)) (*Server, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	s := &Server{token: token, find: find, served: make(chan struct{}, maxServed), done: make(chan struct{})}
	s.http = &http.Server{
		ErrorLog: log.New(io.Discard, "", 0), // clients get their errors in responses
		Handler:  http.HandlerFunc(s.answer), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: totalTime,
		IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
	}
	go func() {
		defer close(s.done)
		_ = s.http.Serve(l) // ends with Close
	}()
	return s, nil
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	path := r.URL.RequestURI()
	if !hmac.Equal([]byte(r.Header.Get(proofHeader)), []byte(proof(s.token, "ask\n"+path))) {
		http.Error(w, "wrong token", http.StatusUnauthorized)
		return
	}
	name, ok := strings.CutPrefix(r.URL.Path, prefix)
	from, err1 := strconv.ParseInt(r.URL.Query().Get("from"), 10, 64)
	n, err2 := strconv.ParseInt(r.URL.Query().Get("n"), 10, 64)
	if r.Method != http.MethodGet || !ok || len(name) > maxName || err1 != nil || err2 != nil || from < 0 || n <= 0 || n > maxBytes {
		http.Error(w, "this is not a request for a chunk", http.StatusBadRequest)
		return
	}
	select {
	case s.served <- struct{}{}:
		defer func() { <-s.served }()
	default:
		http.Error(w, "too many requests", http.StatusServiceUnavailable)
		return
	}
	c, ok := s.look(w, r, name)
	if !ok {
		http.Error(w, "this node does not have it", http.StatusNotFound)
		return
	}
	if from > c.Size() || n > c.Size()-from {
		http.Error(w, "the range is outside the chunk", http.StatusBadRequest)
		return
	}
	w.Header().Set("Trailer", sumHeader+", "+proofHeader)
	w.Header().Set("Content-Type", "application/octet-stream")
	h := xxh3.New()
	b := make([]byte, min(n, pieceBytes))
	for at := int64(0); at < n; at += int64(len(b)) {
		b = b[:min(n-at, pieceBytes)]
		if err := c.ReadAt(r.Context(), b, from+at); err != nil {
			panic(http.ErrAbortHandler) // the connection ends, and with it the response
		}
		_, _ = h.Write(b)
		if _, err := w.Write(b); err != nil {
			return
		}
	}
	sum := fmt.Sprintf("%016x", h.Sum64())
	w.Header().Set(sumHeader, sum)
	w.Header().Set(proofHeader, proof(s.token, "answer\n"+path+"\n"+sum))
	s.count.Add(1)
	s.bytes.Add(n)
}

// look finds a chunk. If that takes long, the client is told that the node is there.
func (s *Server) look(w http.ResponseWriter, r *http.Request, name string) (c Chunk, ok bool) {
	done := make(chan struct{})
	var sign sync.WaitGroup
	sign.Go(func() {
		t := time.NewTimer(signTime)
		defer t.Stop()
		select {
		case <-t.C:
			w.WriteHeader(http.StatusProcessing)
		case <-done:
		}
	})
	defer sign.Wait() // no concurrent write of the response
	defer close(done)
	return s.find(r.Context(), name)
}

// Served returns how much was sent to other nodes.
func (s *Server) Served() (requests, bytes int64) { return s.count.Load(), s.bytes.Load() }

// Close stops the server: responses in progress are cut off.
func (s *Server) Close() error {
	err := s.http.Close()
	<-s.done
	for range maxServed { // each handler has returned when it has freed its slot
		s.served <- struct{}{}
	}
	return err
}
