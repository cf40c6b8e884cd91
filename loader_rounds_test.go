package stoker_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stokerdata/stoker"
	"github.com/stokerdata/stoker/internal/serverstest"
	"github.com/stokerdata/stoker/internal/store/gcsstore"
	"github.com/stokerdata/stoker/internal/store/httpfaulttest"
	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/store"
)

// The maximum number of round trips before a first batch. For a pack in a bucket: the listing together with the
// manifest, the index of its chunks, its records. On the web the manifest comes after the listing. For a folder of
// files: its listing, the detection of its format, all of its files, the records. A web server lists each folder
// separately, twice, and gets extra requests for properties that listings do not show.
const (
	roundsInBucket = 3
	roundsOfPack   = 4
	roundsOfFolder = 6
	roundsOnWeb    = 9
	// Without a listing, each object takes a request.
	roundsWithoutList = 7
)

// The first batch of a remote pack takes three or four round trips, even if its records are spread over many shards.
func TestRoundsToTheFirstBatch(t *testing.T) {
	const records, width = 3200, 8 << 10
	dir := filepath.Join(t.TempDir(), "bucket")
	npy := filepath.Join(t.TempDir(), "x.npy")
	writeRows(t, npy, records, width)
	packRows(t, npy, filepath.Join(dir, "train"), &pack.Options{ChunkBytes: 64 << 10, ShardBytes: 1 << 20})
	if err := writeImages(filepath.Join(dir, "photos"), 100); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		handler func() http.Handler
		url     string
		window  int
		most    int
	}{
		{"bucket", bucketAt(dir), "s3://bucket/train?anonymous=true&endpoint=%s", 0, roundsInBucket},
		{"folder of a bucket", bucketAt(dir), "s3://bucket/train/?anonymous=true&endpoint=%s", 0, roundsInBucket},
		{"windows", bucketAt(dir), "s3://bucket/train?anonymous=true&endpoint=%s", 16, roundsInBucket},
		{"pages", webAt(dir, "html"), "%s/train", 0, roundsOfPack},
		{"no list", webAt(dir, ""), "%s/train", 0, roundsWithoutList},
		{"web", webAt(dir, "json"), "%s/train", 0, roundsOfPack},
		{"folder of the web", webAt(dir, "json"), "%s/train/", 0, roundsOfPack},
		{"Google's", googleOf(t, filepath.Join(dir, "train")), "gs://bucket/train?anonymous=true&endpoint=%s", 0, roundsInBucket},
		{"photos in a bucket", bucketAt(dir), "s3://bucket/photos?anonymous=true&endpoint=%s", 0, roundsOfFolder},
		{"photos on the web", webAt(dir, "json"), "%s/photos", 0, roundsOnWeb},
	} {
		t.Run(c.name, func(t *testing.T) {
			bucketOf(t, dir) // nothing of this machine's is found
			said := ""
			// A late request on a busy machine counts like a wait. One success is therefore enough.
			handler, latency := c.handler(), 60*time.Millisecond
			if testing.Short() { // a shorter one would fail under the race detector
				latency *= 4
			}
			for ; latency < 5*time.Second; latency *= 2 {
				t.Setenv("STOKER_CACHE_DIR", t.TempDir())
				rounds := &httpfaulttest.Rounds{Handler: handler, Latency: latency}
				s := httptest.NewServer(rounds)
				n := firstBatch(t, fmt.Sprintf(c.url, s.URL), c.window, rounds)
				s.CloseClientConnections()
				s.Close()
				if n <= c.most {
					return
				}
				said = rounds.String()
			}
			t.Errorf("it takes more than %d ways there and back:\n%s", c.most, said)
		})
	}
}

// Before the first batch, a bucket gets requests only for the chunks with records of that batch, and none for later
// data. With a full permutation it gets requests for those records and for the heads of chunks. The heads of later
// chunks are small.
func TestFirstBatchIsAskedForAlone(t *testing.T) {
	const records, width, batch = 3200, 8 << 10, 64
	dir, m := bucketOfRows(t, records, width)
	var starts []int64
	at := int64(0)
	for _, s := range m.Shards {
		for _, c := range s.Chunks {
			starts = append(starts, at)
			at += c.Rows
		}
	}
	for _, window := range []int{0, 16} {
		t.Run(fmt.Sprint(window), func(t *testing.T) {
			bucketOf(t, dir) // nothing of this machine's is found
			said := ""
			for latency := 60 * time.Millisecond; latency < 5*time.Second; latency *= 2 { // as above
				t.Setenv("STOKER_CACHE_DIR", t.TempDir())
				rounds := &httpfaulttest.Rounds{Handler: bucketAt(dir)(), Latency: latency}
				s := httptest.NewServer(rounds)
				opt := &stoker.Options{BatchSize: batch, Shuffle: true, Window: window, Limits: stoker.Limits{Memory: 96 << 20, Threads: 1}}
				l, err := stoker.Open(t.Context(), fmt.Sprintf("s3://bucket/train?anonymous=true&endpoint=%s", s.URL), opt)
				if err != nil {
					t.Fatal(err)
				}
				b, err := l.Next(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				asked := rounds.Answering(func(what string) bool { return strings.Contains(what, "/shard-") })
				said = rounds.String()
				most := len(starts) + batch // heads and records
				if window > 0 {
					of := map[int]bool{}
					ids, _ := b.Array("index")
					for i := range batch {
						id := int64(binary.LittleEndian.Uint64(ids.Row(i)))
						of[sort.Search(len(starts), func(c int) bool { return starts[c] > id })] = true
					}
					most = len(of)
				}
				b.Release()
				if err := l.Close(); err != nil {
					t.Error(err)
				}
				s.CloseClientConnections()
				s.Close()
				if said = fmt.Sprintf("%d requests, want %d at most:\n%s", asked, most, said); asked <= most {
					return
				}
			}
			t.Error(said)
		})
	}
}

// Records of the first batch are requested as soon as the heads of their own chunks have arrived. A late head does
// not delay the others.
func TestLateHeadHoldsUpItsOwnRecords(t *testing.T) {
	const records, width, batch = 3200, 8 << 10, 64
	dir, _ := bucketOfRows(t, records, width)
	bucketOf(t, dir) // nothing of this machine's is found
	t.Setenv("STOKER_CACHE_DIR", t.TempDir())
	bucket, late := bucketAt(dir)(), ""
	var mu sync.Mutex
	asked, most := 0, make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var from, to int64
		if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &from, &to); err == nil && strings.Contains(r.URL.Path, "/shard-") {
			mu.Lock()
			head := r.URL.Path + " " + r.Header.Get("Range")
			if late == "" && to-from < width {
				late = head
			}
			hold := head == late // however often it is asked for
			if to-from >= width-1 {
				if asked++; asked == batch*3/4 {
					close(most)
				}
			}
			mu.Unlock()
			if hold {
				select {
				case <-most:
				case <-r.Context().Done():
				case <-time.After(10 * time.Second):
					t.Error("its neighbours wait for a record whose head is late")
				}
			}
		}
		bucket.ServeHTTP(w, r)
	}))
	defer s.Close()
	opt := &stoker.Options{BatchSize: batch, Shuffle: true, Limits: stoker.Limits{Memory: 96 << 20, Threads: 1}}
	l, err := stoker.Open(t.Context(), fmt.Sprintf("s3://bucket/train?anonymous=true&endpoint=%s", s.URL), opt)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	b, err := l.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Release()
	if b.Rows != batch || late == "" {
		t.Errorf("%d rows, late was %q", b.Rows, late)
	}
}

// For any order of the answers, the first batch has its records in their order.
func TestAnswersInAnyOrder(t *testing.T) {
	const records, width, batch = 3200, 8 << 10, 64
	times := 30
	if testing.Short() {
		times = 8
	}
	dir, _ := bucketOfRows(t, records, width)
	bucketOf(t, dir) // nothing of this machine's is found
	t.Setenv("STOKER_CACHE_DIR", t.TempDir())
	s := httptest.NewServer(&httpfaulttest.Throttle{Handler: bucketAt(dir)(), Jitter: 3 * time.Millisecond})
	defer s.Close()
	var want []byte
	for range times {
		opt := &stoker.Options{BatchSize: batch, Shuffle: true, Seed: 3, Limits: stoker.Limits{Memory: 96 << 20, Threads: 2}}
		l, err := stoker.Open(t.Context(), fmt.Sprintf("s3://bucket/train?anonymous=true&endpoint=%s", s.URL), opt)
		if err != nil {
			t.Fatal(err)
		}
		b, err := l.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got []byte
		index, _ := b.Array("index")
		rows, ok := b.Array("x")
		for i := range batch {
			got = append(got, index.Row(i)...)
			if !ok || !bytes.Equal(rows.Row(i)[:8], index.Row(i)) {
				t.Fatalf("row %d is of another record", i)
			}
		}
		if want == nil {
			want = got
		}
		if !bytes.Equal(got, want) {
			t.Fatal("another batch")
		}
		b.Release()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func bucketAt(dir string) func() http.Handler {
	return func() http.Handler { return &httpfaulttest.Folder{Dir: filepath.Dir(dir)} }
}

func webAt(dir, lists string) func() http.Handler {
	return func() http.Handler { return &httpfaulttest.Web{Dir: dir, Lists: lists} }
}

// googleOf puts the files of a folder into a bucket of a server of Google's storage.
func googleOf(t *testing.T, dir string) func() http.Handler {
	return func() http.Handler {
		at := serverstest.GCS(t, "bucket").URL
		st, err := gcsstore.Open(t.Context(), "bucket", filepath.Base(dir)+"/", &gcsstore.Options{Endpoint: at, Anonymous: true})
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		files, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			b, err := os.ReadFile(filepath.Join(dir, f.Name()))
			if err == nil {
				err = store.WriteFile(t.Context(), st, f.Name(), b)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		u, err := url.Parse(at)
		if err != nil {
			t.Fatal(err)
		}
		p := httputil.NewSingleHostReverseProxy(u)
		p.ErrorLog = log.New(io.Discard, "", 0) // of requests that are in flight when the loader is closed
		return p
	}
}

// firstBatch opens data and waits for the first batch.
func firstBatch(t *testing.T, url string, window int, rounds *httpfaulttest.Rounds) int {
	t.Helper()
	opt := &stoker.Options{BatchSize: 256, Shuffle: true, Window: window, Limits: stoker.Limits{Memory: 96 << 20, Threads: 1}}
	if testing.Short() { // under the race detector more requests take longer than the latency
		opt.BatchSize = 64
	}
	if strings.Contains(url, "photos") {
		opt.BatchSize = 64
		opt.Outputs = []stoker.Output{{Name: "image", Ops: []stoker.Op{stoker.RandomResizedCrop(16)}}}
	}
	l, err := stoker.Open(t.Context(), url, opt)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	b, err := l.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Release()
	if b.Rows != opt.BatchSize {
		t.Errorf("%d rows", b.Rows)
	}
	return rounds.Answered()
}
