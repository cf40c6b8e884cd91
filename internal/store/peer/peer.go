// Package peer has the nodes of a job read from each other what they keep of data far
// away. Which node keeps a chunk follows from its hash and the nodes' addresses alone
// (rendezvous hashing), so that nobody has to be asked where something is, and little
// moves when a node goes.
//
// A node is asked over HTTP/1.1:
//
//	GET /v1/chunk/NAME?from=FROM&n=N
//	Stoker-Proof: HMAC-SHA256, in hex, of "ask\n" and path with query, keyed with the token
//
// It answers 200 with N bytes of the chunk from FROM on, and two trailers: Stoker-Sum,
// the XXH3 of these bytes in hex, and Stoker-Proof, the HMAC of "answer\n", path with
// query, "\n" and that sum; where it takes longer than a second until it has them, first 102.
// It answers 401 where the proof is not that of its own token,
// 404 where it does not have the chunk and has no room for it, and 503 where it is asked
// too much. Whoever asks takes anything else than 200, and everything that takes too
// long, for no answer, and reads the data where it comes from.
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
	// maxName is the longest name of a chunk, maxBytes the most that one request gives.
	maxName  = 256
	maxBytes = 64 << 20
	// pieceBytes is sent at once; a node has this much memory for each request.
	pieceBytes = 256 << 10
	// maxServed is how many requests a node answers at once, maxAsked how many it makes.
	maxServed, maxAsked = 32, 32
	// leastToken is the shortest token.
	leastToken = 16

	sumHeader, proofHeader = "Stoker-Sum", "Stoker-Proof"
)

// The times that are waited. A node that does not answer is left alone for a while.
const (
	dialTime   = time.Second
	totalTime  = time.Minute
	firstPause = time.Second
	lastPause  = time.Minute
)

// waits are the times that are waited for an answer: for any sign of the node, for the
// beginning of what it has to read of the store first, for more of it, and for all of it,
// which must come at some rate.
type waits struct {
	sign, answer, stall time.Duration
	leastRate           float64 // bytes per second
}

var usualWaits = waits{sign: 3 * time.Second, answer: 15 * time.Second, stall: 5 * time.Second, leastRate: 1 << 20}

// signTime is how long a node looks for a chunk until it says that it is there.
const signTime = time.Second

func (w *waits) total(n int) time.Duration {
	return w.answer + time.Duration(float64(n)/w.leastRate*float64(time.Second))
}

// proof shows that somebody knows the token.
func proof(token, what string) string {
	m := hmac.New(sha256.New, []byte(token))
	_, _ = io.WriteString(m, what)
	return hex.EncodeToString(m.Sum(nil))
}

// Options say who the nodes are.
type Options struct {
	// Nodes are the addresses of all nodes, host:port, the same on each of them, and
	// Self is that of this one.
	Nodes []string
	Self  string
	// Token is what all of them share, and nobody else has.
	Token string
}

// Check says what is wrong with options.
func (o *Options) Check() error {
	seen := map[string]bool{}
	for _, n := range o.Nodes {
		if _, port, err := net.SplitHostPort(n); err != nil || port == "" {
			return fmt.Errorf("peers: %q is no address, host:port", n)
		}
		if seen[n] {
			return fmt.Errorf("peers: %s is there twice", n)
		}
		seen[n] = true
	}
	if !seen[o.Self] {
		return fmt.Errorf("peers: %q, which is this node, is none of them", o.Self)
	}
	if len(o.Token) < leastToken {
		return fmt.Errorf("peers: the token they share has %d characters, it must have %d at least", len(o.Token), leastToken)
	}
	return nil
}

// Peers are the nodes, as one of them sees them. Methods may be called from any goroutine.
type Peers struct {
	opt   Options
	nodes []*node
	asked chan struct{}
	http  *http.Client
	rt    *http.Transport
	waits waits
	// signed, of tests, is called when a node has said that it is there.
	signed func()

	hits, bytes, failed atomic.Int64
}

type node struct {
	address string
	hash    uint64
	self    bool

	mu    sync.Mutex
	until time.Time // it is left alone
	pause time.Duration
}

// New makes the view of the nodes. It asks nobody.
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

// Owner is the node that keeps a chunk: the one of those that answer with which the
// chunk's hash makes the largest number.
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

// Mine says whether this node keeps a chunk.
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
	errNot  = errors.New("it does not have it")
	errBusy = errors.New("it is asked too much")
)

// Read fills p with bytes of a chunk from the node that keeps it, and says whether it
// has. It never fails: whoever cannot get it here reads it where it comes from.
func (p *Peers) Read(ctx context.Context, name string, hash uint64, b []byte, off int64) bool {
	n := p.owner(hash)
	if n.self || len(b) == 0 || len(b) > maxBytes {
		return false
	}
	select {
	case p.asked <- struct{}{}: // each of those that are out ends in time
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
		patience.Reset(p.waits.answer) // it has to read of the store first
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
	// What follows are the trailers, and nothing else.
	if k, err := resp.Body.Read(make([]byte, 1)); k != 0 || err != io.EOF {
		return errors.New("there is more than was asked for")
	}
	sum := fmt.Sprintf("%016x", xxh3.Hash(b))
	if !hmac.Equal([]byte(resp.Trailer.Get(proofHeader)), []byte(proof(p.opt.Token, "answer\n"+path+"\n"+sum))) || resp.Trailer.Get(sumHeader) != sum {
		return errors.New("the answer is not what was sent")
	}
	return nil
}

// Stats say what came from other nodes.
type Stats struct {
	// Hits are reads that another node answered, HitBytes those bytes, and Failed those
	// that it should have; Served and ServedBytes were given to others.
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

// Chunk is a chunk that a node gives to others.
type Chunk interface {
	// Size is its size, ReadAt reads a part of it.
	Size() int64
	ReadAt(ctx context.Context, p []byte, off int64) error
}

// Server gives other nodes what this one keeps.
type Server struct {
	token  string
	find   func(ctx context.Context, name string) (Chunk, bool)
	served chan struct{}
	http   *http.Server
	done   chan struct{}

	count, bytes atomic.Int64
}

// Serve answers other nodes at an address, until Close. Find finds a chunk that this node
// keeps, or is to keep; it may be slow. The error is that of listening.
func Serve(address, token string, find func(ctx context.Context, name string) (Chunk, bool)) (*Server, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	s := &Server{token: token, find: find, served: make(chan struct{}, maxServed), done: make(chan struct{})}
	s.http = &http.Server{
		ErrorLog: log.New(io.Discard, "", 0), // who asks wrongly is told so
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
		http.Error(w, "the proof is not that of this node's token", http.StatusUnauthorized)
		return
	}
	name, ok := strings.CutPrefix(r.URL.Path, prefix)
	from, err1 := strconv.ParseInt(r.URL.Query().Get("from"), 10, 64)
	n, err2 := strconv.ParseInt(r.URL.Query().Get("n"), 10, 64)
	if r.Method != http.MethodGet || !ok || len(name) > maxName || err1 != nil || err2 != nil || from < 0 || n <= 0 || n > maxBytes {
		http.Error(w, "that is no request for a chunk", http.StatusBadRequest)
		return
	}
	select {
	case s.served <- struct{}{}:
		defer func() { <-s.served }()
	default:
		http.Error(w, "too many requests at once", http.StatusServiceUnavailable)
		return
	}
	c, ok := s.look(w, r, name)
	if !ok {
		http.Error(w, "this node does not have it", http.StatusNotFound)
		return
	}
	if from > c.Size() || n > c.Size()-from {
		http.Error(w, "the chunk has fewer bytes", http.StatusBadRequest)
		return
	}
	w.Header().Set("Trailer", sumHeader+", "+proofHeader)
	w.Header().Set("Content-Type", "application/octet-stream")
	h := xxh3.New()
	b := make([]byte, min(n, pieceBytes))
	for at := int64(0); at < n; at += int64(len(b)) {
		b = b[:min(n-at, pieceBytes)]
		if err := c.ReadAt(r.Context(), b, from+at); err != nil {
			panic(http.ErrAbortHandler) // the connection ends, and with it the answer
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

// look finds a chunk. Where that takes long, who asks is told that somebody is there.
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
	defer sign.Wait() // nobody else writes meanwhile
	defer close(done)
	return s.find(r.Context(), name)
}

// Served says how much was given to others.
func (s *Server) Served() (requests, bytes int64) { return s.count.Load(), s.bytes.Load() }

// Close stops answering: what is on its way is cut off.
func (s *Server) Close() error {
	err := s.http.Close()
	<-s.done
	for range maxServed { // those that answer are gone when each has given back its place
		s.served <- struct{}{}
	}
	return err
}
