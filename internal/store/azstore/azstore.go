// Package azstore is a store for a container of Azure Blob Storage.
package azstore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/stokerdata/stoker/internal/store/bucket"
	"github.com/stokerdata/stoker/internal/store/ranged"
)

// Options select the server and the credentials. Unset options come from the environment.
type Options struct {
	// Account is the storage account, "" for AZURE_STORAGE_ACCOUNT or the account in
	// AZURE_STORAGE_CONNECTION_STRING.
	Account string
	// Endpoint is the URL of another server than Azure's, up to the container. "" means AZURE_STORAGE_BLOB_ENDPOINT
	// or the endpoint in the connection string.
	Endpoint string
	// Anonymous sends no credentials, for public containers.
	Anonymous bool
}

// Params are the options in the query of a URL.
var Params = []string{"account", "endpoint", "anonymous"}

// Set sets an option by its name in a URL.
func (o *Options) Set(name, value string) (err error) {
	switch name {
	case "account":
		o.Account = value
	case "endpoint":
		o.Endpoint = value
	case "anonymous":
		if o.Anonymous, err = strconv.ParseBool(value); err != nil {
			return fmt.Errorf("anonymous=%s: write true or false", value)
		}
	}
	return nil
}

// Open returns the store of the object or folder at path in a container. With a trailing slash the path is a
// folder.
func Open(ctx context.Context, name, path string, opt *Options) (*bucket.Store, error) {
	return bucket.Open("az://"+name, path, func() (bucket.Driver, error) { return newDriver(ctx, name, opt) })
}

// driver implements bucket.Driver for a container.
type driver struct {
	name string
	base string // the URL of the container, with a trailing slash
	id   *identity
	// c is for all requests, whole for reads of whole objects, whose checksum it verifies.
	c, whole *ranged.Client
}

func newDriver(ctx context.Context, name string, opt *Options) (*driver, error) {
	if opt == nil {
		opt = &Options{}
	}
	if len(name) < 3 || len(name) > 63 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-$") != "" {
		return nil, fmt.Errorf("%q is not a container name: expected 3 to 63 lower-case letters, digits and hyphens", name)
	}
	id, endpoint, err := identityOf(ctx, opt)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" {
		return nil, errors.New("the endpoint is not a URL such as https://account.blob.core.windows.net")
	}
	if u.Scheme == "http" && id.token != nil {
		return nil, errors.New("tokens are only sent over https: use an https:// endpoint")
	}
	d := &driver{name: name, id: id, base: strings.TrimSuffix(u.String(), "/") + "/" + name + "/"}
	ro := ranged.Options{Endpoint: u.Scheme + "://" + u.Host, CABundle: os.Getenv("STOKER_CA_BUNDLE"), Classify: d.classify, Encoded: true, Sign: id.sign}
	if d.c, err = ranged.New(ro); err != nil {
		return nil, err
	}
	ro.Verify = verify
	d.whole, err = ranged.New(ro)
	return d, err
}

// URL names the container.
func (d *driver) URL() string { return "az://" + d.name }

// Warm opens connections before they are needed.
func (d *driver) Warm(n int) { d.c.Warm(n) }

// Close has no effect: connections are shared and time out.
func (d *driver) Close() error { return nil }

// version is the version of the protocol.
const version = "2021-12-02"

// request returns a request for an object, or for the container if key is "".
func (d *driver) request(key string, query ...string) ranged.Request {
	v := url.Values{}
	for i := 0; i+1 < len(query); i += 2 {
		v.Set(query[i], query[i+1])
	}
	at := d.base + (&url.URL{Path: key}).EscapedPath()
	if key == "" {
		at = strings.TrimSuffix(d.base, "/")
	} else if strings.HasPrefix(at[len(d.base):], "./") {
		at = d.base + at[len(d.base)+2:] // the name has a colon before its first slash
	}
	if len(v) > 0 {
		at += "?" + v.Encode()
	}
	return ranged.Request{URL: at, Name: d.URL() + "/" + key, Header: http.Header{"X-Ms-Version": {version}}}
}

// classes are the classes of the server's codes. For other codes the status decides.
var classes = map[string]ranged.Class{
	"BlobNotFound": ranged.NotFound, "ResourceNotFound": ranged.NotFound,
	"ContainerNotFound": ranged.Permanent,
	"ConditionNotMet":   ranged.Changed, "BlobAlreadyExists": ranged.Changed, "TargetConditionNotMet": ranged.Changed,
	"ServerBusy":        ranged.Throttled,
	"OperationTimedOut": ranged.Temporary, "InternalError": ranged.Temporary, "Md5Mismatch": ranged.Temporary,
	"BlobArchived": ranged.Archived, "BlobBeingRehydrated": ranged.Archived,
	"AuthenticationFailed": ranged.Unauthorized, "KeyBasedAuthenticationNotPermitted": ranged.Unauthorized,
	"AccountIsDisabled": ranged.Unauthorized,
}

// classify returns the meaning of an error response.
func (d *driver) classify(status int, h http.Header, _ []byte) (v ranged.Verdict) {
	if code := h.Get("X-Ms-Error-Code"); bucket.IsCode(code) {
		v.Code = code
	}
	v.Class = classes[v.Code]
	if v.Code == "ContainerNotFound" {
		v.Text = "the container does not exist"
	}
	if status == http.StatusUnauthorized {
		v.Class, v.Again = ranged.Unauthorized, d.id.token != nil && d.id.token.Refused()
	}
	return v
}
