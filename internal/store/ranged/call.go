package ranged

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/stokerdata/stoker/store"
)

// Call is a request that changes something, or requests something other than an object. Its bodies are small.
type Call struct {
	Request
	// Op is the verb in errors, as in store.Error.
	Op     string
	Method string
	// Payload is the request body, nil for none.
	Payload []byte
	// Limit is the maximum size of the response.
	Limit int
	// Check returns an error for a successful response with an error in its body, as some services send. It may be
	// nil.
	Check func(body []byte) error
	// Parse parses a successful response. Its error is Malformed or Invalid. It may be nil.
	Parse func(body []byte) error
}

// Do makes a call and retries it. It returns the body of a 2xx response or an error. A retry may repeat a change.
func (c *Client) Do(ctx context.Context, call Call) (body []byte, info Info, err error) {
	err = c.again(ctx, func(again bool) error {
		body, info, err = c.call(ctx, &call, again)
		return err
	})
	if err != nil {
		return nil, Info{}, &store.Error{Op: call.Op, Path: call.name(), Err: err}
	}
	return body, info, nil
}

func (c *Client) call(ctx context.Context, call *Call, again bool) ([]byte, Info, error) {
	x, err := c.sendPayload(ctx, call.Method, &call.Request, nil, call.Payload, int64(call.Limit+len(call.Payload)), again)
	if err != nil {
		return nil, Info{}, err
	}
	var out []byte
	switch {
	case x.resp.StatusCode < 200 || x.resp.StatusCode > 299:
		err = x.refused()
	case call.Method == http.MethodHead:
	case x.resp.ContentLength > int64(call.Limit):
		err = permanent("the response has more than %d bytes", call.Limit)
	default:
		out, err = x.all(call.Limit)
		if err == nil && call.Check != nil {
			err = call.Check(out)
		}
		if err == nil && call.Parse != nil {
			err = parse(call, out)
		}
	}
	x.done(int64(len(out)), err)
	return out, x.info(), err
}

func parse(call *Call, body []byte) error {
	start := strings.ToLower(string(bytes.TrimSpace(body[:min(len(body), 100)])))
	if strings.HasPrefix(start, "<!doctype html") || strings.HasPrefix(start, "<html") {
		return Invalid("the server answers with a web page: check the endpoint, the proxy and whether this network needs a login")
	}
	return call.Parse(body)
}

// Malformed returns the failure for a response that cannot be parsed. If it may have been cut off, it is retried.
func Malformed(what string, err error) error {
	var ofXML *xml.SyntaxError
	var ofJSON *json.SyntaxError
	f := permanent("the server's %s is not valid", what)
	if errors.As(err, &ofXML) || errors.As(err, &ofJSON) || errors.Is(err, io.EOF) {
		f.Class = Temporary
	}
	f.Status = http.StatusOK
	return f
}

// Invalid returns the failure for a response that is wrong, and would be wrong again.
func Invalid(format string, args ...any) error {
	f := permanent(format, args...)
	f.Status = http.StatusOK
	return f
}

// payload is a request body. The guard waits as long as it is being read.
type payload struct {
	io.Reader
	moved func()
}

func (p *payload) Read(b []byte) (int, error) {
	p.moved()
	return p.Reader.Read(b)
}

func (p *payload) Close() error { return nil }

// attach sets the body of a request.
func attach(req *http.Request, data []byte, guard *guard, stall time.Duration) {
	req.ContentLength = int64(len(data))
	if len(data) == 0 {
		req.Body = http.NoBody
		return
	}
	body := func() (io.ReadCloser, error) {
		return &payload{bytes.NewReader(data), func() { guard.expect(stall) }}, nil
	}
	req.Body, _ = body()
	req.GetBody = body
}
