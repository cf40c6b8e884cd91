package s3store

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stokerdata/stoker/store"
)

const roleSecret = "SECRETOFTHEROLE"

// roles is the machine's metadata server, and the server that exchanges a web identity for credentials.
type roles struct {
	asked atomic.Int64
	token string // what it was shown
}

func (s *roles) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ends := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	switch {
	case r.Method == http.MethodPut && r.URL.Path == "/latest/api/token":
		w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "21600")
		fmt.Fprint(w, "SESSIONOFTHEMACHINE")
	case r.URL.Path == "/latest/meta-data/iam/security-credentials/" && r.Header.Get("X-Aws-Ec2-Metadata-Token") != "":
		fmt.Fprint(w, "role")
	case r.URL.Path == "/latest/meta-data/iam/security-credentials/role":
		s.asked.Add(1)
		fmt.Fprintf(w, `{"Code":"Success","Type":"AWS-HMAC","AccessKeyId":"ROLEKEY","SecretAccessKey":%q,"Token":"ROLESESSION","Expiration":%q}`, roleSecret, ends)
	case r.Method == http.MethodPost && r.ParseForm() == nil && r.Form.Get("Action") == "AssumeRoleWithWebIdentity":
		s.asked.Add(1)
		s.token = r.Form.Get("WebIdentityToken") + " " + r.Form.Get("RoleArn")
		fmt.Fprintf(w, `<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult><Credentials>
<AccessKeyId>ROLEKEY</AccessKeyId><SecretAccessKey>%s</SecretAccessKey><SessionToken>ROLESESSION</SessionToken><Expiration>%s</Expiration>
</Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`, roleSecret, ends)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// The machine's role and a web identity are found once for all stores, and sign the requests.
func TestRoles(t *testing.T) {
	for name, set := range map[string]func(t *testing.T, url string){
		"machine": func(t *testing.T, url string) {
			t.Setenv("AWS_EC2_METADATA_DISABLED", "false")
			t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", url)
		},
		"web identity": func(t *testing.T, url string) {
			file := filepath.Join(t.TempDir(), "token")
			if err := os.WriteFile(file, []byte("WEBIDENTITY"), 0o600); err != nil {
				t.Fatal(err)
			}
			t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", file)
			t.Setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/reader")
			t.Setenv("AWS_ENDPOINT_URL_STS", url)
			t.Setenv("AWS_REGION", "us-east-1")
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := &roles{}
			creds := httptest.NewServer(r)
			defer creds.Close()
			bad, url := signedBy(t, "ROLEKEY", "ROLESESSION")
			blank(t, url)
			set(t, creds.URL)
			for range 3 {
				if e, err := open(t, "x").Stat(t.Context(), "y"); err != nil || e.Size != 3 {
					t.Fatalf("%+v, %v", e, err)
				}
			}
			if r.asked.Load() != 1 || bad.Load() != 0 {
				t.Errorf("asked %d times, %d requests had others", r.asked.Load(), bad.Load())
			}
			if name == "web identity" && r.token != "WEBIDENTITY arn:aws:iam::123456789012:role/reader" {
				t.Errorf("it was shown %q", r.token)
			}
			http.DefaultClient.CloseIdleConnections()
		})
	}
}

// Redirects of signed requests to another server are not followed, so that signatures are not sent elsewhere.
func TestSignedRequestsStay(t *testing.T) {
	var reached atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	defer other.Close()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL+r.URL.Path, http.StatusTemporaryRedirect)
	})
	if _, err := s.Stat(t.Context(), "x"); err == nil {
		t.Error("it was followed")
	}
	if reached.Load() != 0 {
		t.Errorf("the other one was asked %d times", reached.Load())
	}
}

// keyed is a server of one object that accepts one access key, and refuses others with a code.
func keyed(t *testing.T, code string) (accept *atomic.Value, asked *atomic.Int64) {
	accept, asked = &atomic.Value{}, &atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if !strings.Contains(r.Header.Get("Authorization"), "Credential="+accept.Load().(string)+"/") {
			w.WriteHeader(http.StatusBadRequest)
			if r.Method != http.MethodHead {
				fmt.Fprintf(w, "<Error><Code>%s</Code></Error>", code)
			}
			return
		}
		w.Header().Set("Accept-Ranges", "bytes")
		w.Header().Set("ETag", `"1"`)
		w.Header().Set("Content-Length", "3")
	}))
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	blank(t, server.URL)
	return accept, asked
}

// Keys in a file are read again when they are refused. If they are still the same, this is an error after a few
// requests, and an operation that comes later reads them again.
func TestKeysInAFileAreReadAgain(t *testing.T) {
	for _, code := range []string{"ExpiredToken", "InvalidAccessKeyId", "InvalidToken", "SignatureDoesNotMatch"} {
		t.Run(code, func(t *testing.T) {
			accept, asked := keyed(t, code)
			file := filepath.Join(t.TempDir(), "credentials")
			write := func(key string) {
				if err := os.WriteFile(file, []byte("[default]\naws_access_key_id = "+key+"\naws_secret_access_key = x\naws_session_token = y\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
			write("OLD")
			accept.Store("OLD")
			s := open(t, "")
			stat := func() error { _, err := s.Stat(t.Context(), "x"); return err }
			if err := stat(); err != nil {
				t.Fatal(err)
			}
			accept.Store("NEW")
			write("NEW")
			if err := stat(); err != nil {
				t.Errorf("new keys are in the file: %v", err)
			}
			accept.Store("NEWEST")
			asked.Store(0)
			if err := stat(); !errors.Is(err, store.ErrCredentials) || !strings.Contains(err.Error(), code) || asked.Load() > 16 {
				t.Errorf("%v after %d requests", err, asked.Load())
			}
			write("NEWEST")
			for stat() != nil {
				if asked.Load() > 10_000 {
					t.Fatal("the keys are not read again")
				}
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
}

// The SDK writes nothing to the terminal of the user.
func TestSDKIsSilent(t *testing.T) {
	metadata := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusNotFound) // makes the SDK fall back to an older protocol
	}))
	defer metadata.Close()
	blank(t, "http://127.0.0.1:1")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "false")
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata.URL)
	file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	defer func(old *os.File) { os.Stderr = old }(os.Stderr)
	os.Stderr = file
	if _, err := open(t, "").Stat(t.Context(), "x"); !errors.Is(err, store.ErrCredentials) || !strings.Contains(err.Error(), "no credentials found") {
		t.Errorf("error is %v", err)
	}
	if b, err := os.ReadFile(file.Name()); err != nil || len(b) > 0 {
		t.Errorf("%s, %v", b, err)
	}
}
