package s3store

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stokerdata/stoker/store"
)

// refusals are ways in which servers say that the bucket is in eu-south-9.
var refusals = map[string]http.HandlerFunc{
	"header": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Amz-Bucket-Region", "eu-south-9")
		w.WriteHeader(http.StatusMovedPermanently)
	},
	"body": func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, "<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-south-9</Region></Error>")
	},
	"endpoint": func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusMovedPermanently)
		_, _ = io.WriteString(w, "<Error><Code>PermanentRedirect</Code><Endpoint>b.s3-eu-south-9.amazonaws.com</Endpoint></Error>")
	},
	"location": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "https://b.s3.eu-south-9.amazonaws.com/x")
		w.WriteHeader(http.StatusTemporaryRedirect)
	},
}

// inRegion is a server of one object for requests that are signed for a region. Others are refused.
func inRegion(t *testing.T, region string, refuse http.HandlerFunc) (url string, refused *atomic.Int64) {
	refused = new(atomic.Int64)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !strings.Contains(r.Header.Get("Authorization"), "/"+region+"/s3/"):
			refused.Add(1)
			refuse(w, r)
		case r.URL.Query().Has("list-type"):
			fmt.Fprint(w, `<ListBucketResult><Contents><Key>x</Key><Size>3</Size><ETag>"1"</ETag></Contents></ListBucketResult>`)
		case r.Method == http.MethodPut:
			w.Header().Set("ETag", `"1"`)
		default:
			w.Header().Set("ETag", `"1"`)
			w.Header().Set("Accept-Ranges", "bytes")
			w.Header().Set("Content-Range", "bytes 0-2/3")
			w.Header().Set("Content-Length", "3")
			if r.Method == http.MethodGet {
				w.WriteHeader(http.StatusPartialContent)
				_, _ = io.WriteString(w, "abc")
			}
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	blank(t, server.URL)
	t.Setenv("AWS_ACCESS_KEY_ID", "a")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "b")
	return server.URL, refused
}

// operations are an operation of each kind on the object x.
var operations = map[string]func(t *testing.T, s store.WriteStore) error{
	"stat": func(t *testing.T, s store.WriteStore) error { _, err := s.Stat(t.Context(), "x"); return err },
	"list": func(t *testing.T, s store.WriteStore) error {
		return s.List(t.Context(), "", nil, func(store.Entry) error { return nil })
	},
	"read": func(t *testing.T, s store.WriteStore) error {
		o, err := store.OpenEntry(t.Context(), s, store.Entry{Name: "x", Size: 3, Version: `"1"`})
		if err != nil {
			return err
		}
		defer o.Close()
		return o.ReadAt(t.Context(), make([]byte, 3), 0)
	},
	"write": func(t *testing.T, s store.WriteStore) error {
		return store.WriteFile(t.Context(), s, "y", []byte("abc"))
	},
}

// The store goes to the region that the server names, once.
func TestOtherRegion(t *testing.T) {
	for how, refuse := range refusals {
		for what, do := range operations {
			t.Run(how+"/"+what, func(t *testing.T) {
				_, refused := inRegion(t, "eu-south-9", refuse)
				s := open(t, "")
				for range 2 {
					if err := do(t, s); err != nil {
						t.Error(err)
					}
				}
				if n := refused.Load(); n < 1 || n > 2 { // a HEAD request is followed by GET
					t.Errorf("%d requests for the wrong region", n)
				}
			})
		}
	}
}

// A region that the user has chosen is kept, and a region that is not served does not help: the error names the
// region.
func TestOtherRegionIsNamed(t *testing.T) {
	for how, refuse := range refusals {
		for what, do := range operations {
			for _, c := range []struct{ served, chosen, want string }{
				{"eu-south-9", "us-west-1", "the bucket is in the region eu-south-9: write ?region=eu-south-9"},
				{"none", "", "the bucket is in the region eu-south-9, but http://127.0.0.1:"},
			} {
				inRegion(t, c.served, refuse)
				s, err := Open(t.Context(), testBucket, "", &Options{Region: c.chosen})
				if err != nil {
					t.Fatal(err)
				}
				if err := do(t, s); err == nil || !strings.Contains(err.Error(), c.want) || store.IsObjectError(err) {
					t.Errorf("%s, %s: %v", how, what, err)
				}
			}
		}
	}
	inRegion(t, "none", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "https://user:secret@s3.example.org/x?sig=secret")
		w.WriteHeader(http.StatusTemporaryRedirect)
	})
	if _, err := open(t, "").Stat(t.Context(), "x"); err == nil || !strings.Contains(err.Error(), "add ?endpoint=https://s3.example.org to the URL") || strings.Contains(err.Error(), "secret") {
		t.Errorf("error is %v", err)
	}
}

// The reason of a refused HEAD request is in the body of the GET request after it.
func TestReasons(t *testing.T) {
	for _, c := range []struct {
		status int
		code   string
		is     error
		object bool
	}{
		{400, "ExpiredToken", store.ErrCredentials, false},
		{403, "InvalidAccessKeyId", store.ErrCredentials, false},
		{403, "SignatureDoesNotMatch", store.ErrCredentials, false},
		{403, "RequestTimeTooSkewed", store.ErrCredentials, false},
		{400, "KMS.DisabledException", store.ErrPermission, true},
		{403, "AccessDenied", store.ErrPermission, true},
		{403, "InvalidObjectState", store.ErrArchived, true},
	} {
		for what, do := range operations {
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(c.status)
				if r.Method != http.MethodHead {
					fmt.Fprintf(w, "<Error><Code>%s</Code></Error>", c.code)
				}
			})
			err := do(t, s)
			made, ok := store.AttemptsOf(err)
			if !errors.Is(err, c.is) || store.IsObjectError(err) != c.object || !ok || made.Code != c.code || made.Status != c.status {
				t.Errorf("%s, %s: %v, %+v", c.code, what, err, made)
			}
		}
	}
}
