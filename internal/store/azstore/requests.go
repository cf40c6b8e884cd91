package azstore

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/stokerdata/stoker/internal/store/bucket"
	"github.com/stokerdata/stoker/internal/store/ranged"
	"github.com/stokerdata/stoker/store"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// maxAnswer limits XML responses: five thousand escaped names of a kilobyte.
const maxAnswer = 64 << 20

// Stat describes an object.
func (d *driver) Stat(ctx context.Context, key string) (bucket.Info, error) {
	i, err := d.c.Head(ctx, d.request(key))
	if err != nil {
		return bucket.Info{}, err
	}
	if i.Header.Get("X-Ms-Meta-Hdi_isfolder") == "true" {
		return bucket.Info{}, store.ErrNotExist // a folder in Data Lake Storage
	}
	info, err := bucket.InfoOf(key, i.Size, i.Header)
	info.Archived = archivedIn(i.Header.Get("X-Ms-Access-Tier"))
	return info, err
}

// archivedIn returns an access tier whose objects must be restored before they can be read, "" for others. An object
// is in this tier until it is restored.
func archivedIn(tier string) string {
	if tier == "Archive" {
		return "tier " + tier
	}
	return ""
}

// ReadAt reads a part of an object.
func (d *driver) ReadAt(ctx context.Context, i bucket.Info, p []byte, off int64) error {
	r := d.request(i.Key)
	r.Offset, r.Total = off, i.Size
	r.Expect(i.Version)
	c := d.c
	if off == 0 && int64(len(p)) == i.Size {
		c = d.whole
	}
	_, err := c.Get(ctx, r, p)
	return err
}

// ReadWhole reads a small object.
func (d *driver) ReadWhole(ctx context.Context, key string, limit int) ([]byte, bucket.Info, error) {
	b, i, err := d.c.Body(ctx, d.request(key), limit)
	if err != nil {
		return nil, bucket.Info{}, err
	}
	info, err := bucket.InfoOf(key, int64(len(b)), i.Header)
	return b, info, err
}

// Examine returns what the server supports.
func (d *driver) Examine(ctx context.Context, i bucket.Info) (store.Manners, error) {
	r := d.request(i.Key)
	r.Total = i.Size
	return d.c.Examine(ctx, r, ranged.Request{})
}

// verify verifies the checksum of a whole object. A response to a range request has it under another name.
func verify(h http.Header, p []byte) error {
	for _, name := range []string{"X-Ms-Blob-Content-Md5", "Content-Md5"} {
		text := h.Get(name)
		if text == "" {
			continue
		}
		want, err := base64.StdEncoding.DecodeString(text)
		if sum := md5.Sum(p); err != nil || !bytes.Equal(want, sum[:]) {
			return fmt.Errorf("the checksum (%s) of the bytes is wrong", strings.ToLower(name))
		}
		return nil
	}
	return nil
}

// name is a name in a listing, escaped if XML cannot contain it.
type name struct {
	Encoded bool   `xml:"Encoded,attr"`
	Text    string `xml:",chardata"`
}

func (n *name) plain() (string, error) {
	if !n.Encoded {
		return n.Text, nil
	}
	return url.PathUnescape(n.Text)
}

// listing is the response to a list request.
type listing struct {
	XMLName xml.Name `xml:"EnumerationResults"`
	Blobs   struct {
		Blob []struct {
			Name       name
			Properties struct {
				Etag         string
				Length       int64  `xml:"Content-Length"`
				LastModified string `xml:"Last-Modified"`
				ResourceType string
				AccessTier   string
			}
		}
		BlobPrefix []struct{ Name name }
	}
	NextMarker string
}

// List returns a page of a listing.
func (d *driver) List(ctx context.Context, q bucket.Query) (bucket.Page, error) {
	query := []string{"restype", "container", "comp", "list"}
	if q.Prefix != "" {
		query = append(query, "prefix", q.Prefix)
	}
	if q.Folders {
		query = append(query, "delimiter", "/")
	}
	if q.Next != "" {
		query = append(query, "marker", q.Next)
	}
	if q.Max > 0 {
		query = append(query, "maxresults", strconv.Itoa(q.Max))
	}
	var p bucket.Page
	_, _, err := d.c.Do(ctx, ranged.Call{Request: d.request("", query...), Op: "list", Method: http.MethodGet, Limit: maxAnswer, Parse: func(body []byte) (err error) {
		p, err = parseListing(body)
		return err
	}})
	return p, err
}

func parseListing(body []byte) (bucket.Page, error) {
	var l listing
	if err := xml.Unmarshal(body, &l); err != nil {
		return bucket.Page{}, ranged.Malformed("listing", err)
	}
	p := bucket.Page{Next: l.NextMarker}
	for _, b := range l.Blobs.Blob {
		key, err := b.Name.plain()
		if err != nil {
			return p, ranged.Invalid("the server lists the invalid name %q", b.Name.Text)
		}
		if b.Properties.ResourceType == "directory" {
			continue // a folder in Data Lake Storage
		}
		at, _ := http.ParseTime(b.Properties.LastModified) // zero if unknown
		i := bucket.Info{Key: key, Size: b.Properties.Length, Version: bucket.VersionOf(b.Properties.Etag, at, b.Properties.Length), ModTime: at}
		i.Archived = archivedIn(b.Properties.AccessTier)
		p.Objects = append(p.Objects, i)
	}
	for _, b := range l.Blobs.BlobPrefix {
		key, err := b.Name.plain()
		if err != nil {
			return p, ranged.Invalid("the server lists the invalid name %q", b.Name.Text)
		}
		p.Prefixes = append(p.Prefixes, key)
	}
	return p, nil
}

func (d *driver) call(ctx context.Context, op, method string, r ranged.Request, payload []byte) (ranged.Info, error) {
	if payload != nil {
		sum := md5.Sum(payload)
		r.Header.Set("Content-MD5", base64.StdEncoding.EncodeToString(sum[:]))
	}
	_, i, err := d.c.Do(ctx, ranged.Call{Request: r, Op: op, Method: method, Payload: payload, Limit: maxAnswer})
	return i, err
}

// Put writes an object.
func (d *driver) Put(ctx context.Context, key string, data []byte, c bucket.Condition) (bucket.Info, error) {
	r := d.request(key)
	r.Header.Set("X-Ms-Blob-Type", "BlockBlob")
	r.Header.Set("Content-Type", "application/octet-stream")
	c.Match(r.Header)
	if data == nil {
		data = []byte{}
	}
	i, err := d.call(ctx, "write", http.MethodPut, r, data)
	if err != nil {
		return bucket.Info{}, err
	}
	return c.Written(key, int64(len(data)), i.Header)
}

// Delete removes an object.
func (d *driver) Delete(ctx context.Context, key string) error {
	_, err := d.call(ctx, "remove", http.MethodDelete, d.request(key), nil)
	return err
}

// parts is an upload in blocks. Blocks are not visible until they are listed, and expire after a week.
type parts struct {
	d   *driver
	key string
	// mark distinguishes the blocks of two uploads.
	mark string
}

// Begin begins an upload in blocks.
func (d *driver) Begin(_ context.Context, key string) (bucket.Parts, error) {
	return &parts{d: d, key: key, mark: fmt.Sprintf("%016x", time.Now().UnixNano())}, nil
}

func (p *parts) id(n int) string {
	return base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%s-%08d", p.mark, n))
}

// Part writes a block.
func (p *parts) Part(ctx context.Context, n int, data []byte) error {
	_, err := p.d.call(ctx, "write", http.MethodPut, p.d.request(p.key, "comp", "block", "blockid", p.id(n)), data)
	return err
}

// Finish creates the object.
func (p *parts) Finish(ctx context.Context, n int) error {
	var b bytes.Buffer
	b.WriteString(`<?xml version="1.0" encoding="utf-8"?><BlockList>`)
	for i := 1; i <= n; i++ {
		b.WriteString("<Latest>" + p.id(i) + "</Latest>")
	}
	b.WriteString("</BlockList>")
	r := p.d.request(p.key, "comp", "blocklist")
	r.Header.Set("X-Ms-Blob-Content-Type", "application/octet-stream")
	_, err := p.d.call(ctx, "write", http.MethodPut, r, b.Bytes())
	return err
}

// Abort has no effect: unlisted blocks expire.
func (p *parts) Abort(context.Context) error { return nil }

// copies is the maximum number of concurrent copies.
const copies = 3

// Concat concatenates objects. Their bytes pass through this machine, because an account key does not allow the
// server to read the source of a copy.
func (d *driver) Concat(ctx context.Context, key string, pieces []bucket.Info) error {
	p, err := d.Begin(ctx, key)
	if err != nil {
		return err
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(copies)
	for i, piece := range pieces {
		g.Go(func() error {
			b := make([]byte, piece.Size)
			if err := d.ReadAt(gctx, piece, b, 0); err != nil {
				return err
			}
			return p.Part(gctx, i+1, b)
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return p.Finish(ctx, len(pieces))
}

// Sweep has no effect: unlisted blocks expire.
func (d *driver) Sweep(context.Context, string) error { return nil }
