package probe

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stokerdata/stoker/internal/store/httpfaulttest"
	"github.com/stokerdata/stoker/plan"
)

// bucketOf serves a folder with a bucket that has one large object and small ones.
func bucketOf(t *testing.T) (url string, server *httpfaulttest.Folder) {
	t.Helper()
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "AWS_") {
			t.Setenv(name, "")
			os.Unsetenv(name)
		}
	}
	dir := t.TempDir()
	for name, size := range map[string]int64{"train/a.bin": 40 << 20, "train/b.bin": 1 << 10, "empty/none": 0, "small/x": 3000} {
		path := filepath.Join(dir, "bucket", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
	}
	server = &httpfaulttest.Folder{Dir: dir}
	s := httptest.NewServer(server)
	t.Cleanup(s.Close)
	t.Cleanup(s.CloseClientConnections)
	return "s3://bucket/%?anonymous=true&endpoint=" + s.URL, server
}

// The reads of a server are measured at growing depths, and its capabilities are reported. The result is cached for
// the URL.
func TestEndpoint(t *testing.T) {
	t.Setenv("STOKER_CACHE_DIR", t.TempDir())
	url, _ := bucketOf(t)
	train := strings.Replace(url, "%", "train", 1)
	m := &plan.Machine{Cores: 2, MemoryFree: 1 << 30}
	p := &probe{path: train, m: m}
	p.endpoint(t.Context(), 600*time.Millisecond)
	s := m.Store
	if s == nil || s.Class != plan.ClassObject || s.Path != "s3://bucket/train" || s.Endpoint == nil {
		t.Fatalf("%+v, notes %q", m, m.Notes)
	}
	if e := s.Endpoint; !e.Ranges || !e.IfMatch || e.Checksum != "" || e.Depth < 1 {
		t.Errorf("%+v", e)
	}
	blocks := map[int64]int{}
	for _, r := range s.Random {
		if r.IOPS <= 0 || r.Bandwidth <= 0 || r.Latency.P99 < r.Latency.P50 || r.Cached {
			t.Errorf("%+v", r)
		}
		blocks[r.Block] = max(blocks[r.Block], r.Depth)
	}
	if blocks[smallRange] == 0 || blocks[loaderBlock] == 0 || blocks[largeRange] == 0 {
		t.Errorf("blocks and depths %v, notes %q", blocks, m.Notes)
	}
	if _, err := Save(train, m); err != nil {
		t.Fatal(err)
	}
	if got, _, err := Load(train); err != nil || got.Store.Endpoint.Depth != s.Endpoint.Depth {
		t.Errorf("%+v, %v", got, err)
	}
	if _, _, err := Load(strings.Replace(url, "%", "other", 1)); err == nil {
		t.Error("it is kept for another URL, too")
	}
}

// If there is nothing to read, the probe reports that, and nothing else fails.
func TestEndpointWithout(t *testing.T) {
	url, _ := bucketOf(t)
	if _, err := Run(t.Context(), strings.Replace(url, "%", "nothing", 1), Options{For: MinFor}); err == nil || !strings.Contains(err.Error(), "s3://bucket/nothing") {
		t.Errorf("error is %v", err)
	}
	for path, note := range map[string]string{"empty/": "nothing", "small": "largest of the objects"} {
		p := &probe{path: strings.Replace(url, "%", path, 1), m: &plan.Machine{}}
		p.endpoint(t.Context(), 100*time.Millisecond)
		if got := strings.Join(p.m.Notes, "\n"); !strings.Contains(got, note) {
			t.Errorf("%s: %q", path, got)
		}
	}
}

// The recommended depth is the smallest that reaches nearly the full rate.
func TestRecommended(t *testing.T) {
	rates := []plan.ReadRate{{Block: 1, Depth: 64, Bandwidth: 900}}
	for depth, bandwidth := range map[int]float64{1: 10, 2: 20, 4: 96, 8: 100, 16: 99} {
		rates = append(rates, plan.ReadRate{Block: 8, Depth: depth, Bandwidth: bandwidth})
	}
	if got := recommended(rates); got != 4 {
		t.Errorf("depth %d", got)
	}
	if got := recommended(nil); got != 0 {
		t.Errorf("depth %d of nothing", got)
	}
}
