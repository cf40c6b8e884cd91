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

// link is a connection over which requests without a body go. Who asks writes the request
// and reads the answer: there is no goroutine of the connection's own.
type link struct {
	conn net.Conn
	of   *links
	// below is the connection of TCP, raw its file; nil where there is none, as in tests.
	below net.Conn
	raw   syscall.RawConn
	peek  func(fd uintptr) // sets what
	what  seen
	one   [1]byte
	// abort ends what is waited for, from any goroutine.
	abort func()
	// stop takes back that the end of a request's context aborts it.
	stop func() bool

	in   []byte // what was read with a header; of it in[r:w] is left
	r, w int
	used bool // an answer came over it
	// since is when it was given back the last time.
	since time.Time
	came  bool // a byte of this answer came
}

// seen is what there is to read of a connection.
type seen int

const (
	seenNothing seen = iota
	seenBytes
	seenEnd
)

// headerBytes is how much room there is for a header before more is made. Of a body about
// as much is copied.
const headerBytes = 4 << 10

func newLink(conn net.Conn, of *links) *link {
	l := &link{conn: conn, of: of, below: conn, in: make([]byte, headerBytes)}
	if t, ok := conn.(interface{ NetConn() net.Conn }); ok {
		l.below = t.NetConn()
	}
	l.abort = func() { _ = l.below.Close() } // who waits sees that
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

// ready says whether a request may go over it: the server has not closed it, and has sent
// nothing that nobody has asked for, which would be taken for the answer.
func (l *link) ready() bool {
	if l.raw == nil {
		return true
	}
	if err := l.raw.Control(l.peek); err != nil {
		return false
	}
	// With TLS tickets may follow the handshake, so that there may be bytes before the
	// first answer.
	return l.what == seenNothing || l.what == seenBytes && !l.used && l.below != l.conn
}

// close ends it.
func (l *link) close() { _ = l.conn.Close() } // what there was to say was said by reads and writes

// exchange sends a request, which is written as text, and returns its answer, whose body
// comes from this connection. It is closed when that fails.
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

// causeOf is why a request has ended where its context did that.
func causeOf(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// maxInterim bounds the answers of the status 1xx in front of an answer.
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

// give makes the body of an answer whose header has so many bytes.
func (l *link) give(ctx context.Context, method string, resp *http.Response, header int) error {
	b := &body{ctx: ctx, l: l, left: resp.ContentLength, last: resp.Close}
	switch {
	case method == http.MethodHead || resp.StatusCode == http.StatusNoContent || resp.StatusCode == http.StatusNotModified:
		b.left = 0
	case resp.TransferEncoding != nil:
		// It is read once more, from where the body follows.
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

// header reads a header and returns it; what it returns lies at l.in[l.r:] until something
// is read. Those of earlier answers are thrown away.
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
			return nil, errMalformed // there may be no end of it
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

// Read reads what is behind a header.
func (l *link) Read(p []byte) (int, error) {
	if l.r == l.w {
		return l.conn.Read(p)
	}
	n := copy(p, l.in[l.r:l.w])
	l.r += n
	return n, nil
}

// release gives the connection back once an answer was read to its end.
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

// holds says whether TLS has read something behind the answer, or the end.
func (l *link) holds() bool {
	if err := l.conn.SetReadDeadline(time.Unix(1, 0)); err != nil {
		return true
	}
	n, err := l.conn.Read(l.one[:]) // asks nobody, since it is too late for that
	return n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) || l.conn.SetReadDeadline(time.Time{}) != nil
}

// body is that of an answer.
type body struct {
	ctx context.Context
	l   *link
	// left is how much there is still to come, below zero for as much as comes.
	left int64
	// last: the connection is not for another request.
	last bool
	// chunks is a body in chunks, which are read from in.
	chunks io.Reader
	in     *bufio.Reader
	err    error
}

var errBodyClosed = errors.New("the body of the answer is closed")

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

// drop ends body and connection.
func (b *body) drop(err error) {
	b.err = err
	b.l.stop()
	b.l.close()
}

// Close ends it. A connection over which something would still come is closed.
func (b *body) Close() error {
	if b.err == nil {
		b.drop(errBodyClosed)
	}
	return nil
}
