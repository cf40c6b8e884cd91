package ranged

import (
	"context"
	"fmt"
	"net/http"

	"github.com/stokerdata/stoker/store"
)

// checksums are the headers with checksums of various servers.
var checksums = []string{"Content-Digest", "X-Amz-Checksum-Crc32c", "X-Amz-Checksum-Crc32", "X-Amz-Checksum-Crc64nvme", "X-Amz-Checksum-Sha256", "X-Amz-Checksum-Sha1", "X-Goog-Hash", "X-Ms-Content-Crc64", "X-Ms-Blob-Content-Md5", "Content-Md5"}

// OtherVersion is an entity tag that no object has.
const OtherVersion = `"no version has this name"`

// Examine finds out what the server supports. It requests a byte of an object, a small object as a whole, and a
// byte of a version that does not exist with the request other. The zero value of other means r with OtherVersion.
func (c *Client) Examine(ctx context.Context, r, other Request) (m store.Manners, err error) {
	if other.URL == "" {
		other = r
		if other.Header = r.Header.Clone(); other.Header == nil {
			other.Header = http.Header{}
		}
		other.Header.Set("If-Match", OtherVersion)
	}
	err = c.again(ctx, func(again bool) error {
		m, err = c.examine(ctx, r, other, again)
		return err
	})
	if err != nil {
		return m, failed("look at", &r, 0, err)
	}
	return m, nil
}

// smallObject is the maximum size for a request of the whole object.
const smallObject = 1 << 20

func (c *Client) examine(ctx context.Context, r, other Request, again bool) (m store.Manners, err error) {
	// ask returns the header of a response, and whether it has this status.
	ask := func(r Request, n int64, status int) (http.Header, bool, error) {
		h := http.Header{"Range": {fmt.Sprintf("bytes=0-%d", n-1)}}
		x, err := c.send(ctx, http.MethodGet, &r, h, n, again)
		if err != nil {
			return nil, false, err
		}
		if s := x.resp.StatusCode; s >= 400 && s != http.StatusPreconditionFailed && s != http.StatusRequestedRangeNotSatisfiable {
			err = x.refused()
		}
		x.done(0, err)
		return x.resp.Header, x.resp.StatusCode == status, err
	}
	h, part, err := ask(r, 1, http.StatusPartialContent)
	if err != nil {
		return m, err
	}
	m.Ranges = part
	m.Checksum = checksumIn(h)
	if m.Checksum == "" && r.Total > 0 && r.Total <= smallObject {
		if h, _, err = ask(r, r.Total, http.StatusPartialContent); err != nil {
			return m, err
		}
		m.Checksum = checksumIn(h)
	}
	_, m.IfMatch, err = ask(other, 1, http.StatusPreconditionFailed)
	return m, err
}

func checksumIn(h http.Header) string {
	for _, name := range checksums {
		if h.Get(name) != "" {
			return name
		}
	}
	return ""
}
