package gcsstore

import (
	"encoding/json"
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
	q := r.URL.Query()
	body, err := io.ReadAll(r.Body)
	rest, ok := strings.CutPrefix(strings.TrimPrefix(r.URL.EscapedPath(), "/upload"), "/storage/v1/b/"+testBucket+"/o")
	key, kerr := url.PathUnescape(strings.TrimSuffix(strings.TrimPrefix(rest, "/"), "/compose"))
	switch {
	case err != nil:
	case !ok || kerr != nil:
		http.Error(w, "{}", http.StatusNotFound)
	case r.Method == http.MethodPost && strings.HasSuffix(rest, "/compose"):
		f.compose(w, key, body)
	case r.Method == http.MethodPost:
		f.put(w, q, body)
	case rest == "":
		f.list(w, q)
	default:
		f.object(w, r, key, q)
	}
}

func describe(key string, o httpfaulttest.Blob) resource {
	return resource{Name: key, Size: strconv.Itoa(len(o.Data)), Generation: strconv.Itoa(o.N), Updated: o.Time.UTC().Format("2006-01-02T15:04:05Z")}
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func (f fake) put(w http.ResponseWriter, q url.Values, body []byte) {
	key, want := q.Get("name"), q.Get("ifGenerationMatch")
	o, ok := f.b.Get(key)
	if want != "" && (want == "0") == ok || ok && want != "" && want != strconv.Itoa(o.N) {
		http.Error(w, "{}", http.StatusPreconditionFailed)
		return
	}
	answer(w, describe(key, f.b.Put(key, body, "")))
}

func (f fake) compose(w http.ResponseWriter, key string, body []byte) {
	var ask struct {
		SourceObjects []struct{ Name string }
	}
	if err := json.Unmarshal(body, &ask); err != nil {
		http.Error(w, "{}", http.StatusBadRequest)
		return
	}
	var all []byte
	for _, from := range ask.SourceObjects {
		o, ok := f.b.Get(from.Name)
		if !ok {
			http.Error(w, "{}", http.StatusNotFound)
			return
		}
		all = append(all, o.Data...)
	}
	answer(w, describe(key, f.b.Put(key, all, "")))
}

func (f fake) list(w http.ResponseWriter, q url.Values) {
	limit := 2
	if n, err := strconv.Atoi(q.Get("maxResults")); err == nil {
		limit = n
	}
	var got struct {
		Items         []resource `json:"items"`
		Prefixes      []string   `json:"prefixes"`
		NextPageToken string     `json:"nextPageToken,omitempty"`
	}
	var keys []string
	keys, got.Prefixes, got.NextPageToken = f.b.Page(q.Get("prefix"), q.Get("delimiter") != "", q.Get("pageToken"), limit)
	for _, k := range keys {
		o, _ := f.b.Get(k)
		got.Items = append(got.Items, describe(k, o))
	}
	answer(w, got)
}

func (f fake) object(w http.ResponseWriter, r *http.Request, key string, q url.Values) {
	o, ok := f.b.Get(key)
	want := q.Get("ifGenerationMatch")
	switch {
	case !ok:
		http.Error(w, "{}", http.StatusNotFound)
	case r.Method == http.MethodDelete:
		f.b.Delete(key)
		w.WriteHeader(http.StatusNoContent)
	case want != "" && want != strconv.Itoa(o.N):
		http.Error(w, "{}", http.StatusPreconditionFailed)
	case q.Get("alt") == "media":
		w.Header().Set("X-Goog-Generation", strconv.Itoa(o.N))
		o.Serve(w, r)
	default:
		answer(w, describe(key, o))
	}
}

// kindOf returns the kind of a request.
func kindOf(r *http.Request) string {
	q := r.URL.Query()
	kind := r.Method
	switch {
	case strings.HasSuffix(r.URL.Path, "/compose"):
		kind = "compose"
	case r.Method == http.MethodGet && q.Get("alt") == "media":
		kind = "read"
	case r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/o"):
		kind = "list"
	case strings.Contains(r.URL.Path+q.Get("name"), "/draft-"):
		kind += " of a part"
	}
	if strings.HasSuffix(r.URL.Path, "/lock") || strings.HasSuffix(q.Get("name"), "/lock") {
		kind += " of the lock"
	}
	return kind
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
