// Package feedserver serves batches to other machines over Arrow Flight (stoker serve --flight). A server keeps no state
// of its clients: a ticket names a batch completely.
package feedserver

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/feed"
	"github.com/stokerdata/stoker/internal/pipeline"
)

// Pipeline builds the batches; see Of.
type Pipeline interface {
	Info() pipeline.Info
	Hashes() pipeline.Hashes
	Config() pipeline.Config
	Ring() *arena.Ring
	// Asked starts the stream of requested batches.
	Asked() (Asked, error)
	Next(ctx context.Context) (pipeline.Event, error)
	Release(slot int)
}

// Asked receives requests for batches; see *pipeline.Asked.
type Asked interface {
	Add(ask pipeline.Ask) (number int64, err error)
}

// Of is the Pipeline of a real one.
func Of(p *pipeline.Pipeline) Pipeline { return whole{p} }

type whole struct{ *pipeline.Pipeline }

func (w whole) Asked() (Asked, error) { return w.StartAsked() }

// Options are the options of a server.
type Options struct {
	// TLS secures connections; nil for none.
	TLS *tls.Config
	// Secret is the key of tokens; nil if requests need none.
	Secret feed.Secret
	Log    *slog.Logger
}

// TLS returns the configuration for a certificate and its key. With ca, clients must have a certificate of that
// authority.
func TLS(cert, key, ca string) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate: %w", err)
	}
	c := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13}
	if ca != "" {
		text, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("reading the authority's certificate: %w", err)
		}
		c.ClientCAs = x509.NewCertPool()
		if !c.ClientCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s has no certificate in PEM form", ca)
		}
		c.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return c, nil
}

// Config returns the configuration of a server for a trainer's: tickets name the rows of all ranks.
func Config(c pipeline.Config) pipeline.Config {
	c.Rank, c.LocalWorldSize, c.Feeders = 0, 1, nil
	// As many batches of a bucket, or of one kind, come together as the trainer has ranks.
	if c.Bucket != nil {
		b := *c.Bucket
		b.Ranks = max(cmp.Or(b.Ranks, c.WorldSize), 1)
		c.Bucket = &b
	}
	if c.Align != nil {
		a := *c.Align
		a.Ranks = max(cmp.Or(a.Ranks, c.WorldSize), 1)
		c.Align = &a
	}
	c.Crashed, c.Suspects, c.WorldSize = nil, nil, 1
	return c
}

const (
	// sendTimeout bounds the time that a client may take for a batch. Its slot is used meanwhile.
	sendTimeout = 60 * time.Second
	// maxStreams bounds the requests of a connection.
	maxStreams = 256
	maxHeader  = 16 << 10
	window     = 8 << 20
)

// Server serves the batches of a pipeline.
type Server struct {
	p     Pipeline
	opt   Options
	asked Asked
	guard *feed.Guard
	grpc  *grpc.Server

	mu sync.Mutex
	// waiting has the requests whose batch is not finished, by number.
	waiting map[int64]chan<- pipeline.Event
	limit   int
}

// New returns a server for a pipeline that has no other user.
func New(p Pipeline, opt Options) (*Server, error) {
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{p: p, opt: opt, waiting: map[int64]chan<- pipeline.Event{}, limit: 4*p.Info().Slots + 8}
	if opt.Secret != nil {
		s.guard = feed.NewGuard(opt.Secret)
	}
	var err error
	if s.asked, err = p.Asked(); err != nil {
		return nil, err
	}
	options := []grpc.ServerOption{
		grpc.ForceServerCodecV2(feed.Codec{}),
		grpc.MaxRecvMsgSize(feed.MaxTicket + 64),
		grpc.MaxHeaderListSize(maxHeader),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.ConnectionTimeout(10 * time.Second),
		grpc.InitialConnWindowSize(window),
		grpc.WriteBufferSize(1 << 20),
		// A client that is gone without a word is noticed after 15 s.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.StatsHandler(connections{}),
		// A request reads its slot until it has ended, and the caller unmaps the slots after Serve.
		grpc.WaitForHandlers(true),
	}
	if opt.TLS != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(opt.TLS)))
	}
	s.grpc = grpc.NewServer(options...)
	s.grpc.RegisterService(&grpc.ServiceDesc{
		ServiceName: feed.Service, HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{StreamName: feed.GetStream.StreamName, ServerStreams: true, Handler: func(_ any, stream grpc.ServerStream) error {
			return s.get(stream)
		}}},
	}, s)
	return s, nil
}

// shutdownGrace is the time in which running requests may finish.
const shutdownGrace = 5 * time.Second

// Serve accepts clients until ctx is done, and closes the listener. Running requests may then finish.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { s.route(ctx) })
	stop := context.AfterFunc(ctx, func() {
		hard := time.AfterFunc(shutdownGrace, s.grpc.Stop)
		defer hard.Stop()
		s.grpc.GracefulStop()
	})
	err := s.grpc.Serve(l)
	cancel()
	if !stop() {
		s.grpc.Stop() // waits for the other one
	}
	s.grpc.Stop()
	wg.Wait()
	if errors.Is(err, grpc.ErrServerStopped) {
		err = nil
	}
	return err
}

// route passes finished batches to the requests that wait for them.
func (s *Server) route(ctx context.Context) {
	for {
		ev, err := s.p.Next(ctx)
		if err != nil {
			return
		}
		s.mu.Lock()
		c, ok := s.waiting[ev.Number]
		delete(s.waiting, ev.Number)
		s.mu.Unlock()
		if ok {
			c <- ev
		} else if ev.Kind == pipeline.EventBatch {
			s.p.Release(ev.Slot)
		}
	}
}

// get answers DoGet. Everything that can refuse a ticket comes before the batch is requested from the pipeline, and so
// before anything is read.
func (s *Server) get(stream grpc.ServerStream) error {
	ctx := stream.Context()
	var raw feed.RawTicket
	if err := stream.RecvMsg(&raw); err != nil {
		return status.Error(codes.InvalidArgument, "the request is not a ticket of Arrow Flight")
	}
	t, err := feed.ParseTicket(raw.Bytes)
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	if s.guard != nil {
		header := ""
		if md, ok := metadata.FromIncomingContext(ctx); ok {
			if v := md.Get("authorization"); len(v) == 1 {
				header = v[0]
			}
		}
		if err := s.guard.Check(header, raw.Bytes, &t, time.Now()); err != nil {
			return status.Error(refusal(err), err.Error())
		}
	}
	if err := s.mine(&t); err != nil {
		return status.Error(codes.NotFound, err.Error())
	}
	ev, err := s.build(ctx, &t)
	if err != nil {
		return err
	}
	lease := ctx.Value(connKey{}).(*connection).hold(func() { s.p.Release(ev.Slot) })
	defer lease.Done()
	return s.send(stream, &ev, lease)
}

func refusal(err error) codes.Code {
	switch {
	case errors.Is(err, feed.ErrScope):
		return codes.PermissionDenied
	case errors.Is(err, feed.ErrCrowded):
		return codes.ResourceExhausted
	}
	return codes.Unauthenticated
}

// mine refuses tickets for other data, another pipeline or another seed.
func (s *Server) mine(t *feed.Ticket) error {
	id, seed := s.p.Hashes(), s.p.Config().Seed
	switch {
	case t.Manifest != id.Manifest:
		return fmt.Errorf("this server serves manifest %s, not %s", id.Manifest, t.Manifest)
	case t.Pipeline != id.Pipeline:
		return fmt.Errorf("this server serves pipeline %s, not %s", id.Pipeline, t.Pipeline)
	case t.Seed != seed:
		return fmt.Errorf("this server serves seed %d, not %d", seed, t.Seed)
	}
	return nil
}

// build waits until the batch of a ticket is in a slot.
func (s *Server) build(ctx context.Context, t *feed.Ticket) (pipeline.Event, error) {
	done := make(chan pipeline.Event, 1)
	s.mu.Lock()
	if len(s.waiting) >= s.limit {
		s.mu.Unlock()
		return pipeline.Event{}, status.Errorf(codes.ResourceExhausted, "%d requests are waiting: start more servers", s.limit)
	}
	number, err := s.asked.Add(pipeline.Ask{Epoch: t.Epoch, Step: t.Batch, Lo: t.Rows.Lo, Hi: t.Rows.Hi, Stride: t.Rows.Stride})
	if err == nil {
		s.waiting[number] = done
	}
	s.mu.Unlock()
	if err != nil {
		return pipeline.Event{}, status.Error(codes.OutOfRange, err.Error())
	}
	select {
	case ev := <-done:
		return s.built(ev)
	case <-ctx.Done():
	}
	s.mu.Lock()
	_, still := s.waiting[number]
	delete(s.waiting, number)
	s.mu.Unlock()
	if !still { // finished at the same moment
		if ev := <-done; ev.Kind == pipeline.EventBatch {
			s.p.Release(ev.Slot)
		}
	}
	return pipeline.Event{}, status.FromContextError(ctx.Err()).Err()
}

func (s *Server) built(ev pipeline.Event) (pipeline.Event, error) {
	if ev.Kind == pipeline.EventBatch {
		return ev, nil
	}
	s.opt.Log.Warn("a batch could not be built", "error", ev.Err)
	return ev, status.Error(codes.FailedPrecondition, ev.Err.Error())
}

func (s *Server) send(stream grpc.ServerStream, ev *pipeline.Event, lease *feed.Lease) error {
	meta := feed.Meta{Rows: ev.Rows, Skipped: ev.Skipped}
	for _, b := range ev.Bad {
		meta.Bad = append(meta.Bad, feed.Bad{ID: b.ID, Name: b.Name, Reason: b.Reason})
	}
	end := time.Now().Add(sendTimeout)
	return feed.Messages(s.p.Info().Arrays, s.p.Ring().Slot(ev.Slot), meta, func(d *feed.Data) error {
		if time.Now().After(end) {
			return status.Errorf(codes.DeadlineExceeded, "the client took more than %v for a batch", sendTimeout)
		}
		d.Lease = lease
		return stream.SendMsg(d)
	})
}

// connections notes the leases of each connection. When it ends, gRPC may drop messages without a word.
type connections struct{}

type connKey struct{}

type connection struct {
	mu     sync.Mutex
	leases map[*feed.Lease]func()
}

// hold returns a lease that calls release after its last message, or when the connection has ended and nothing reads its
// messages any more.
func (c *connection) hold(release func()) *feed.Lease {
	var l *feed.Lease
	l = feed.NewLease(func() {
		c.mu.Lock()
		f := c.leases[l]
		delete(c.leases, l)
		c.mu.Unlock()
		if f != nil {
			f()
		}
	})
	c.mu.Lock()
	c.leases[l] = release
	c.mu.Unlock()
	return l
}

func (c *connection) end() {
	c.mu.Lock()
	leases := c.leases
	c.leases = map[*feed.Lease]func(){}
	c.mu.Unlock()
	for _, f := range leases {
		f()
	}
}

// TagConn implements stats.Handler.
func (connections) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	return context.WithValue(ctx, connKey{}, &connection{leases: map[*feed.Lease]func(){}})
}

// HandleConn implements stats.Handler.
func (connections) HandleConn(ctx context.Context, s stats.ConnStats) {
	if _, ok := s.(*stats.ConnEnd); ok {
		if c, ok := ctx.Value(connKey{}).(*connection); ok {
			c.end()
		}
	}
}

// TagRPC implements stats.Handler.
func (connections) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler.
func (connections) HandleRPC(context.Context, stats.RPCStats) {}

// Kill closes all connections immediately, as a killed process would.
func (s *Server) Kill() { s.grpc.Stop() }
