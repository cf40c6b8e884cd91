package ranged

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// leastWait is the least that a read of many bytes waits for, mostWait the most: each
	// time a reader is woken costs as much as some ten thousand bytes. It is little enough
	// for a slow answer not to look as if nothing came.
	leastWait = 64 << 10
	mostWait  = 128 << 10
)

// conn is a connection that wakes whoever reads many bytes when many are there, and not
// for each packet. Who asks for many knows that as many come: the rest of a body.
type conn struct {
	net.Conn
	raw  syscall.RawConn
	wait int // bytes that the system waits for, 0 where it does not do that
}

// gathering is c with reads of many bytes gathered, where the system can do that.
func gathering(c net.Conn) net.Conn {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return c
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return c
	}
	return &conn{Conn: c, raw: raw, wait: 1}
}

// Read reads what is there. It is called by one goroutine at a time.
func (c *conn) Read(p []byte) (int, error) {
	wait := 1
	if len(p) >= leastWait {
		wait = min(len(p), mostWait)
	}
	if wait != c.wait && c.wait > 0 {
		c.gather(wait)
	}
	return c.Conn.Read(p)
}

func (c *conn) gather(n int) {
	var failed error
	err := c.raw.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT, n) })
	switch {
	case err != nil: // it is closed, as reading says
	case failed == nil:
		c.wait = n
	case c.wait == 1:
		c.wait = 0 // it does not do that
	}
}
