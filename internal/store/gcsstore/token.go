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

// credentials finds what tokens are asked with.
func credentials(ctx context.Context) (*google.Credentials, error) {
	return google.FindDefaultCredentials(ctx, "https://www.googleapis.com/auth/devstorage.read_write")
}

// defaultTokens are those of GOOGLE_APPLICATION_CREDENTIALS, of gcloud's file, or of the
// machine's own account: the same ones for the whole process, and fetched once for all
// processes of the user on this machine.
func defaultTokens(ctx context.Context) (*lease.Lease[string], error) {
	sharedMu.Lock()
	defer sharedMu.Unlock()
	if shared != nil {
		return shared, nil
	}
	if _, err := credentials(context.WithoutCancel(ctx)); err != nil {
		// What stands in the file of a key may be in the error.
		return nil, errors.New("no credentials were found: set GOOGLE_APPLICATION_CREDENTIALS or run gcloud auth application-default login; of what anybody may read write ?anonymous=true behind the URL")
	}
	shared = lease.Shared(tokenKey, fetchToken)
	return shared, nil
}

// tokenKey says whose tokens they are.
func tokenKey() string {
	home, _ := os.UserHomeDir() // "" where there is none: then no file is read
	conf := cmp.Or(os.Getenv("CLOUDSDK_CONFIG"), filepath.Join(home, ".config", "gcloud"))
	files := []string{os.Getenv("GOOGLE_APPLICATION_CREDENTIALS"), filepath.Join(conf, "application_default_credentials.json")}
	return lease.Key("google", []string{home}, []string{"GOOGLE_", "GCE_", "CLOUDSDK_"}, files)
}

// fetchToken asks for a token, of a source that keeps none.
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
	return "no token could be had from the server of credentials"
}

// Transient says whether it may go better the next time.
func (f *failed) Transient() bool { return f.again }
