package s3store

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The bucket's name is in the path for other servers than Amazon's. For Amazon it is in the host, unless no
// certificate covers it. path_style overrides this.
func TestPathStyle(t *testing.T) {
	for _, c := range []struct {
		bucket, endpoint, style, want string
	}{
		{"data", "http://localhost:9000", "", "http://localhost:9000/data/"},
		{"data", "http://localhost:9000/s3/", "", "http://localhost:9000/s3/data/"},
		{"data", "https://s3.example.org", "false", "https://data.s3.example.org/"},
		{"data", "", "", "https://data.s3.eu-north-1.amazonaws.com/"},
		{"my.data", "", "", "https://s3.eu-north-1.amazonaws.com/my.data/"},
		{"data", "", "true", "https://s3.eu-north-1.amazonaws.com/data/"},
	} {
		blank(t, c.endpoint)
		d, err := newDriver(t.Context(), c.bucket, &Options{Region: "eu-north-1", PathStyle: c.style, Anonymous: true})
		if err != nil || d.home.Load().base != c.want {
			t.Errorf("%+v: %s, %v", c, d.home.Load().base, err)
		}
	}
}

// The bundle of certificates is the one of Amazon's tools, otherwise ours.
func TestCABundle(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Accept-Ranges", "bytes")
		w.Header().Set("ETag", `"1"`)
		w.Header().Set("Content-Length", "3")
	}))
	defer server.Close()
	defer server.CloseClientConnections()
	good, none := filepath.Join(t.TempDir(), "bundle.pem"), filepath.Join(t.TempDir(), "none.pem")
	if err := os.WriteFile(good, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ amazon, ours, fails string }{
		{good, "", ""}, {"", good, ""}, {good, none, ""}, {none, good, "none.pem"},
	} {
		blank(t, server.URL)
		t.Setenv("AWS_CA_BUNDLE", c.amazon)
		t.Setenv("STOKER_CA_BUNDLE", c.ours)
		s, err := Open(t.Context(), testBucket, "", &Options{Anonymous: true})
		if err == nil {
			_, err = s.Stat(t.Context(), "x")
		}
		if (err == nil) != (c.fails == "") || err != nil && !strings.Contains(err.Error(), c.fails) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
