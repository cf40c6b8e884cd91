package gcsstore

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
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
		return Open(t.Context(), testBucket, "shared", &Options{Endpoint: os.Getenv("STOKER_TEST_URL")})
	})
	os.Exit(0) // some connections are still open
}

// All processes of a machine fetch a service account's token once, and the next one shortly before it expires. The
// requests go to a real server.
func TestProcessesShareTokens(t *testing.T) {
	emulator := serverstest.GCS(t, testBucket)
	t.Setenv("STORAGE_EMULATOR_HOST", emulator.URL)
	w := open(t, "shared")
	if err := store.WriteFile(t.Context(), w, "x", []byte("hello")); err != nil {
		t.Fatal(err)
	}
	tokens := &serverstest.Tokens{Life: 3 * time.Second}
	giver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("grant_type") != "urn:ietf:params:oauth:grant-type:jwt-bearer" || r.FormValue("assertion") == "" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		token, _ := tokens.Give()
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"access_token":%q,"token_type":"Bearer","expires_in":%d}`, token, tokens.Life/time.Second)
	}))
	defer giver.Close()
	to, err := url.Parse(emulator.URL)
	if err != nil {
		t.Fatal(err)
	}
	behind := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
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
	write := func(name string, b []byte) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	account, err := json.Marshal(map[string]string{
		"type": "service_account", "client_email": "someone@example.org", "private_key_id": "1", "token_uri": giver.URL,
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})),
	})
	if err != nil {
		t.Fatal(err)
	}
	bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: front.Certificate().Raw})
	tokens.Share(t, "TestSharer", 6, 3, "STORAGE_EMULATOR_HOST=", "GOOGLE_APPLICATION_CREDENTIALS="+write("account.json", account),
		"STOKER_CA_BUNDLE="+write("bundle.pem", bundle), "STOKER_TEST_RUN="+filepath.Join(dir, "run"), "STOKER_TEST_URL="+front.URL)
}
