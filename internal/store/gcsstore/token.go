package gcsstore

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"

	"github.com/stokerdata/stoker/internal/store/lease"
)

var (
	shared   *lease.Lease[string]
	sharedMu sync.Mutex
)

// credentials finds the credentials for tokens.
func credentials(ctx context.Context) (*google.Credentials, error) {
	return google.FindDefaultCredentials(ctx, "https://www.googleapis.com/auth/devstorage.read_write")
}

// defaultTokens returns the tokens of GOOGLE_APPLICATION_CREDENTIALS, of gcloud's file, or of the machine's service
// account. The process shares them, and all processes of the user on this machine fetch them once.
func defaultTokens(ctx context.Context) (*lease.Lease[string], error) {
	sharedMu.Lock()
	defer sharedMu.Unlock()
	if shared != nil {
		return shared, nil
	}
	if _, err := credentials(context.WithoutCancel(ctx)); err != nil {
		// The error may contain the content of a key file.
		return nil, errors.New("no credentials found: set GOOGLE_APPLICATION_CREDENTIALS or run gcloud auth application-default login. For public data add ?anonymous=true to the URL")
	}
	shared = lease.Shared(tokenKey, fetchToken)
	return shared, nil
}

// tokenKey returns the key of the tokens' owner.
func tokenKey() string {
	home, _ := os.UserHomeDir() // if unknown, no file is read
	conf := cmp.Or(os.Getenv("CLOUDSDK_CONFIG"), filepath.Join(home, ".config", "gcloud"))
	files := []string{os.Getenv("GOOGLE_APPLICATION_CREDENTIALS"), filepath.Join(conf, "application_default_credentials.json")}
	return lease.Key("google", []string{home}, []string{"GOOGLE_", "GCE_", "CLOUDSDK_"}, files)
}

// fetchToken fetches a token without a cache.
func fetchToken(ctx context.Context) (string, time.Time, error) {
	c, err := credentials(ctx)
	if err != nil {
		return "", time.Time{}, &failed{}
	}
	got, err := c.TokenSource.Token()
	if err != nil {
		var answer *oauth2.RetrieveError
		return "", time.Time{}, &failed{again: !errors.As(err, &answer) || answer.Response != nil && answer.Response.StatusCode >= 500}
	}
	return got.AccessToken, got.Expiry, nil
}

// failed is the failure to get a token.
type failed struct{ again bool }

func (f *failed) Error() string {
	return "the credentials server returned no token"
}

// Transient reports whether a retry may succeed.
func (f *failed) Transient() bool { return f.again }
