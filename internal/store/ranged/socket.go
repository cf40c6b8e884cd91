package ranged

import (
	"errors"
	"net"
	"os"
	"syscall"
	"time"
)

// socket is a connection whose large reads wait for many bytes: otherwise its reader is
// woken for every few packets, which costs more than to copy them. How many it waits for
// follows how fast they come, so that it takes milliseconds at most. There may be no TLS
// above it, which reads more than it needs.
type socket struct {
	*net.TCPConn
	raw  syscall.RawConn
	low  int // SO_RCVLOWAT as it is
	next int // of a large read
	// timed: the connection has a deadline for reading.
	timed bool
	err   error
}

const (
	// leastLow is what is waited for at least beside a single byte, mostLow at most. Of
	// less there is so little to save that it costs more to ask for it.
	leastLow = 128 << 10
	mostLow  = 2 << 20
	// quickRead and slowRead are how long a read takes after which more or fewer bytes
	// are waited for.
	quickRead = 2 * time.Millisecond
	slowRead  = 8 * time.Millisecond
	// waitLow is how long they are waited for; then what there is is taken.
	waitLow = 250 * time.Millisecond
)

// newSocket returns a connection that reads so, or the same one where that is not
// possible.
func newSocket(c net.Conn) net.Conn {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return c
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return c
	}
	return &socket{TCPConn: t, raw: raw, low: 1, next: 2 * leastLow}
}

// Read reads what there is, once there is enough of it. Only one goroutine may read at a
// time.
func (s *socket) Read(p []byte) (int, error) {
	if len(p) < leastLow {
		if err := s.wait(1); err != nil {
			return 0, err
		}
		return s.TCPConn.Read(p)
	}
	began := time.Now()
	low := min(len(p), s.next)
	if low < leastLow {
		low = 1
	}
	if err := s.wait(low); err != nil {
		return 0, err
	}
	n, err := s.TCPConn.Read(p)
	if n == 0 && s.timed && errors.Is(err, os.ErrDeadlineExceeded) {
		s.next = leastLow / 2
		if err = s.wait(1); err != nil {
			return 0, err
		}
		return s.TCPConn.Read(p)
	}
	switch took := time.Since(began); {
	case took < quickRead:
		s.next = min(2*s.next, mostLow)
	case took > slowRead:
		s.next = max(s.next/2, leastLow/2)
	}
	return n, err
}

// wait has reads wait for so many bytes, for a while, or for as long as it takes where it
// is one.
func (s *socket) wait(low int) error {
	var err error
	switch {
	case low > 1:
		err, s.timed = s.SetReadDeadline(time.Now().Add(waitLow)), true
	case s.timed:
		err, s.timed = s.SetReadDeadline(time.Time{}), false
	}
	if err != nil || low == s.low {
		return err
	}
	if err := s.raw.Control(func(fd uintptr) {
		s.err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVLOWAT, low)
	}); err != nil {
		return err
	}
	s.low = low
	return s.err
}
