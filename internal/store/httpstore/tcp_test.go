package httpstore

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stokerdata/stoker/internal/serverstest"
	"github.com/stokerdata/stoker/internal/store/httpfaulttest"
	"github.com/stokerdata/stoker/internal/store/ranged"
	"github.com/stokerdata/stoker/internal/store/traffic"
	"github.com/stokerdata/stoker/store"
)

// Connections that are reset, end early, stall, close slowly or send small pieces give no wrong byte, and an error
// names what cannot be read.
func TestBrokenConnections(t *testing.T) {
	proxy := serverstest.TCPFaults(t)
	dir := t.TempDir()
	want := make([]byte, 1<<20)
	rng := rand.NewChaCha8([32]byte{3})
	_, _ = rng.Read(want)
	if err := os.Mkdir(filepath.Join(dir, "data"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "data", "x"), want, 0o600); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(&httpfaulttest.Folder{Dir: dir})
	defer server.Close()
	defer server.CloseClientConnections()
	for _, c := range []struct {
		kind       string
		breaks     bool
		attributes map[string]any
	}{
		{"reset_peer", true, map[string]any{"timeout": 0}},
		{"reset_peer", true, map[string]any{"timeout": 5}},
		{"limit_data", true, map[string]any{"bytes": 10_000}},
		{"limit_data", true, map[string]any{"bytes": 1}},
		{"timeout", true, map[string]any{"timeout": 5}},
		{"slow_close", false, map[string]any{"delay": 20}},
		{"slicer", false, map[string]any{"average_size": 1000, "size_variation": 500, "delay": 10}},
		{"latency", false, map[string]any{"latency": 3, "jitter": 3}},
	} {
		t.Run(fmt.Sprint(c.kind, c.attributes), func(t *testing.T) {
			name := strings.Map(func(r rune) rune {
				if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
					return r
				}
				return '-'
			}, fmt.Sprint(c.kind, c.attributes))
			made := serverstest.Toxic(t, http.MethodPost, proxy.URL+"/proxies", map[string]any{
				"name": name, "listen": "127.0.0.1:0", "upstream": strings.TrimPrefix(server.URL, "http://"), "enabled": true,
			})
			at := proxy.URL + "/proxies/" + name
			defer serverstest.Toxic(t, http.MethodDelete, at, nil)
			listen, _ := made["listen"].(string)
			s, err := New("http://"+listen+"/data", &Options{backoff: time.Millisecond, stall: time.Second, Attempts: 12})
			if err != nil {
				t.Fatal(err)
			}
			o, err := s.Open(t.Context(), "x")
			if err != nil {
				t.Fatal(err)
			}
			defer o.Close()
			serverstest.Toxic(t, http.MethodPost, at+"/toxics", map[string]any{
				"type": c.kind, "stream": "downstream", "toxicity": 0.5, "attributes": c.attributes,
			})
			good := 0
			const reads = 25
			for i := range reads {
				ranged.CloseIdle() // faults are drawn per connection
				p := make([]byte, 1+rand.IntN(60_000))
				off := rand.Int64N(int64(len(want) - len(p)))
				err := o.ReadAt(t.Context(), p, off)
				var named *store.Error
				switch {
				case err == nil && !bytes.Equal(p, want[off:off+int64(len(p))]):
					t.Fatalf("read %d has wrong bytes", i)
				case err == nil:
					good++
				case !errors.As(err, &named) || named.Path != s.Path("x") || named.Off != off || !strings.Contains(err.Error(), "tried 12 times"):
					t.Errorf("error is %v", err)
				}
			}
			if good == 0 {
				t.Error("nothing could be read")
			}
			retries := int64(0)
			for _, e := range traffic.All() {
				if e.Endpoint == "http://"+listen {
					retries = e.Retries
				}
			}
			t.Logf("%d of %d, %d were tried again", good, reads, retries)
			if c.breaks && retries == 0 {
				t.Error("nothing was broken")
			}
		})
	}
}
