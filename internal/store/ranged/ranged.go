// Package ranged reads byte ranges over HTTP/1.1 for stores. It reads exactly the requested bytes of the requested
// version into the caller's memory, or fails. Transient failures are retried. If an endpoint refuses requests
// because there are too many, the rate is lowered.
//
// Suggested order of reading: Client.Get (a range), attempt.go (one request and all possible faults of its
// response), failure.go (classes of errors), limiter.go and pace.go (the rate of requests), transport.go and
// links.go (connections).
package ranged

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stokerdata/stoker/internal/store/retry"
	"github.com/stokerdata/stoker/internal/store/traffic"
	"github.com/stokerdata/stoker/internal/units"
	"github.com/stokerdata/stoker/store"
)

// Options configure a Client. The zero values are good defaults.
type Options struct {
	// Endpoint is scheme://host or scheme://host:port. All clients of an endpoint in the process share connections,
	// counters and the known rate limit.
	Endpoint string
	// CABundle is a file of certificates to trust in addition to the system's, "" for none.
	CABundle string
	// Sign is called for each attempt, after all headers except a proxy's are set. It may add headers or change the
	// URL. Signed requests follow no redirects. Its transient errors are retried. It may be nil.
	Sign func(*http.Request) error
	// Classify returns the meaning of an error response, for services that send more than the status. body is its
	// first part. Class Unknown means that the status decides. It may be nil.
	Classify func(status int, h http.Header, body []byte) Verdict
	// Verify verifies a checksum in a response. p is the whole body. If it is nil, the header Content-Digest is
	// verified.
	Verify func(h http.Header, p []byte) error
	// Encoded is true if the content encoding of an object is only a label, and its bytes are the stored ones.
	// Otherwise encoded responses are refused.
	Encoded bool

	// Dial, Handshake, FirstByte and Stall are the maximum waits for a connection, for TLS, for the first byte of a
	// response, and for further bytes. Total is the maximum time of an attempt, plus a second per 64 KiB. 0 means
	// 10 s, 10 s, 30 s, 20 s and 2 min.
	Dial, Handshake, FirstByte, Stall, Total time.Duration
	// Attempts is the maximum number of attempts, 0 for 8. Attempts refused because of the rate do not count. They
	// are repeated for Patience, 0 for 5 min.
	Attempts int
	Patience time.Duration
	// Backoff is the maximum delay before the first retry, 0 for 50 ms. It doubles each time up to MaxBackoff, 0
	// for 10 s. The actual delay is random.
	Backoff, MaxBackoff time.Duration

	// Transport replaces the connections in tests.
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

// Client sends requests to one endpoint. Its methods are safe for concurrent use.
type Client struct {
	opt      Options
	rt       http.RoundTripper
	links    *links // nil if rt has none
	counters *traffic.Endpoint
	limit    *limiter
	// weak is true if the server sends weak entity tags, which it does not accept in If-Match.
	weak   atomic.Bool
	jitter func() float64
}

// New returns a client. It fails if the endpoint is invalid or the CA bundle cannot be read. It sends no request.
func New(opt Options) (*Client, error) {
	opt = opt.withDefaults()
	u, err := url.Parse(opt.Endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" || u.Path != "" && u.Path != "/" {
		return nil, errors.New("invalid endpoint: expected http://host or https://host, with or without a port")
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
		c.limit = &limiter{} // tests must not share one
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

// Request describes a request.
type Request struct {
	// URL is the URL of the object. Its query and user are secret.
	URL string
	// Name is the object's name in errors. "" means the URL without query and user.
	Name string
	// Header is sent unchanged, but not to other hosts after a redirect.
	Header http.Header
	// Offset is the start of the range.
	Offset int64
	// Total is the size of the object, 0 if unknown. Another size in a response means that the object has changed.
	Total int64
	// Version is an entity tag with quotes. Bytes of another version are refused. Without an entity tag, Modified is
	// used instead: a value of the header Last-Modified. Both may be "".
	Version, Modified string
}

// modifiedMark separates time and size in a version that is not an entity tag.
const modifiedMark = " # "

// VersionOf returns the version of an object of a server: its strong entity tag, its modification time and size, or
// its weak tag, in this order.
func VersionOf(tag string, modified time.Time, size int64) string {
	if len(tag) >= 2 && tag[0] == '"' && tag[len(tag)-1] == '"' || tag != "" && modified.IsZero() {
		return tag
	}
	at := ""
	if !modified.IsZero() {
		at = modified.UTC().Format(http.TimeFormat)
	}
	return at + modifiedMark + strconv.FormatInt(size, 36)
}

// Expect sets the version that the request must read, as VersionOf returned it.
func (r *Request) Expect(version string) {
	at, _, ok := strings.Cut(version, modifiedMark)
	if ok {
		r.Modified = at
	} else {
		r.Version = version
	}
}

func (r *Request) name() string {
	if r.Name != "" {
		return r.Name
	}
	return Public(r.URL)
}

// Public returns a URL without the parts that may be secret: user, query and fragment.
func Public(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return "a URL that cannot be read"
	}
	p := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}
	return p.String()
}

// Info describes an object from a response.
type Info struct {
	// Size is the size of the whole object, -1 if unknown.
	Size int64
	// ETag is the entity tag with quotes, Modified the header Last-Modified, "" if missing.
	ETag, Modified string
	// Ranges reports whether the server supports range requests, from the header or from a response.
	Ranges bool
	// Status and Header are the response's.
	Status int
	Header http.Header
	// URL is the URL of the response, after redirects.
	URL string
}

const (
	// pieceBytes is the maximum size of a range. Larger ones are read in pieces, pieceAhead concurrently.
	pieceBytes = 8 << 20
	pieceAhead = 8
)

// Get fills dst from r.Offset of an object. If it fails, dst is no longer written to. Errors are *store.Error and
// have the object, the bytes and the number of attempts.
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

// pieces reads a large range in pieces.
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

// get reads a range and retries until it is complete.
func (c *Client) get(ctx context.Context, r Request, dst []byte) (info Info, err error) {
	got := 0
	err = c.again(ctx, func(again bool) error {
		n, err := 0, error(nil)
		info, n, err = c.read(ctx, &r, int64(got), dst[got:], again)
		// Bytes of exactly this version need not be read again.
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

// Head describes an object. If the server does not support HEAD, or does not announce range requests, one byte is
// read. Info.URL is also set with an error if there was a response.
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

// Body returns the body of a GET response of at most limit bytes, for listings and other small objects without a
// version.
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

// failed returns the error of an operation.
func failed(op string, r *Request, n int64, err error) error {
	return &store.Error{Op: op, Path: r.name(), Off: r.Offset, Len: n, Err: err}
}

// again calls f until it succeeds, fails permanently, or has no attempts left.
func (c *Client) again(ctx context.Context, f func(again bool) error) error {
	start, made, throttled := time.Now(), store.Attempts{}, 0
	opt := &retry.Options{
		Attempts: 1 << 30, Backoff: c.opt.Backoff, MaxBackoff: c.opt.MaxBackoff, Jitter: c.jitter,
	}
	return retry.Do(ctx, opt, func() error {
		err := f(made.Tries > 0)
		made.Tries++
		var fail *Failure
		if !errors.As(err, &fail) {
			return err
		}
		fail.note(&made, time.Since(start))
		retry.Failed(ctx, fail)
		if fail.Class == Throttled {
			throttled++
			fail.final = made.Elapsed+fail.RetryAfter > c.opt.Patience
		} else {
			fail.final = made.Tries-throttled >= c.opt.Attempts
		}
		return err
	})
}

// note adds the failure to the attempts of its operation.
func (f *Failure) note(made *store.Attempts, elapsed time.Duration) {
	if made.Statuses == nil {
		made.Statuses = map[int]int{}
	}
	made.Statuses[f.Status]++
	made.Status, made.Code, made.Elapsed = f.Status, f.Code, elapsed
	f.attempts = *made
}

// describe returns the number of attempts for messages, with their statuses if they differ.
func describe(a store.Attempts) string {
	if a.Tries < 2 {
		return ""
	}
	text := fmt.Sprintf(" (tried %d times in %s", a.Tries, units.Seconds(a.Elapsed.Seconds()))
	if len(a.Statuses) > 1 {
		var parts []string
		for _, status := range slices.Sorted(maps.Keys(a.Statuses)) {
			name := strconv.Itoa(status)
			if status == 0 {
				name = "no answer"
			}
			parts = append(parts, fmt.Sprintf("%s %dx", name, a.Statuses[status]))
		}
		text += ": " + strings.Join(parts, ", ")
	}
	return text + ")"
}
