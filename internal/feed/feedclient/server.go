package feedclient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

const (
	// firstCredits and maxCredits are numbers of batches that a server may have to build at a time.
	firstCredits = 2
	maxCredits   = 8
	// linksPerServer is the number of connections to a server. One connection is one thread's work.
	linksPerServer = 4
	window         = 8 << 20
	// refusedPause is for how long a server is not asked that has other data, or that refuses the token.
	refusedPause = 60 * time.Second
	// maxPause is the longest pause of a server that fails. One that is started again is to be used within 5 s.
	maxPause = 3 * time.Second
)

// server is a server of the list. Its fields are guarded by Client.mu, except for its links.
type server struct {
	member
	creds credentials.TransportCredentials
	dial  func(ctx context.Context, addr string) (net.Conn, error)

	// credits is the number of batches that it may have to build. It grows while the server is about as fast as the
	// fastest one, and shrinks when it is slow or fails.
	credits  float64
	inFlight int
	// latency is the recent time until the first message, and service the recent time per batch while it is busy.
	latency  time.Duration
	service  time.Duration
	finished time.Time // the last batch
	failures int       // in a row
	until    time.Time // not asked before
	gone     bool      // not in the list any more
	// trusted reports that a batch was equal to that of this machine or of a trusted server, wrong that one was not.
	// checking reports that a first batch is being compared, and that the server gets no request meanwhile.
	trusted, checking, wrong bool

	linkMu sync.Mutex
	links  []*link
}

// link is a connection.
type link struct {
	*grpc.ClientConn
	inFlight int // guarded by server.linkMu
}

func (s *server) usable(now time.Time) bool { return !s.gone && !s.wrong && !now.Before(s.until) }

// limit is the number of batches that the server may have to build now.
func (s *server) limit() int {
	if !s.trusted {
		return 1
	}
	return int(s.credits)
}

// link returns the connection with the fewest requests. Another connection is opened while all are in use.
func (s *server) link() (*link, error) {
	s.linkMu.Lock()
	defer s.linkMu.Unlock()
	var best *link
	for _, l := range s.links {
		if best == nil || l.inFlight < best.inFlight {
			best = l
		}
	}
	if best == nil || best.inFlight > 0 && len(s.links) < linksPerServer {
		conn, err := grpc.NewClient("passthrough:///"+s.addr,
			grpc.WithTransportCredentials(s.creds),
			grpc.WithNoProxy(), grpc.WithContextDialer(s.dial),
			grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window), grpc.WithReadBufferSize(1<<20),
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: 200 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
				MinConnectTimeout: 5 * time.Second,
			}),
			// A server that is gone without a word is noticed after 15 s.
			grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
		)
		if err != nil {
			return nil, err
		}
		best = &link{ClientConn: conn}
		s.links = append(s.links, best)
	}
	best.inFlight++
	return best, nil
}

func (s *server) unlink(l *link) {
	if l != nil {
		s.linkMu.Lock()
		l.inFlight--
		s.linkMu.Unlock()
	}
}

func (s *server) close() {
	s.linkMu.Lock()
	links := s.links
	s.links = nil
	s.linkMu.Unlock()
	for _, l := range links {
		_ = l.Close() // it only reports a second call
	}
}

// acquire takes a credit of the best server that w has not tried. It waits for one if wait is set; batches that are due
// first are served first. It returns nil if there is no such server.
func (c *Client) acquire(ctx context.Context, w *waiter, wait bool) (*server, error) {
	w.wake = make(chan struct{}, 1)
	end := time.Now().Add(messageWait)
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() { c.waiting = slices.DeleteFunc(c.waiting, func(o *waiter) bool { return o == w }) }()
	for {
		s, any := c.bestLocked(w)
		if s != nil && (!wait || c.firstLocked(w, s)) {
			s.inFlight++
			return s, nil
		}
		if !wait || !any || time.Now().After(end) {
			return nil, nil
		}
		if !slices.Contains(c.waiting, w) {
			c.waiting = append(c.waiting, w)
			slices.SortStableFunc(c.waiting, func(a, b *waiter) int { return cmp.Compare(a.order, b.order) })
		}
		c.mu.Unlock()
		var err error
		select {
		case <-w.wake:
		case <-time.After(time.Second): // a server may be usable again, or not any more
		case <-ctx.Done():
			err = ctx.Err()
		}
		c.mu.Lock()
		if err != nil {
			return nil, err
		}
	}
}

// firstLocked reports whether no batch that is due earlier waits for the same server.
func (c *Client) firstLocked(w *waiter, s *server) bool {
	for _, o := range c.waiting {
		if o.order >= w.order {
			break
		}
		if best, _ := c.bestLocked(o); best == s {
			return false
		}
	}
	return true
}

// bestLocked returns the server with a free credit from which the batch is expected first. A server that would finish it
// after it is due gets it only if no other server would finish it earlier, even one without a free credit. any reports
// whether there is a usable server at all that was not tried.
func (c *Client) bestLocked(w *waiter) (best *server, any bool) {
	now := time.Now()
	due, soonest := c.dueLocked(w.ahead, w.tried)
	any = !math.IsInf(soonest, 1)
	due = max(due, soonest)
	for _, s := range c.servers {
		if w.tried[s] || !s.usable(now) || s.checking || s.inFlight >= s.limit() || s.expected() > due {
			continue
		}
		if best == nil || s.expected() < best.expected() {
			best = s
		}
	}
	return best, any
}

// dueLocked returns the seconds in which all servers build the batches ahead of another one, and those in which the first
// server that was not tried is expected to finish it.
func (c *Client) dueLocked(ahead int, tried map[*server]bool) (due, soonest float64) {
	rate := 0.0 // batches per second
	soonest = math.Inf(1)
	for _, s := range c.servers {
		if !s.usable(time.Now()) {
			continue
		}
		if s.service > 0 {
			rate += 1 / s.service.Seconds()
		}
		if !tried[s] {
			soonest = min(soonest, s.expected())
		}
	}
	if ahead > 0 && rate > 0 {
		due = float64(ahead) / rate
	}
	return due, soonest
}

// expected is the number of seconds in which the server is expected to finish another batch.
func (s *server) expected() float64 {
	return (s.service + time.Millisecond).Seconds() * float64(s.inFlight+1)
}

func (c *Client) wakeLocked() {
	for _, w := range c.waiting {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// release gives back the credit of an attempt, and learns from its outcome.
func (c *Client) release(a *attempt, err error) {
	a.s.unlink(a.conn)
	c.mu.Lock()
	s := a.s
	s.inFlight--
	text := ""
	switch code := status.Code(err); {
	case err == nil || errors.Is(err, errBeaten):
		s.failures = 0
		c.late.add(a.first)
		c.learnLocked(s, a.first)
		s.finishedLocked(a.began, time.Now())
	case code == codes.Canceled: // by this client; what is known is that the answer would have taken longer
		if took := time.Since(a.began); a.first == 0 && took > s.latency && a.f.answered() {
			c.learnLocked(s, took)
		}
	case code == codes.FailedPrecondition: // the record
	case code == codes.ResourceExhausted:
		s.credits = max(s.credits/2, 1)
		s.until = time.Now().Add(200 * time.Millisecond)
	case code == codes.NotFound || code == codes.PermissionDenied || code == codes.Unauthenticated || code == codes.InvalidArgument || code == codes.Unimplemented:
		s.until = time.Now().Add(refusedPause)
		text = fmt.Sprintf("feeder %s refuses requests: %s", s.addr, status.Convert(err).Message())
	default:
		s.failures++
		s.credits = max(s.credits/2, 1)
		s.until = time.Now().Add(min(time.Second<<min(s.failures-1, 10), maxPause))
		text = fmt.Sprintf("feeder %s fails, and its batches are built elsewhere: %s", s.addr, status.Convert(err).Message())
	}
	closing := s.gone && s.inFlight == 0
	c.wakeLocked()
	c.mu.Unlock()
	if closing {
		s.close()
	}
	if text != "" {
		c.say(text)
	}
	c.signal()
}

// finishedLocked learns from a batch how long the server takes for one. It was queued until the one before was finished.
func (s *server) finishedLocked(began, now time.Time) {
	if s.finished.After(began) {
		began = s.finished
	}
	took := max(now.Sub(began), time.Microsecond)
	if s.finished = now; s.service == 0 {
		s.service = took
	}
	s.service += (took - s.service) / 4
}

// learnLocked adapts the credits of a server after an answer.
func (c *Client) learnLocked(s *server, took time.Duration) {
	if s.latency == 0 {
		s.latency = took
	}
	s.latency += (took - s.latency) / 4
	best := s.latency
	for _, o := range c.servers {
		if o.latency > 0 && o.usable(time.Now()) {
			best = min(best, o.latency)
		}
	}
	if s.latency <= 2*best {
		s.credits = min(s.credits+1/s.credits, maxCredits)
	} else {
		s.credits = max(s.credits-0.5, 1)
	}
}

// latencies are the times until the first message of recent requests.
type latencies struct {
	times [256]time.Duration
	n     int
}

func (l *latencies) add(d time.Duration) {
	l.times[l.n%len(l.times)] = d
	l.n++
}

const (
	// hedgeShare is the largest share of requests that are sent twice because they are late.
	hedgeShare = 0.05
	// hedgeFrom is the number of answers from which lateness is known.
	hedgeFrom = 20
	leastWait = 20 * time.Millisecond
)

// hedgeAfter returns the time after which a request is late: the 95th percentile, but not before the other server would
// have to begin. A batch that is built twice costs the servers as much as two.
func (c *Client) hedgeAfter(f *fetch) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := min(c.late.n, len(c.late.times))
	if n < hedgeFrom {
		return lateAfter
	}
	sorted := slices.Clone(c.late.times[:n])
	slices.Sort(sorted)
	due, soonest := c.dueLocked(f.b.Ahead, f.tried)
	return max(sorted[n*95/100], leastWait, time.Duration(max(due-soonest, 0)*float64(time.Second)))
}

// mayHedge reports whether another late request may be sent twice.
func (c *Client) mayHedge() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return float64(c.stats.Hedged+1) <= hedgeShare*float64(c.stats.Batches)
}
