package s3store

import (
	"fmt"
	"os"
	"path/filepath"
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

const testBucket = "test-bucket"

// use sets the environment for a server.
func use(t *testing.T, s *serverstest.Server) {
	t.Setenv("AWS_ENDPOINT_URL", s.URL)
	t.Setenv("AWS_ACCESS_KEY_ID", s.Access)
	t.Setenv("AWS_SECRET_ACCESS_KEY", s.Secret)
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "none"))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(t.TempDir(), "none"))
	forgetIdentities()
	t.Cleanup(forgetIdentities)
}

func forgetIdentities() {
	identitiesMu.Lock()
	defer identitiesMu.Unlock()
	clear(identities)
}

func open(t *testing.T, path string) store.WriteStore {
	t.Helper()
	s, err := Open(t.Context(), testBucket, path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStore(t *testing.T) { testStore(t, serverstest.S3(t, testBucket)) }

// TestStoreOfMinIO tests with a second implementation of S3.
func TestStoreOfMinIO(t *testing.T) { testStore(t, serverstest.MinIO(t, testBucket)) }

func testStore(t *testing.T, server *serverstest.Server) {
	use(t, server)
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
