package stoker_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stokerdata/stoker"
	"github.com/stokerdata/stoker/internal/store/httpfaulttest"
	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/source"
)

// bucketOf serves a folder as a bucket. Its clients find no local state of this machine: neither credentials nor
// cached data.
func bucketOf(t *testing.T, dir string) (server *httpfaulttest.Folder, url string) {
	t.Helper()
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "AWS_") {
			t.Setenv(name, "")
			os.Unsetenv(name)
		}
	}
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "none"))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(t.TempDir(), "none"))
	t.Setenv("STOKER_CACHE_DIR", t.TempDir())
	server = &httpfaulttest.Folder{Dir: filepath.Dir(dir)}
	s := httptest.NewServer(server)
	t.Cleanup(s.Close)
	t.Cleanup(s.CloseClientConnections)
	return server, "s3://" + filepath.Base(dir) + "/%s?anonymous=true&endpoint=" + s.URL
}

// writeRows writes an array of bytes, rows of which are records.
func writeRows(t *testing.T, path string, rows, width int) {
	t.Helper()
	head := fmt.Sprintf("{'descr': '|u1', 'fortran_order': False, 'shape': (%d, %d), }", rows, width)
	head += strings.Repeat(" ", 117-len(head)) + "\n"
	data := make([]byte, rows*width)
	for i := range rows {
		binary.LittleEndian.PutUint64(data[i*width:], uint64(i)) // to distinguish the records
	}
	if err := os.WriteFile(path, append([]byte("\x93NUMPY\x01\x00\x76\x00"+head), data...), 0o600); err != nil {
		t.Fatal(err)
	}
}

// packRows packs such an array.
func packRows(t *testing.T, npy, dir string, opt *pack.Options) {
	t.Helper()
	src, err := source.Open(t.Context(), npy, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	if _, err := pack.WriteSource(t.Context(), src, dir, opt); err != nil {
		t.Fatal(err)
	}
}

// bucketOfRows makes a folder for a bucket with a pack of many small chunks, train.
func bucketOfRows(t *testing.T, records, width int) (dir string, m *pack.Manifest) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "bucket")
	npy := filepath.Join(t.TempDir(), "x.npy")
	writeRows(t, npy, records, width)
	packRows(t, npy, filepath.Join(dir, "train"), &pack.Options{ChunkBytes: 64 << 10, ShardBytes: 1 << 20})
	m, err := pack.ReadManifest(filepath.Join(dir, "train"))
	if err != nil {
		t.Fatal(err)
	}
	return dir, m
}

// The requests to a bucket in epochs with a shuffle buffer of chunks. Each chunk is requested once per epoch, except
// for those at the borders between ranks. No object is requested only for its header, and the manifest is requested
// once for all ranks of a machine.
func TestRequestsOfWindows(t *testing.T) {
	const records, width = 3200, 8 << 10
	epochs := 8
	if testing.Short() {
		epochs = 3
	}
	dir, m := bucketOfRows(t, records, width)
	chunks := 0
	for i := range m.Shards {
		chunks += len(m.Shards[i].Chunks)
	}
	if chunks < 400 || len(m.Shards) < 20 {
		t.Fatalf("%d chunks in %d shards are too few", chunks, len(m.Shards))
	}
	for _, ranks := range []int{1, 4, 16} {
		t.Run(fmt.Sprint(ranks), func(t *testing.T) {
			server, url := bucketOf(t, dir)
			var seen atomic.Int64
			var mu sync.Mutex
			ranges := map[string]int{}
			server.Refuse = func(r *http.Request) (int, string) {
				if part := r.Header.Get("Range"); strings.Contains(r.URL.Path, "/shard-") {
					mu.Lock()
					defer mu.Unlock()
					ranges[r.URL.Path+" "+part]++
				}
				return 0, ""
			}
			var wg sync.WaitGroup
			for rank := range ranks {
				wg.Go(func() {
					opt := &stoker.Options{BatchSize: 64 / ranks, Shuffle: true, Window: 16, Ranks: stoker.Ranks{Rank: rank, WorldSize: ranks}, Limits: stoker.Limits{Memory: 32 << 20, Lookahead: 1 << 20, Threads: 1}}
					l, err := stoker.Open(t.Context(), fmt.Sprintf(url, "train"), opt)
					if err != nil {
						t.Error(err)
						return
					}
					defer l.Close()
					for e := 0; e < epochs; {
						b, err := l.Next(t.Context())
						if err == io.EOF {
							e++
							continue
						}
						if err != nil {
							t.Error(err)
							return
						}
						seen.Add(int64(b.Rows))
						b.Release()
					}
				})
			}
			wg.Wait()
			gets, lists, manifests := 0, 0, 0
			for what, n := range server.Asked() {
				switch {
				case what == "LIST":
					lists += n
				case what == "GET "+pack.ManifestName:
					manifests += n
				case strings.HasPrefix(what, "GET shard-"):
					gets += n
				default:
					t.Errorf("%s was asked for %d times", what, n)
				}
			}
			mu.Lock() // the readahead may still send requests
			defer mu.Unlock()
			// The next epoch has begun, and may have requested a chunk once already. A chunk that was requested more
			// often, or in other parts, is at a border.
			next := 0
			for _, n := range ranges {
				if n > epochs {
					next++
				}
			}
			most := 1.05*float64(epochs*chunks) + float64(min(next, chunks))
			t.Logf("%d chunks: %d GETs of shards, %d of the manifest, %d listings", chunks, gets, manifests, lists)
			if seen.Load() != int64(epochs*records) || float64(gets) > most || manifests != 1 || lists > 2*ranks {
				t.Errorf("%d records, %d GETs for %d chunks, %d of the manifest, %d listings", seen.Load(), gets, chunks, manifests, lists)
			}
		})
	}
}
