package ranged

import (
	"errors"
	"net"
	"os"
	"syscall"
	"time"
)

// socket is a connection whose large reads wait for many bytes. Otherwise the reader is woken for every few
// packets, which costs more than copying them. The number of bytes follows the data rate, so that a wait takes
// milliseconds at most. TLS must not be on top, because it reads more than it needs.
type socket struct {
	*net.TCPConn
	raw  syscall.RawConn
	low  int // current SO_RCVLOWAT
	next int // for the next large read
	// timed: the connection has a read deadline.
	timed bool
	err   error
}

const (
	// leastLow and mostLow limit the number of bytes to wait for. Below leastLow, the saving is less than the cost
	// of the system call.
	leastLow = 128 << 10
	mostLow  = 2 << 20
	// quickRead and slowRead: after a faster read the next one waits for more bytes, after a slower one for fewer.
	quickRead = 2 * time.Millisecond
	slowRead  = 8 * time.Millisecond
	// waitLow is the maximum wait. Then the available bytes are read.
	waitLow = 250 * time.Millisecond
)

// newSocket returns c as a socket, or c itself if that is not possible.
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

// Read reads the available bytes once there are enough. Only one goroutine may read at a time.
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

// wait makes reads wait for low bytes, for a limited time, or without a limit if low is 1.
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
