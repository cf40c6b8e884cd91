package handoff

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/arena"
)

const patience = 10 * time.Second

func TestClient(t *testing.T) {
	fake := newFake(t)
	var slots [fakeSlots][]byte // while no other process has the ring
	for k := range slots {
		slots[k] = fake.ring.Slot(k)
	}
	c := dial(t, fake, nil)
	if err := c.Open([]byte(`{"source":"x"}`), patience); err != nil {
		t.Fatal(err)
	}
	if c.Description.Len != fakeSteps || c.Description.SlotBytes != 64 || fake.config != `{"source":"x"}` {
		t.Errorf("description %+v, configuration %s", c.Description, fake.config)
	}
	for range 2 { // batches under way are skipped when the stream restarts
		if err := c.Start(7, 2); err != nil {
			t.Fatal(err)
		}
	}
	for step := int64(2); step < fakeSteps; step++ {
		if step == 3 {
			// Batches that come before the answer are not lost.
			if s, err := c.Stats(); err != nil || !strings.Contains(s.Waiting, "reading x") {
				t.Errorf("counters %+v, %v", s, err)
			}
		}
		m, err := c.Next(patience)
		b, ok := m.(Batch)
		if err != nil || !ok || b.Epoch != 7 || b.Step != step {
			t.Fatalf("%+v, %v; want step %d", m, err, step)
		}
		slots[b.Slot][3] = byte(step)
		if data := c.Data(b); len(data) != 64 || data[3] != byte(step) {
			t.Errorf("the slot's %d bytes are not the engine's", len(data))
		}
		if err := c.Release(b); err != nil {
			t.Fatal(err)
		}
	}
	if m, err := c.Next(patience); err != nil || m.Type() != TypeEpochEnd {
		t.Errorf("%+v, %v; want the end of the epoch", m, err)
	}
	c.Interrupt()
	if err := c.wait(); err != nil {
		t.Error(err)
	}
}

func TestClientIsToldWhy(t *testing.T) {
	c := dial(t, newFake(t), errors.New("there is no such source"))
	err := c.Open(nil, patience)
	var f *Failure
	if !errors.As(err, &f) || f.Message.Code != CodeConfig || !strings.Contains(err.Error(), "no such source") {
		t.Errorf("refused with %v", err)
	}
	if _, err := c.Next(patience); !errors.Is(err, ErrEnded) {
		t.Errorf("afterwards: %v", err)
	}
	<-c.done
	if err := c.Open(make([]byte, MaxInlineConfig+1), patience); err == nil || !strings.Contains(err.Error(), "configuration") {
		t.Errorf("a configuration that does not fit: %v", err)
	}
}

// A client that comes before its engine waits for it.
func TestDialWaits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "engine")
	// The socket of a killed engine refuses connections.
	left, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(left, &unix.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	unix.Close(left)
	type dialled struct {
		c   *Client
		err error
	}
	done := make(chan dialled)
	go func() {
		c, err := Dial(t.Context(), path)
		done <- dialled{c, err}
	}()
	time.Sleep(3 * dialPause)
	s, err := Listen(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	d := <-done
	if d.err != nil {
		t.Fatal(d.err)
	}
	d.c.Close()
	s.listener.Close()

	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("no time left"))
	nowhere := filepath.Join(t.TempDir(), "nowhere")
	if _, err := Dial(ctx, nowhere); err == nil || !strings.Contains(err.Error(), nowhere) || !strings.Contains(err.Error(), "no time left") {
		t.Errorf("no engine: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Dial(ctx, file); err == nil {
		t.Error("a file was taken for an engine")
	}
}

// answer returns the client of an engine that answers OPEN with a packet and descriptors, and then sends more packets.
func answer(t testing.TB, fds []int, packets ...[]byte) *Client {
	engine, c := pair(t)
	for i, p := range packets {
		var oob []byte
		if i == 0 && len(fds) > 0 {
			oob = unix.UnixRights(fds...)
		}
		if _, _, err := engine.WriteMsgUnix(p, oob, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := engine.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { // the client's messages are read, so that it never blocks
		defer close(done)
		buf := make([]byte, MaxMessage)
		for {
			if n, err := engine.Read(buf); err != nil || n == 0 {
				return
			}
		}
	}()
	t.Cleanup(func() {
		c.Close()
		<-done
		engine.Close()
	})
	return c
}

func memory(t testing.TB, content []byte, size int64) int {
	fd, err := unix.MemfdCreate("stoker-client-test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if _, err := unix.Write(fd, content); err != nil {
		t.Fatal(err)
	}
	if err := unix.Ftruncate(fd, size); err != nil {
		t.Fatal(err)
	}
	return fd
}

// Messages from an engine are not trusted either.
func TestClientOfABrokenEngine(t *testing.T) {
	text, _ := json.Marshal(Description{Len: 1, SlotBytes: 64})
	huge, _ := json.Marshal(Description{SlotBytes: 1 << 40})
	ring := memory(t, nil, 4096)
	good := Ready{InfoSize: uint32(len(text)), Slots: 2, SlotStride: 2048, RingSize: 4096}
	info := memory(t, text, int64(len(text)))
	for name, test := range map[string]struct {
		fds   []int
		ready Ready
	}{
		"no descriptors":      {nil, good},
		"one descriptor":      {[]int{ring}, good},
		"no slots":            {[]int{ring, info}, Ready{InfoSize: good.InfoSize, SlotStride: 2048, RingSize: 4096}},
		"slots past the ring": {[]int{ring, info}, Ready{InfoSize: good.InfoSize, Slots: 3, SlotStride: 2048, RingSize: 4096}},
		"a huge stride":       {[]int{ring, info}, Ready{InfoSize: good.InfoSize, Slots: 2, SlotStride: 1 << 63, RingSize: 4096}},
		"a huge ring":         {[]int{ring, info}, Ready{InfoSize: good.InfoSize, Slots: 2, SlotStride: 2048, RingSize: 1 << 62}},
		"a huge slot":         {[]int{ring, memory(t, huge, int64(len(huge)))}, Ready{InfoSize: uint32(len(huge)), Slots: 2, SlotStride: 2048, RingSize: 4096}},
		"a long description":  {[]int{ring, info}, Ready{InfoSize: 1 << 30, Slots: 2, SlotStride: 2048, RingSize: 4096}},
		"a short description": {[]int{ring, memory(t, text[:5], 5)}, good},
		"no JSON":             {[]int{ring, memory(t, []byte("x"), int64(good.InfoSize))}, good},
	} {
		c := answer(t, test.fds, test.ready.Append(nil))
		if err := c.Open(nil, patience); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	c := answer(t, []int{ring, info}, good.Append(nil), Batch{Gen: 1, Slot: 2, Lease: 1, Rows: 1}.Append(nil))
	if err := c.Open(nil, patience); err != nil {
		t.Fatal(err)
	}
	c.gen = 1
	if m, err := c.Next(patience); err == nil {
		t.Errorf("a slot outside of the ring: %+v", m)
	}
}

// A client fails or continues after any message that an engine sends after READY.
func FuzzClient(f *testing.F) {
	f.Add(Batch{Gen: 1, Slot: 1, Rows: 1, Lease: 5}.Append(nil), EpochEnd{Gen: 1, Report: "x"}.Append(nil))
	f.Add(Stats{Request: 1, JSON: []byte(`{"batches":1}`)}.Append(nil), Error{Code: CodeRecord, Reason: "broken", Name: "a"}.Append(nil))
	f.Add(append(Batch{Gen: 1}.Append(nil), Batch{Gen: 2, Slot: 9}.Append(nil)...), []byte("nonsense"))
	text, _ := json.Marshal(Description{SlotBytes: 64})
	f.Fuzz(func(t *testing.T, first, second []byte) {
		if len(first) == 0 || len(second) == 0 || len(first) > MaxMessage || len(second) > MaxMessage {
			return
		}
		ring := memory(t, nil, 2*arena.HugePage)
		c := answer(t, []int{ring, memory(t, text, int64(len(text)))}, Ready{InfoSize: uint32(len(text)), Slots: 2, SlotStride: arena.HugePage, RingSize: 2 * arena.HugePage}.Append(nil), first, second)
		if err := c.Open(nil, patience); err != nil {
			t.Fatal(err)
		}
		c.gen = 1
		_, _ = c.Stats()
		for {
			m, err := c.Next(patience)
			if err != nil {
				return
			}
			if b, ok := m.(Batch); ok {
				_ = c.Data(b)
			}
		}
	})
}
