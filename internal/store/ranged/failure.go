package ranged

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/stokerdata/stoker/internal/store/retry"
	"github.com/stokerdata/stoker/store"
)

// Class is the class of a failure.
type Class int

// The classes.
const (
	// Unknown: none of the others.
	Unknown Class = iota
	// NotFound: the object does not exist (store.ErrNotExist).
	NotFound
	// Denied: the object may not be read (store.ErrPermission).
	Denied
	// Changed: the object has another version now (store.ErrChanged).
	Changed
	// Throttled: there were too many requests. The request is retried later, and the rate is lowered.
	Throttled
	// Temporary: a retry may succeed. Examples are a server error, a broken connection, or a wrong response.
	Temporary
	// Permanent: a retry is useless.
	Permanent
	// Unauthorized: the credentials are missing, expired or not accepted (store.ErrCredentials).
	Unauthorized
	// Archived: the object must be restored before it can be read (store.ErrArchived).
	Archived
)

// Verdict describes the meaning of a service's error response.
type Verdict struct {
	Class Class
	// Code is the service's own name of the error, "" for none. It must not have secrets.
	Code string
	// Text explains the error. It follows "the server answers 400 Code: ".
	Text string
	// Again means that a retry may succeed although the class is a permanent one.
	Again bool
	// Cause is an error for errors.Is, which is not shown. It may be nil.
	Cause error
}

// Failure is the reason why a request failed. Its text has no URLs and no headers.
type Failure struct {
	Class Class
	// Status is the status of the response, 0 if there was none.
	Status int
	// Code is the service's own name of the error, "" for none.
	Code string
	// RetryAfter is the delay that the server asks for.
	RetryAfter time.Duration

	text     string
	cause    error // for errors.Is, not shown
	again    bool  // a retry may succeed whatever the class is
	final    bool  // no more attempts are left
	attempts store.Attempts
}

// Error implements error: what failed, and the number of attempts.
func (f *Failure) Error() string { return f.text + describe(f.attempts) }

// Attempts implements what store.AttemptsOf looks for.
func (f *Failure) Attempts() store.Attempts { return f.attempts }

// classes are the errors of package store for the classes.
var classes = map[Class]error{
	NotFound: store.ErrNotExist, Denied: store.ErrPermission, Changed: store.ErrChanged, Throttled: store.ErrThrottled,
	Unauthorized: store.ErrCredentials, Archived: store.ErrArchived,
}

// Reason returns what failed in one attempt, with the status of the response.
func (f *Failure) Reason() string {
	if f.Status == 0 || strings.Contains(f.text, strconv.Itoa(f.Status)) {
		return f.text
	}
	return fmt.Sprintf("%s (status %d)", f.text, f.Status)
}

// Refusal reports whether the server has refused the request and will refuse it again, if it is for this object.
func (f *Failure) Refusal() bool {
	return f.Class == Permanent && f.Status >= 300 && f.Status < 500
}

// Unwrap returns the class as an error of package store, and the cause.
func (f *Failure) Unwrap() []error {
	var of []error
	if class := classes[f.Class]; class != nil {
		of = append(of, class)
	}
	if f.Class == Temporary && (f.Status == 0 || f.Status >= http.StatusInternalServerError) && f.cause != store.ErrDamaged {
		of = append(of, store.ErrUnavailable)
	}
	if f.cause != nil {
		of = append(of, f.cause)
	}
	return of
}

// Transient reports whether a retry may succeed. See retry.Transient.
func (f *Failure) Transient() bool {
	return !f.final && (f.Class == Throttled || f.Class == Temporary || f.again)
}

// Wait is the minimum delay before a retry.
func (f *Failure) Wait() time.Duration { return f.RetryAfter }

func temporary(format string, args ...any) *Failure {
	return &Failure{Class: Temporary, text: fmt.Sprintf(format, args...)}
}

// damaged is the failure for bytes whose checksum is wrong.
func damaged(format string, args ...any) *Failure {
	return &Failure{Class: Temporary, text: fmt.Sprintf(format, args...), cause: store.ErrDamaged}
}

func permanent(format string, args ...any) *Failure {
	return &Failure{Class: Permanent, text: fmt.Sprintf(format, args...)}
}

func changed(format string, args ...any) *Failure {
	return &Failure{Class: Changed, text: store.ErrChanged.Error() + ": " + fmt.Sprintf(format, args...)}
}

// ErrNoRanges is the failure of a server that always sends whole objects.
var ErrNoRanges = errors.New("the server does not support range requests")

// ofStatus returns the failure for an unsuccessful response.
func (c *Client) ofStatus(r *Request, resp *http.Response, body []byte) *Failure {
	var v Verdict
	if c.opt.Classify != nil {
		v = c.opt.Classify(resp.StatusCode, resp.Header, body)
	}
	if v.Class == Unknown {
		v.Class = classOf(resp.StatusCode)
	}
	f := Fail(v, resp.StatusCode)
	f.RetryAfter = retryAfter(resp.Header, time.Now())
	switch {
	case f.Class == NotFound && (r.Version != "" || r.Modified != ""):
		f.Class, f.text, f.cause = Changed, store.ErrChanged.Error()+": it is gone", store.ErrNotExist
	case f.Class == NotFound:
		f.text = store.ErrNotExist.Error()
	case f.Class == Changed:
		f.text = store.ErrChanged.Error()
		// A server refuses If-Match of its own weak tag. The next attempt has no If-Match.
		tag := resp.Header.Get("Etag")
		c.note(tag)
		f.again = tag != r.Version && opaque(tag) == r.Version
	case resp.StatusCode == http.StatusRequestedRangeNotSatisfiable && f.Class == Permanent:
		f.text, f.cause = store.ErrShort.Error(), store.ErrShort
		if r.Total > 0 {
			f.Class, f.text, f.cause = Changed, store.ErrChanged.Error()+": it is shorter now", store.ErrShort
		}
	}
	return f
}

// Fail returns the failure of a verdict.
func Fail(v Verdict, status int) *Failure {
	text := fmt.Sprintf("the server answers %d %s", status, cmp.Or(v.Code, http.StatusText(status)))
	if v.Text != "" {
		text += ": " + v.Text
	}
	switch v.Class {
	case Denied, Unauthorized, Archived:
		text = classes[v.Class].Error() + ": " + text
	}
	return &Failure{Class: v.Class, Status: status, Code: v.Code, text: text, again: v.Again, cause: v.Cause}
}

func classOf(status int) Class {
	switch status {
	case http.StatusNotFound, http.StatusGone:
		return NotFound
	case http.StatusForbidden:
		return Denied
	case http.StatusUnauthorized, http.StatusProxyAuthRequired:
		return Unauthorized
	case http.StatusPreconditionFailed:
		return Changed
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return Throttled
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusMisdirectedRequest:
		return Temporary
	case http.StatusNotImplemented, http.StatusHTTPVersionNotSupported:
		return Permanent
	}
	if status >= 500 {
		return Temporary
	}
	return Permanent
}

// maxRetryAfter limits the delay that a server may ask for.
const maxRetryAfter = 2 * time.Minute

func retryAfter(h http.Header, now time.Time) time.Duration {
	v := h.Get("Retry-After")
	if n, err := strconv.Atoi(v); err == nil && n >= 0 {
		return time.Duration(min(n, int(maxRetryAfter/time.Second))) * time.Second
	}
	if t, err := http.ParseTime(v); err == nil {
		return min(max(t.Sub(now), 0), maxRetryAfter)
	}
	return 0
}

var (
	errStall = errors.New("no data arrived in time")
	errTotal = errors.New("it took too long")
)

// ofTransport returns the failure for an error below HTTP. inner is the context of the attempt, outer the caller's.
func ofTransport(outer context.Context, inner *life, err error) error {
	if outer.Err() != nil {
		return context.Cause(outer)
	}
	if c := inner.why(); c == errStall || c == errTotal {
		return &Failure{Class: Temporary, text: c.Error()}
	}
	var f *Failure
	if errors.As(err, &f) {
		return f
	}
	var sign *signError
	if errors.As(err, &sign) {
		return unsigned(sign.err)
	}
	// The text of the outer errors may have a URL.
	for {
		var ue *url.Error
		if !errors.As(err, &ue) {
			break
		}
		err = ue.Err
	}
	var op *net.OpError
	var dns *net.DNSError
	text := ""
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return &Failure{Class: Permanent, text: "unknown host " + dns.Name}
	case errors.As(err, &dns):
		text = "cannot resolve the host name now"
	case isTLS(err):
		return &Failure{Class: Permanent, text: "the connection is not trusted: " + tlsText(err)}
	case errors.As(err, &op) && op.Op == "proxyconnect":
		text = "the proxy cannot be reached: " + store.Cause(innermost(err)).Error()
	case errors.As(err, &op) && op.Op == "dial":
		text = "cannot connect: " + store.Cause(innermost(err)).Error()
	case errors.As(err, &op):
		text = "the connection broke: " + store.Cause(innermost(err)).Error()
	case strings.Contains(err.Error(), "EOF"):
		text = "the connection was closed before the end"
	case strings.Contains(err.Error(), "malformed HTTP"), strings.Contains(err.Error(), "bad Content-Length"), strings.Contains(err.Error(), "transfer encoding"), strings.Contains(err.Error(), "chunk"):
		text = "the response is not valid HTTP"
	case strings.Contains(err.Error(), "server gave HTTP response to HTTPS"):
		return &Failure{Class: Permanent, text: "the server speaks http:, not https:"}
	case strings.Contains(err.Error(), "headers"):
		text = "the response's headers are too long"
	default:
		text = "the connection failed"
	}
	return &Failure{Class: Temporary, text: text, cause: cause(err)}
}

// unsigned returns the failure of a request that could not be signed.
func unsigned(err error) *Failure {
	return &Failure{Class: Unauthorized, text: err.Error(), cause: err, again: retry.Transient(err)}
}

// innermost returns the system's error below those of package net.
func innermost(err error) error {
	for {
		var op *net.OpError
		if !errors.As(err, &op) || op.Err == nil {
			return err
		}
		err = op.Err
	}
}

// cause returns the system's error for errors.Is, and no error with other text.
func cause(err error) error {
	err = store.Cause(innermost(err))
	var dns *net.DNSError
	var timeout net.Error
	if errors.As(err, &dns) || errors.As(err, &timeout) {
		return nil
	}
	return err
}
