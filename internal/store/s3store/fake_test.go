package s3store

import (
	"encoding/xml"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/store/httpfaulttest"
	"github.com/stokerdata/stoker/store"
	"github.com/stokerdata/stoker/store/storetest"
)

// fake is a server of the bucket testBucket.
type fake struct{ b *httpfaulttest.Bucket }

func (f fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key, ok := strings.CutPrefix(r.URL.Path, "/"+testBucket+"/")
	q := r.URL.Query()
	body, err := io.ReadAll(r.Body)
	switch {
	case err != nil:
	case !ok:
		fail(w, http.StatusNotFound, "NoSuchBucket")
	case key == "" && q.Has("uploads"):
		fmt.Fprint(w, "<ListMultipartUploadsResult>")
		for _, u := range f.b.Uploads() {
			fmt.Fprintf(w, "<Upload><Key>%s</Key><UploadId>%[1]s</UploadId></Upload>", u)
		}
		fmt.Fprint(w, "</ListMultipartUploadsResult>")
	case key == "":
		f.list(w, q)
	case q.Has("uploads"):
		f.b.Part(key, "", nil)
		fmt.Fprintf(w, "<InitiateMultipartUploadResult><UploadId>%s</UploadId></InitiateMultipartUploadResult>", key)
	case q.Has("uploadId"):
		f.upload(w, r, key, q, body)
	default:
		f.object(w, r, key, body)
	}
}

func fail(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code></Error>", code)
}

func (f fake) list(w http.ResponseWriter, q url.Values) {
	limit := 2
	if n, err := strconv.Atoi(q.Get("max-keys")); err == nil {
		limit = n
	}
	keys, prefixes, next := f.b.Page(q.Get("prefix"), q.Get("delimiter") != "", q.Get("continuation-token"), limit)
	fmt.Fprintf(w, "<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>%v</IsTruncated><NextContinuationToken>%s</NextContinuationToken>", next != "", html.EscapeString(next))
	for _, k := range keys {
		o, _ := f.b.Get(k)
		fmt.Fprintf(w, "<Contents><Key>%s</Key><Size>%d</Size><ETag>%s</ETag><LastModified>%s</LastModified></Contents>", url.QueryEscape(k), len(o.Data), html.EscapeString(o.Tag), o.Time.UTC().Format("2006-01-02T15:04:05.000Z"))
	}
	for _, p := range prefixes {
		fmt.Fprintf(w, "<CommonPrefixes><Prefix>%s</Prefix></CommonPrefixes>", url.QueryEscape(p))
	}
	fmt.Fprint(w, "</ListBucketResult>")
}

// upload answers requests for a part or an upload.
func (f fake) upload(w http.ResponseWriter, r *http.Request, key string, q url.Values, body []byte) {
	id := q.Get("uploadId")
	parts, ok := f.b.Parts(id)
	switch {
	case !ok:
		fail(w, http.StatusNotFound, "NoSuchUpload")
	case r.Method == http.MethodDelete:
		f.b.End(id)
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodPut && r.Header.Get("X-Amz-Copy-Source") != "":
		from, _ := url.PathUnescape(strings.TrimPrefix(r.Header.Get("X-Amz-Copy-Source"), "/"+testBucket+"/"))
		o, ok := f.b.Get(from)
		if !ok {
			fail(w, http.StatusNotFound, "NoSuchKey")
			return
		}
		f.b.Part(id, q.Get("partNumber"), o.Data)
		fmt.Fprintf(w, `<CopyPartResult><ETag>"%s"</ETag></CopyPartResult>`, q.Get("partNumber"))
	case r.Method == http.MethodPut:
		f.b.Part(id, q.Get("partNumber"), body)
		w.Header().Set("ETag", `"`+q.Get("partNumber")+`"`)
	default:
		var ask struct{ Part []struct{ PartNumber string } }
		if xml.Unmarshal(body, &ask) != nil {
			fail(w, http.StatusBadRequest, "MalformedXML")
			return
		}
		var all []byte
		for _, p := range ask.Part {
			all = append(all, parts[p.PartNumber]...)
		}
		f.b.Put(key, all, fmt.Sprintf("-%d", len(ask.Part)))
		f.b.End(id)
		fmt.Fprint(w, "<CompleteMultipartUploadResult></CompleteMultipartUploadResult>")
	}
}

func (f fake) object(w http.ResponseWriter, r *http.Request, key string, body []byte) {
	o, ok := f.b.Get(key)
	switch {
	case r.Method == http.MethodDelete:
		f.b.Delete(key)
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodPut && !f.b.Allows(key, r.Header):
		fail(w, http.StatusPreconditionFailed, "PreconditionFailed")
	case r.Method == http.MethodPut:
		w.Header().Set("ETag", f.b.Put(key, body, "").Tag)
	case !ok:
		fail(w, http.StatusNotFound, "NoSuchKey")
	default:
		o.Serve(w, r)
	}
}

// kindOf returns the kind of a request.
func kindOf(r *http.Request) string {
	q := r.URL.Query()
	switch {
	case q.Has("list-type"):
		return "list"
	case q.Has("uploads") && r.Method == http.MethodGet:
		return "list of uploads"
	case q.Has("uploads"):
		return "new upload"
	case r.Header.Get("X-Amz-Copy-Source") != "":
		return "copy"
	case q.Has("partNumber"):
		return "part"
	case q.Has("uploadId") && r.Method == http.MethodDelete:
		return "abort"
	case q.Has("uploadId"):
		return "complete"
	case strings.HasSuffix(r.URL.Path, "/lock"):
		return r.Method + " of the lock"
	}
	return r.Method
}

// openAt opens a folder of the bucket at a server.
func openAt(t *testing.T, server, path string) store.WriteStore {
	t.Helper()
	s, err := Open(t.Context(), testBucket, path, &Options{Endpoint: server, Anonymous: true})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Each request fails once in each way.
func TestEachRequestFailsOnce(t *testing.T) {
	blank(t, "http://127.0.0.1:1")
	httpfaulttest.RunOnce(t, httpfaulttest.Driver{
		Serve: func(b *httpfaulttest.Bucket) http.Handler { return fake{b} }, Kind: kindOf,
		Open: func(t *testing.T, url string) store.WriteStore { return openAt(t, url, "root") },
	})
}

// The store passes all tests with a server that also has keys that are not valid names.
func TestStoreOfOddKeys(t *testing.T) {
	blank(t, "http://127.0.0.1:1")
	buckets := map[store.Store]*httpfaulttest.Bucket{}
	urls := map[store.Store]string{}
	storetest.Run(t, storetest.Suite{
		UTF8: true,
		Open: func(t *testing.T, objects map[string][]byte) store.Store {
			b := &httpfaulttest.Bucket{}
			for name, data := range objects {
				b.Put(strings.TrimSuffix("root/"+name, "/"), data, "")
			}
			server := httptest.NewServer(fake{b})
			t.Cleanup(server.Close)
			t.Cleanup(server.CloseClientConnections)
			s := openAt(t, server.URL, "root")
			buckets[s], urls[s] = b, server.URL
			return s
		},
		Change: func(t *testing.T, s store.Store, name string, data []byte) {
			buckets[s].Put("root/"+name, data, "")
		},
		Again: func(t *testing.T, s store.Store) store.Store { return openAt(t, urls[s], "root") },
		Spoil: func(t *testing.T, s store.Store) []string {
			for _, key := range storetest.OddKeys {
				buckets[s].Put("root/"+key, []byte("odd"), "")
			}
			return slices.Clone(storetest.OddKeys)
		},
	})
}
