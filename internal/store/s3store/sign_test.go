package s3store

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/stokerdata/stoker/store"
)

// lender returns credentials that expire soon.
type lender struct {
	life    time.Duration
	fetched atomic.Int64
	fail    atomic.Bool
}

func (l *lender) Retrieve(ctx context.Context) (aws.Credentials, error) {
	n := l.fetched.Add(1)
	select { // the credentials server is slow
	case <-time.After(100 * time.Millisecond):
	case <-ctx.Done():
		return aws.Credentials{}, ctx.Err()
	}
	if l.fail.Load() {
		return aws.Credentials{}, errors.New("SESAME in an answer")
	}
	return aws.Credentials{AccessKeyID: fmt.Sprint(n), SecretAccessKey: "x", CanExpire: true, Expires: time.Now().Add(l.life)}, nil
}

// Sixteen readers with credentials that expire every few seconds. Each is fetched once, only the first reader
// waits, and no reader gets expired ones.
func TestKeysAreFetchedOncePerExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const life, runs = 5 * time.Second, 10 * time.Minute
		l := &lender{life: life}
		k := keysOf(t.Name(), func(context.Context) (aws.CredentialsProvider, error) { return l, nil })
		end := time.Now().Add(runs)
		var wg sync.WaitGroup
		for w := range 16 {
			wg.Go(func() {
				for i := 0; time.Now().Before(end); i++ {
					start := time.Now()
					have, err := k.Get(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					if !have.Expires.After(time.Now()) {
						t.Error("they have ended")
					}
					if i > 0 && time.Since(start) > 0 {
						t.Error("a reader waited for credentials while there were some")
					}
					time.Sleep(time.Duration(20+w) * time.Millisecond)
				}
			})
		}
		wg.Wait()
		// Credentials are used for nine tenths of their lifetime and while the next ones are fetched.
		if n, most := l.fetched.Load(), int64(runs/(life*9/10))+1; n > most || n < most/2 {
			t.Errorf("fetched %d times, at most %d are needed", n, most)
		}
	})
}

// A credentials server that is unavailable for a while has no effect while the old credentials are valid. Then it
// gives an error without the server's response.
func TestKeysThatCannotBeFetched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lender{life: time.Hour}
		k := keysOf(t.Name(), func(context.Context) (aws.CredentialsProvider, error) { return l, nil })
		if _, err := k.Get(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.fail.Store(true)
		time.Sleep(56 * time.Minute)
		for range 100 {
			if have, err := k.Get(t.Context()); err != nil || have.AccessKeyID != "1" {
				t.Fatalf("%v, %v", have.AccessKeyID, err)
			}
			time.Sleep(time.Second)
		}
		if n := l.fetched.Load(); n > 25 {
			t.Errorf("asked %d times in 100 s", n)
		}
		time.Sleep(5 * time.Minute)
		_, err := k.Get(t.Context())
		if err == nil || strings.Contains(err.Error(), "SESAME") {
			t.Errorf("error is %v", err)
		}
		l.fail.Store(false)
		if _, err := k.Get(t.Context()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
	})
}

// A container's credentials are used and fetched once for all stores.
func TestContainerCredentials(t *testing.T) {
	var fetched atomic.Int64
	creds := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fetched.Add(1)
		fmt.Fprintf(w, `{"AccessKeyId": "LENT", "SecretAccessKey": "s", "Token": "SESSION", "Expiration": "%s"}`, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	}))
	defer creds.Close()
	bad, url := signedBy(t, "LENT", "SESSION")
	blank(t, url)
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", creds.URL)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			s := open(t, "x")
			if e, err := s.Stat(t.Context(), "y"); err != nil || e.Size != 3 {
				t.Errorf("%+v, %v", e, err)
			}
		})
	}
	wg.Wait()
	if fetched.Load() != 1 || bad.Load() != 0 {
		t.Errorf("fetched %d times, %d requests had others", fetched.Load(), bad.Load())
	}
}

// signedBy is a server of one object that counts requests with other signatures.
func signedBy(t *testing.T, key, session string) (bad *atomic.Int64, url string) {
	bad = new(atomic.Int64)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.Header.Get("Authorization"), "Credential="+key+"/") || r.Header.Get("X-Amz-Security-Token") != session {
			bad.Add(1)
		}
		w.Header().Set("Accept-Ranges", "bytes")
		w.Header().Set("ETag", `"1"`)
		w.Header().Set("Content-Length", "3")
	}))
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	return bad, server.URL
}

// blank sets an environment without credentials.
func blank(t *testing.T, endpoint string) {
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "AWS_") {
			t.Setenv(name, "")
			os.Unsetenv(name)
		}
	}
	t.Setenv("AWS_ENDPOINT_URL", endpoint)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "none"))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(t.TempDir(), "none"))
	forgetIdentities()
	t.Cleanup(forgetIdentities)
}

// A profile has the key, the secret, the region and the endpoint. They are in no message.
func TestProfile(t *testing.T) {
	var auth atomic.Value
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		auth.Store(r.Header.Get("Authorization"))
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, "<Error><Code>SignatureDoesNotMatch</Code><StringToSign>VERYSECRET</StringToSign></Error>")
	}))
	defer server.Close()
	defer server.CloseClientConnections()
	blank(t, server.URL)
	file := filepath.Join(t.TempDir(), "credentials")
	if err := os.WriteFile(file, []byte("[work]\naws_access_key_id = KEYID\naws_secret_access_key = VERYSECRET\nregion = eu-north-1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
	s, err := Open(t.Context(), testBucket, "", &Options{Profile: "work"})
	if err != nil {
		t.Fatal(err)
	}
	err = s.List(t.Context(), "", nil, func(store.Entry) error { return nil })
	if !errors.Is(err, store.ErrCredentials) || strings.Contains(err.Error(), "VERYSECRET") || strings.Contains(err.Error(), "KEYID") {
		t.Errorf("error is %v", err)
	}
	if a, _ := auth.Load().(string); !strings.Contains(a, "Credential=KEYID/") || !strings.Contains(a, "/eu-north-1/s3/") {
		t.Errorf("signed with %q", a)
	}
	if _, err := Open(t.Context(), testBucket, "", &Options{Profile: "nobody"}); err == nil || !strings.Contains(err.Error(), `no profile "nobody"`) {
		t.Errorf("error is %v", err)
	}
}

// Without credentials no request is sent. For public data they are not needed.
func TestAnonymous(t *testing.T) {
	var signed atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			signed.Add(1)
		}
		if r.Header.Get("X-Amz-Request-Payer") != "requester" || r.Host == "" {
			signed.Add(1)
		}
		fmt.Fprint(w, "<ListBucketResult><Contents><Key>a</Key><Size>3</Size><ETag>x</ETag></Contents></ListBucketResult>")
	}))
	defer server.Close()
	defer server.CloseClientConnections()
	blank(t, server.URL)
	list := func(opt *Options) error {
		s, err := Open(t.Context(), testBucket, "", opt)
		if err != nil {
			return err
		}
		return s.List(t.Context(), "", nil, func(store.Entry) error { return nil })
	}
	if err := list(nil); err == nil || !strings.Contains(err.Error(), "no credentials found") {
		t.Errorf("error is %v", err)
	}
	if err := list(&Options{Anonymous: true, RequesterPays: true}); err != nil || signed.Load() != 0 {
		t.Errorf("%v, %d requests were wrong", err, signed.Load())
	}
}

func FuzzListing(f *testing.F) {
	f.Add([]byte("<ListBucketResult><EncodingType>url</EncodingType><Contents><Key>a%2Fb</Key><Size>3</Size></Contents><CommonPrefixes><Prefix>x/</Prefix></CommonPrefixes></ListBucketResult>"))
	f.Add([]byte("<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken></ListBucketResult>"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if p, err := parseListing(data); err == nil && len(p.Objects)+len(p.Prefixes) > len(data) {
			t.Error("more than there is")
		}
	})
}
