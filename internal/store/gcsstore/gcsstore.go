// Package gcsstore is a store for a bucket of Google Cloud Storage. It uses the JSON API. The version of an object
// is its generation.
package gcsstore

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/stokerdata/stoker/internal/store/bucket"
	"github.com/stokerdata/stoker/internal/store/lease"
	"github.com/stokerdata/stoker/internal/store/ranged"
	"github.com/stokerdata/stoker/store"
)

// Options select the server and the credentials.
type Options struct {
	// Endpoint is the URL of another server than Google's. "" means STORAGE_EMULATOR_HOST, which gets unsigned
	// requests.
	Endpoint string
	// Anonymous sends no credentials, for public buckets.
	Anonymous bool
	// Project is billed for the requests, for buckets with requester pays.
	Project string
}

// Params are the options in the query of a URL.
var Params = []string{"endpoint", "anonymous", "project"}

// Set sets an option by its name in a URL.
func (o *Options) Set(name, value string) (err error) {
	switch name {
	case "endpoint":
		o.Endpoint = value
	case "project":
		o.Project = value
	case "anonymous":
		if o.Anonymous, err = strconv.ParseBool(value); err != nil {
			return fmt.Errorf("anonymous=%s: write true or false", value)
		}
	}
	return nil
}

// Open returns the store of the object or folder at path in a bucket. With a trailing slash the path is a folder.
func Open(ctx context.Context, name, path string, opt *Options) (*bucket.Store, error) {
	return bucket.Open("gs://"+name, path, func() (bucket.Driver, error) { return newDriver(ctx, name, opt) })
}

// driver implements bucket.Driver for a bucket.
type driver struct {
	name string
	base string // scheme://host
	opt  Options
	// tokens sign requests, nil for unsigned ones.
	tokens   *lease.Lease[string]
	c, whole *ranged.Client
}

const home = "https://storage.googleapis.com"

func newDriver(ctx context.Context, name string, opt *Options) (*driver, error) {
	d := &driver{name: name}
	if opt != nil {
		d.opt = *opt
	}
	if name == "" || len(name) > 222 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") != "" {
		return nil, fmt.Errorf("%q is not a bucket name", name)
	}
	d.base = d.opt.Endpoint
	if host := os.Getenv("STORAGE_EMULATOR_HOST"); d.base == "" && host != "" {
		if d.base = host; !strings.Contains(host, "://") {
			d.base = "http://" + host
		}
		d.opt.Anonymous = true
	}
	if d.base == "" {
		d.base = home
	}
	u, err := url.Parse(d.base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" {
		return nil, errors.New("the endpoint is not a URL such as http://localhost:4443")
	}
	d.base = u.Scheme + "://" + u.Host
	if !d.opt.Anonymous {
		if u.Scheme == "http" {
			return nil, errors.New("tokens are only sent over https: add ?anonymous=true for a test server")
		}
		if d.tokens, err = defaultTokens(ctx); err != nil {
			return nil, err
		}
	}
	ro := ranged.Options{Endpoint: d.base, CABundle: os.Getenv("STOKER_CA_BUNDLE"), Classify: d.classify, Encoded: true, Sign: d.sign}
	if d.c, err = ranged.New(ro); err != nil {
		return nil, err
	}
	ro.Verify = verify
	d.whole, err = ranged.New(ro)
	return d, err
}

// URL returns the URL of the bucket.
func (d *driver) URL() string { return "gs://" + d.name }

// Warm opens connections before they are needed.
func (d *driver) Warm(n int) { d.c.Warm(n) }

// Close has no effect: connections are shared and time out.
func (d *driver) Close() error { return nil }

// sign adds the token to a request.
func (d *driver) sign(r *http.Request) error {
	if d.tokens == nil {
		return nil
	}
	t, err := d.tokens.Get(r.Context())
	if err == nil {
		r.Header.Set("Authorization", "Bearer "+t)
	}
	return err
}

// request returns a request for a path of the JSON API.
func (d *driver) request(path, key string, query url.Values) ranged.Request {
	if query == nil {
		query = url.Values{}
	}
	if d.opt.Project != "" {
		query.Set("userProject", d.opt.Project)
	}
	return ranged.Request{URL: d.base + path + "?" + query.Encode(), Name: d.URL() + "/" + key, Header: http.Header{}}
}

// object returns a request for an object.
func (d *driver) object(key string, query url.Values) ranged.Request {
	return d.request("/storage/v1/b/"+d.name+"/o/"+url.PathEscape(key), key, query)
}

// resource is the server's description of an object.
type resource struct {
	Name       string `json:"name"`
	Size       string `json:"size"`
	Generation string `json:"generation"`
	Updated    string `json:"updated"`
}

func (r *resource) info() (bucket.Info, error) {
	size, err := strconv.ParseInt(r.Size, 10, 64)
	if err != nil {
		return bucket.Info{}, ranged.Invalid("the server reports the invalid size %[2]q of %[1]q", r.Name, r.Size)
	}
	if err := checkGeneration(r.Name, r.Generation); err != nil {
		return bucket.Info{}, err
	}
	at, _ := time.Parse(time.RFC3339, r.Updated) // zero if unknown
	return bucket.Info{Key: r.Name, Size: size, Version: r.Generation, ModTime: at}, nil
}

// checkGeneration refuses invalid generations, because they become part of requests.
func checkGeneration(name, generation string) error {
	if strings.Trim(generation, "0123456789") != "" || len(generation) > 20 {
		return ranged.Invalid("the server reports the invalid generation %[2]q of %[1]q", name, generation)
	}
	return nil
}

// maxAnswer limits JSON responses: a thousand objects with their access lists.
const maxAnswer = 32 << 20

// ask sends a request whose response is JSON.
func (d *driver) ask(ctx context.Context, op, method string, r ranged.Request, payload []byte, into any) (ranged.Info, error) {
	call := ranged.Call{Request: r, Op: op, Method: method, Payload: payload, Limit: maxAnswer}
	if into != nil {
		call.Parse = func(body []byte) error {
			if err := json.Unmarshal(body, into); err != nil {
				return ranged.Malformed("response", err)
			}
			return nil
		}
	}
	_, i, err := d.c.Do(ctx, call)
	return i, err
}

const fields = "name,size,generation,updated"

// Stat describes an object.
func (d *driver) Stat(ctx context.Context, key string) (bucket.Info, error) {
	var r resource
	i, err := d.ask(ctx, "look at", http.MethodGet, d.object(key, url.Values{"fields": {fields}}), nil, &r)
	if err != nil {
		return bucket.Info{}, err
	}
	if r.Name != key {
		return bucket.Info{}, ranged.Invalid("the server describes another object, %q", r.Name)
	}
	info, err := r.info()
	if err == nil {
		info.Now, _ = http.ParseTime(i.Header.Get("Date"))
	}
	return info, err
}

// List returns a page of a listing.
func (d *driver) List(ctx context.Context, q bucket.Query) (bucket.Page, error) {
	v := url.Values{"fields": {"items(" + fields + "),prefixes,nextPageToken"}}
	set := func(name, value string) {
		if value != "" {
			v.Set(name, value)
		}
	}
	set("prefix", q.Prefix)
	set("pageToken", q.Next)
	if q.Folders {
		set("delimiter", "/")
	}
	if q.Max > 0 {
		set("maxResults", strconv.Itoa(q.Max))
	}
	var got struct {
		Items         []resource `json:"items"`
		Prefixes      []string   `json:"prefixes"`
		NextPageToken string     `json:"nextPageToken"`
	}
	if _, err := d.ask(ctx, "list", http.MethodGet, d.request("/storage/v1/b/"+d.name+"/o", "", v), nil, &got); err != nil {
		return bucket.Page{}, err
	}
	p := bucket.Page{Prefixes: got.Prefixes, Next: got.NextPageToken}
	for _, r := range got.Items {
		i, err := r.info()
		if err != nil {
			return p, err
		}
		p.Objects = append(p.Objects, i)
	}
	return p, nil
}

// ReadAt reads a part of an object.
func (d *driver) ReadAt(ctx context.Context, i bucket.Info, p []byte, off int64) error {
	v := url.Values{"alt": {"media"}}
	if i.Version != "" {
		v.Set("ifGenerationMatch", i.Version)
	}
	r := d.object(i.Key, v)
	r.Offset, r.Total = off, i.Size
	// Without it the server decompresses objects that are stored with gzip.
	r.Header.Set("Accept-Encoding", "gzip")
	c := d.c
	if off == 0 && int64(len(p)) == i.Size {
		c = d.whole
	}
	_, err := c.Get(ctx, r, p)
	return err
}

// ReadWhole reads a small object. It is unsupported if the server does not send the generation: then the object
// must be described first.
func (d *driver) ReadWhole(ctx context.Context, key string, limit int) ([]byte, bucket.Info, error) {
	r := d.object(key, url.Values{"alt": {"media"}})
	r.Header.Set("Accept-Encoding", "gzip") // unchanged
	b, i, err := d.c.Body(ctx, r, limit)
	if err == nil {
		err = verify(i.Header, b)
	}
	if err != nil {
		return nil, bucket.Info{}, err
	}
	generation := i.Header.Get("X-Goog-Generation")
	if generation == "" {
		return nil, bucket.Info{}, fmt.Errorf("the server does not send the generation: %w", errors.ErrUnsupported)
	}
	if err := checkGeneration(key, generation); err != nil {
		return nil, bucket.Info{}, err
	}
	info, err := bucket.InfoOf(key, int64(len(b)), i.Header)
	info.Version = generation
	return b, info, err
}

// Examine returns what the server supports.
func (d *driver) Examine(ctx context.Context, i bucket.Info) (store.Manners, error) {
	r := d.object(i.Key, url.Values{"alt": {"media"}})
	r.Total = i.Size
	r.Header.Set("Accept-Encoding", "gzip")
	return d.c.Examine(ctx, r, d.object(i.Key, url.Values{"alt": {"media"}, "ifGenerationMatch": {"1"}}))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// verify verifies the checksum of a whole object.
func verify(h http.Header, p []byte) error {
	for _, line := range h.Values("X-Goog-Hash") {
		for part := range strings.SplitSeq(line, ",") {
			text, ok := strings.CutPrefix(strings.TrimSpace(part), "crc32c=")
			if !ok {
				continue
			}
			want, err := base64.StdEncoding.DecodeString(text)
			if err != nil || len(want) != 4 || binary.BigEndian.Uint32(want) != crc32.Checksum(p, castagnoli) {
				return errors.New("the checksum (x-goog-hash) of the bytes is wrong")
			}
		}
	}
	return nil
}

// classify returns the meaning of an error response.
func (d *driver) classify(status int, h http.Header, body []byte) (v ranged.Verdict) {
	var f struct {
		Error struct {
			Errors []struct {
				Reason string `json:"reason"`
			} `json:"errors"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &f) == nil && len(f.Error.Errors) > 0 && bucket.IsCode(f.Error.Errors[0].Reason) {
		v.Code = f.Error.Errors[0].Reason
	}
	switch {
	case status == http.StatusUnauthorized:
		v.Class, v.Again = ranged.Unauthorized, d.tokens != nil && d.tokens.Refused()
	case v.Code == "rateLimitExceeded" || v.Code == "userRateLimitExceeded":
		v.Class = ranged.Throttled
	case status == http.StatusConflict:
		v.Class = ranged.Temporary
	case status == http.StatusNotFound && strings.Contains(string(body), "bucket does not exist"):
		v.Class, v.Text = ranged.Permanent, "the bucket does not exist"
	}
	return v
}
