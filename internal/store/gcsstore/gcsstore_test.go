package gcsstore

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/stokerdata/stoker/internal/serverstest"
	"github.com/stokerdata/stoker/internal/store/ranged"
	"github.com/stokerdata/stoker/store"
	"github.com/stokerdata/stoker/store/storetest"
)

func TestMain(m *testing.M) {
	os.Setenv("STOKER_RUNTIME_DIR", "off") // tests must not share fetched values
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) { ranged.CloseIdle() }))
}

const testBucket = "test-bucket"

func open(t *testing.T, path string) store.WriteStore {
	t.Helper()
	s, err := Open(t.Context(), testBucket, path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStore(t *testing.T) {
	t.Setenv("STORAGE_EMULATOR_HOST", serverstest.GCS(t, testBucket).URL)
	var n atomic.Int64
	roots := map[store.Store]string{}
	storetest.Run(t, storetest.Suite{
		UTF8: true,
		Open: func(t *testing.T, objects map[string][]byte) store.Store {
			root := fmt.Sprintf("some/folder-%d", n.Add(1))
			s := open(t, root)
			for name, data := range objects {
				if err := store.WriteFile(t.Context(), s, name, data); err != nil {
					t.Fatal(err)
				}
			}
			roots[s] = root
			return s
		},
		Change: func(t *testing.T, s store.Store, name string, data []byte) {
			if err := store.WriteFile(t.Context(), open(t, roots[s]), name, data); err != nil {
				t.Fatal(err)
			}
		},
		Again: func(t *testing.T, s store.Store) store.Store { return open(t, roots[s]) },
	})
}

// Every request has the project that pays for it.
func TestProject(t *testing.T) {
	var asked, wrong atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.URL.Query().Get("userProject") != "mine&x=y" || r.URL.Query().Has("x") || r.Header.Get("Authorization") != "" {
			wrong.Add(1)
		}
		switch {
		case strings.HasSuffix(r.URL.Path, "/o"):
			fmt.Fprint(w, `{"items": [{"name": "a", "size": "3", "generation": "1"}]}`)
		case r.URL.Query().Get("alt") == "media":
			w.Header().Set("X-Goog-Generation", "1")
			http.ServeContent(w, r, "", time.Time{}, strings.NewReader("abc"))
		default:
			fmt.Fprint(w, `{"name": "a", "size": "3", "generation": "1"}`)
		}
	}))
	defer server.Close()
	defer server.CloseClientConnections()
	s, err := Open(t.Context(), testBucket, "", &Options{Endpoint: server.URL, Anonymous: true, Project: "mine&x=y"})
	if err != nil {
		t.Fatal(err)
	}
	err = s.List(t.Context(), "", nil, func(e store.Entry) error {
		b, err := store.ReadFile(t.Context(), s, e.Name, 100)
		if err == nil && string(b) != "abc" {
			err = fmt.Errorf("it holds %q", b)
		}
		return err
	})
	if err != nil || asked.Load() < 3 || wrong.Load() > 0 {
		t.Errorf("%v; %d of %d requests are wrong", err, wrong.Load(), asked.Load())
	}
}
