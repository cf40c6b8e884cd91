// Package s3store is a store for a bucket of S3, or of a server with the same protocol.
//
// Requests are sent by package ranged. Amazon's SDK only finds credentials and signs.
package s3store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/stokerdata/stoker/internal/store/bucket"
	"github.com/stokerdata/stoker/internal/store/ranged"
	"github.com/stokerdata/stoker/store"
)

// Options select the server and the credentials. Unset options come from the environment and the files of Amazon's
// tools.
type Options struct {
	// Endpoint is the URL of another server than Amazon's, such as http://localhost:9000. "" means
	// AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, or endpoint_url of the profile.
	Endpoint string
	// Region is the region of the bucket. "" asks Amazon. For other servers it means AWS_REGION, or us-east-1.
	Region string
	// Profile is a profile in ~/.aws/config and ~/.aws/credentials, "" for AWS_PROFILE.
	Profile string
	// Anonymous sends unsigned requests, for public buckets. AWS_NO_SIGN_REQUEST also sets it.
	Anonymous bool
	// RequesterPays accepts the charges for requests.
	RequesterPays bool
	// PathStyle is "true" if requests have the bucket's name in the path, "false" for the host. "" means true for
	// other servers than Amazon's.
	PathStyle string
}

// Params are the options in the query of a URL.
var Params = []string{"endpoint", "region", "profile", "anonymous", "requester_pays", "path_style"}

// Set sets an option by its name in a URL.
func (o *Options) Set(name, value string) error {
	yes := func(to *bool) (err error) {
		if *to, err = strconv.ParseBool(value); err != nil {
			return fmt.Errorf("%s=%s: write true or false", name, value)
		}
		return nil
	}
	switch name {
	case "endpoint":
		o.Endpoint = value
	case "region":
		o.Region = value
	case "profile":
		o.Profile = value
	case "anonymous":
		return yes(&o.Anonymous)
	case "requester_pays":
		return yes(&o.RequesterPays)
	case "path_style":
		if value != "true" && value != "false" {
			return fmt.Errorf("path_style=%s: write true or false", value)
		}
		o.PathStyle = value
	}
	return nil
}

// Open returns the store of the object or folder at path in a bucket. With a trailing slash the path is a folder.
func Open(ctx context.Context, name, path string, opt *Options) (*bucket.Store, error) {
	return bucket.Open("s3://"+name, path, func() (bucket.Driver, error) { return newDriver(ctx, name, opt) })
}

// driver implements bucket.Driver for a bucket.
type driver struct {
	name string
	opt  Options
	id   *identity // nil for anonymous
	// endpoint is the URL of another server than Amazon's, "" for Amazon.
	endpoint, bundle string
	home             atomic.Pointer[home]
}

func newDriver(ctx context.Context, name string, opt *Options) (*driver, error) {
	d := &driver{name: name, bundle: cmp.Or(os.Getenv("AWS_CA_BUNDLE"), os.Getenv("STOKER_CA_BUNDLE"))}
	if opt != nil {
		d.opt = *opt
	}
	if err := checkBucket(name); err != nil {
		return nil, err
	}
	if no, err := strconv.ParseBool(os.Getenv("AWS_NO_SIGN_REQUEST")); err == nil && no {
		d.opt.Anonymous = true
	}
	if _, err := os.Stat(d.bundle); d.bundle != "" && err != nil { // the SDK's error would not name the file
		return nil, fmt.Errorf("the CA bundle %s: %w", d.bundle, store.Cause(err))
	}
	conf, err := configOf(ctx, d.opt.Profile)
	if err != nil {
		return nil, err
	}
	if !d.opt.Anonymous {
		d.id = conf
	}
	d.endpoint = cmp.Or(d.opt.Endpoint, os.Getenv("AWS_ENDPOINT_URL_S3"), conf.endpoint)
	region := d.opt.Region
	if d.endpoint == "" {
		if strings.HasSuffix(name, "--x-s3") {
			return nil, errors.New("directory buckets (S3 Express One Zone) are not supported: copy the data to a general purpose bucket")
		}
		if region == "" {
			region = regionOf(ctx, name, func() string { return askRegion(ctx, name, d.bundle) })
		}
		if d.opt.PathStyle == "" {
			d.opt.PathStyle = strconv.FormatBool(strings.Contains(name, ".")) // no certificate covers a name with dots
		}
	}
	h, err := d.newHome(cmp.Or(region, conf.region))
	d.home.Store(h)
	return d, err
}

// checkBucket refuses invalid bucket names, before they become part of a host.
func checkBucket(name string) error {
	if len(name) < 3 || len(name) > 255 {
		return fmt.Errorf("%q is not a bucket name: expected 3 to 63 letters, digits, dots and hyphens", name)
	}
	for _, c := range name {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '.' || c == '_') {
			return fmt.Errorf("%q is not a bucket name: expected 3 to 63 letters, digits, dots and hyphens", name)
		}
	}
	return nil
}

// URL returns the URL of the bucket.
func (d *driver) URL() string { return "s3://" + d.name }

// Warm opens connections before they are needed.
func (d *driver) Warm(n int) { d.home.Load().c.Warm(n) }

// Close has no effect: connections are shared and time out.
func (d *driver) Close() error { return nil }

// at returns the URL of an object with a query, relative to the bucket.
func at(key string, query ...string) string {
	var b strings.Builder
	escape(&b, key, true)
	for i := 0; i+1 < len(query); i += 2 {
		b.WriteByte("?&"[min(i, 1)])
		escape(&b, query[i], false)
		b.WriteByte('=')
		escape(&b, query[i+1], false)
	}
	return b.String()
}

// escape escapes a text as signatures require in a URL.
func escape(b *strings.Builder, s string, path bool) {
	const hex = "0123456789ABCDEF"
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.' || c == '~' || path && c == '/':
			b.WriteByte(c)
		default:
			b.WriteByte('%')
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
		}
	}
}

// request returns a request for an object. Its URL is relative to the bucket.
func (d *driver) request(key string, query ...string) ranged.Request {
	r := ranged.Request{URL: at(key, query...), Name: d.URL() + "/" + key, Header: http.Header{}}
	if d.opt.RequesterPays {
		r.Header.Set("X-Amz-Request-Payer", "requester")
	}
	return r
}
