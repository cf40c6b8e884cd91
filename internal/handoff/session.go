package handoff

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/pipeline"
	"github.com/stokerdata/stoker/internal/pread"
	"github.com/stokerdata/stoker/internal/proc"
)

// Pipeline is the interface of the pipeline that a session serves; see *pipeline.Pipeline.
type Pipeline interface {
	Info() pipeline.Info
	Ring() *arena.Ring
	Start(pos item.Position) (gen uint64)
	// NewGiven returns an order for StartGiven if the client gives the order, otherwise nil.
	NewGiven(pos item.Position) *pipeline.Given
	StartGiven(pos item.Position, given *pipeline.Given) (gen uint64)
	Next(ctx context.Context) (pipeline.Event, error)
	// Poll is Next without waiting: it returns false if there is no event yet.
	Poll() (pipeline.Event, error, bool)
	Release(slot int)
	Stats() pipeline.Stats
	Close() error
}

// Noting is a Pipeline that notes the records that it decodes in a file, which the client gets (package inflight). The
// file is nil if there is none.
type Noting interface {
	InFlight() *os.File
}

// Owning is a Pipeline whose client shares batches with others. If it is behind them, its batches come from a ring of its
// own, whose slots begin at MaxSlots.
type Owning interface {
	OwnRing() *arena.Ring
}

// Options are the options that sessions share.
type Options struct {
	// Open opens the pipeline for a client's JSON configuration. It gives up when ctx is done; PeerPID(ctx) is the
	// client.
	Open func(ctx context.Context, config []byte) (Pipeline, error)
	// EngineVersion is reported to clients.
	EngineVersion string
	// Log receives messages for the operator of a server.
	Log *slog.Logger
	// OpenTimeout is the time that a client has to send its OPEN; 0 means 30 s.
	OpenTimeout time.Duration
	// Linger is the time without a client after which a Server stops; 0 means never.
	Linger time.Duration
}

// Session serves one client over one connection.
type Session struct {
	opt  Options
	conn *net.UnixConn
	gone chan struct{}

	mu sync.Mutex
	// pending is a START that the sender has not taken up; interrupt ends the
	// sender's wait for a batch of the stream before it.
	pending   *Start
	interrupt context.CancelFunc
	// given is the order of the last started stream, if the client gives it.
	given *pipeline.Given
	// leases has the lease of each slot that the client holds.
	leases    map[uint32]uint64
	lastLease uint64
	slots     uint32 // of the ring
	second    uint32 // slots of a second ring, once the client has it

	startc chan struct{}
	gen    uint32 // of the last START; the reader's
}

// NewSession returns a session that owns conn, a SOCK_SEQPACKET connection.
func NewSession(conn *net.UnixConn, opt Options) *Session {
	if opt.OpenTimeout == 0 {
		opt.OpenTimeout = 30 * time.Second
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	return &Session{opt: opt, conn: conn, gone: make(chan struct{}), startc: make(chan struct{}, 1)}
}

// Gone is closed as soon as the client has closed the connection or exited, or the session has ended for another
// reason. Run may still be waiting for a read that does not return.
func (s *Session) Gone() <-chan struct{} { return s.gone }

// Run serves the client until it leaves or ctx is done, and returns when no goroutine of the session is running. The
// error is nil if the client left properly.
func (s *Session) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Closing the connection ends every wait of the session.
	stop := context.AfterFunc(ctx, func() { s.conn.Close() })
	defer stop()
	defer s.conn.Close()

	config, err := s.readOpen()
	if err != nil {
		close(s.gone)
		if errors.Is(err, errProtocol) {
			s.send(Error{Code: CodeProtocol, Record: -1, Reason: err.Error()})
		}
		return cleanEnd(err)
	}
	// From here one goroutine reads, so that the client's exit is noticed while the source is being opened and while
	// the sender waits.
	var p Pipeline
	opened := make(chan struct{})
	readDone := make(chan error, 1)
	go func() {
		err := s.read(opened, &p)
		close(s.gone)
		cancel()
		readDone <- err
	}()
	p, err = s.open(ctx, config)
	if err == nil {
		close(opened)
		err = s.serve(ctx, p)
	} else {
		s.send(openError(err))
	}
	cancel()
	readErr := <-readDone // the reader uses the pipeline: not before it has ended may that be closed
	var closeErr error
	if p != nil {
		closeErr = p.Close()
	}
	return cmp.Or(cleanEnd(readErr), cleanEnd(err), closeErr)
}

func openError(err error) Error {
	code := CodeConfig
	if errors.Is(err, errFault) {
		code = CodeInternal
	}
	return Error{Code: code, Record: -1, Reason: err.Error(), Hint: hintOf(err)}
}

// cleanEnd returns nil for errors that only mean that either side has closed the connection.
func cleanEnd(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, context.Canceled) ||
		errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		return nil
	}
	return err
}

func hintOf(err error) string {
	var h interface{ Hint() string }
	if errors.As(err, &h) {
		return h.Hint()
	}
	return ""
}

// errFault marks faults of the engine, as opposed to invalid requests.
var errFault = errors.New("fault in the engine")

// open opens the pipeline; a panic in there concerns this client alone.
func (s *Session) open(ctx context.Context, config []byte) (p Pipeline, err error) {
	defer func() {
		if r := recover(); r != nil {
			s.opt.Log.Error("opening failed", "panic", r, "stack", string(debug.Stack()))
			p, err = nil, fmt.Errorf("%w while opening: %v", errFault, r)
		}
	}()
	return s.opt.Open(withPeer(ctx, s.conn), config)
}

// readOpen reads the first message and the configuration.
func (s *Session) readOpen() ([]byte, error) {
	s.conn.SetReadDeadline(time.Now().Add(s.opt.OpenTimeout))
	buf := make([]byte, MaxMessage)
	oob := make([]byte, unix.CmsgSpace(4*4))
	n, oobn, flags, _, err := s.conn.ReadMsgUnix(buf, oob)
	if err != nil {
		return nil, err
	}
	fds, err := descriptors(oob[:oobn])
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, io.EOF
	}
	if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		return nil, protocolErrorf("the first message is larger than %d bytes", MaxMessage)
	}
	m, err := Parse(buf[:n])
	if err != nil {
		return nil, err
	}
	open, ok := m.(Open)
	if !ok {
		return nil, protocolErrorf("the first message is %v, not OPEN", m.Type())
	}
	s.conn.SetReadDeadline(time.Time{})
	if !open.InFile {
		return open.Config, nil
	}
	if len(fds) != 1 {
		return nil, protocolErrorf("OPEN with %d descriptors", len(fds))
	}
	return readFile(fds[0], int(open.FileSize))
}

// readFile reads size bytes from the start of a memfd. The descriptor is untrusted: any file that can block, such as a
// pipe, is refused.
func readFile(fd, size int) ([]byte, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, protocolErrorf("the configuration's descriptor is not a file")
	}
	if st.Size < int64(size) {
		return nil, protocolErrorf("the configuration's file has %d of %d bytes", st.Size, size)
	}
	out := make([]byte, size)
	if err := pread.Full(fd, out, 0); err != nil {
		return nil, protocolErrorf("the configuration's file cannot be read (%v)", err)
	}
	return out, nil
}

func descriptors(oob []byte) ([]int, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	cmsgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, protocolErrorf("control message: %v", err)
	}
	var fds []int
	for _, c := range cmsgs {
		more, err := unix.ParseUnixRights(&c)
		if err != nil {
			return fds, protocolErrorf("control message: %v", err)
		}
		fds = append(fds, more...)
	}
	return fds, nil
}

// read handles what the client sends until the connection ends. p is set once
// opened is closed.
func (s *Session) read(opened <-chan struct{}, p *Pipeline) error {
	buf := make([]byte, MaxMessage)
	for {
		n, err := s.conn.Read(buf)
		if err != nil {
			return err
		}
		if n == 0 {
			return io.EOF
		}
		for message, rest := First(buf[:n]); ; message, rest = First(rest) {
			m, err := Parse(message)
			if err == nil {
				if _, ok := m.(Close); ok {
					return nil
				}
				select {
				case <-opened:
					err = s.handle(m, *p)
				default:
					err = protocolErrorf("%v before READY", m.Type())
				}
			}
			if err != nil {
				s.send(Error{Code: CodeProtocol, Record: -1, Reason: err.Error()})
				return err
			}
			if len(rest) == 0 {
				break
			}
		}
	}
}

func (s *Session) handle(m Message, p Pipeline) error {
	switch m := m.(type) {
	case Release:
		s.mu.Lock()
		exists := m.Slot < s.slots || m.Slot >= MaxSlots && m.Slot-MaxSlots < s.second
		known := exists && m.Lease != 0 && m.Lease <= s.lastLease
		out := known && s.leases[m.Slot] == m.Lease
		if out {
			delete(s.leases, m.Slot)
		}
		s.mu.Unlock()
		if !known {
			return protocolErrorf("RELEASE of slot %d under lease %d, which there was not", m.Slot, m.Lease)
		}
		// An interrupted client may release a lease twice. Leases are never reused, so the second release has no
		// effect.
		if out {
			p.Release(int(m.Slot))
		}
		return nil
	case Start:
		s.gen = m.Gen
		s.mu.Lock()
		s.pending, s.given = &m, p.NewGiven(item.Position{Epoch: m.Epoch, Row: m.Row})
		if s.interrupt != nil {
			s.interrupt()
		}
		s.mu.Unlock()
		select {
		case s.startc <- struct{}{}:
		default:
		}
		return nil
	case Order:
		if m.Gen != s.gen {
			return nil // of a stream that was left
		}
		s.mu.Lock()
		given := s.given
		s.mu.Unlock()
		if given == nil {
			return protocolErrorf("ORDER, where the configuration does not say that the client gives it")
		}
		if err := given.Add(m.Records, m.Whole); err != nil {
			return protocolErrorf("ORDER: %v", err)
		}
		return nil
	case Stats:
		return s.send(Stats{Request: m.Request, JSON: statsJSON(p)})
	}
	return protocolErrorf("%v is not for the engine", m.Type())
}

func (s *Session) send(m Message) error {
	_, err := s.conn.Write(m.Append(make([]byte, 0, 256)))
	return err
}

// serve sends READY and then the batches of the stream that the client started last.
func (s *Session) serve(ctx context.Context, p Pipeline) error {
	ring := p.Ring()
	s.mu.Lock()
	s.leases, s.slots = map[uint32]uint64{}, uint32(ring.Slots())
	s.mu.Unlock()
	if err := s.sendReady(p); err != nil {
		return err
	}
	sender := sender{s: s, p: p, buf: make([]byte, 0, MaxMessage)}
	for {
		select {
		case <-s.startc:
		case <-ctx.Done():
			return ctx.Err()
		}
		for {
			s.mu.Lock()
			start := s.pending
			if start == nil {
				s.mu.Unlock()
				break
			}
			s.pending = nil
			given := s.given
			sctx, interrupt := context.WithCancel(ctx)
			s.interrupt = interrupt
			s.mu.Unlock()
			err := sender.stream(sctx, *start, given)
			interrupt()
			if err != nil {
				return err
			}
		}
	}
}

func (s *Session) sendReady(p Pipeline) error {
	info, err := infoJSON(p.Info(), s.opt.EngineVersion)
	if err != nil {
		return err
	}
	file, err := arena.MemFile("stoker-info", 0)
	if err != nil {
		return err
	}
	defer file.Close()
	fd := int(file.Fd())
	for done := 0; done < len(info); {
		n, err := unix.Write(fd, info[done:])
		if err != nil && err != unix.EINTR {
			return fmt.Errorf("writing the description of the data: %w", err)
		}
		done += max(n, 0)
	}
	ring := p.Ring()
	ready := Ready{
		InfoSize: uint32(len(info)), Slots: uint32(ring.Slots()),
		SlotStride: uint64(ring.SlotStride()), RingSize: uint64(ring.Bytes()),
	}
	fds := []int{ring.Fd(), fd}
	if in := p.Info(); in.Shared && !in.Pinned { // other clients use the same memory
		if fds[0], err = unix.Open(proc.FDPath(ring.Fd()), unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			return fmt.Errorf("opening the ring for reading: %w", err)
		}
		defer unix.Close(fds[0])
	}
	if noted, ok := p.(Noting); ok && noted.InFlight() != nil {
		fds = append(fds, int(noted.InFlight().Fd()))
	}
	_, _, err = s.conn.WriteMsgUnix(ready.Append(nil), unix.UnixRights(fds...), nil)
	return err
}

// maxTogether is the largest number of events in a packet. Such a packet is small compared with MaxMessage, even if the
// last event is the largest EPOCH_END.
const maxTogether = 32

// sender sends the events of streams. It belongs to one goroutine.
type sender struct {
	s   *Session
	p   Pipeline
	buf []byte
}

// stream starts the pipeline at a position and sends its batches. It returns nil if the stream is interrupted, or if it
// fails: the client gets an error and may start another stream. It returns an error if the connection is lost.
func (d *sender) stream(ctx context.Context, start Start, given *pipeline.Given) error {
	gen := d.p.StartGiven(item.Position{Epoch: start.Epoch, Row: start.Row}, given)
	for {
		ev, err := d.p.Next(ctx)
		switch {
		case ctx.Err() != nil:
			if err == nil && ev.Kind == pipeline.EventBatch {
				d.p.Release(ev.Slot)
			}
			return nil
		case err != nil:
			return d.s.send(streamError(start.Gen, err))
		case ev.Gen != gen:
			if ev.Kind == pipeline.EventBatch {
				d.p.Release(ev.Slot)
			}
			continue
		}
		// Other events that are ready are sent along: one message wakes the client once.
		d.buf = d.buf[:0]
		for n := 1; ; n++ {
			if err := d.event(start.Gen, &ev); err != nil {
				return err
			}
			if ev.Kind != pipeline.EventBatch || n == maxTogether {
				break
			}
			next, failed, ok := d.p.Poll()
			if !ok {
				break
			}
			if failed != nil || next.Gen != gen {
				if err := d.flush(); err != nil {
					return err
				}
				if failed != nil {
					return d.s.send(streamError(start.Gen, failed))
				}
				if next.Kind == pipeline.EventBatch {
					d.p.Release(next.Slot)
				}
				break
			}
			ev = next
		}
		if err := d.flush(); err != nil {
			return err
		}
	}
}

// flush sends the collected messages.
func (d *sender) flush() error {
	if len(d.buf) == 0 {
		return nil
	}
	_, err := d.s.conn.Write(d.buf)
	d.buf = d.buf[:0]
	return err
}

// event adds the message of an event to the packet.
func (d *sender) event(gen uint32, ev *pipeline.Event) error {
	switch ev.Kind {
	case pipeline.EventBatch:
		if ev.Slot >= MaxSlots && d.s.second == 0 {
			if err := d.sendRing(); err != nil {
				return err
			}
		}
		d.s.mu.Lock()
		d.s.lastLease++
		lease := d.s.lastLease
		d.s.leases[uint32(ev.Slot)] = lease
		d.s.mu.Unlock()
		d.buf = Batch{
			Gen: gen, Slot: uint32(ev.Slot), Rows: uint32(ev.Rows), Repeated: uint32(ev.Repeated), Lease: lease,
			Epoch: ev.Epoch, Step: ev.Step, NextEpoch: ev.Pos.Epoch, NextRow: ev.Pos.Row,
		}.Append(d.buf)
	case pipeline.EventEpochEnd:
		d.buf = EpochEnd{Gen: gen, Epoch: ev.Epoch, Skipped: ev.Skipped, Report: badReport(ev)}.Append(d.buf)
	default:
		return fmt.Errorf("event of unknown kind %d", ev.Kind)
	}
	return nil
}

// sendRing sends the ring of the client's own pipeline.
func (d *sender) sendRing() error {
	if err := d.flush(); err != nil {
		return err
	}
	ring := d.p.(Owning).OwnRing()
	m := Ring{Slots: uint32(ring.Slots()), SlotStride: uint64(ring.SlotStride()), RingSize: uint64(ring.Bytes())}
	d.s.mu.Lock()
	d.s.second = m.Slots
	d.s.mu.Unlock()
	_, _, err := d.s.conn.WriteMsgUnix(m.Append(nil), unix.UnixRights(ring.Fd()), nil)
	return err
}

func streamError(gen uint32, err error) Error {
	var rec *pipeline.RecordError
	if errors.As(err, &rec) {
		return Error{Gen: gen, Code: CodeRecord, Record: rec.ID, Name: rec.Name, Reason: rec.Reason}
	}
	return Error{Gen: gen, Code: CodeStream, Record: -1, Reason: err.Error(), Hint: hintOf(err)}
}
