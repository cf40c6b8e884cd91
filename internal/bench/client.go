package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/handoff"
	"github.com/stokerdata/stoker/internal/pipeline"
	"github.com/stokerdata/stoker/internal/proc"
)

// openTimeout is how long an engine may take to open a source: a folder of
// millions of files on a slow disk takes minutes.
const openTimeout = 10 * time.Minute

// engine is a running `stoker serve`, a child of this process.
type engine struct {
	cmd  *exec.Cmd
	log  *tail
	dir  string // of its socket, "" when its one client came with it
	done chan struct{}
	err  error
	once sync.Once
}

// tail keeps the end of what an engine says.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, b...)
	if over := len(t.buf) - 1<<14; over > 0 {
		t.buf = t.buf[over:]
	}
	return len(b), nil
}

func (t *tail) lastLine() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(string(t.buf)), "\n")
	return lines[len(lines)-1]
}

// startEngine runs the engine on the given CPUs (all when empty) with clients
// connections to it: over a socket pair for one, as a loader does it, over a
// socket in a folder of its own for several.
func startEngine(ctx context.Context, command []string, cpus []int, clients int) (*engine, []*net.UnixConn, error) {
	e := &engine{log: &tail{}, done: make(chan struct{})}
	args := append([]string{}, command[1:]...)
	var theirs *os.File
	var conns []*net.UnixConn
	if clients == 1 {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return nil, nil, os.NewSyscallError("socketpair", err)
		}
		theirs = os.NewFile(uintptr(fds[1]), "engine")
		defer theirs.Close()
		conn, err := handoff.FromFD(fds[0])
		if err != nil {
			return nil, nil, err
		}
		conns = append(conns, conn)
		args = append(args, "serve", "--fd=3", "--parent="+strconv.Itoa(os.Getpid()))
	} else {
		dir, err := os.MkdirTemp("", "stoker-bench-")
		if err != nil {
			return nil, nil, err
		}
		e.dir = dir
		args = append(args, "serve", "--socket", filepath.Join(dir, "engine"))
	}
	e.cmd = exec.Command(command[0], args...)
	e.cmd.Stdout, e.cmd.Stderr = e.log, e.log
	if theirs != nil {
		e.cmd.ExtraFiles = []*os.File{theirs}
	}
	e.cmd.SysProcAttr = proc.OwnGroup()
	err := proc.OnCPUs(cpus, e.cmd.Start)
	if err != nil {
		closeAll(conns)
		os.RemoveAll(e.dir)
		return nil, nil, fmt.Errorf("starting the engine %s: %w", command[0], err)
	}
	go func() {
		e.err = e.cmd.Wait()
		close(e.done)
	}()
	for len(conns) < clients {
		conn, err := e.dial(ctx)
		if err != nil {
			closeAll(conns)
			e.stop()
			return nil, nil, err
		}
		conns = append(conns, conn)
	}
	return e, conns, nil
}

func closeAll(conns []*net.UnixConn) {
	for _, c := range conns {
		c.Close()
	}
}

func (e *engine) dial(ctx context.Context) (*net.UnixConn, error) {
	addr := &net.UnixAddr{Name: filepath.Join(e.dir, "engine"), Net: "unixpacket"}
	for deadline := time.Now().Add(30 * time.Second); ; {
		conn, err := net.DialUnix("unixpacket", nil, addr)
		if err == nil {
			return conn, nil
		}
		select {
		case <-e.done:
			return nil, fmt.Errorf("the engine has ended: %s", e.log.lastLine())
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("the engine does not answer: %w", err)
		}
	}
}

// stop ends the engine, whose connections are closed, and waits for it.
func (e *engine) stop() {
	e.once.Do(func() {
		if e.dir != "" {
			_ = e.cmd.Process.Signal(unix.SIGTERM)
		}
		select {
		case <-e.done:
		case <-time.After(8 * time.Second):
			_ = e.cmd.Process.Kill()
			<-e.done
		}
		if e.dir != "" {
			os.RemoveAll(e.dir)
		}
	})
}

// info is the part of the engine's description that a client needs.
type info struct {
	Len       int64  `json:"len"`
	Steps     int64  `json:"steps"`
	BatchSize int    `json:"batch_size"`
	Threads   int    `json:"threads"`
	Slots     int    `json:"slots"`
	SlotBytes int64  `json:"slot_bytes"`
	Format    string `json:"format"`
}

// client is a trainer: the other end of a hand-off. It belongs to one goroutine.
type client struct {
	conn  *net.UnixConn
	buf   []byte
	ring  []byte
	ready handoff.Ready
	info  info
	gen   uint32
	// queue holds batches that came while something else was waited for.
	queue   []handoff.Message
	request uint32
	// died says what the engine said last when the connection ends.
	died func() string
}

// batch is one that the client holds.
type batch struct {
	slot  uint32
	lease uint64
	rows  int
	// data are the bytes of the slot.
	data []byte
	// epochEnd says that there is no batch but the end of an epoch.
	epochEnd bool
}

// open asks for a pipeline and maps its ring.
func (c *client) open(config []byte) error {
	c.buf = make([]byte, handoff.MaxMessage)
	if len(config) > handoff.MaxInlineConfig {
		return fmt.Errorf("the configuration has %d bytes, more than the %d that fit", len(config), handoff.MaxInlineConfig)
	}
	if _, err := c.conn.Write(handoff.Open{Config: config}.Append(nil)); err != nil {
		return c.lost(err)
	}
	c.conn.SetReadDeadline(time.Now().Add(openTimeout))
	oob := make([]byte, unix.CmsgSpace(4*4))
	n, oobn, _, _, err := c.conn.ReadMsgUnix(c.buf, oob)
	if err != nil || n == 0 {
		return c.lost(err)
	}
	fds, err := receivedFDs(oob[:oobn])
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	if err != nil {
		return err
	}
	m, err := handoff.Parse(c.buf[:n])
	if err != nil {
		return err
	}
	switch m := m.(type) {
	case handoff.Error:
		return refusal(m)
	case handoff.Ready:
		c.ready = m
	default:
		return fmt.Errorf("the engine answers %v to OPEN", m.Type())
	}
	if len(fds) != 2 || c.ready.InfoSize > handoff.MaxConfig {
		return fmt.Errorf("the engine sends %d descriptors and a description of %d bytes", len(fds), c.ready.InfoSize)
	}
	text := make([]byte, c.ready.InfoSize)
	if n, err := unix.Pread(fds[1], text, 0); err != nil || n != len(text) {
		return fmt.Errorf("reading the engine's description: %d of %d bytes, %w", n, len(text), err)
	}
	if err := json.Unmarshal(text, &c.info); err != nil {
		return fmt.Errorf("the engine's description: %w", err)
	}
	c.ring, err = unix.Mmap(fds[0], 0, int(c.ready.RingSize), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return os.NewSyscallError("mmap", err)
	}
	return nil
}

func receivedFDs(oob []byte) ([]int, error) {
	cmsgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	var fds []int
	for _, m := range cmsgs {
		more, err := unix.ParseUnixRights(&m)
		if err != nil {
			return fds, err
		}
		fds = append(fds, more...)
	}
	return fds, nil
}

// engineError is a failure that the engine reports.
type engineError struct {
	text, hint string
}

func (e *engineError) Error() string { return e.text }

// Hint says what to do.
func (e *engineError) Hint() string { return e.hint }

func refusal(m handoff.Error) error {
	text := m.Reason
	if m.Name != "" {
		text = fmt.Sprintf("record %d (%s): %s", m.Record, m.Name, m.Reason)
	}
	return &engineError{text, m.Hint}
}

// lost explains the end of the connection.
func (c *client) lost(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errors.New("the engine sends nothing any more")
	}
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		return fmt.Errorf("the engine has ended: %s", c.died())
	}
	return err
}

// start begins the stream at the first record of an epoch.
func (c *client) start(epoch int64) error {
	c.gen++
	_, err := c.conn.Write(handoff.Start{Gen: c.gen, Epoch: epoch}.Append(nil))
	if err != nil {
		return c.lost(err)
	}
	return nil
}

// receive puts the messages of the next packet into the queue.
func (c *client) receive() error {
	n, err := c.conn.Read(c.buf)
	if err != nil || n == 0 {
		return c.lost(err)
	}
	for rest := c.buf[:n]; len(rest) > 0; {
		var one []byte
		one, rest = handoff.First(rest)
		m, err := handoff.Parse(one)
		if err != nil {
			return err
		}
		if e, ok := m.(handoff.Error); ok {
			return refusal(e)
		}
		c.queue = append(c.queue, m)
	}
	return nil
}

// next waits for the next batch, or for the end of an epoch.
func (c *client) next(timeout time.Duration) (batch, error) {
	c.conn.SetReadDeadline(time.Now().Add(timeout))
	for {
		if len(c.queue) == 0 {
			if err := c.receive(); err != nil {
				return batch{}, err
			}
			continue
		}
		m := c.queue[0]
		c.queue = append(c.queue[:0], c.queue[1:]...)
		switch m := m.(type) {
		case handoff.Batch:
			b := batch{slot: m.Slot, lease: m.Lease, rows: int(m.Rows)}
			if uint64(m.Slot) >= uint64(c.ready.Slots) {
				return b, fmt.Errorf("the engine names slot %d of %d", m.Slot, c.ready.Slots)
			}
			at := uint64(m.Slot) * c.ready.SlotStride
			b.data = c.ring[at : at+uint64(c.info.SlotBytes)]
			if m.Gen != c.gen {
				if err := c.release(b); err != nil {
					return b, err
				}
				continue
			}
			return b, nil
		case handoff.EpochEnd:
			if m.Gen == c.gen {
				return batch{epochEnd: true}, nil
			}
		}
	}
}

func (c *client) release(b batch) error {
	if b.epochEnd {
		return nil
	}
	if _, err := c.conn.Write(handoff.Release{Slot: b.slot, Lease: b.lease}.Append(c.buf[:0:24])); err != nil {
		return c.lost(err)
	}
	return nil
}

// stats asks the engine for its counters.
func (c *client) stats() (pipeline.Stats, error) {
	var s pipeline.Stats
	c.request++
	if _, err := c.conn.Write(handoff.Stats{Request: c.request}.Append(nil)); err != nil {
		return s, c.lost(err)
	}
	c.conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	for {
		for i, m := range c.queue {
			if answer, ok := m.(handoff.Stats); ok && answer.Request == c.request {
				c.queue = slices.Delete(c.queue, i, i+1)
				return s, json.Unmarshal(answer.JSON, &s)
			}
		}
		if err := c.receive(); err != nil {
			return s, err
		}
	}
}

func (c *client) close() {
	if c.ring != nil {
		_ = unix.Munmap(c.ring)
		c.ring = nil
	}
	c.conn.Close()
}
