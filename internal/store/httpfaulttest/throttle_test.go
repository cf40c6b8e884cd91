package httpfaulttest

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A Throttle changes the timing but not the data, and the listing matches the folder.
func TestThrottledFolder(t *testing.T) {
	dir := t.TempDir()
	want := bytes.Repeat([]byte("0123456789abcdef"), 40_000)
	for name, data := range map[string][]byte{"bucket/a/x.bin": want, "bucket/a/y": {}, "bucket/a-b": []byte("z"), "bucket/b/c/d": []byte("d")} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	folder := &Folder{Dir: dir}
	s := httptest.NewServer(&Throttle{Handler: folder, Latency: time.Millisecond, Jitter: time.Millisecond, BytesPerSecond: 1e9})
	defer s.Close()
	get := func(path, ranged string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if ranged != "" {
			r.Header.Set("Range", ranged)
		}
		resp, err := s.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
	if code, got := get("/bucket/a/x.bin", ""); code != http.StatusOK || got != string(want) {
		t.Errorf("%d, %d bytes", code, len(got))
	}
	if code, got := get("/bucket/a/x.bin", "bytes=16-31"); code != http.StatusPartialContent || got != "0123456789abcdef" {
		t.Errorf("%d, %q", code, got)
	}
	for _, c := range []struct{ query, want, not string }{
		{"list-type=2&prefix=a/", "<Key>a/x.bin</Key>", "<Key>a-b</Key>"},
		{"list-type=2&delimiter=/", "<Prefix>b/</Prefix>", "<Key>b/c/d</Key>"},
		{"list-type=2&max-keys=1", "<NextContinuationToken>a/x.bin</NextContinuationToken>", "<Key>a/x.bin</Key>"},
		{"list-type=2&continuation-token=a/y", "<Key>a/y</Key>", "<Key>a/x.bin</Key>"},
	} {
		if _, got := get("/bucket?"+c.query, ""); !strings.Contains(got, c.want) || strings.Contains(got, c.not) {
			t.Errorf("%s: %s", c.query, got)
		}
	}
	if code, _ := get("/bucket/none", ""); code != http.StatusNotFound {
		t.Errorf("status %d", code)
	}
	if asked := folder.Asked(); asked["LIST"] != 4 || asked["GET x.bin"] != 2 {
		t.Errorf("%v", asked)
	}
}
