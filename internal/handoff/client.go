package handoff

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/pipeline"
)

// Client is the trainer's end of a connection, for Go code that takes batches from an engine. The benchmarks, the
// probe, and the tests of this package use it. Python's client is python/src/stoker/_connection.py. It belongs to one
// goroutine; only Interrupt may be called from others.
type Client struct {
	// Description is the engine's description of the open pipeline.
	Description Description

	conn *net.UnixConn
	buf  []byte
	rest []byte // of the last packet
	out  []byte
	// queue has messages that came during the wait for another one.
	queue   []Message
	ready   Ready
	ring    []byte
	gen     uint32
	request uint32
}

// Description is the part of the engine's description (docs/reference/protocol.md) that
// clients in Go need.
type Description struct {
	Len       int64  `json:"len"`
	Steps     int64  `json:"steps"`
	BatchSize int    `json:"batch_size"`
	Threads   int    `json:"threads"`
	Slots     int    `json:"slots"`
	SlotBytes int64  `json:"slot_bytes"`
	Format    string `json:"format"`
}

// ErrEnded reports that the engine has closed the connection.
var ErrEnded = errors.New("the engine has ended")

// A Failure is an error that an engine reports.
type Failure struct{ Message Error }

func (f *Failure) Error() string {
	if m := &f.Message; m.Name != "" {
		return fmt.Sprintf("record %d (%s): %s", m.Record, m.Name, m.Reason)
	}
	return f.Message.Reason
}

// Hint returns the advice of the engine, if it has any.
func (f *Failure) Hint() string { return f.Message.Hint }

// dialPause is the time between two tries to reach an engine.
const dialPause = 5 * time.Millisecond

// Dial connects to the engine that serves at path. It waits for one that is about
// to start, until ctx is done.
func Dial(ctx context.Context, path string) (*Client, error) {
	for {
		conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
		if err == nil {
			return NewClient(conn), nil
		}
		if !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ECONNREFUSED) {
			return nil, fmt.Errorf("connecting to the engine at %s: %w", path, cause(err))
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("no engine answers at %s (%w): %w", path, cause(err), context.Cause(ctx))
		case <-time.After(dialPause):
		}
	}
}

// Pair returns a client and the descriptor of the other end of its connection, for an engine (FromFD).
func Pair() (c *Client, engine int, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, -1, os.NewSyscallError("socketpair", err)
	}
	conn, err := FromFD(fds[0])
	if err != nil {
		unix.Close(fds[1])
		return nil, -1, err
	}
	return NewClient(conn), fds[1], nil
}

// NewClient returns a client that owns the connection.
func NewClient(conn *net.UnixConn) *Client {
	return &Client{conn: conn, buf: make([]byte, MaxMessage)}
}

// Close ends the connection and unmaps the ring.
func (c *Client) Close() {
	c.conn.Close()
	if c.ring != nil {
		_ = unix.Munmap(c.ring)
		c.ring = nil
	}
}

// Interrupt closes the connection, from any goroutine. Pending calls fail.
func (c *Client) Interrupt() { c.conn.Close() }

// Send sends a message.
func (c *Client) Send(m Message) error {
	c.out = m.Append(c.out[:0])
	if _, err := c.conn.Write(c.out); err != nil {
		return lost(err)
	}
	return nil
}

// Receive waits for the next message of any type.
func (c *Client) Receive(timeout time.Duration) (Message, error) {
	if len(c.rest) == 0 {
		c.conn.SetReadDeadline(time.Now().Add(timeout))
		n, err := c.conn.Read(c.buf)
		if err != nil || n == 0 {
			return nil, lost(err)
		}
		c.rest = c.buf[:n]
	}
	first, rest := First(c.rest)
	c.rest = rest
	return Parse(first)
}

// lost explains the end of the connection.
func lost(err error) error {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errors.New("the engine sends nothing any more")
	case err == nil, errors.Is(err, io.EOF), errors.Is(err, unix.EPIPE), errors.Is(err, unix.ECONNRESET):
		return ErrEnded
	}
	return err
}

// Open asks for a pipeline and maps its ring.
func (c *Client) Open(config []byte, timeout time.Duration) error {
	if len(config) > MaxInlineConfig {
		return fmt.Errorf("the configuration has %d bytes, more than the %d that fit", len(config), MaxInlineConfig)
	}
	if err := c.Send(Open{Config: config}); err != nil {
		return err
	}
	c.conn.SetReadDeadline(time.Now().Add(timeout))
	oob := make([]byte, unix.CmsgSpace(4*4))
	n, oobn, _, _, err := c.conn.ReadMsgUnix(c.buf, oob)
	if err != nil || n == 0 {
		return lost(err)
	}
	fds, err := descriptors(oob[:oobn])
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	if err != nil {
		return err
	}
	m, err := Parse(c.buf[:n])
	if err != nil {
		return err
	}
	switch m := m.(type) {
	case Error:
		return &Failure{m}
	case Ready:
		return c.begin(m, fds)
	}
	return fmt.Errorf("the engine answers %v to OPEN", m.Type())
}

// begin processes the descriptors that came with READY.
func (c *Client) begin(ready Ready, fds []int) error {
	if len(fds) < 2 || ready.InfoSize > MaxConfig {
		return fmt.Errorf("the engine sends %d descriptors and a description of %d bytes", len(fds), ready.InfoSize)
	}
	text, err := readFile(fds[1], int(ready.InfoSize))
	if err != nil {
		return fmt.Errorf("the engine's description: %w", err)
	}
	if err := json.Unmarshal(text, &c.Description); err != nil {
		return fmt.Errorf("the engine's description: %w", err)
	}
	used := c.Description.SlotBytes
	if ready.Slots < 1 || ready.Slots > MaxSlots || ready.SlotStride > ready.RingSize/uint64(ready.Slots) || used < 0 || uint64(used) > ready.SlotStride || ready.RingSize > 1<<46 {
		return fmt.Errorf("the engine sends a ring of %d bytes for %d slots of %d, %d apart", ready.RingSize, ready.Slots, used, ready.SlotStride)
	}
	c.ready = ready
	c.ring, err = unix.Mmap(fds[0], 0, int(ready.RingSize), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return os.NewSyscallError("mmap", err)
	}
	return nil
}

// Start starts the stream at a position; batches under way are skipped.
func (c *Client) Start(epoch, row int64) error {
	c.gen++
	return c.Send(Start{Gen: c.gen, Epoch: epoch, Row: row})
}

// Next waits for the next batch or the end of an epoch: a Batch or an EpochEnd of
// the stream that Start began last.
func (c *Client) Next(timeout time.Duration) (Message, error) {
	for {
		m, err := c.take(timeout)
		if err != nil {
			return nil, err
		}
		switch m := m.(type) {
		case Batch:
			if m.Slot >= c.ready.Slots {
				return nil, fmt.Errorf("the engine names slot %d of %d", m.Slot, c.ready.Slots)
			}
			if m.Gen == c.gen {
				return m, nil
			}
			if err := c.Release(m); err != nil {
				return nil, err
			}
		case EpochEnd:
			if m.Gen == c.gen {
				return m, nil
			}
		}
	}
}

// take returns the oldest message that was not received yet.
func (c *Client) take(timeout time.Duration) (Message, error) {
	if len(c.queue) > 0 {
		m := c.queue[0]
		c.queue = append(c.queue[:0], c.queue[1:]...)
		return m, nil
	}
	m, err := c.Receive(timeout)
	if err != nil {
		return nil, err
	}
	if e, ok := m.(Error); ok {
		return nil, &Failure{e}
	}
	return m, nil
}

// Data returns the slot of a batch, which is valid until the batch is released.
func (c *Client) Data(b Batch) []byte {
	at := uint64(b.Slot) * c.ready.SlotStride
	return c.ring[at : at+uint64(c.Description.SlotBytes)]
}

// Release releases the slot of a batch.
func (c *Client) Release(b Batch) error { return c.Send(Release{Slot: b.Slot, Lease: b.Lease}) }

// statsTimeout is the time that an engine has to answer STATS. It also answers while it waits for storage.
const statsTimeout = 30 * time.Second

// Stats asks the engine for its counters.
func (c *Client) Stats() (pipeline.Stats, error) {
	var s pipeline.Stats
	c.request++
	if err := c.Send(Stats{Request: c.request}); err != nil {
		return s, err
	}
	for {
		m, err := c.Receive(statsTimeout)
		if err != nil {
			return s, err
		}
		switch m := m.(type) {
		case Error:
			return s, &Failure{m}
		case Stats:
			if m.Request == c.request {
				return s, json.Unmarshal(m.JSON, &s)
			}
		default:
			// Batches may come at any time, but no more than there are slots.
			if len(c.queue) > 2*MaxSlots {
				return s, fmt.Errorf("the engine sends %d messages and no answer to STATS", len(c.queue))
			}
			c.queue = append(c.queue, m)
		}
	}
}
