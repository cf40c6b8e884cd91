package azstore

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

// fake is a server of the container testContainer.
type fake struct{ b *httpfaulttest.Bucket }

func (f fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	body, err := io.ReadAll(r.Body)
	key, ok := strings.CutPrefix(r.URL.Path, "/"+testContainer)
	key = strings.TrimPrefix(key, "/")
	switch {
	case err != nil:
	case !ok:
		w.WriteHeader(http.StatusNotFound)
	case q.Get("comp") == "list":
		f.list(w, q)
	case q.Get("comp") == "block":
		f.b.Part(key, q.Get("blockid"), body)
		w.WriteHeader(http.StatusCreated)
	case q.Get("comp") == "blocklist":
		f.commit(w, key, body)
	default:
		f.object(w, r, key, body)
	}
}

func (f fake) list(w http.ResponseWriter, q url.Values) {
	limit := 2
	if n, err := strconv.Atoi(q.Get("maxresults")); err == nil {
		limit = n
	}
	keys, prefixes, next := f.b.Page(q.Get("prefix"), q.Get("delimiter") != "", q.Get("marker"), limit)
	fmt.Fprint(w, "<EnumerationResults><Blobs>")
	for _, k := range keys {
		o, _ := f.b.Get(k)
		fmt.Fprintf(w, "<Blob><Name Encoded=\"true\">%s</Name><Properties><Content-Length>%d</Content-Length><Etag>%s</Etag><Last-Modified>%s</Last-Modified></Properties></Blob>",
			url.PathEscape(k), len(o.Data), html.EscapeString(o.Tag), o.Time.UTC().Format(http.TimeFormat))
	}
	for _, p := range prefixes {
		fmt.Fprintf(w, "<BlobPrefix><Name Encoded=\"true\">%s</Name></BlobPrefix>", url.PathEscape(p))
	}
	fmt.Fprintf(w, "</Blobs><NextMarker>%s</NextMarker></EnumerationResults>", html.EscapeString(next))
}

func (f fake) commit(w http.ResponseWriter, key string, body []byte) {
	var ask struct{ Latest []string }
	parts, ok := f.b.Parts(key)
	if xml.Unmarshal(body, &ask) != nil || !ok {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	var all []byte
	for _, id := range ask.Latest {
		all = append(all, parts[id]...)
	}
	w.Header().Set("ETag", f.b.Put(key, all, "").Tag)
	w.WriteHeader(http.StatusCreated)
}

func (f fake) object(w http.ResponseWriter, r *http.Request, key string, body []byte) {
	o, ok := f.b.Get(key)
	switch {
	case r.Method == http.MethodPut && !f.b.Allows(key, r.Header):
		w.WriteHeader(http.StatusPreconditionFailed)
	case r.Method == http.MethodPut:
		w.Header().Set("ETag", f.b.Put(key, body, "").Tag)
		w.WriteHeader(http.StatusCreated)
	case !ok:
		w.Header().Set("X-Ms-Error-Code", "BlobNotFound")
		w.WriteHeader(http.StatusNotFound)
	case r.Method == http.MethodDelete:
		f.b.Delete(key)
		w.WriteHeader(http.StatusAccepted)
	default:
		o.Serve(w, r)
	}
}

// kindOf returns the kind of a request.
func kindOf(r *http.Request) string {
	kind := r.Method
	if comp := r.URL.Query().Get("comp"); comp != "" {
		kind = comp
	}
	if strings.HasSuffix(r.URL.Path, "/lock") {
		kind += " of the lock"
	}
	return kind
}

// openAt opens a folder of the container at a server.
func openAt(t *testing.T, server, path string) store.WriteStore {
	t.Helper()
	blank(t)
	s, err := Open(t.Context(), testContainer, path, &Options{Endpoint: server, Anonymous: true})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Each request fails once in each way.
func TestEachRequestFailsOnce(t *testing.T) {
	httpfaulttest.RunOnce(t, httpfaulttest.Driver{
		Serve: func(b *httpfaulttest.Bucket) http.Handler { return fake{b} }, Kind: kindOf,
		Open: func(t *testing.T, url string) store.WriteStore { return openAt(t, url, "root") },
	})
}

// The store passes all tests with a server that also has keys that are not valid names.
func TestStoreOfOddKeys(t *testing.T) {
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
