package ranged

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"time"

	"github.com/stokerdata/stoker/store"
)

// Call is a request that changes something, or asks for something that is no object:
// what is sent and what comes back are small.
type Call struct {
	Request
	// Op is the verb of errors, as store.Error has it.
	Op     string
	Method string
	// Payload is sent as it is; nil for none.
	Payload []byte
	// Limit is how many bytes the answer may have at most.
	Limit int
	// Check says what an answer of a success means that speaks of a failure, as some
	// services give. It may be nil.
	Check func(body []byte) error
}

// Do makes a call, again and again until it is answered. The answer is one of the
// status 2xx, or an error. A call that changes something may so be made twice.
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
		err = permanent("the answer has more than %d bytes", call.Limit)
	default:
		out, err = x.all(call.Limit)
		if err == nil && call.Check != nil {
			err = call.Check(out)
		}
	}
	x.done(int64(len(out)), err)
	return out, x.info(), err
}

// Fail makes a failure of what an answer says, for Call.Check.
func Fail(c Class, status int, text string) *Failure {
	return &Failure{Class: c, Status: status, text: text}
}

// payload is what is sent; the guard waits as long as it moves.
type payload struct {
	io.Reader
	moved func()
}

func (p *payload) Read(b []byte) (int, error) {
	p.moved()
	return p.Reader.Read(b)
}

func (p *payload) Close() error { return nil }

// attach puts data into a request.
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
