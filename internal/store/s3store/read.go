package s3store

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/xml"
	"fmt"
	"hash/crc32"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/stokerdata/stoker/internal/store/bucket"
	"github.com/stokerdata/stoker/internal/store/ranged"
	"github.com/stokerdata/stoker/store"
)

// maxAnswer limits XML responses: a thousand escaped names of a kilobyte.
const maxAnswer = 16 << 20

// Stat describes an object.
func (d *driver) Stat(ctx context.Context, key string) (bucket.Info, error) {
	var i ranged.Info
	err := d.try(d.request(key), func(h *home, r ranged.Request) (err error) {
		i, err = h.c.Head(ctx, r)
		return err
	})
	if err != nil {
		return bucket.Info{}, err
	}
	info, err := bucket.InfoOf(key, i.Size, i.Header)
	info.Archived = archivedIn(i.Header)
	return info, err
}

// archived reports whether objects of a storage class must be restored before they can be read.
func archived(class string) bool { return class == "GLACIER" || class == "DEEP_ARCHIVE" }

// archivedIn returns the storage class of an object that must be restored before it can be read, "" for others.
func archivedIn(h http.Header) string {
	class, restored := h.Get("X-Amz-Storage-Class"), strings.Contains(h.Get("X-Amz-Restore"), `ongoing-request="false"`)
	switch tier := h.Get("X-Amz-Archive-Status"); { // of Intelligent-Tiering
	case restored:
		return ""
	case tier != "":
		return tier
	case archived(class):
		return class
	}
	return ""
}

// ReadAt reads a part of an object.
func (d *driver) ReadAt(ctx context.Context, i bucket.Info, p []byte, off int64) error {
	r := d.request(i.Key)
	r.Offset, r.Total = off, i.Size
	r.Expect(i.Version)
	whole := off == 0 && int64(len(p)) == i.Size
	if whole {
		r.Header.Set("X-Amz-Checksum-Mode", "ENABLED")
	}
	return d.try(r, func(h *home, r ranged.Request) error {
		c := h.c
		if whole {
			c = h.whole
		}
		_, err := c.Get(ctx, r, p)
		return err
	})
}

// ReadWhole reads a small object.
func (d *driver) ReadWhole(ctx context.Context, key string, limit int) ([]byte, bucket.Info, error) {
	var b []byte
	var i ranged.Info
	err := d.try(d.request(key), func(h *home, r ranged.Request) (err error) {
		b, i, err = h.c.Body(ctx, r, limit)
		return err
	})
	if err != nil {
		return nil, bucket.Info{}, err
	}
	info, err := bucket.InfoOf(key, int64(len(b)), i.Header)
	return b, info, err
}

// Examine returns what the server supports.
func (d *driver) Examine(ctx context.Context, i bucket.Info) (m store.Manners, err error) {
	r := d.request(i.Key)
	r.Total = i.Size
	r.Header.Set("X-Amz-Checksum-Mode", "ENABLED")
	err = d.try(r, func(h *home, r ranged.Request) (err error) {
		m, err = h.c.Examine(ctx, r, ranged.Request{})
		return err
	})
	return m, err
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// verify verifies the checksum of a whole object, if the server sent one for the whole and not for its parts.
func verify(h http.Header, p []byte) error {
	for _, c := range []struct {
		name  string
		table *crc32.Table
	}{{"X-Amz-Checksum-Crc32c", castagnoli}, {"X-Amz-Checksum-Crc32", crc32.IEEETable}} {
		text := h.Get(c.name)
		if text == "" || strings.Contains(text, "-") || h.Get("X-Amz-Checksum-Type") == "COMPOSITE" {
			continue
		}
		want, err := base64.StdEncoding.DecodeString(text)
		if err != nil || len(want) != 4 || binary.BigEndian.Uint32(want) != crc32.Checksum(p, c.table) {
			return fmt.Errorf("the checksum (%s) of the bytes is wrong", strings.ToLower(c.name))
		}
	}
	return nil
}

// listing is the response to a list request.
type listing struct {
	XMLName               xml.Name `xml:"ListBucketResult"`
	EncodingType          string
	IsTruncated           bool
	NextContinuationToken string
	Contents              []struct {
		Key, ETag, LastModified, StorageClass string
		Size                                  int64
		// RestoreStatus is only sent if it is requested.
		RestoreStatus struct{ RestoreExpiryDate string }
	}
	CommonPrefixes []struct{ Prefix string }
}

// List returns a page of a listing.
func (d *driver) List(ctx context.Context, q bucket.Query) (bucket.Page, error) {
	query := []string{"list-type", "2", "encoding-type", "url"}
	if q.Prefix != "" {
		query = append(query, "prefix", q.Prefix)
	}
	if q.Folders {
		query = append(query, "delimiter", "/")
	}
	if q.Next != "" {
		query = append(query, "continuation-token", q.Next)
	}
	if q.Max > 0 {
		query = append(query, "max-keys", fmt.Sprint(q.Max))
	}
	call := ranged.Call{Request: d.request("", query...), Op: "list", Method: http.MethodGet, Limit: maxAnswer}
	var p bucket.Page
	call.Parse = func(body []byte) (err error) {
		p, err = parseListing(body)
		return err
	}
	if _, err := d.do(ctx, call); err != nil {
		return bucket.Page{}, err
	}
	if slices.ContainsFunc(p.Objects, func(i bucket.Info) bool { return i.Archived != "" }) {
		first := p
		call.Header.Set("X-Amz-Optional-Object-Attributes", "RestoreStatus")
		if _, err := d.do(ctx, call); err != nil { // not all servers know it
			return first, nil
		}
	}
	return p, nil
}

func parseListing(body []byte) (bucket.Page, error) {
	var l listing
	if err := xml.Unmarshal(body, &l); err != nil {
		return bucket.Page{}, ranged.Malformed("listing", err)
	}
	plain := func(s string) (string, error) {
		if l.EncodingType != "url" {
			return s, nil
		}
		return url.QueryUnescape(s)
	}
	var p bucket.Page
	for _, c := range l.Contents {
		key, err := plain(c.Key)
		if err != nil {
			return p, ranged.Invalid("the server lists the invalid name %q", c.Key)
		}
		at, _ := time.Parse(time.RFC3339, c.LastModified) // zero if unknown
		i := bucket.Info{Key: key, Size: c.Size, Version: bucket.VersionOf(c.ETag, at, c.Size), ModTime: at}
		if archived(c.StorageClass) && c.RestoreStatus.RestoreExpiryDate == "" {
			i.Archived = c.StorageClass
		}
		p.Objects = append(p.Objects, i)
	}
	for _, c := range l.CommonPrefixes {
		key, err := plain(c.Prefix)
		if err != nil {
			return p, ranged.Invalid("the server lists the invalid name %q", c.Prefix)
		}
		p.Prefixes = append(p.Prefixes, key)
	}
	if l.IsTruncated {
		if p.Next = l.NextContinuationToken; p.Next == "" {
			return p, ranged.Invalid("the server's listing does not end: a page has no token for the next one")
		}
	}
	return p, nil
}

// classes are the classes of the server's codes. For other codes the status decides.
var classes = map[string]ranged.Class{
	"NoSuchBucket": ranged.Permanent,

	"NoSuchKey": ranged.NotFound, "NoSuchUpload": ranged.NotFound, "NotFound": ranged.NotFound, "NoSuchVersion": ranged.NotFound,

	"SlowDown": ranged.Throttled, "ServiceUnavailable": ranged.Throttled, "RequestLimitExceeded": ranged.Throttled,
	"Throttling": ranged.Throttled, "ThrottlingException": ranged.Throttled, "TooManyRequests": ranged.Throttled,
	"BandwidthLimitExceeded": ranged.Throttled,

	"InternalError": ranged.Temporary, "RequestTimeout": ranged.Temporary, "OperationAborted": ranged.Temporary,
	"ConditionalRequestConflict": ranged.Temporary, "BadDigest": ranged.Temporary, "IncompleteBody": ranged.Temporary,
	"XAmzContentSHA256Mismatch": ranged.Temporary, "XAmzContentChecksumMismatch": ranged.Temporary,

	"PreconditionFailed": ranged.Changed,

	"InvalidObjectState": ranged.Archived,

	"ExpiredToken": ranged.Unauthorized, "ExpiredTokenException": ranged.Unauthorized, "TokenRefreshRequired": ranged.Unauthorized,
	"InvalidToken": ranged.Unauthorized, "InvalidAccessKeyId": ranged.Unauthorized, "InvalidClientTokenId": ranged.Unauthorized,
	"UnrecognizedClientException": ranged.Unauthorized, "SignatureDoesNotMatch": ranged.Unauthorized,
	"InvalidSecurity": ranged.Unauthorized, "RequestExpired": ranged.Unauthorized, "RequestTimeTooSkewed": ranged.Unauthorized,
	"AuthFailure": ranged.Unauthorized, "AuthorizationHeaderMalformed": ranged.Unauthorized, "NotSignedUp": ranged.Unauthorized, "AccountProblem": ranged.Unauthorized,
}
