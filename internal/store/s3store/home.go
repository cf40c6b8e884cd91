package s3store

import (
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/stokerdata/stoker/internal/store/bucket"
	"github.com/stokerdata/stoker/internal/store/ranged"
)

const amazon = "amazonaws.com"

// home is the server that has the bucket. It changes if the server names another region.
type home struct {
	d *driver
	// region is the region in signatures.
	region string
	// origin is scheme://host, base the URL of the bucket with a trailing slash.
	origin, base string
	// c is for all requests, whole for reads of whole objects, whose checksum it verifies.
	c, whole *ranged.Client
}

// newHome returns the home of a bucket in a region.
func (d *driver) newHome(region string) (*home, error) {
	endpoint := d.endpoint
	if endpoint == "" {
		endpoint = amazonIn(region)
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" {
		return nil, errors.New("the endpoint is not a URL such as http://localhost:9000 or https://s3.example.org")
	}
	path := strings.TrimSuffix(u.Path, "/") + "/"
	if d.opt.PathStyle == "false" {
		u.Host = d.name + "." + u.Host
	} else {
		path += d.name + "/"
	}
	h := &home{d: d, region: region, origin: u.Scheme + "://" + u.Host}
	h.base = h.origin + path
	ro := ranged.Options{Endpoint: h.origin, CABundle: d.bundle, Classify: h.classify, Encoded: true, Sign: h.sign}
	if h.c, err = ranged.New(ro); err != nil {
		return nil, err
	}
	ro.Verify = verify
	h.whole, err = ranged.New(ro)
	return h, err
}

// amazonIn returns the URL of Amazon's servers in a region.
func amazonIn(region string) string {
	u := "https://s3." + region + "." + amazon
	if strings.HasPrefix(region, "cn-") {
		u += ".cn"
	}
	return u
}

// errMoved is the cause of failures because the bucket is in another region, which is now the driver's home.
var errMoved = errors.New("the bucket is in another region")

// try runs f with a request to the bucket's home, and again if its home has turned out to be another one.
func (d *driver) try(r ranged.Request, f func(h *home, r ranged.Request) error) error {
	h := d.home.Load()
	at := r.URL
	r.URL = h.base + at
	err := f(h, r)
	if now := d.home.Load(); now != h && errors.Is(err, errMoved) {
		r.URL = now.base + at
		err = f(now, r)
	}
	return err
}

// failure is the server's error response.
type failure struct {
	XMLName  xml.Name `xml:"Error"`
	Code     string
	Region   string
	Endpoint string
}

// elsewhere reports whether a response means that the bucket is in another region.
func (f *failure) elsewhere(status int, h http.Header) bool {
	switch f.Code {
	case "PermanentRedirect", "TemporaryRedirect", "IllegalLocationConstraintException":
		return true
	case "AuthorizationHeaderMalformed": // also means other faults of the header
		return f.regionIn(h) != ""
	}
	return status == http.StatusMovedPermanently || status == http.StatusTemporaryRedirect || status == http.StatusPermanentRedirect
}

// regionIn returns the region that a response names, "" for none.
func (f *failure) regionIn(h http.Header) string {
	for _, region := range []string{h.Get("X-Amz-Bucket-Region"), f.Region, regionOfHost(f.Endpoint), regionOfHost(hostOf(h.Get("Location")))} {
		if isRegion(region) {
			return region
		}
	}
	return ""
}

func hostOf(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return ""
	}
	return u.Host
}

// regionOfHost returns the region in the name of a server of Amazon, such as BUCKET.s3.REGION.amazonaws.com or
// BUCKET.s3-REGION.amazonaws.com.
func regionOfHost(host string) string {
	before, _, ok := strings.Cut(host, "."+amazon)
	if !ok {
		return ""
	}
	if i := strings.LastIndex(before, "s3-"); i >= 0 && (i == 0 || before[i-1] == '.') {
		return before[i+len("s3-"):]
	}
	if i := strings.LastIndex(before, "s3."); i >= 0 && (i == 0 || before[i-1] == '.') {
		return before[i+len("s3."):]
	}
	return ""
}

// moved returns the verdict for a bucket in another region. If the user has not chosen the region, the driver moves
// there.
func (h *home) moved(code string, f *failure, header http.Header) ranged.Verdict {
	v := ranged.Verdict{Class: ranged.Permanent, Code: code}
	region, to := f.regionIn(header), header.Get("Location")
	switch {
	case region == "" && hostOf(to) != "" && hostOf(to) != hostOf(h.origin):
		v.Text = fmt.Sprintf("the server redirects to %[1]s, and signed requests are only sent to the endpoint: add ?endpoint=%[1]s to the URL if that is the right server", originOf(to))
	case region == "":
		h.forget()
		v.Text = "the bucket is in another region, which the server does not name: add ?region=NAME to the URL"
	case region == h.region:
		v.Text = fmt.Sprintf("the bucket is in the region %s, but %s does not serve that region: change or remove the endpoint", region, h.origin)
	default:
		v.Text = fmt.Sprintf("the bucket is in the region %[1]s: write ?region=%[1]s", region)
		if h.d.opt.Region == "" {
			v.Cause = errMoved
			h.move(region)
		}
	}
	return v
}

func originOf(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// move makes another region the driver's home.
func (h *home) move(region string) {
	now, err := h.d.newHome(region)
	if err != nil || !h.d.home.CompareAndSwap(h, now) {
		return // another request has moved it
	}
	if h.d.endpoint == "" {
		learnRegion(h.d.name, region)
	}
}

// forget discards the region of the bucket, so that the next process asks for it.
func (h *home) forget() {
	if h.d.endpoint == "" {
		forgetRegion(h.d.name)
	}
}

// classify returns the meaning of an error response.
func (h *home) classify(status int, header http.Header, body []byte) ranged.Verdict {
	var f failure
	if xml.Unmarshal(body, &f) != nil {
		f = failure{}
	}
	v := ranged.Verdict{Class: classes[f.Code]}
	if bucket.IsCode(f.Code) {
		v.Code = f.Code
	}
	switch {
	case f.elsewhere(status, header):
		return h.moved(v.Code, &f, header)
	case f.Code == "NoSuchBucket":
		v.Text = "the bucket does not exist"
	case f.Code == "RequestTimeTooSkewed":
		v.Text = "this machine's clock is wrong"
	case strings.HasPrefix(f.Code, "KMS."):
		v.Class = ranged.Denied
	case v.Class == ranged.Unauthorized:
		v.Again = h.d.id != nil && h.d.id.credentials.Refused()
	}
	return v
}
