package s3store

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
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
