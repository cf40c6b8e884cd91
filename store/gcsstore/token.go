package gcsstore

import (
	"context"
	"errors"
	"sync"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"
)

// tokens are those of the process's credentials. The source fetches one again a little
// before it ends, once for all who wait.
type tokens struct {
	fetch func() (oauth2.TokenSource, error)

	mu  sync.Mutex
	src oauth2.TokenSource
	old string // the token that was refused last
	now string // the one that was given last
}

var (
	shared   *tokens
	sharedMu sync.Mutex
)

// defaultTokens are those of GOOGLE_APPLICATION_CREDENTIALS, of gcloud's file, or of the
// machine's own account: the same ones for the whole process.
func defaultTokens(ctx context.Context) (*tokens, error) {
	sharedMu.Lock()
	defer sharedMu.Unlock()
	if shared != nil {
		return shared, nil
	}
	ctx = context.WithoutCancel(ctx)
	t := &tokens{fetch: func() (oauth2.TokenSource, error) {
		c, err := google.FindDefaultCredentials(ctx, "https://www.googleapis.com/auth/devstorage.read_write")
		if err != nil {
			return nil, err
		}
		return c.TokenSource, nil
	}}
	var err error
	if t.src, err = t.fetch(); err != nil {
		// What stands in the file of a key may be in the error.
		return nil, errors.New("no credentials were found: set GOOGLE_APPLICATION_CREDENTIALS or run gcloud auth application-default login; of what anybody may read write ?anonymous=true behind the URL")
	}
	shared = t
	return t, nil
}

// failed is the failure to get a token.
type failed struct{ again bool }

func (f *failed) Error() string {
	return "no token could be had from the server of credentials"
}

// Transient says whether it may go better the next time.
func (f *failed) Transient() bool { return f.again }

func (t *tokens) get(ctx context.Context) (string, error) {
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	t.mu.Lock()
	src := t.src
	t.mu.Unlock()
	got, err := src.Token()
	if err != nil {
		var answer *oauth2.RetrieveError
		return "", &failed{again: !errors.As(err, &answer) || answer.Response != nil && answer.Response.StatusCode >= 500}
	}
	t.mu.Lock()
	t.now = got.AccessToken
	t.mu.Unlock()
	return got.AccessToken, nil
}

// refused says that the server took the token for an old one; the next one is fetched
// anew, once.
func (t *tokens) refused() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now == "" || t.now == t.old {
		return false
	}
	src, err := t.fetch()
	if err != nil {
		return false
	}
	t.old, t.src = t.now, src
	return true
}
