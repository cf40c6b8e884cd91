// Package feedclient has batches built by servers on other machines (stoker serve --flight). The client decides which
// server builds which batch: there is no dispatcher.
package feedclient

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zeebo/xxh3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/stokerdata/stoker/internal/feed"
	"github.com/stokerdata/stoker/internal/pipeline"
)

// Options are the options of a client.
type Options struct {
	Feeders *pipeline.Feeders
	// ID and Seed are those of the batches.
	ID   pipeline.Hashes
	Seed uint64
	// BatchSize is the number of rows for which slots have space.
	BatchSize int
	// Say receives messages for the user.
	Say func(string)
	// CompareEvery is the number of batches of which one is compared; 0 means 1,000. Besides, a server gets one request
	// at a time until a batch of it was compared.
	CompareEvery int64
	// Reread is the time between two reads of the list of servers; 0 means 4 s.
	Reread time.Duration
	// Late is the time after which another server is asked as well, whatever the budget of hedges; 0 means 20 s.
	Late time.Duration
	// Resolver finds addresses of names; nil means that of this machine.
	Resolver *net.Resolver
}

// Client requests batches from servers. It implements pipeline.Remote.
type Client struct {
	opt     Options
	members *members
	creds   func(name string) credentials.TransportCredentials
	token   *feed.Token
	changed chan struct{}
	cancel  context.CancelFunc
	wg      sync.WaitGroup

	mu sync.Mutex
	// servers are in an order of the client's own, which salt decides: clients that start together ask different
	// servers first.
	servers []*server
	salt    uint64
	waiting []*waiter // for a credit
	said    map[string]bool
	late    latencies
	stats   pipeline.RemoteStats
}

// waiter waits for a credit of any server that it has not tried. ahead is the number of batches that the trainer gets
// before its batch, 0 if it is due.
type waiter struct {
	order int64
	ahead int
	tried map[*server]bool
	wake  chan struct{}
}

// Open reads the list of servers and the files for TLS. It does not connect yet.
func Open(opt Options) (*Client, error) {
	if opt.CompareEvery == 0 {
		opt.CompareEvery = 1000
	}
	if opt.Reread == 0 {
		opt.Reread = readEvery
	}
	if opt.Late == 0 {
		opt.Late = lateAfter
	}
	if opt.Say == nil {
		opt.Say = func(string) {}
	}
	if opt.Resolver == nil {
		opt.Resolver = net.DefaultResolver
	}
	c := &Client{opt: opt, changed: make(chan struct{}, 1), said: map[string]bool{}, salt: rand.Uint64()}
	var err error
	if c.members, err = parseMembers(opt.Feeders.Servers, os.Getenv, opt.Resolver); err != nil {
		return nil, err
	}
	if c.creds, err = secure(opt.Feeders); err != nil {
		return nil, err
	}
	if path := opt.Feeders.Token; path != "" {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("reading the token: %w", err)
		}
		if c.token, err = feed.ParseToken(string(text)); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	list, err := c.members.read(ctx)
	if unknown(err) {
		c.say(fmt.Sprintf("feeders: %s has no servers yet, and this machine builds the batches until it has: %v", c.members.text, err))
		err = nil
	}
	if err == nil {
		err = c.permitted(list)
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("reading the list of servers: %w", err)
	}
	c.update(list)
	c.wg.Go(func() { c.reread(ctx) })
	return c, nil
}

// secure returns the credentials for a server with a name in its certificate.
func secure(f *pipeline.Feeders) (func(name string) credentials.TransportCredentials, error) {
	if (f.Cert == "") != (f.Key == "") {
		return nil, errors.New("cert and key go together")
	}
	if f.CA == "" {
		if f.Cert != "" {
			return nil, errors.New("cert and key need ca, the certificate of the authority that signed those of the servers")
		}
		return func(string) credentials.TransportCredentials { return insecure.NewCredentials() }, nil
	}
	text, err := os.ReadFile(f.CA)
	if err != nil {
		return nil, fmt.Errorf("reading the authority's certificate: %w", err)
	}
	config := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS13}
	if !config.RootCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate in PEM form", f.CA)
	}
	if f.Cert != "" {
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, fmt.Errorf("reading the certificate: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return func(name string) credentials.TransportCredentials {
		mine := config.Clone()
		mine.ServerName = name
		return credentials.NewTLS(mine)
	}, nil
}

// permitted refuses connections to other machines without TLS.
func (c *Client) permitted(list []member) error {
	f := c.opt.Feeders
	if f.CA != "" || f.Insecure {
		return nil
	}
	for _, m := range list {
		if !loopback(m.addr) {
			return fmt.Errorf("%s is another machine, and batches and labels would travel unencrypted: set ca=, or insecure=True in a network that you trust", m.addr)
		}
	}
	return nil
}

// reread reads the list of servers again and again, and notices servers that may be tried again.
func (c *Client) reread(ctx context.Context) {
	tick := time.NewTicker(c.opt.Reread)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !c.members.fixed {
			list, err := c.members.read(ctx)
			if err == nil {
				err = c.permitted(list)
			}
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				c.say(fmt.Sprintf("feeders: the list %s cannot be read, and the servers of the last one are used: %v", c.members.text, err))
			default:
				c.update(list)
			}
		}
		c.signal()
	}
}

// update makes the servers those of a list.
func (c *Client) update(list []member) {
	c.mu.Lock()
	var kept []*server
	var gone []*server
	for _, s := range c.servers {
		if slices.ContainsFunc(list, func(m member) bool { return m == s.member }) {
			kept = append(kept, s)
		} else if s.gone = true; s.inFlight == 0 {
			gone = append(gone, s)
		}
	}
	for _, m := range list {
		if !slices.ContainsFunc(kept, func(s *server) bool { return s.member == m }) {
			kept = append(kept, &server{member: m, creds: c.creds(m.name), dial: c.dial, credits: firstCredits})
		}
	}
	c.servers = c.inTurn(kept)
	c.wakeLocked()
	c.mu.Unlock()
	for _, s := range gone {
		s.close()
	}
}

// inTurn sorts servers in the client's own order.
func (c *Client) inTurn(servers []*server) []*server {
	slices.SortFunc(servers, func(a, b *server) int {
		return cmp.Or(cmp.Compare(xxh3.HashStringSeed(a.addr, c.salt), xxh3.HashStringSeed(b.addr, c.salt)), strings.Compare(a.addr, b.addr))
	})
	return servers
}

// dial connects to an address, whose name is looked up each time.
func (c *Client) dial(ctx context.Context, addr string) (net.Conn, error) {
	return (&net.Dialer{Resolver: c.opt.Resolver}).DialContext(ctx, "tcp", addr)
}

// say passes on each message once.
func (c *Client) say(text string) {
	c.mu.Lock()
	known := c.said[text] || len(c.said) > 1000
	c.said[text] = true
	c.mu.Unlock()
	if !known {
		c.opt.Say(text)
	}
}

func (c *Client) signal() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// Changed implements pipeline.Remote.
func (c *Client) Changed() <-chan struct{} { return c.changed }

// Credits implements pipeline.Remote.
func (c *Client) Credits() (n int, soonest time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.servers {
		if s.usable(time.Now()) {
			n += s.limit()
		}
	}
	if _, seconds := c.dueLocked(0, nil); n > 0 {
		soonest = time.Duration(seconds * float64(time.Second))
	}
	return n, soonest
}

// Stats implements pipeline.Remote.
func (c *Client) Stats() pipeline.RemoteStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := c.stats
	st.Servers = len(c.servers)
	for _, s := range c.servers {
		if s.usable(time.Now()) {
			st.Usable++
		}
	}
	return st
}

// Close implements pipeline.Remote. No Fetch may be running.
func (c *Client) Close() error {
	c.cancel()
	c.wg.Wait()
	c.mu.Lock()
	servers := c.servers
	c.servers = nil
	c.mu.Unlock()
	for _, s := range servers {
		s.close()
	}
	return nil
}

const (
	// maxTries is the number of servers that are asked for a batch, one after the other.
	maxTries = 4
	// messageWait bounds the wait for a message of a server, and for a credit.
	messageWait = 60 * time.Second
	// lateAfter is when another server is asked in any case.
	lateAfter = 20 * time.Second
	// maxMessage is the largest message: a row may be large.
	maxMessage = 1 << 30
)

var errNoServer = errors.New("no server is usable")

// Fetch implements pipeline.Remote.
func (c *Client) Fetch(ctx context.Context, b *pipeline.RemoteBatch) error {
	t := feed.Ticket{
		Manifest: c.opt.ID.Manifest, Pipeline: c.opt.ID.Pipeline, Seed: c.opt.Seed, Epoch: b.Epoch, Batch: b.Step,
		Rows: feed.Rows{Lo: b.Lo, Hi: b.Hi, Stride: b.Stride},
	}
	f := fetch{c: c, b: b, ticket: t.Text(), done: make(chan outcome, maxTries+1), tried: map[*server]bool{}}
	if err := f.run(ctx); err != nil {
		if ctx.Err() == nil {
			c.count(&c.stats.Failed)
		}
		return err
	}
	c.mu.Lock()
	c.stats.Batches++
	c.stats.Bytes += f.bytes
	s := f.writer.s
	compare := !s.trusted || c.stats.Batches%c.opt.CompareEvery == 0
	s.checking = s.checking || !s.trusted
	c.mu.Unlock()
	if compare {
		c.compare(ctx, &f)
	}
	return nil
}

// compare has a batch built a second time: by another server whose batches were equal before, or else here.
func (c *Client) compare(ctx context.Context, f *fetch) {
	one := f.writer.s
	f.b.Copies = []pipeline.Copy{{From: one.addr, Checksum: f.meta.Checksum}}
	others := map[*server]bool{}
	c.mu.Lock()
	for _, s := range c.servers {
		others[s] = s == one || !s.trusted
	}
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, c.opt.Late)
	defer cancel()
	s, err := c.acquire(ctx, &waiter{order: f.b.Order, tried: others}, true)
	if s == nil || err != nil {
		return
	}
	a := &attempt{f: &fetch{c: c, b: f.b, ticket: f.ticket}, s: s, began: time.Now(), cancel: cancel}
	stream, meta, err := a.ask(ctx)
	cancel() // its rows are not needed
	c.release(a, err)
	if err != nil {
		return
	}
	stream.watch.Stop()
	if meta.Checksum != f.meta.Checksum {
		f.b.Copies = append(f.b.Copies, pipeline.Copy{From: s.addr, Checksum: meta.Checksum})
		return
	}
	f.b.Copies = nil
	c.mu.Lock()
	c.stats.Compared++
	one.trusted, one.checking = true, false
	c.wakeLocked()
	c.mu.Unlock()
	c.signal()
}

// Built implements pipeline.Remote. This machine decides which copies are right. A server with another one is not asked
// again while it is in the list.
func (c *Client) Built(b *pipeline.RemoteBatch, checksum string) {
	var wrong []string
	than := "this machine"
	c.mu.Lock()
	for _, copied := range b.Copies {
		equal := copied.Checksum == checksum
		if i := slices.IndexFunc(c.servers, func(s *server) bool { return s.addr == copied.From }); i >= 0 {
			s := c.servers[i]
			if s.checking = false; checksum != "" {
				s.trusted, s.wrong = equal, !equal
			}
		}
		if equal {
			than += " and feeder " + copied.From
		} else {
			wrong = append(wrong, "feeder "+copied.From)
		}
	}
	if checksum == "" {
		wrong = nil
	} else {
		c.stats.Compared++
	}
	if len(wrong) > 0 {
		c.stats.Different++
	}
	c.wakeLocked()
	c.mu.Unlock()
	c.signal()
	if len(wrong) > 0 {
		those := strings.Join(wrong, " and ")
		c.say(fmt.Sprintf("%s built another batch than %s for epoch %d, batch %d. The batch of this machine is used, and %s gets "+
			"no more requests. Check that all run the same version of stoker and read the same data", those, than, b.Epoch, b.Step, those))
	}
}

// fetch is a batch that is being requested.
type fetch struct {
	c      *Client
	b      *pipeline.RemoteBatch
	ticket []byte
	tried  map[*server]bool
	done   chan outcome

	mu sync.Mutex
	// writer is the attempt whose server was the first to answer, and which alone writes to the slot.
	writer *attempt
	// The batch that is in the slot.
	meta  feed.Meta
	bytes int64
}

// attempt is a request to one server.
type attempt struct {
	f      *fetch
	s      *server
	conn   *link
	began  time.Time
	first  time.Duration // until the first message
	cancel context.CancelFunc
}

type outcome struct {
	a   *attempt
	err error
}

// errBeaten ends an attempt because another server was faster.
var errBeaten = errors.New("another server was faster")

// run asks servers until one has sent the batch. All attempts have ended when it returns.
func (f *fetch) run(ctx context.Context) error {
	c := f.c
	var running []*attempt
	stop := func() {
		for _, a := range running {
			a.cancel()
		}
	}
	defer func() {
		stop()
		for range running {
			o := <-f.done
			c.release(o.a, o.err)
		}
	}()
	last := errNoServer
	for tries := 0; tries < maxTries || len(running) > 0; {
		if len(running) == 0 {
			ahead := f.b.Ahead
			if tries > 0 {
				ahead = 0
			}
			s, err := c.acquire(ctx, &waiter{order: f.b.Order, ahead: ahead, tried: f.tried}, true)
			if err != nil {
				return err
			}
			if s == nil {
				return last
			}
			if tries++; tries > 1 {
				c.count(&c.stats.Retried)
			}
			running = append(running, f.start(ctx, s))
		}
		hedge, late := time.NewTimer(c.hedgeAfter(f)), time.NewTimer(c.opt.Late)
		var o outcome
		for o.a == nil {
			budget := false
			select {
			case o = <-f.done:
				continue
			case <-hedge.C:
				budget = true
			case <-late.C:
				late.Reset(c.opt.Late / 4) // the others may have no credit now
			}
			if f.answered() || tries >= maxTries || budget && !c.mayHedge() {
				continue
			}
			if s, _ := c.acquire(ctx, &waiter{order: f.b.Order, ahead: math.MaxInt, tried: f.tried}, false); s != nil {
				tries++
				c.count(&c.stats.Hedged)
				running = append(running, f.start(ctx, s))
			}
		}
		hedge.Stop()
		late.Stop()
		running = slices.DeleteFunc(running, func(a *attempt) bool { return a == o.a })
		c.release(o.a, o.err)
		switch {
		case o.err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case status.Code(o.err) == codes.FailedPrecondition: // the same everywhere
			return o.err
		case !errors.Is(o.err, errBeaten):
			last = o.err
		}
	}
	return last
}

func (f *fetch) answered() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.writer != nil
}

// claim makes an attempt the one that writes to the slot, unless there is one.
func (f *fetch) claim(a *attempt) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.writer != nil {
		return false
	}
	f.writer = a
	return true
}

// start begins an attempt.
func (f *fetch) start(ctx context.Context, s *server) *attempt {
	ctx, cancel := context.WithCancel(ctx)
	a := &attempt{f: f, s: s, began: time.Now(), cancel: cancel}
	f.tried[s] = true
	f.c.wg.Go(func() {
		err := a.run(ctx)
		cancel()
		f.mu.Lock()
		if f.writer == a && err != nil {
			f.writer = nil
		}
		f.mu.Unlock()
		f.done <- outcome{a, err}
	})
	return a
}

func (a *attempt) run(ctx context.Context) error {
	f, c := a.f, a.f.c
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, meta, err := a.ask(ctx)
	if err != nil {
		return err
	}
	defer stream.watch.Stop()
	if !f.claim(a) {
		return errBeaten
	}
	r, err := feed.NewReceiver(f.b.Arrays, f.b.Slot, f.b.Rows, c.opt.BatchSize, meta)
	if err != nil {
		return err
	}
	bytes := int64(0)
	var d feed.Data
	for {
		err := stream.next(&d)
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		bytes += d.Size()
		err = r.Add(&d)
		d.Free()
		if err != nil {
			return err
		}
	}
	if err := r.Finish(); err != nil {
		return err
	}
	f.b.Skipped = meta.Skipped
	for _, b := range meta.Bad {
		f.b.Bad = append(f.b.Bad, pipeline.RecordError{ID: b.ID, Name: b.Name, Reason: b.Reason})
	}
	f.meta, f.bytes = meta, bytes
	return nil
}

// answers are the messages of a server. It is given up if none comes for messageWait.
type answers struct {
	grpc.ClientStream
	watch *time.Timer
	late  atomic.Bool
}

// next receives a message.
func (r *answers) next(d *feed.Data) error {
	r.watch.Reset(messageWait)
	return r.silent(r.RecvMsg(d))
}

// silent names the reason if an error is because of the wait.
func (r *answers) silent(err error) error {
	if err != nil && err != io.EOF && r.late.Load() {
		return status.Errorf(codes.DeadlineExceeded, "no message for %v", messageWait)
	}
	return err
}

// ask sends the ticket and receives the description of the batch. The caller cancels ctx, and stops the watch of the
// answers.
func (a *attempt) ask(ctx context.Context) (*answers, feed.Meta, error) {
	f, c := a.f, a.f.c
	var meta feed.Meta
	ctx, cancel := context.WithCancel(ctx)
	r := &answers{}
	r.watch = time.AfterFunc(messageWait, func() { r.late.Store(true); cancel() })
	fail := func(err error) (*answers, feed.Meta, error) {
		err = r.silent(err)
		r.watch.Stop()
		cancel()
		return nil, meta, err
	}
	conn, err := a.s.link()
	if err != nil {
		return fail(err)
	}
	a.conn = conn
	if c.token != nil {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", c.token.Sign(f.ticket, time.Now()))
	}
	r.ClientStream, err = conn.NewStream(ctx, &feed.GetStream, feed.DoGet, grpc.ForceCodecV2(feed.Codec{}), grpc.MaxCallRecvMsgSize(maxMessage))
	if err != nil {
		return fail(err)
	}
	if err := r.SendMsg(&feed.RawTicket{Bytes: f.ticket}); err != nil && err != io.EOF { // EOF: the reason is what RecvMsg returns
		return fail(err)
	}
	if err := r.CloseSend(); err != nil {
		return fail(err)
	}
	var d feed.Data
	if err := r.next(&d); err != nil {
		return fail(err)
	}
	a.first = time.Since(a.began)
	meta, err = feed.ParseMeta(d.Meta)
	d.Free()
	if err != nil {
		return fail(err)
	}
	return r, meta, nil
}

// count adds to one of the statistics.
func (c *Client) count(n *int64) {
	c.mu.Lock()
	*n++
	c.mu.Unlock()
}
