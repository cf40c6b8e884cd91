package handoff

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/cache/cachetest"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/pipeline"
)

func TestMain(m *testing.M) {
	if os.Getenv("STOKER_TEST_SOCKET") != "" {
		asOther()
	}
	cachetest.Main(m)
}

const (
	fakeSlots = 3
	fakeSteps = 5
)

// fakePipeline hands out empty batches of one row without delay.
type fakePipeline struct {
	ring    *arena.Ring
	mu      sync.Mutex
	pos     item.Position
	gen     uint64
	free    chan int
	stuck   chan struct{} // when not nil, Next waits for ctx alone
	failAt  int64         // row at which Next fails, once
	failure error
	closed  chan struct{}
	config  string
}

func newFake(t testing.TB) *fakePipeline {
	ring, err := arena.NewRing(arena.NewBudget(1<<30), fakeSlots, arena.HugePage)
	if err != nil {
		t.Fatal(err)
	}
	p := &fakePipeline{ring: ring, free: make(chan int, fakeSlots), closed: make(chan struct{}), failAt: -1}
	for k := range fakeSlots {
		p.free <- k
	}
	return p
}

func (p *fakePipeline) Info() pipeline.Info {
	return pipeline.Info{
		Len: fakeSteps, Steps: fakeSteps, Slots: fakeSlots, SlotBytes: 64,
		Arrays:  []item.Array{{Name: "label", DType: item.I64, RowBytes: 8}},
		Classes: map[string][]string{"label": {"cat", "dog"}},
	}
}
func (p *fakePipeline) Ring() *arena.Ring                      { return p.ring }
func (p *fakePipeline) NewGiven(item.Position) *pipeline.Given { return nil }
func (p *fakePipeline) StartGiven(pos item.Position, _ *pipeline.Given) uint64 {
	return p.Start(pos)
}
func (p *fakePipeline) Start(pos item.Position) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pos = pos
	p.gen += 10
	return p.gen
}

func (p *fakePipeline) Next(ctx context.Context) (pipeline.Event, error) {
	if p.stuck != nil {
		<-ctx.Done()
		return pipeline.Event{}, ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failure != nil && p.pos.Row == p.failAt {
		p.failAt = -1
		return pipeline.Event{}, p.failure
	}
	if p.pos.Row == fakeSteps {
		p.pos = item.Position{Epoch: p.pos.Epoch + 1}
		return pipeline.Event{Kind: pipeline.EventEpochEnd, Gen: p.gen, Epoch: p.pos.Epoch - 1}, nil
	}
	select {
	case k := <-p.free:
		ev := pipeline.Event{Kind: pipeline.EventBatch, Gen: p.gen, Slot: k, Rows: 1, Epoch: p.pos.Epoch, Step: p.pos.Row}
		p.pos.Row++
		ev.Pos = p.pos
		return ev, nil
	case <-ctx.Done():
		return pipeline.Event{}, ctx.Err()
	}
}

// Poll returns the result of Next without waiting for a slot, like a pipeline.
func (p *fakePipeline) Poll() (pipeline.Event, error, bool) {
	if p.stuck != nil || len(p.free) == 0 {
		return pipeline.Event{}, nil, false
	}
	ev, err := p.Next(context.Background())
	return ev, err, true
}

func (p *fakePipeline) Release(slot int) { p.free <- slot }
func (p *fakePipeline) Stats() pipeline.Stats {
	return pipeline.Stats{Waiting: "fetch: reading x for 3 s"}
}
func (p *fakePipeline) Close() error {
	close(p.closed)
	return p.ring.Close()
}

// client is the other end of a session.
type client struct {
	*Client
	t    testing.TB
	done chan error
	sess *Session
	fake *fakePipeline
}

func pair(t testing.TB) (engine *net.UnixConn, trainer *Client) {
	trainer, fd, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(trainer.Close)
	if engine, err = FromFD(fd); err != nil {
		t.Fatal(err)
	}
	return engine, trainer
}

// dial runs a session and returns its client, before OPEN.
func dial(t testing.TB, fake *fakePipeline, openErr error) *client {
	engine, trainer := pair(t)
	c := &client{Client: trainer, t: t, done: make(chan error, 1), fake: fake}
	c.sess = NewSession(engine, Options{EngineVersion: "test", Open: func(ctx context.Context, config []byte) (Pipeline, error) {
		if openErr != nil {
			return nil, openErr
		}
		fake.config = string(config)
		return fake, nil
	}})
	go func() { c.done <- c.sess.Run(context.Background()) }()
	return c
}

func (c *client) send(m Message) {
	c.t.Helper()
	if err := c.Send(m); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) recv() Message {
	c.t.Helper()
	m, err := c.tryRecv()
	if err != nil {
		c.t.Fatal(err)
	}
	return m
}

func (c *client) tryRecv() (Message, error) { return c.Receive(10 * time.Second) }

func recvAs[M Message](c *client) M {
	c.t.Helper()
	m := c.recv()
	v, ok := m.(M)
	if !ok {
		c.t.Fatalf("got %+v, want a %T", m, v)
	}
	return v
}

// wait waits for the session's end and checks that the pipeline was closed.
func (c *client) wait() error {
	c.t.Helper()
	select {
	case err := <-c.done:
		select {
		case <-c.fake.closed:
		default:
			c.t.Error("the session has ended, its pipeline is open")
		}
		return err
	case <-time.After(10 * time.Second):
		c.t.Fatal("the session does not end")
		return nil
	}
}

func opened(t testing.TB, fake *fakePipeline) *client {
	c := dial(t, fake, nil)
	c.send(Open{Config: []byte(`{}`)})
	recvAs[Ready](c)
	return c
}

func TestReadyCarriesRingAndInfo(t *testing.T) {
	c := dial(t, newFake(t), nil)
	c.send(Open{Config: []byte(`{"source":"x"}`)})
	buf, oob := make([]byte, MaxMessage), make([]byte, 256)
	n, oobn, _, _, err := c.conn.ReadMsgUnix(buf, oob)
	if err != nil {
		t.Fatal(err)
	}
	m, err := Parse(buf[:n])
	if err != nil {
		t.Fatal(err)
	}
	ready := m.(Ready)
	if ready.Slots != fakeSlots || ready.SlotStride != arena.HugePage || ready.RingSize != fakeSlots*arena.HugePage {
		t.Errorf("READY %+v", ready)
	}
	fds, err := descriptors(oob[:oobn])
	if err != nil || len(fds) != 2 {
		t.Fatalf("descriptors %v, %v", fds, err)
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	info, err := readFile(fds[1], int(ready.InfoSize))
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Len           int64               `json:"len"`
		Classes       map[string][]string `json:"classes"`
		EngineVersion string              `json:"engine_version"`
		Arrays        []array             `json:"arrays"`
	}
	if err := json.Unmarshal(info, &got); err != nil {
		t.Fatal(err)
	}
	if got.Len != fakeSteps || got.EngineVersion != "test" || len(got.Arrays) != 1 || got.Arrays[0].DType != "int64" ||
		!slices.Equal(got.Classes["label"], []string{"cat", "dog"}) {
		t.Errorf("info %s", info)
	}
	// The ring is the engine's memory, not a copy.
	c.fake.ring.Slot(1)[5] = 42
	b := make([]byte, 1)
	if _, err := unix.Pread(fds[0], b, arena.HugePage+5); err != nil || b[0] != 42 {
		t.Errorf("byte of slot 1: %d, %v", b[0], err)
	}
	// Nobody can shrink it under the engine.
	if err := unix.Ftruncate(fds[0], 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("truncating the ring: %v", err)
	}
	c.send(Close{})
	if err := c.wait(); err != nil {
		t.Error(err)
	}
}

func TestBatchesAndEpochs(t *testing.T) {
	c := opened(t, newFake(t))
	c.send(Start{Gen: 1, Epoch: 4, Row: 3})
	var leases []uint64
	for _, want := range []item.Position{{Epoch: 4, Row: 4}, {Epoch: 4, Row: 5}} {
		b := recvAs[Batch](c)
		if b.Gen != 1 || b.Epoch != 4 || b.NextEpoch != want.Epoch || b.NextRow != want.Row || b.Rows != 1 {
			t.Errorf("%+v, want the position %+v after it", b, want)
		}
		leases = append(leases, b.Lease)
		c.send(Release{Slot: b.Slot, Lease: b.Lease})
	}
	if e := recvAs[EpochEnd](c); e.Epoch != 4 || e.Gen != 1 {
		t.Errorf("%+v", e)
	}
	if b := recvAs[Batch](c); b.Epoch != 5 || b.Step != 0 || slices.Contains(leases, b.Lease) {
		t.Errorf("first batch of the next epoch: %+v (leases before: %v)", b, leases)
	}
	c.conn.Close()
	if err := c.wait(); err != nil {
		t.Error(err)
	}
}

// Leases make a repeated release harmless, also if the slot has been handed over again in between.
func TestReleaseTwice(t *testing.T) {
	c := opened(t, newFake(t))
	c.send(Start{Gen: 1})
	var held []Batch
	for range fakeSlots {
		held = append(held, recvAs[Batch](c))
	}
	first := held[0]
	c.send(Release{Slot: first.Slot, Lease: first.Lease})
	if next := recvAs[Batch](c); next.Slot != first.Slot || next.Lease == first.Lease {
		t.Errorf("%+v after the release of %+v", next, first)
	}
	c.send(Release{Slot: first.Slot, Lease: first.Lease})
	c.send(Stats{Request: 1}) // answered, and no BATCH before the answer
	recvAs[Stats](c)
	c.conn.Close()
	if err := c.wait(); err != nil {
		t.Error(err)
	}
}

// The client has every slot and restarts: later batches have the new generation once slots are free.
func TestRestartWhileWaitingForSlots(t *testing.T) {
	c := opened(t, newFake(t))
	c.send(Start{Gen: 1})
	var held []Batch
	for range fakeSlots {
		held = append(held, recvAs[Batch](c))
	}
	c.send(Start{Gen: 2, Epoch: 9})
	for _, b := range held {
		c.send(Release{Slot: b.Slot, Lease: b.Lease})
	}
	for b := range fakeSteps {
		got := recvAs[Batch](c)
		if got.Gen != 2 || got.Epoch != 9 || got.Step != int64(b) {
			t.Fatalf("%+v", got)
		}
		c.send(Release{Slot: got.Slot, Lease: got.Lease})
	}
	c.conn.Close()
	c.wait()
}

func TestStatsWhileStuck(t *testing.T) {
	fake := newFake(t)
	fake.stuck = make(chan struct{})
	c := opened(t, fake)
	c.send(Start{Gen: 1})
	c.send(Stats{Request: 77})
	if st := recvAs[Stats](c); st.Request != 77 || !strings.Contains(string(st.JSON), "fetch: reading x for 3 s") {
		t.Errorf("%d %s", st.Request, st.JSON)
	}
	c.conn.Close()
	if err := c.wait(); err != nil {
		t.Error(err)
	}
}

func TestErrorsOfTheStream(t *testing.T) {
	for _, failure := range []error{
		&pipeline.RecordError{ID: 12, Name: "a/b.jpg", Reason: "truncated"},
		io.ErrUnexpectedEOF,
	} {
		fake := newFake(t)
		fake.failure, fake.failAt = failure, 0
		c := opened(t, fake)
		c.send(Start{Gen: 5})
		e := recvAs[Error](c)
		if rec, ok := failure.(*pipeline.RecordError); ok {
			if e.Code != CodeRecord || e.Record != 12 || e.Name != rec.Name || e.Reason != rec.Reason || e.Gen != 5 {
				t.Errorf("%+v", e)
			}
		} else if e.Code != CodeStream || e.Record != -1 || e.Reason != failure.Error() {
			t.Errorf("%+v", e)
		}
		// The session lives on.
		c.send(Start{Gen: 6})
		if b := recvAs[Batch](c); b.Gen != 6 {
			t.Errorf("%+v", b)
		}
		c.conn.Close()
		if err := c.wait(); err != nil {
			t.Error(err)
		}
	}
}

func TestOpenFails(t *testing.T) {
	fake := newFake(t)
	defer fake.Close()
	c := dial(t, fake, errors.New("no such folder: /x"))
	c.send(Open{Config: []byte(`{}`)})
	if e := recvAs[Error](c); e.Code != CodeConfig || e.Reason != "no such folder: /x" {
		t.Errorf("%+v", e)
	}
	if _, err := c.tryRecv(); !errors.Is(err, ErrEnded) {
		t.Errorf("after the error: %v", err)
	}
	<-c.done
}

func TestConfigInFile(t *testing.T) {
	fd, err := unix.MemfdCreate("config", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	config := strings.Repeat("x", 200_000)
	if _, err := unix.Write(fd, []byte(config)); err != nil {
		t.Fatal(err)
	}
	c := dial(t, newFake(t), nil)
	open := Open{InFile: true, FileSize: uint32(len(config))}
	if _, _, err := c.conn.WriteMsgUnix(open.Append(nil), unix.UnixRights(fd), nil); err != nil {
		t.Fatal(err)
	}
	recvAs[Ready](c)
	c.conn.Close()
	c.wait()
	if c.fake.config != config {
		t.Errorf("the engine got %d bytes", len(c.fake.config))
	}
}

func TestProtocolViolations(t *testing.T) {
	for _, c := range []struct {
		what string
		open bool
		msg  []byte
		want string
	}{
		{"no OPEN", false, Start{Gen: 1}.Append(nil), "not OPEN"},
		{"garbage", false, []byte("hello, is this HTTP?"), "version"},
		{"slot not out", true, Release{Slot: 1, Lease: 1}.Append(nil), "there was not"},
		{"slot out of range", true, Release{Slot: 4000, Lease: 1}.Append(nil), "there was not"},
		{"second OPEN", true, Open{}.Append(nil), "not for the engine"},
		{"file missing", false, Open{InFile: true, FileSize: 5}.Append(nil), "0 descriptors"},
	} {
		fake := newFake(t)
		cl := dial(t, fake, nil)
		if c.open {
			cl.send(Open{})
			recvAs[Ready](cl)
		}
		if _, err := cl.conn.Write(c.msg); err != nil {
			t.Fatal(err)
		}
		if e := recvAs[Error](cl); e.Code != CodeProtocol || !strings.Contains(e.Reason, c.want) {
			t.Errorf("%s: %+v", c.what, e)
		}
		if err := <-cl.done; !errors.Is(err, errProtocol) {
			t.Errorf("%s: session ended with %v", c.what, err)
		}
		if !c.open {
			fake.Close()
		}
	}
}

// A descriptor that could block forever, such as a pipe, is refused as configuration.
func TestConfigInPipe(t *testing.T) {
	var fds [2]int
	if err := unix.Pipe(fds[:]); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	fake := newFake(t)
	defer fake.Close()
	c := dial(t, fake, nil)
	if _, _, err := c.conn.WriteMsgUnix(Open{InFile: true, FileSize: 5}.Append(nil), unix.UnixRights(fds[0]), nil); err != nil {
		t.Fatal(err)
	}
	if e := recvAs[Error](c); e.Code != CodeProtocol || !strings.Contains(e.Reason, "not a file") {
		t.Errorf("%+v", e)
	}
	<-c.done
}

func TestClientLeavesWhileOpening(t *testing.T) {
	engine, trainer := pair(t)
	began := make(chan struct{})
	s := NewSession(engine, Options{Open: func(ctx context.Context, _ []byte) (Pipeline, error) {
		close(began)
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	done := make(chan error, 1)
	go func() { done <- s.Run(context.Background()) }()
	trainer.Send(Open{})
	<-began
	trainer.Interrupt()
	select {
	case <-s.Gone():
	case <-time.After(10 * time.Second):
		t.Fatal("the client's end was not seen")
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestPanicWhileOpening(t *testing.T) {
	engine, trainer := pair(t)
	s := NewSession(engine, Options{Open: func(context.Context, []byte) (Pipeline, error) { panic("boom") }})
	done := make(chan error, 1)
	go func() { done <- s.Run(context.Background()) }()
	c := &client{Client: trainer, t: t}
	c.send(Open{})
	if e := recvAs[Error](c); e.Code != CodeInternal || !strings.Contains(e.Reason, "boom") {
		t.Errorf("%+v", e)
	}
	trainer.Close()
	<-done
}

func TestServer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	opt := Options{Open: func(context.Context, []byte) (Pipeline, error) { return newFake(t), nil }}
	// A socket without a listener, as kill -9 leaves it.
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
	opt.Log = NewSession(nil, Options{}).opt.Log
	s, err := Listen(path, opt)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm()&0o077 != 0 {
		t.Errorf("socket has mode %v, %v", st.Mode(), err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	if _, err := Listen(path, opt); err == nil || !strings.Contains(err.Error(), "another engine") {
		t.Errorf("a second server: %v", err)
	}
	var clients []*client
	for range 3 {
		trainer, err := Dial(ctx, path)
		if err != nil {
			t.Fatal(err)
		}
		c := &client{Client: trainer, t: t}
		clients = append(clients, c)
		c.send(Open{})
		recvAs[Ready](c)
		c.send(Start{Gen: 1})
		recvAs[Batch](c)
	}
	clients[0].conn.Close()
	cancel() // ends the other two
	if err := <-done; err != nil {
		t.Error(err)
	}
	for _, c := range clients[1:] {
		for {
			if _, err := c.tryRecv(); err != nil {
				break
			}
		}
		c.conn.Close()
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(path, opt); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("over a file: %v", err)
	}
	if _, err := Listen("/tmp/"+strings.Repeat("x", 200), opt); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("long path: %v", err)
	}
}

// BenchmarkHandoff is one batch there and its slot back.
func BenchmarkHandoff(b *testing.B) {
	c := opened(b, newFake(b))
	c.send(Start{Gen: 1})
	buf := make([]byte, MaxMessage)
	out := make([]byte, 0, 64)
	b.ReportAllocs()
	for i := 0; i < b.N; {
		n, err := c.conn.Read(buf)
		if err != nil {
			b.Fatal(err)
		}
		if Type(buf[0]) != TypeBatch || n < 24 {
			continue
		}
		i++
		out = Release{Slot: le.Uint32(buf[12:]), Lease: le.Uint64(buf[16:])}.Append(out[:0])
		if _, err := c.conn.Write(out); err != nil {
			b.Fatal(err)
		}
	}
	c.conn.Close()
	<-c.done
}
