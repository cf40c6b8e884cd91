package ranged

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"
)

// A large read returns the available bytes if not enough arrive for a while, and all bytes are correct in any order
// of reads.
func TestSocket(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	to, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	from, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	s, ok := newSocket(to).(*socket)
	if !ok {
		t.Fatal("a connection of TCP is read as any other")
	}
	defer s.Close()
	data := content(3<<20 + 5)
	got := make([]byte, len(data))
	write := func(b []byte) {
		if _, err := from.Write(b); err != nil {
			t.Error(err)
		}
	}
	s.next = mostLow
	go func() {
		time.Sleep(waitLow / 10) // so that it usually waits already
		write(data[:1000])
	}()
	if n, err := s.Read(got); n != 1000 || err != nil {
		t.Fatalf("%d bytes of 1000, %v", n, err)
	}
	go write(data[1000:])
	if n, err := io.ReadFull(s, got[1000:]); err != nil || !bytes.Equal(got, data) {
		t.Fatalf("%d bytes, %v", n, err)
	}
	// For a short read less is available than a large read waits for.
	s.next = mostLow
	go write(data[:leastLow+1])
	if _, err := io.ReadFull(s, got[:leastLow]); err != nil || !bytes.Equal(got[:leastLow], data[:leastLow]) {
		t.Fatal(err)
	}
	if n, err := s.Read(got[:10]); n != 1 || err != nil || s.low != 1 || s.timed {
		t.Errorf("%d bytes of 1, %v, it waits for %d", n, err, s.low)
	}
	// The end is returned immediately.
	s.next = mostLow
	go func() {
		write(data[:7])
		_ = from.Close()
	}()
	n, err := io.ReadFull(s, got[:mostLow])
	if n != 7 || err != io.ErrUnexpectedEOF || !bytes.Equal(got[:7], data[:7]) {
		t.Errorf("%d bytes of 7, %v", n, err)
	}
}
