package s3store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"hash/crc32"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/stokerdata/stoker/internal/store/bucket"
	"github.com/stokerdata/stoker/internal/store/ranged"
	"github.com/stokerdata/stoker/store"
)

// call sends a request that changes something. A success response may contain an error. parse may be nil.
func (d *driver) call(ctx context.Context, op, method string, r ranged.Request, payload []byte, parse func([]byte) error) (ranged.Info, error) {
	c := ranged.Call{Request: r, Op: op, Method: method, Payload: payload, Limit: maxAnswer, Parse: parse}
	if payload != nil {
		sum := sha256.Sum256(payload)
		r.Header.Set(hashHeader, hex.EncodeToString(sum[:]))
	}
	return d.do(ctx, c)
}

// into returns a function that parses XML into t.
func into[T any](what string, t *T) func(body []byte) error {
	return func(body []byte) error {
		var got T // not t, because an attempt before may have set it
		if err := xml.Unmarshal(body, &got); err != nil {
			return ranged.Malformed(what, err)
		}
		*t = got
		return nil
	}
}

// do makes a call to the bucket's home.
func (d *driver) do(ctx context.Context, c ranged.Call) (i ranged.Info, err error) {
	err = d.try(c.Request, func(h *home, r ranged.Request) (err error) {
		c.Request, c.Check = r, h.check
		_, i, err = h.c.Do(ctx, c)
		return err
	})
	return i, err
}

// check returns the error in the body of a successful response.
func (h *home) check(body []byte) error {
	var f failure
	if !bytes.Contains(body, []byte("<Error>")) || xml.Unmarshal(body, &f) != nil {
		return nil
	}
	v := h.classify(http.StatusOK, http.Header{}, body)
	if v.Class == ranged.Unknown {
		v.Class = ranged.Temporary
	}
	return ranged.Fail(v, http.StatusOK)
}

// checksum makes the server verify the data, and return the checksum to readers.
func checksum(h http.Header, data []byte) {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], crc32.Checksum(data, castagnoli))
	h.Set("X-Amz-Checksum-Crc32c", base64.StdEncoding.EncodeToString(b[:]))
}

// Put writes an object.
func (d *driver) Put(ctx context.Context, key string, data []byte, c bucket.Condition) (bucket.Info, error) {
	r := d.request(key)
	checksum(r.Header, data)
	c.Match(r.Header)
	if data == nil {
		data = []byte{}
	}
	i, err := d.call(ctx, "write", http.MethodPut, r, data, nil)
	if err != nil {
		return bucket.Info{}, err
	}
	return c.Written(key, int64(len(data)), i.Header)
}

// Delete removes an object.
func (d *driver) Delete(ctx context.Context, key string) error {
	_, err := d.call(ctx, "remove", http.MethodDelete, d.request(key), nil, nil)
	return err
}

// parts is a multipart upload.
type parts struct {
	d       *driver
	key, id string

	mu   sync.Mutex
	tags map[int]string
}

// Begin begins a multipart upload.
func (d *driver) Begin(ctx context.Context, key string) (bucket.Parts, error) {
	p, err := d.begin(ctx, key)
	if err != nil {
		return nil, err // not p, a nil pointer in an interface that is not nil
	}
	return p, nil
}

func (d *driver) begin(ctx context.Context, key string) (*parts, error) {
	var got struct {
		XMLName  xml.Name `xml:"InitiateMultipartUploadResult"`
		UploadID string   `xml:"UploadId"`
	}
	_, err := d.call(ctx, "write", http.MethodPost, d.request(key, "uploads", ""), nil, into("response to a new upload", &got))
	if err != nil {
		return nil, err
	}
	if got.UploadID == "" {
		return nil, ranged.Invalid("the server does not send the id of the upload")
	}
	return &parts{d: d, key: key, id: got.UploadID, tags: map[int]string{}}, nil
}

func (p *parts) request(n int) ranged.Request {
	return p.d.request(p.key, "partNumber", strconv.Itoa(n), "uploadId", p.id)
}

func (p *parts) tag(n int, tag string) error {
	if tag == "" {
		return ranged.Invalid("the server does not send the version (ETag) of a part")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tags[n] = bucket.VersionOf(tag, time.Time{}, 0)
	return nil
}

// Part writes a part.
func (p *parts) Part(ctx context.Context, n int, data []byte) error {
	r := p.request(n)
	i, err := p.d.call(ctx, "write", http.MethodPut, r, data, nil)
	if err != nil {
		return err
	}
	return p.tag(n, i.Header.Get("ETag"))
}

// copy copies an object of the bucket to a part.
func (p *parts) copy(ctx context.Context, n int, from bucket.Info) error {
	r := p.request(n)
	var source strings.Builder
	source.WriteString("/" + p.d.name + "/")
	escape(&source, from.Key, true)
	r.Header.Set("X-Amz-Copy-Source", source.String())
	var got struct {
		XMLName xml.Name `xml:"CopyPartResult"`
		ETag    string
	}
	if _, err := p.d.call(ctx, "write", http.MethodPut, r, nil, into("response to a copy", &got)); err != nil {
		return err
	}
	return p.tag(n, got.ETag)
}

// Finish creates the object.
func (p *parts) Finish(ctx context.Context, n int) error {
	var b bytes.Buffer
	b.WriteString(`<CompleteMultipartUpload xmlns="http://s3.amazonaws.com/doc/2006-03-01/">`)
	for i := 1; i <= n; i++ {
		fmt.Fprintf(&b, "<Part><PartNumber>%d</PartNumber><ETag>", i)
		_ = xml.EscapeText(&b, []byte(p.tags[i]))
		b.WriteString("</ETag></Part>")
	}
	b.WriteString("</CompleteMultipartUpload>")
	var got struct {
		XMLName xml.Name `xml:"CompleteMultipartUploadResult"`
	}
	_, err := p.d.call(ctx, "write", http.MethodPost, p.d.request(p.key, "uploadId", p.id), b.Bytes(), into("response to a complete upload", &got))
	if errors.Is(err, store.ErrNotExist) {
		// The response to an earlier attempt may have been lost. Then the object exists, and its tag ends with the
		// number of parts.
		if i, serr := p.d.Stat(ctx, p.key); serr == nil && strings.HasSuffix(i.Version, fmt.Sprintf(`-%d"`, n)) {
			return nil
		}
	}
	return err
}

// Abort removes the upload.
func (p *parts) Abort(ctx context.Context) error { return p.d.abort(ctx, p.key, p.id) }

func (d *driver) abort(ctx context.Context, key, id string) error {
	_, err := d.call(ctx, "remove", http.MethodDelete, d.request(key, "uploadId", id), nil, nil)
	if errors.Is(err, store.ErrNotExist) {
		return nil
	}
	return err
}

// copies is the maximum number of concurrent copies.
const copies = 8

// Concat concatenates objects. The server copies them.
func (d *driver) Concat(ctx context.Context, key string, pieces []bucket.Info) error {
	p, err := d.begin(ctx, key)
	if err != nil {
		return err
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(copies)
	for i, piece := range pieces {
		g.Go(func() error { return p.copy(gctx, i+1, piece) })
	}
	if err = g.Wait(); err == nil {
		err = p.Finish(ctx, len(pieces))
	}
	if err != nil {
		_ = p.Abort(context.WithoutCancel(ctx)) // the first failure counts
	}
	return err
}

// Sweep removes unfinished multipart uploads.
func (d *driver) Sweep(ctx context.Context, key string) error {
	var got struct {
		XMLName xml.Name `xml:"ListMultipartUploadsResult"`
		Upload  []struct {
			Key      string
			UploadID string `xml:"UploadId"`
		}
	}
	_, err := d.call(ctx, "look for uploads of", http.MethodGet, d.request("", "uploads", "", "prefix", key), nil, into("list of uploads", &got))
	if err != nil {
		return err
	}
	for _, u := range slices.Clone(got.Upload) {
		if u.Key == key {
			if err := d.abort(ctx, key, u.UploadID); err != nil {
				return err
			}
		}
	}
	return nil
}
