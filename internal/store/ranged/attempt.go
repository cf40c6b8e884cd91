package ranged

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stokerdata/stoker/store"
)

// maxRedirects is the maximum number of redirects.
const maxRedirects = 5

// maxDiscard is the number of bytes that are read from an unwanted response, so that its connection can be reused,
// or from an error response.
const maxDiscard = 16 << 10

// exchange is one attempt: a request, its response, and a guard for both.
type exchange struct {
	c *Client
	r *Request
	// payload is the request body, nil for none.
	payload []byte
	outer   context.Context
	life    *life
	resp    *http.Response
	body    io.ReadCloser
	guard   *guard
	sent    time.Time
	final   atomic.Bool
	url     string
	folder  bool // redirected to the same URL with a slash
}

// send sends a request, follows redirects, and returns with the response's header. The caller must call done. size
// is the maximum number of body bytes.
func (c *Client) send(ctx context.Context, method string, r *Request, header http.Header, size int64, again bool) (*exchange, error) {
	return c.sendPayload(ctx, method, r, header, nil, size, again)
}

// sendPayload is send with a request body, nil for none.
func (c *Client) sendPayload(ctx context.Context, method string, r *Request, header http.Header, payload []byte, size int64, again bool) (*exchange, error) {
	if err := c.limit.wait(ctx); err != nil {
		return nil, err
	}
	x := &exchange{c: c, r: r, payload: payload, outer: ctx, life: newLife(ctx), sent: time.Now()}
	c.counters.Begin(again)
	x.guard = newGuard(c.opt.Total+time.Duration(size>>16)*time.Second, c.opt.Dial+c.opt.Handshake+c.opt.FirstByte, x.life.end)
	if err := x.roundTrips(method, header); err != nil {
		err = ofTransport(ctx, x.life, err)
		x.done(0, err)
		return nil, err
	}
	x.guard.expect(c.opt.Stall)
	return x, nil
}

// roundTrips sends the request and follows redirects.
func (x *exchange) roundTrips(method string, header http.Header) error {
	at, foreign := x.r.URL, false
	for hop := 0; ; hop++ {
		resp, err := x.roundTrip(method, at, header, foreign)
		if err != nil {
			return err
		}
		to := ""
		if redirects(resp.StatusCode) && x.c.opt.Sign == nil {
			to = resp.Header.Get("Location")
		}
		if to == "" {
			x.resp, x.body, x.url = resp, resp.Body, at
			return nil
		}
		discard(resp.Body)
		from, err := url.Parse(at)
		if err != nil {
			return permanent("it is not a URL")
		}
		next, err := from.Parse(to)
		switch {
		case err != nil || next.Scheme != "http" && next.Scheme != "https" || next.Host == "":
			return permanent("the server redirects to an invalid URL")
		case hop == maxRedirects:
			return permanent("the server redirects more than %d times", maxRedirects)
		case from.Scheme == "https" && next.Scheme == "http":
			return permanent("the server redirects from https: to http: (%s)", next.Host)
		}
		// A redirect must not carry our credentials to another host.
		next.User = nil
		if method == http.MethodHead && sameOrigin(from, next) && next.Path == from.Path+"/" {
			// It is a folder, and no more is needed.
			x.resp, x.body, x.url, x.folder = resp, resp.Body, next.String(), true
			return nil
		}
		foreign = foreign || !sameOrigin(from, next)
		at = next.String()
	}
}

// roundTrip sends one request. If foreign is set, the request is to another host and gets none of the caller's
// headers.
func (x *exchange) roundTrip(method, at string, header http.Header, foreign bool) (*http.Response, error) {
	c := x.c
	if c.links != nil && x.payload == nil && c.opt.Sign == nil && !foreign {
		if resp, ours, err := c.links.get(x.life, method, at, x.r.Header, header); ours {
			return resp, err
		}
	}
	req, err := http.NewRequestWithContext(x.life, method, at, nil)
	if err != nil {
		return nil, permanent("it is not a URL")
	}
	if x.payload != nil {
		attach(req, x.payload, x.guard, c.opt.Stall+c.opt.FirstByte)
	}
	if !foreign {
		for k, v := range x.r.Header {
			req.Header[k] = append([]string(nil), v...)
		}
		if u := req.URL.User; u != nil && req.Header.Get("Authorization") == "" {
			pw, _ := u.Password()
			req.SetBasicAuth(u.Username(), pw)
		}
	}
	req.URL.User = nil
	for k, v := range header {
		req.Header[k] = v
	}
	if req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", userAgent)
	}
	if c.opt.Sign != nil {
		if err := c.opt.Sign(req); err != nil {
			return nil, &signError{err}
		}
	}
	return c.rt.RoundTrip(req)
}

const userAgent = "stoker"

// signError is the unchanged error of Sign. Its text comes from the store.
type signError struct{ err error }

func (e *signError) Error() string { return e.err.Error() }
func (e *signError) Unwrap() error { return e.err }

func redirects(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}

func sameOrigin(a, b *url.URL) bool {
	return strings.EqualFold(a.Host, b.Host) && a.Scheme == b.Scheme
}

func discard(body io.ReadCloser) {
	_, _ = io.CopyN(io.Discard, body, maxDiscard) // so that the connection can be reused
	_ = body.Close()
}

// done ends an attempt and counts it.
func (x *exchange) done(n int64, err error) {
	if !x.final.CompareAndSwap(false, true) {
		return
	}
	x.guard.stop()
	if x.body != nil {
		_ = x.body.Close() // Read has reported all errors
	}
	x.life.end(nil)
	var f *Failure
	throttled := errors.As(err, &f) && f.Class == Throttled
	x.c.counters.End(time.Since(x.sent), n, err, throttled)
	if f != nil && f.Class != NotFound && f.Class != Changed {
		x.c.counters.Fail(f.text)
	}
	if throttled || err == nil {
		x.c.limit.done(x.sent, throttled)
	}
}

// refused returns the error for an unsuccessful response.
func (x *exchange) refused() error {
	if x.c.opt.Sign != nil && redirects(x.resp.StatusCode) && x.c.opt.Classify == nil {
		return permanent("the server redirects, but signed requests are not sent to other URLs")
	}
	body, err := io.ReadAll(io.LimitReader(x.body, maxDiscard))
	if err != nil && x.outer.Err() != nil {
		return context.Cause(x.outer)
	}
	return x.c.ofStatus(x.r, x.resp, body)
}

// info describes the object from the response.
func (x *exchange) info() Info {
	h := x.resp.Header
	x.c.note(h.Get("Etag"))
	i := Info{Size: x.resp.ContentLength, ETag: h.Get("Etag"), Modified: h.Get("Last-Modified"), Status: x.resp.StatusCode, Header: h, URL: x.url}
	i.Ranges = strings.EqualFold(strings.TrimSpace(h.Get("Accept-Ranges")), "bytes")
	if x.resp.StatusCode == http.StatusPartialContent {
		i.Ranges = true
		i.Size = -1
		if _, _, total, err := contentRange(h.Get("Content-Range")); err == nil {
			i.Size = total
		}
	}
	return i
}

// read makes one attempt to fill dst from r.Offset+skip. If it fails, it returns how many of the first bytes are
// valid.
func (c *Client) read(ctx context.Context, r *Request, skip int64, dst []byte, again bool) (Info, int, error) {
	from := r.Offset + skip
	h := http.Header{"Range": {"bytes=" + strconv.FormatInt(from, 10) + "-" + strconv.FormatInt(from+int64(len(dst))-1, 10)}}
	// There is no If-Unmodified-Since for r.Modified: some servers compare it with a time of fractions of a second.
	if strings.HasPrefix(r.Version, `"`) && !c.weak.Load() {
		h["If-Match"] = []string{r.Version}
	}
	x, err := c.send(ctx, http.MethodGet, r, h, int64(len(dst)), again)
	if err != nil {
		return Info{}, 0, err
	}
	n := 0
	if err = x.check(from, int64(len(dst))); err == nil {
		n, err = x.fill(dst)
	}
	if err == nil {
		if err = x.verify(dst); err != nil {
			n = 0
		}
	}
	x.done(int64(n), err)
	return x.info(), n, err
}

// check returns an error if a response is not the requested one: n bytes from an offset.
func (x *exchange) check(from, n int64) error {
	resp, r := x.resp, x.r
	whole := resp.StatusCode == http.StatusOK
	if !whole && resp.StatusCode != http.StatusPartialContent {
		return x.refused()
	}
	if err := x.version(); err != nil {
		return err
	}
	if e := resp.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") && !x.c.opt.Encoded {
		return permanent("the server sends it encoded (Content-Encoding: %.20q) and not as stored", e)
	}
	if whole {
		if from != 0 || resp.ContentLength != n || r.Total > 0 && r.Total != n {
			f := temporary("%v: it sends the whole object instead of a part", ErrNoRanges)
			f.Status, f.cause = resp.StatusCode, ErrNoRanges
			return f
		}
		return nil
	}
	first, last, total, err := contentRange(resp.Header.Get("Content-Range"))
	switch {
	case err != nil:
		return temporary("the server sends a part without its range")
	case total >= 0 && r.Total > 0 && total != r.Total:
		return changed("it had %d bytes, now it has %d", r.Total, total)
	case first == from && total >= 0 && last == total-1 && last < from+n-1:
		f := permanent("%v", store.ErrShort)
		f.cause = store.ErrShort
		return f
	case first != from || last != from+n-1:
		return temporary("the server sends the wrong bytes, %d to %d", first, last+1)
	case resp.ContentLength >= 0 && resp.ContentLength != n:
		return temporary("the server sends the wrong length, %d bytes", resp.ContentLength)
	}
	return nil
}

// version returns an error if the response is not of the requested version.
func (x *exchange) version() error {
	h, r := x.resp.Header, x.r
	tag, at := h.Get("Etag"), h.Get("Last-Modified")
	x.c.note(tag)
	switch {
	case r.Version != "" && tag == "":
		return permanent("the server does not send the version (ETag) of the bytes, so they may be of another one: use a server or proxy that sends it")
	case r.Version != "" && opaque(tag) != opaque(r.Version):
		return changed("its version is different")
	case r.Version == "" && r.Modified != "" && at == "":
		return permanent("the server does not send the modification time (Last-Modified) of the bytes, so they may be of another version: use a server or proxy that sends it, or an ETag")
	case r.Version == "" && r.Modified != "" && at != r.Modified:
		return changed("its modification time is different")
	}
	return nil
}

// note notes the kind of entity tags that the server sends.
func (c *Client) note(tag string) {
	if strings.HasPrefix(tag, "W/") && !c.weak.Load() {
		c.weak.Store(true)
	}
}

// opaque returns an entity tag without the mark of weak ones: some proxies weaken the tags of objects that they do not
// change.
func opaque(tag string) string { return strings.TrimPrefix(tag, "W/") }

// fill reads the body, which must have exactly len(dst) bytes.
func (x *exchange) fill(dst []byte) (n int, err error) {
	for n < len(dst) {
		m, err := x.body.Read(dst[n:])
		n += m
		if m > 0 {
			x.guard.moved(x.c.opt.Stall)
		}
		if n == len(dst) {
			break
		}
		if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) && x.life.Err() == nil {
			return n, temporary("the response ends after %d of %d bytes", n, len(dst))
		}
		if err != nil {
			return n, ofTransport(x.outer, x.life, err)
		}
	}
	if x.resp.ContentLength >= 0 {
		return n, nil
	}
	// A body without a stated length must end here.
	var one [1]byte
	for {
		m, err := x.body.Read(one[:])
		switch {
		case m > 0:
			return 0, temporary("the response has more than %d bytes", len(dst))
		case err == io.EOF:
			return n, nil
		case err != nil:
			return 0, ofTransport(x.outer, x.life, err)
		}
	}
}

// verify verifies the checksum of the response.
func (x *exchange) verify(p []byte) error {
	if v := x.c.opt.Verify; v != nil {
		if err := v(x.resp.Header, p); err != nil {
			return damaged("%v", err)
		}
		return nil
	}
	// RFC 9530: sha-256=:base64:, of the content of this answer.
	for part := range strings.SplitSeq(x.resp.Header.Get("Content-Digest"), ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		if name != "sha-256" {
			continue
		}
		want, err := base64.StdEncoding.DecodeString(strings.Trim(value, ":"))
		if sum := sha256.Sum256(p); err != nil || string(sum[:]) != string(want) {
			return damaged("the checksum (Content-Digest) of the bytes is wrong")
		}
	}
	return nil
}

// ofFolder reports whether a URL ends with a slash, before its query.
func ofFolder(rawURL string) bool {
	at, _, _ := strings.Cut(rawURL, "?")
	return strings.HasSuffix(at, "/")
}

// head makes one attempt to describe an object.
func (c *Client) head(ctx context.Context, r *Request, again bool) (Info, error) {
	x, err := c.send(ctx, http.MethodHead, r, nil, 0, again)
	if err != nil {
		return Info{}, err
	}
	info := x.info()
	switch status := x.resp.StatusCode; {
	case x.folder:
		x.done(0, nil)
		return info, nil
	case status == http.StatusOK && (info.Ranges && info.Size >= 0 || ofFolder(info.URL)):
		x.done(0, nil) // a folder is not read by ranges
		return info, nil
	case status == http.StatusOK, vague(status):
		x.done(0, nil)
		return c.probe(ctx, r)
	}
	err = x.refused()
	x.done(0, err)
	return info, err
}

// vague reports whether the response to a HEAD request leaves open what is wrong: the URL is only valid for GET, or
// the reason is in a body, which responses to HEAD do not have.
func vague(status int) bool {
	switch status {
	case http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return true
	case http.StatusNotFound, http.StatusGone, http.StatusPreconditionFailed, http.StatusTooManyRequests:
		return false
	}
	return status >= 300 && status < 500
}

// probe reads one byte to describe an object.
func (c *Client) probe(ctx context.Context, r *Request) (Info, error) {
	x, err := c.send(ctx, http.MethodGet, r, http.Header{"Range": {"bytes=0-0"}}, 1, false)
	if err != nil {
		return Info{}, err
	}
	info := x.info()
	switch status := x.resp.StatusCode; {
	case status == http.StatusPartialContent && info.Size >= 0:
		discard(x.body)
	case status == http.StatusPartialContent:
		err = permanent("the server does not send its size")
	case status == http.StatusOK: // the whole object, which is not read
		info.Ranges = info.Size == 0
	case status == http.StatusRequestedRangeNotSatisfiable:
		// The object is empty: Content-Range: bytes */0.
		size, ok := strings.CutPrefix(x.resp.Header.Get("Content-Range"), "bytes */")
		if n, perr := strconv.ParseInt(size, 10, 64); ok && perr == nil && n == 0 {
			info.Size, info.Ranges = 0, true
		} else {
			err = x.refused()
		}
	default:
		err = x.refused()
	}
	x.done(0, err)
	return info, err
}

// body makes one attempt to read a small body.
func (c *Client) body(ctx context.Context, r *Request, limit int, again bool) ([]byte, Info, error) {
	x, err := c.send(ctx, http.MethodGet, r, nil, int64(limit), again)
	if err != nil {
		return nil, Info{}, err
	}
	var out []byte
	if x.resp.StatusCode != http.StatusOK {
		err = x.refused()
	} else if x.resp.ContentLength > int64(limit) {
		err = permanent("the response has more than %d bytes", limit)
	} else {
		out, err = x.all(limit)
	}
	x.done(int64(len(out)), err)
	return out, x.info(), err
}

func (x *exchange) all(limit int) ([]byte, error) {
	var out []byte
	buf := make([]byte, 32<<10)
	for {
		m, err := x.body.Read(buf)
		if out = append(out, buf[:m]...); m > 0 {
			x.guard.moved(x.c.opt.Stall)
		}
		switch {
		case len(out) > limit:
			return nil, permanent("the response has more than %d bytes", limit)
		case err == io.EOF:
			return out, nil
		case err != nil:
			return nil, ofTransport(x.outer, x.life, err)
		}
	}
}

var errNoContentRange = errors.New("no Content-Range")

// contentRange parses bytes FIRST-LAST/TOTAL. A TOTAL of * gives -1.
func contentRange(s string) (first, last, total int64, err error) {
	rest, ok := strings.CutPrefix(s, "bytes ")
	span, of, ok2 := strings.Cut(rest, "/")
	a, b, ok3 := strings.Cut(span, "-")
	if !ok || !ok2 || !ok3 {
		return 0, 0, 0, errNoContentRange
	}
	number := func(s string) int64 {
		n, perr := strconv.ParseUint(s, 10, 63)
		if perr != nil || s[0] == '+' {
			err = errNoContentRange
		}
		return int64(n)
	}
	first, last, total = number(a), number(b), -1
	if of != "*" {
		total = number(of)
	}
	if err == nil && (last < first || total >= 0 && last >= total) {
		err = errNoContentRange
	}
	return first, last, total, err
}
