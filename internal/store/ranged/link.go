package ranged

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"
)

// link is a connection for requests without a body. The caller writes the request and reads the response. The
// connection has no goroutine.
type link struct {
	conn net.Conn
	of   *links
	// below is the TCP connection, raw its file, nil if there is none, as in tests.
	below net.Conn
	raw   syscall.RawConn
	peek  func(fd uintptr) // sets what
	what  seen
	one   [1]byte
	// abort ends a wait, from any goroutine.
	abort func()
	// stop detaches the link from the request's context.
	stop func() bool

	in   []byte // read with a header, of which in[r:w] is left
	r, w int
	used bool // whether it has carried a response
	// since is the time of the last release.
	since time.Time
	came  bool // a byte of the current response has arrived
}

// seen is what can be read from a connection.
type seen int

const (
	seenNothing seen = iota
	seenBytes
	seenEnd
)

// headerBytes is the initial size of the buffer for a header. About as much of a body is copied.
const headerBytes = 4 << 10

func newLink(conn net.Conn, of *links) *link {
	l := &link{conn: conn, of: of, below: conn, in: make([]byte, headerBytes)}
	if t, ok := conn.(interface{ NetConn() net.Conn }); ok {
		l.below = t.NetConn()
	}
	l.abort = func() { _ = l.below.Close() } // this ends a wait
	if c, ok := l.below.(syscall.Conn); ok {
		if raw, err := c.SyscallConn(); err == nil {
			l.raw = raw
		}
	}
	l.peek = func(fd uintptr) {
		n, _, err := syscall.Recvfrom(int(fd), l.one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		switch {
		case err == syscall.EAGAIN:
			l.what = seenNothing
		case err == nil && n > 0:
			l.what = seenBytes
		default:
			l.what = seenEnd
		}
	}
	return l
}

// ready reports whether the link can carry a request: the server has not closed it, and has sent no unexpected
// bytes, which would be mistaken for the response.
func (l *link) ready() bool {
	if l.raw == nil {
		return true
	}
	if err := l.raw.Control(l.peek); err != nil {
		return false
	}
	// TLS may send tickets after the handshake, so there may be bytes before the first response.
	return l.what == seenNothing || l.what == seenBytes && !l.used && l.below != l.conn
}

// close closes the link.
func (l *link) close() { _ = l.conn.Close() } // reads and writes have reported all errors

// exchange sends a request, given as text, and returns its response, whose body comes from this link. If it fails,
// the link is closed.
func (l *link) exchange(ctx context.Context, method string, text []byte) (*http.Response, error) {
	l.stop, l.came = afterFunc(ctx, l.abort), false
	resp, err := l.ask(ctx, method, text)
	if err != nil {
		l.stop()
		l.close()
		return nil, causeOf(ctx, err)
	}
	return resp, nil
}

// causeOf returns the context's cause if it has ended, otherwise err.
func causeOf(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// maxInterim is the maximum number of 1xx responses before a response.
const maxInterim = 5

func (l *link) ask(ctx context.Context, method string, text []byte) (*http.Response, error) {
	if _, err := l.conn.Write(text); err != nil {
		return nil, err
	}
	for interim := 0; ; interim++ {
		header, err := l.header()
		if err != nil {
			return nil, err
		}
		resp := plainAnswer(header)
		if resp == nil {
			if resp, err = otherAnswer(header, method); err != nil {
				return nil, err
			}
		}
		if resp.StatusCode >= 200 {
			return resp, l.give(ctx, method, resp, len(header))
		}
		if interim == maxInterim {
			return nil, errMalformed
		}
		l.r += len(header)
	}
}

// give sets the body of a response whose header has this size.
func (l *link) give(ctx context.Context, method string, resp *http.Response, header int) error {
	b := &body{ctx: ctx, l: l, left: resp.ContentLength, last: resp.Close}
	switch {
	case method == http.MethodHead || resp.StatusCode == http.StatusNoContent || resp.StatusCode == http.StatusNotModified:
		b.left = 0
	case resp.TransferEncoding != nil:
		// Parse the header again with a reader that continues with the body.
		b.in = bufio.NewReaderSize(l, headerBytes)
		again, err := http.ReadResponse(b.in, nil)
		if err != nil {
			return err
		}
		b.chunks, resp.Body = again.Body, b
		return nil
	}
	l.r += header
	if b.left == 0 {
		b.finish()
		resp.Body = http.NoBody
		return nil
	}
	resp.Body, resp.Close = b, resp.Close || b.left < 0
	return nil
}

// header reads a header, which is at l.in[l.r:] until the next read. It discards earlier headers.
func (l *link) header() ([]byte, error) {
	if l.r > 0 {
		l.w = copy(l.in, l.in[l.r:l.w])
		l.r = 0
	}
	for from := 0; ; {
		if n := headerEnd(l.in[:l.w], from); n > 0 {
			return l.in[:n], nil
		}
		const first = "HTTP/"
		if n := min(l.w, len(first)); string(l.in[:n]) != first[:n] {
			return nil, errMalformed // it may be endless
		}
		if from = l.w; from == len(l.in) {
			if from >= maxHeader {
				return nil, errHeader
			}
			l.in = append(l.in, make([]byte, from)...)
		}
		n, err := l.conn.Read(l.in[from:])
		l.w += n
		l.came = l.came || n > 0
		if n == 0 && err == io.EOF && l.w > 0 {
			err = io.ErrUnexpectedEOF
		}
		if n == 0 && err != nil {
			return nil, err
		}
	}
}

// Read reads the data after a header.
func (l *link) Read(p []byte) (int, error) {
	if l.r == l.w {
		return l.conn.Read(p)
	}
	n := copy(p, l.in[l.r:l.w])
	l.r += n
	return n, nil
}

// release makes the link available after a response was read to its end.
func (l *link) release() {
	if !l.stop() || l.r != l.w || l.below != l.conn && l.holds() {
		l.close()
		return
	}
	l.used = true
	if l.r, l.w = 0, 0; len(l.in) > headerBytes {
		l.in = make([]byte, headerBytes)
	}
	l.of.put(l)
}

// holds reports whether TLS has read more than the response, or the end.
func (l *link) holds() bool {
	if err := l.conn.SetReadDeadline(time.Unix(1, 0)); err != nil {
		return true
	}
	n, err := l.conn.Read(l.one[:]) // the deadline has passed, so this reads only buffered data
	return n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) || l.conn.SetReadDeadline(time.Time{}) != nil
}

// body is the body of a response.
type body struct {
	ctx context.Context
	l   *link
	// left is the number of bytes left, negative if unknown.
	left int64
	// last: the connection cannot be reused.
	last bool
	// chunks is a chunked body, which reads from in.
	chunks io.Reader
	in     *bufio.Reader
	err    error
}

var errBodyClosed = errors.New("the body of the response is closed")

func (b *body) Read(p []byte) (n int, err error) {
	switch {
	case b.err != nil:
		return 0, b.err
	case len(p) == 0:
		return 0, nil
	case b.chunks != nil:
		if n, err = b.chunks.Read(p); err == io.EOF {
			b.last = b.last || b.in.Buffered() > 0
			b.finish()
			return n, b.err
		}
	case b.left < 0:
		if n, err = b.l.Read(p); err == io.EOF {
			b.last = true
			b.finish()
			return n, b.err
		}
	default:
		n, err = b.l.Read(p[:min(int64(len(p)), b.left)])
		if b.left -= int64(n); b.left == 0 {
			b.finish()
			return n, b.err
		}
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
	}
	if err != nil {
		b.drop(causeOf(b.ctx, err))
	}
	return n, b.err
}

// finish is called at the end of the body.
func (b *body) finish() {
	if b.last {
		b.drop(io.EOF)
		return
	}
	b.err = io.EOF
	b.l.release()
}

// drop ends the body and closes the connection.
func (b *body) drop(err error) {
	b.err = err
	b.l.stop()
	b.l.close()
}

// Close ends the body. If it was not read to its end, the connection is closed.
func (b *body) Close() error {
	if b.err == nil {
		b.drop(errBodyClosed)
	}
	return nil
}
