package probe

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/handoff"
	"github.com/stokerdata/stoker/internal/pipeline"
	"github.com/stokerdata/stoker/internal/plan"
	"github.com/stokerdata/stoker/source/driver"
)

// handoff measures batches of one tiny record through the engine's own protocol
// over a socket: the time from batch to batch is what handing over costs. The
// bytes of a batch are not copied, so that its size does not matter.
func (p *probe) handoff(ctx context.Context, d time.Duration) {
	per, err := perBatch(ctx, d)
	if err != nil {
		if ctx.Err() == nil {
			p.note("hand-off: %v", err)
		}
		return
	}
	p.m.Handoff = &plan.Handoff{PerBatch: per}
}

func perBatch(ctx context.Context, d time.Duration) (seconds float64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, os.NewSyscallError("socketpair", err)
	}
	ours, err := unixConn(fds[0])
	if err != nil {
		unix.Close(fds[1])
		return 0, err
	}
	defer ours.Close()
	theirs, err := unixConn(fds[1])
	if err != nil {
		return 0, err
	}
	session := handoff.NewSession(theirs, handoff.Options{
		Open: func(ctx context.Context, config []byte) (handoff.Pipeline, error) {
			cfg, err := pipeline.ParseConfig(config)
			if err != nil {
				return nil, err
			}
			cfg.OpenSource = func(context.Context, string) (driver.Source, error) { return tiny{}, nil }
			return pipeline.Open(ctx, cfg)
		},
	})
	done := make(chan error, 1)
	go func() { done <- session.Run(ctx) }()
	defer func() {
		ours.Close()
		if serr := <-done; err == nil {
			err = serr
		}
	}()
	stop := context.AfterFunc(ctx, func() { ours.Close() })
	defer stop()
	return receive(ours, d)
}

func unixConn(fd int) (*net.UnixConn, error) {
	f := os.NewFile(uintptr(fd), "probe")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	return c.(*net.UnixConn), nil
}

// receive is the trainer's side: it takes batches and gives their slots back.
func receive(conn *net.UnixConn, d time.Duration) (float64, error) {
	config, err := json.Marshal(map[string]any{"source": "probe", "batch_size": 1, "threads": 1, "memory": 64 << 20})
	if err != nil {
		return 0, err
	}
	if _, err := conn.Write(handoff.Open{Config: config}.Append(nil)); err != nil {
		return 0, err
	}
	buf, oob, out := make([]byte, handoff.MaxMessage), make([]byte, unix.CmsgSpace(4*4)), make([]byte, 0, 256)
	n, oobn, _, _, err := conn.ReadMsgUnix(buf, oob)
	if err != nil {
		return 0, err
	}
	closeDescriptors(oob[:oobn])
	m, err := handoff.Parse(buf[:n])
	if err != nil {
		return 0, err
	}
	if e, ok := m.(handoff.Error); ok {
		return 0, fmt.Errorf("the engine refused: %s", e.Reason)
	}
	if _, err := conn.Write(handoff.Start{Gen: 1}.Append(out[:0])); err != nil {
		return 0, err
	}
	const warmup = 64
	var start time.Time
	for batches := 0; ; {
		n, err := conn.Read(buf)
		if err != nil {
			return 0, err
		}
		// Small batches that are ready come several at a time.
		for rest := buf[:n]; len(rest) > 0; {
			size := messageSize(rest)
			m, err := handoff.Parse(rest[:size])
			if err != nil {
				return 0, err
			}
			rest = rest[size:]
			switch m := m.(type) {
			case handoff.Error:
				return 0, fmt.Errorf("the engine failed: %s", m.Reason)
			case handoff.Batch:
				if _, err := conn.Write(handoff.Release{Slot: m.Slot, Lease: m.Lease}.Append(out[:0])); err != nil {
					return 0, err
				}
				if batches++; batches == warmup {
					start = time.Now()
				}
			}
		}
		if batches > warmup && time.Since(start) > d {
			return time.Since(start).Seconds() / float64(batches-warmup), nil
		}
	}
}

// messageSize is what the first message of b says that it has (docs/LAYOUT.md),
// or all of b when that cannot be: then parsing says what is wrong.
func messageSize(b []byte) int {
	if len(b) < 8 {
		return len(b)
	}
	if size := int64(binary.LittleEndian.Uint32(b[4:])); size >= 8 && size <= int64(len(b)) {
		return int(size)
	}
	return len(b)
}

func closeDescriptors(oob []byte) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return
	}
	for i := range messages {
		fds, _ := unix.ParseUnixRights(&messages[i])
		for _, fd := range fds {
			unix.Close(fd)
		}
	}
}

// tiny is a source of 1 x 1 images.
type tiny struct{ driver.InMemory }

var tinyInfo = driver.Info{URL: "probe", Format: "probe", Len: 1 << 20, Fields: []driver.Field{
	{Name: "image", Kind: driver.KindImage, MaxBytes: 3, Width: 1, Height: 1, Channels: 3, MaxWidth: 1, MaxHeight: 1},
}}

func (tiny) Info() *driver.Info { return &tinyInfo }
func (tiny) Name(int64) string  { return "probe" }
func (tiny) Close() error       { return nil }

func (tiny) Parse(g *driver.Group) error {
	for k := range g.IDs {
		b, err := g.Alloc(3)
		if err != nil {
			return err
		}
		clear(b)
		g.Records[k].Values[0] = driver.Value{Bytes: b, Codec: driver.CodecRaw, Width: 1, Height: 1, Channels: 3}
	}
	return nil
}
