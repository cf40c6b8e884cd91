package s3store

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stokerdata/stoker/store"
)

// serve returns the store of a bucket on an S3 server that answers with f.
func serve(t *testing.T, f http.HandlerFunc) store.WriteStore {
	t.Helper()
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	blank(t, server.URL)
	t.Setenv("AWS_ACCESS_KEY_ID", "a")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "b")
	return open(t, "")
}

// Bytes with a wrong checksum are read again and never used.
func TestChecksum(t *testing.T) {
	data := []byte("hello world")
	var sum [4]byte
	binary.BigEndian.PutUint32(sum[:], crc32.Checksum(data, castagnoli))
	var bad, reads atomic.Int64
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("ETag", `"1"`)
		h.Set("Accept-Ranges", "bytes")
		h.Set("Content-Length", fmt.Sprint(len(data)))
		if r.Method == http.MethodHead {
			return
		}
		reads.Add(1)
		if r.Header.Get("X-Amz-Checksum-Mode") == "ENABLED" {
			h.Set("X-Amz-Checksum-Crc32c", base64.StdEncoding.EncodeToString(sum[:]))
		}
		h.Set("Content-Range", fmt.Sprintf("bytes 0-%d/%d", len(data)-1, len(data)))
		w.WriteHeader(http.StatusPartialContent)
		if bad.Add(-1) >= 0 {
			_, _ = io.WriteString(w, "jello world")
			return
		}
		_, _ = w.Write(data)
	})
	bad.Store(2)
	if b, err := store.ReadFile(t.Context(), s, "x", 100); err != nil || string(b) != "hello world" || reads.Load() != 3 {
		t.Errorf("%q after %d reads, %v", b, reads.Load(), err)
	}
	if testing.Short() {
		return
	}
	bad.Store(1 << 40)
	if b, err := store.ReadFile(t.Context(), s, "x", 100); err == nil || !strings.Contains(err.Error(), "checksum") || !strings.Contains(err.Error(), s.Path("x")) {
		t.Errorf("%q, %v", b, err)
	}
}

// The storage class tells which objects must be restored. Restored ones can be read.
func TestArchived(t *testing.T) {
	const object = `<Contents><Key>%s</Key><Size>3</Size><ETag>"1"</ETag><StorageClass>%s</StorageClass>%s</Contents>`
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead {
			w.Header().Set("X-Amz-Storage-Class", "GLACIER")
			if strings.HasSuffix(r.URL.Path, "restored") {
				w.Header().Set("X-Amz-Restore", `ongoing-request="false", expiry-date="Fri, 21 Dec 2040 00:00:00 GMT"`)
			}
			w.Header().Set("ETag", `"1"`)
			w.Header().Set("Accept-Ranges", "bytes")
			w.Header().Set("Content-Length", "3")
			return
		}
		status := ""
		if r.Header.Get("X-Amz-Optional-Object-Attributes") == "RestoreStatus" {
			status = "<RestoreStatus><IsRestoreInProgress>false</IsRestoreInProgress><RestoreExpiryDate>2040-12-21T00:00:00.000Z</RestoreExpiryDate></RestoreStatus>"
		}
		fmt.Fprint(w, "<ListBucketResult>")
		fmt.Fprintf(w, object, "a", "GLACIER_IR", "")
		fmt.Fprintf(w, object, "b", "GLACIER", "")
		fmt.Fprintf(w, object, "c", "DEEP_ARCHIVE", "<RestoreStatus><IsRestoreInProgress>true</IsRestoreInProgress></RestoreStatus>")
		fmt.Fprintf(w, object, "restored", "GLACIER", status)
		fmt.Fprint(w, "</ListBucketResult>")
	})
	var good, bad []string
	err := s.List(t.Context(), "", &store.ListOptions{Bad: func(e store.Entry, err error) error {
		if !errors.Is(err, store.ErrArchived) {
			t.Error(err)
		}
		bad = append(bad, e.Name)
		return nil
	}}, func(e store.Entry) error { good = append(good, e.Name); return nil })
	if got := fmt.Sprint(good, bad, err); got != "[a restored] [b c] <nil>" {
		t.Error(got)
	}
	if _, err := s.Open(t.Context(), "b"); !errors.Is(err, store.ErrArchived) {
		t.Errorf("error is %v", err)
	}
	if _, err := s.Open(t.Context(), "restored"); err != nil {
		t.Error(err)
	}
}

// A response that is not a listing is not an empty one.
func TestNoListing(t *testing.T) {
	for body, want := range map[string]string{
		"<html><body>Please log in</body></html>":                                    "a web page",
		"<!DOCTYPE html><meta charset=utf-8><p>hi":                                   "a web page",
		"<Other></Other>":                                                            "listing is not valid",
		"<ListBucketResult><Contents><Size>1e9</Size></Contents></ListBucketResult>": "listing is not valid",
	} {
		var asked atomic.Int64
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			fmt.Fprint(w, body)
		})
		err := s.List(t.Context(), "", nil, func(store.Entry) error { return nil })
		if err == nil || !strings.Contains(err.Error(), want) || store.IsObjectError(err) || asked.Load() != 1 {
			t.Errorf("%s: %v after %d requests", body, err, asked.Load())
		}
	}
}

// A success response with an error body is a failure. After a lost response the object is looked up.
func TestCompletion(t *testing.T) {
	var says atomic.Value
	made := atomic.Bool{}
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		switch {
		case r.Method == http.MethodGet:
			fmt.Fprint(w, "<ListBucketResult></ListBucketResult>")
		case r.Method == http.MethodPost && q.Has("uploads"):
			fmt.Fprint(w, "<InitiateMultipartUploadResult><UploadId>u&amp;1</UploadId></InitiateMultipartUploadResult>")
		case r.Method == http.MethodPut:
			if q.Get("uploadId") != "u&1" {
				t.Errorf("upload %q", q.Get("uploadId"))
			}
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("ETag", `"p"`)
		case r.Method == http.MethodPost:
			if says.Load() == "NoSuchUpload" {
				w.WriteHeader(http.StatusNotFound)
			}
			fmt.Fprintf(w, "<Error><Code>%s</Code></Error>", says.Load())
		case r.Method == http.MethodHead && made.Load():
			w.Header().Set("Accept-Ranges", "bytes")
			w.Header().Set("ETag", `"x-2"`)
			w.Header().Set("Content-Length", "1")
		case r.Method == http.MethodHead:
			w.WriteHeader(http.StatusNotFound)
		}
	})
	data := make([]byte, 12<<20)
	says.Store("AccessDenied")
	if err := store.WriteFile(t.Context(), s, "x", data); err == nil || !strings.Contains(err.Error(), "AccessDenied") {
		t.Errorf("error is %v", err)
	}
	says.Store("NoSuchUpload")
	if err := store.WriteFile(t.Context(), s, "x", data); !errors.Is(err, store.ErrNotExist) {
		t.Errorf("error is %v", err)
	}
	made.Store(true)
	if err := store.WriteFile(t.Context(), s, "x", data); err != nil {
		t.Error(err)
	}
}

// Bucket names become parts of hosts and paths, so other characters are refused.
func TestBucketNames(t *testing.T) {
	blank(t, "http://127.0.0.1:1")
	for _, name := range []string{"", "a", "a/b", "evil.example.org/", "b@c", "b?c", "b#c", "b c", strings.Repeat("x", 300)} {
		if _, err := Open(t.Context(), name, "", nil); err == nil {
			t.Errorf("%.20q is a bucket", name)
		}
	}
	for _, endpoint := range []string{"localhost", "ftp://x", "http://u:p@x", "http://x?y"} {
		_, err := Open(t.Context(), testBucket, "", &Options{Endpoint: endpoint})
		if err == nil || strings.Contains(err.Error(), "u:p") {
			t.Errorf("endpoint %s: %v", endpoint, err)
		}
	}
}
