// Package ranged reads ranges of bytes over HTTP/1.1 for the stores that stand on
// it: into the caller's memory, exactly as many as were asked for, of the version
// that was asked for, or not at all. What fails for a reason that passes is tried
// again; an endpoint that refuses requests because they are too many is asked less
// often.
//
// Read, in this order: Client.Get (a range), attempt.go (one request and all that
// may be wrong with its answer), failure.go (classes of errors), limiter.go and
// pace.go (how often an endpoint is asked), transport.go and links.go (connections).
package ranged

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/stokerdata/stoker/internal/store/retry"
	"github.com/stokerdata/stoker/internal/store/traffic"
	"github.com/stokerdata/stoker/store"
)

// Options say how an endpoint is spoken to. The zero values are good defaults.
type Options struct {
	// Endpoint is scheme://host or scheme://host:port. What the process knows of an
	// endpoint (connections, counters, how much is too much) is shared by all its
	// clients.
	Endpoint string
	// CABundle is a file of certificates that are trusted beside the system's, "" for
	// none.
	CABundle string
	// Sign is called for each attempt, behind all headers but those of a proxy, and
	// may add headers or change the URL. Requests that are signed follow no
	// redirects. What it fails with is tried again where it is passing. It may be
	// nil.
	Sign func(*http.Request) error
	// Classify says what an answer that is no success means, where a service says
	// more than the status does: body is the first part of it. Text goes behind
	// "the server answers"; it must hold no secret. With the class Unknown the status
	// decides. It may be nil.
	Classify func(status int, h http.Header, body []byte) (c Class, text string)
	// Verify compares what was read with a checksum that the answer has; p is the
	// whole of an answer's bytes. It may be nil. Without it the header Content-Digest
	// is compared.
	Verify func(h http.Header, p []byte) error
	// Encoded says that the content encoding of an object is only a label: its bytes
	// are what is stored. Otherwise such answers are refused.
	Encoded bool

	// Dial, Handshake, FirstByte and Stall are how long to wait for a connection, for
	// TLS, for the first byte of an answer, and for more bytes of it; Total is how long
	// one attempt may take, beside a second for each 64 KiB. 0 stands for 10 s, 10 s,
	// 30 s, 20 s and 2 min.
	Dial, Handshake, FirstByte, Stall, Total time.Duration
	// Attempts is how often a request is made at most, 0 for 8. Those that are
	// refused because they are too many do not count: they go on for Patience, 0 for
	// 5 min.
	Attempts int
	Patience time.Duration
	// Backoff is the longest wait before the first repetition, 0 for 50 ms. It
	// doubles each time up to MaxBackoff, 0 for 10 s; how much of it is waited is
	// drawn each time.
	Backoff, MaxBackoff time.Duration

	// Transport replaces the connections, for tests.
	Transport http.RoundTripper
}

func (o Options) withDefaults() Options {
	set := func(d *time.Duration, to time.Duration) {
		if *d <= 0 {
			*d = to
		}
	}
	set(&o.Dial, 10*time.Second)
	set(&o.Handshake, 10*time.Second)
	set(&o.FirstByte, 30*time.Second)
	set(&o.Stall, 20*time.Second)
	set(&o.Total, 2*time.Minute)
	set(&o.Patience, 5*time.Minute)
	set(&o.Backoff, 50*time.Millisecond)
	set(&o.MaxBackoff, 10*time.Second)
	if o.Attempts <= 0 {
		o.Attempts = 8
	}
	return o
}

// Client asks one endpoint. Its methods may be called from any goroutine.
type Client struct {
	opt      Options
	rt       http.RoundTripper
	links    *links // nil where rt has none
	counters *traffic.Endpoint
	limit    *limiter
	jitter   func() float64
}

// New returns a client. It fails when the endpoint is none or the CA bundle cannot be
// read; it asks nothing.
func New(opt Options) (*Client, error) {
	opt = opt.withDefaults()
	u, err := url.Parse(opt.Endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" || u.Path != "" && u.Path != "/" {
		return nil, errors.New("an endpoint is http://host or https://host, with a port or not")
	}
	name := u.Scheme + "://" + u.Host
	c := &Client{opt: opt, rt: opt.Transport, counters: traffic.Of(name), limit: limiterOf(name), jitter: rand.Float64}
	if c.rt == nil {
		conns, err := transportOf(name, &opt)
		if err != nil {
			return nil, err
		}
		c.rt, c.links = conns, conns.links
	} else {
		c.limit = &limiter{} // tests do not meet
	}
	return c, nil
}

var (
	limiters   = map[string]*limiter{}
	limitersMu sync.Mutex
)

func limiterOf(name string) *limiter {
	limitersMu.Lock()
	defer limitersMu.Unlock()
	l := limiters[name]
	if l == nil {
		l = &limiter{name: name}
		limiters[name] = l
	}
	return l
}

// Request says what is asked for.
type Request struct {
	// URL is the object's. Its query and user are secret.
	URL string
	// Name is what errors call the object; "" stands for the URL without its query
	// and user.
	Name string
	// Header is sent along, and not changed. To another host that a server redirects
	// to nothing of it is sent.
	Header http.Header
	// Offset is where the range begins.
	Offset int64
	// Total is the size of the object, 0 where it is not known. An answer that says
	// another one means that the object has changed.
	Total int64
	// Version is a strong entity tag with its quotes: no bytes of another version are
	// taken. Modified stands in for it where there is none: a value of the header
	// Last-Modified. Both may be "".
	Version, Modified string
}

func (r *Request) name() string {
	if r.Name != "" {
		return r.Name
	}
	return Public(r.URL)
}

// Public is a URL without what may be secret: user, query and fragment.
func Public(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return "a URL that cannot be read"
	}
	p := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}
	return p.String()
}

// Info is what an answer says of an object.
type Info struct {
	// Size is that of the whole object, -1 where the answer does not say.
	Size int64
	// ETag is the entity tag with its quotes, Modified the header Last-Modified, both
	// "" where there is none.
	ETag, Modified string
	// Ranges says whether the server reads ranges: of Head, because it was seen or
	// the answer says so.
	Ranges bool
	// Status and Header are those of the answer.
	Status int
	Header http.Header
	// URL is where the answer came from, after redirects.
	URL string
}

// Strong is the entity tag where it is a strong one, as Request.Version wants it.
func (i *Info) Strong() string {
	if len(i.ETag) < 2 || i.ETag[0] != '"' || i.ETag[len(i.ETag)-1] != '"' {
		return ""
	}
	return i.ETag
}

const (
	// pieceBytes is how large a range is at most: larger ones are read as several,
	// pieceAhead at a time.
	pieceBytes = 8 << 20
	pieceAhead = 8
)

// Get fills dst from r.Offset of an object, or fails: then nobody writes to dst any
// more. Errors name object, bytes and attempts, and are *store.Error.
func (c *Client) Get(ctx context.Context, r Request, dst []byte) (Info, error) {
	if ctx.Err() != nil {
		return Info{}, failed("read", &r, int64(len(dst)), context.Cause(ctx))
	}
	if len(dst) == 0 {
		return Info{Size: -1}, nil
	}
	if r.Offset < 0 || r.Total > 0 && r.Offset > r.Total-int64(len(dst)) {
		return Info{}, failed("read", &r, int64(len(dst)), store.ErrShort)
	}
	if len(dst) <= 2*pieceBytes {
		return c.get(ctx, r, dst)
	}
	return c.pieces(ctx, r, dst)
}

// pieces reads a large range as several.
func (c *Client) pieces(ctx context.Context, r Request, dst []byte) (info Info, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	defer wg.Wait()
	var mu sync.Mutex
	slots := make(chan struct{}, pieceAhead)
	for at := 0; at < len(dst) && ctx.Err() == nil; at += pieceBytes {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			p := r
			p.Offset += int64(at)
			i, gerr := c.get(ctx, p, dst[at:min(at+pieceBytes, len(dst))])
			mu.Lock()
			defer mu.Unlock()
			switch {
			case gerr == nil && info.Header == nil:
				info = i
			case gerr == nil && (i.Size != info.Size || i.ETag != info.ETag):
				gerr = failed("read", &p, int64(min(pieceBytes, len(dst)-at)), store.ErrChanged)
			}
			if gerr != nil && err == nil {
				err = gerr
				cancel(gerr)
			}
		})
	}
	wg.Wait()
	if err == nil && ctx.Err() != nil {
		err = failed("read", &r, int64(len(dst)), context.Cause(ctx))
	}
	return info, err
}

// get reads a range, again and again until it is whole.
func (c *Client) get(ctx context.Context, r Request, dst []byte) (info Info, err error) {
	got := 0
	err = c.again(ctx, func(again bool) error {
		n, err := 0, error(nil)
		info, n, err = c.read(ctx, &r, int64(got), dst[got:], again)
		// What came of this very version needs not come again.
		if err != nil && r.Version != "" && c.opt.Verify == nil {
			got += n
		}
		return err
	})
	if err != nil {
		return Info{}, failed("read", &r, int64(len(dst)), err)
	}
	return info, nil
}

// Head describes an object. Where the server answers no HEAD, or does not say that it
// reads ranges, one byte is read. Info.URL is set with an error, too, where an answer
// came.
func (c *Client) Head(ctx context.Context, r Request) (info Info, err error) {
	err = c.again(ctx, func(again bool) error {
		info, err = c.head(ctx, &r, again)
		return err
	})
	if err != nil {
		return info, failed("look at", &r, 0, err)
	}
	return info, nil
}

// Body returns the body of an answer to GET, which is at most limit bytes long: for
// listings and other small things that have no version.
func (c *Client) Body(ctx context.Context, r Request, limit int) (body []byte, info Info, err error) {
	err = c.again(ctx, func(again bool) error {
		body, info, err = c.body(ctx, &r, limit, again)
		return err
	})
	if err != nil {
		return nil, Info{}, failed("read", &r, 0, err)
	}
	return body, info, nil
}

// failed makes the error of an operation.
func failed(op string, r *Request, n int64, err error) error {
	return &store.Error{Op: op, Path: r.name(), Off: r.Offset, Len: n, Err: err}
}

// again calls f until it succeeds, fails for good, or has failed often enough.
func (c *Client) again(ctx context.Context, f func(again bool) error) error {
	start, tries, throttled := time.Now(), 0, 0
	opt := &retry.Options{
		Attempts: 1 << 30, Backoff: c.opt.Backoff, MaxBackoff: c.opt.MaxBackoff, Jitter: c.jitter,
	}
	err := retry.Do(ctx, opt, func() error {
		err := f(tries > 0)
		tries++
		var fail *Failure
		if !errors.As(err, &fail) {
			return err
		}
		fail.Attempts = tries
		if fail.Class == Throttled {
			throttled++
			fail.final = time.Since(start)+fail.RetryAfter > c.opt.Patience
		} else {
			fail.final = tries-throttled >= c.opt.Attempts
		}
		return err
	})
	return err
}

// describe says which attempts were made.
func describe(attempts int) string {
	if attempts < 2 {
		return ""
	}
	return fmt.Sprintf(" (tried %d times)", attempts)
}
