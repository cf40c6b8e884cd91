package azstore

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"

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

const testContainer = "test-container"

// blank sets an environment without credentials.
func blank(t *testing.T) {
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "AZURE_") {
			t.Setenv(name, "")
		}
	}
}

func open(t *testing.T, path string) store.WriteStore {
	t.Helper()
	s, err := Open(t.Context(), testContainer, path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStore(t *testing.T) {
	server := serverstest.Azure(t, testContainer)
	blank(t)
	t.Setenv("AZURE_STORAGE_CONNECTION_STRING", fmt.Sprintf("DefaultEndpointsProtocol=http;AccountName=%s;AccountKey=%s;BlobEndpoint=%s/%s;", server.Access, server.Secret, server.URL, server.Access))
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

// A shared access signature is added to every URL, and is in no message.
func TestSignatures(t *testing.T) {
	blank(t)
	t.Setenv("AZURE_STORAGE_SAS_TOKEN", "?sv=2021&sig=SESAME%2Fx")
	id, endpoint, err := identityOf(t.Context(), &Options{Account: "someone"})
	if err != nil || endpoint != "https://someone.blob.core.windows.net" {
		t.Fatalf("%s, %v", endpoint, err)
	}
	r, err := http.NewRequest(http.MethodGet, endpoint+"/c/x?comp=list", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := id.sign(r); err != nil || r.URL.RawQuery != "comp=list&sv=2021&sig=SESAME%2Fx" {
		t.Errorf("%s, %v", r.URL.RawQuery, err)
	}
	s, err := Open(t.Context(), testContainer, "", &Options{Account: "someone", Endpoint: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(s.String(), "SESAME") || strings.Contains(s.Path("x"), "SESAME") {
		t.Error(s)
	}
	for _, bad := range []string{"", "some one", "evil.example.org/", "a@b"} {
		if _, _, err := identityOf(t.Context(), &Options{Account: bad}); err == nil {
			t.Errorf("account %q", bad)
		}
	}
	t.Setenv("AZURE_STORAGE_KEY", "SESAME!")
	if _, _, err := identityOf(t.Context(), &Options{Account: "someone"}); err == nil || strings.Contains(err.Error(), "SESAME") {
		t.Errorf("error is %v", err)
	}
}

// Anonymous requests are not signed, even if there are credentials.
func TestAnonymous(t *testing.T) {
	blank(t)
	t.Setenv("AZURE_STORAGE_KEY", "c2VjcmV0")
	t.Setenv("AZURE_STORAGE_SAS_TOKEN", "sig=SESAME")
	var asked, signed atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.Header.Get("Authorization") != "" || strings.Contains(r.URL.RawQuery, "sig=") {
			signed.Add(1)
		}
		fmt.Fprint(w, `<EnumerationResults><Blobs><Blob><Name>a</Name><Properties><Etag>0x8</Etag><Content-Length>3</Content-Length></Properties></Blob></Blobs></EnumerationResults>`)
	}))
	defer server.Close()
	defer server.CloseClientConnections()
	s, err := Open(t.Context(), testContainer, "", &Options{Account: "someone", Endpoint: server.URL, Anonymous: true})
	if err != nil {
		t.Fatal(err)
	}
	names := ""
	err = s.List(t.Context(), "", nil, func(e store.Entry) error { names += e.Name; return nil })
	if err != nil || names != "a" || asked.Load() == 0 || signed.Load() > 0 {
		t.Errorf("%q, %v; %d of %d requests are signed", names, err, signed.Load(), asked.Load())
	}
}

func FuzzListing(f *testing.F) {
	f.Add([]byte(`<EnumerationResults><Blobs><Blob><Name Encoded="true">a%2Fb</Name><Properties><Etag>0x8</Etag><Content-Length>3</Content-Length></Properties></Blob><BlobPrefix><Name>x/</Name></BlobPrefix></Blobs><NextMarker>m</NextMarker></EnumerationResults>`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if p, err := parseListing(data); err == nil && len(p.Objects)+len(p.Prefixes) > len(data) {
			t.Error("more than there is")
		}
	})
}
