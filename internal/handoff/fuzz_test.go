package handoff

import (
	"context"
	"encoding/binary"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// packets joins packets, each with its length before it, as FuzzSession takes them.
func packets(list ...[]byte) []byte {
	var b []byte
	for _, p := range list {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(p)))
		b = append(b, p...)
	}
	return b
}

// FuzzSession sends arbitrary packets to a live session. The session ends when its client does, each slot is released
// once, and the pipeline is closed.
func FuzzSession(f *testing.F) {
	open := Open{Config: []byte(`{"source":"x"}`)}.Append(nil)
	start := Start{Gen: 1}.Append(nil)
	release := func(slot uint32, lease uint64) []byte { return Release{Slot: slot, Lease: lease}.Append(nil) }
	var golden [][]byte
	for _, m := range goldenMessages() {
		golden = append(golden, m.Append(nil))
	}
	f.Add(packets(open, start, release(0, 1), release(1, 2), release(0, 1), release(2, 3), start, release(0, 4)))
	f.Add(packets(open, start, start, Stats{Request: 7}.Append(nil), Close{}.Append(nil), start))
	f.Add(packets(open, append(start, release(0, 1)...), release(3, 9)))
	f.Add(packets(open, open))
	f.Add(packets(start, open))
	f.Add(packets([]byte("nonsense"), open))
	f.Add(packets(append([][]byte{open}, golden...)...))
	for _, m := range golden {
		f.Add(packets(open, start, m, m))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		fake := newFake(t)
		engine, trainer := pair(t)
		began := false
		session := NewSession(engine, Options{Open: func(context.Context, []byte) (Pipeline, error) {
			began = true
			return fake, nil
		}})
		ended := make(chan error, 1)
		go func() { ended <- session.Run(context.Background()) }()
		// Messages of the session are read until it has ended, so that the session never waits for the test.
		drained := make(chan struct{})
		go func() {
			defer close(drained)
			buf, oob := make([]byte, MaxMessage), make([]byte, unix.CmsgSpace(4*8))
			for {
				n, oobn, _, _, err := trainer.conn.ReadMsgUnix(buf, oob)
				fds, _ := descriptors(oob[:oobn])
				for _, fd := range fds {
					unix.Close(fd)
				}
				if err != nil || n == 0 {
					return
				}
				for m, rest := First(buf[:n]); ; m, rest = First(rest) {
					if _, err := Parse(m); err != nil {
						t.Errorf("the session has sent %x: %v", m, err)
					}
					if len(rest) == 0 {
						break
					}
				}
			}
		}()
		for len(data) >= 2 {
			n := min(int(binary.LittleEndian.Uint16(data)), len(data)-2)
			if _, err := trainer.conn.Write(data[2 : 2+n]); err != nil {
				break
			}
			data = data[2+n:]
		}
		trainer.conn.CloseWrite()
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Fatal("the session does not end with its client")
		}
		<-drained
		select {
		case <-fake.closed:
		default:
			if began {
				t.Error("the session has ended, its pipeline is open")
			}
			fake.ring.Close()
		}
		seen := map[int]bool{}
		for len(fake.free) > 0 {
			slot := <-fake.free
			if seen[slot] || slot >= fakeSlots {
				t.Errorf("slot %d was given back twice", slot)
			}
			seen[slot] = true
		}
	})
}
