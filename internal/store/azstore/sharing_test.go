package azstore

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stokerdata/stoker/internal/serverstest"
	"github.com/stokerdata/stoker/store"
)

// TestSharer is the process that TestProcessesShareTokens starts several times.
func TestSharer(t *testing.T) {
	t.Setenv("STOKER_RUNTIME_DIR", os.Getenv("STOKER_TEST_RUN"))
	serverstest.Read(t, func() (store.Store, error) {
		return Open(t.Context(), testContainer, "shared", &Options{Endpoint: os.Getenv("STOKER_TEST_URL")})
	})
	os.Exit(0) // some connections are still open
}

// All processes of a machine fetch a managed-identity token once, and the next one shortly before it expires. The
// requests go to a real server that accepts a key.
func TestProcessesShareTokens(t *testing.T) {
	server := serverstest.Azure(t, testContainer)
	blank(t)
	account := server.URL + "/" + server.Access
	t.Setenv("AZURE_STORAGE_CONNECTION_STRING", fmt.Sprintf("AccountName=%s;AccountKey=%s;BlobEndpoint=%s;", server.Access, server.Secret, account))
	d, err := newDriver(t.Context(), testContainer, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.WriteFile(t.Context(), open(t, "shared"), "x", []byte("hello")); err != nil {
		t.Fatal(err)
	}
	tokens := &serverstest.Tokens{Life: 3 * time.Second}
	giver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Identity-Header") != "machine" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		token, ends := tokens.Give()
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"access_token":%q,"token_type":"Bearer","resource":"https://storage.azure.com","expires_on":"%d"}`, token, ends.Unix())
	}))
	defer giver.Close()
	to, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	behind := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Header.Del("Authorization")
		if err := d.id.sign(r.Out); err != nil {
			t.Error(err)
		}
	}}
	// Tokens are only sent over https.
	front := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !ok || !tokens.Serve(token) {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		behind.ServeHTTP(w, r)
	}))
	defer front.Close()
	defer front.CloseClientConnections()
	dir := t.TempDir()
	bundle := filepath.Join(dir, "bundle.pem")
	if err := os.WriteFile(bundle, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: front.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	tokens.Share(t, "TestSharer", 6, 3, "AZURE_STORAGE_CONNECTION_STRING=", "AZURE_STORAGE_ACCOUNT="+server.Access,
		"IDENTITY_ENDPOINT="+giver.URL, "IDENTITY_HEADER=machine", "STOKER_CA_BUNDLE="+bundle,
		"STOKER_TEST_RUN="+filepath.Join(dir, "run"), "STOKER_TEST_URL="+front.URL+"/"+server.Access)
}
