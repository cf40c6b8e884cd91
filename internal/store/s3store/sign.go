package s3store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/smithy-go/logging"

	"github.com/stokerdata/stoker/internal/store/lease"
)

const (
	// emptyHash is the SHA-256 of an empty payload.
	emptyHash  = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	hashHeader = "X-Amz-Content-Sha256"
)

// identity is the configuration of a profile. The process shares it between buckets. Temporary credentials are
// fetched once for all processes of the user on this machine, so that a credentials server gets one request.
type identity struct {
	region, endpoint string
	credentials      *lease.Lease[aws.Credentials]
}

var (
	identities   = map[string]*identity{}
	identitiesMu sync.Mutex
)

// configOf reads the environment and the files of a profile. It does not request credentials.
func configOf(ctx context.Context, profile string) (*identity, error) {
	identitiesMu.Lock()
	defer identitiesMu.Unlock()
	if id := identities[profile]; id != nil {
		return id, nil
	}
	conf, err := load(ctx, profile)
	if err != nil {
		return nil, err
	}
	first := conf.Credentials
	id := &identity{region: conf.Region, credentials: keysOf(profile, func(ctx context.Context) (aws.CredentialsProvider, error) {
		if from := first; from != nil {
			first = nil
			return from, nil
		}
		again, err := load(ctx, profile) // the files may have changed
		return again.Credentials, err
	})}
	if conf.BaseEndpoint != nil {
		id.endpoint = *conf.BaseEndpoint
	}
	identities[profile] = id
	return id, nil
}

// load reads the environment and the files of a profile.
func load(ctx context.Context, profile string) (aws.Config, error) {
	options := []func(*config.LoadOptions) error{
		// Services for credentials need a region.
		config.WithDefaultRegion("us-east-1"),
		// The lease replaces the SDK's cache.
		config.WithCredentialsCacheOptions(func(o *aws.CredentialsCacheOptions) { o.ExpiryWindow = 0 }),
		// The SDK would write to the user's terminal.
		config.WithLogger(logging.Nop{}),
	}
	if profile != "" {
		options = append(options, config.WithSharedConfigProfile(profile))
	}
	conf, err := config.LoadDefaultConfig(context.WithoutCancel(ctx), options...)
	if err != nil {
		var none config.SharedConfigProfileNotExistError
		if errors.As(err, &none) {
			return conf, fmt.Errorf("no profile %q in ~/.aws/config or ~/.aws/credentials", none.Profile)
		}
		// These files may contain secrets.
		return conf, errors.New("the configuration in ~/.aws or the variables AWS_... cannot be read")
	}
	return conf, nil
}

// keysOf returns a lease of the credentials of a provider. find returns the provider for each fetch.
func keysOf(profile string, find func(ctx context.Context) (aws.CredentialsProvider, error)) *lease.Lease[aws.Credentials] {
	before := false // whether a fetch has succeeded (fetches are sequential)
	key := func() string {
		if profile == "" && os.Getenv("AWS_ACCESS_KEY_ID") != "" {
			return "" // static keys in the environment do not expire
		}
		home, _ := os.UserHomeDir() // if unknown, no file is read
		files := []string{
			cmp.Or(os.Getenv("AWS_CONFIG_FILE"), filepath.Join(home, ".aws", "config")),
			cmp.Or(os.Getenv("AWS_SHARED_CREDENTIALS_FILE"), filepath.Join(home, ".aws", "credentials")),
		}
		return lease.Key("aws", []string{profile, home}, []string{"AWS_"}, files)
	}
	return lease.Shared(key, func(ctx context.Context) (aws.Credentials, time.Time, error) {
		from, err := find(ctx)
		var got aws.Credentials
		if err == nil {
			got, err = from.Retrieve(ctx)
		}
		if err != nil {
			return got, time.Time{}, explained(err, before)
		}
		before = true
		if !got.CanExpire {
			got.Expires = time.Time{}
		}
		return got, got.Expires, nil
	})
}

// noKeys is the failure to get credentials. The SDK's error is not shown, because it may contain the output of a
// program or a server, and so a secret.
type noKeys struct{ again bool }

func (e *noKeys) Error() string {
	if e.again {
		return "cannot fetch credentials: the credentials server does not respond correctly"
	}
	return "no credentials found: set AWS_PROFILE or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. For public data add ?anonymous=true to the URL"
}

// Transient reports whether a retry may succeed.
func (e *noKeys) Transient() bool { return e.again }

// explained returns the error for a failed fetch. before is true if a fetch has succeeded.
func explained(err error, before bool) error {
	var answered interface{ HTTPStatusCode() int }
	var waited interface{ Timeout() bool }
	if before || errors.As(err, &answered) && answered.HTTPStatusCode() >= 500 || errors.As(err, &answered) && answered.HTTPStatusCode() == 429 ||
		errors.As(err, &waited) && waited.Timeout() && !isMetadata(err) {
		return &noKeys{again: true}
	}
	return &noKeys{}
}

// isMetadata reports whether an error only means that this machine is not one of Amazon's.
func isMetadata(err error) bool {
	var op interface{ Operation() string }
	return errors.As(err, &op) && op.Operation() == "GetMetadata"
}

var signer = v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })

// sign signs a request for S3.
func (h *home) sign(r *http.Request) error {
	if h.d.id == nil {
		return nil
	}
	have, err := h.d.id.credentials.Get(r.Context())
	if err != nil {
		return err
	}
	hash := r.Header.Get(hashHeader)
	if hash == "" {
		hash = emptyHash
		r.Header.Set(hashHeader, hash)
	}
	// The SDK's error concerns the request, so its text is not useful.
	if err := signer.SignHTTP(r.Context(), have, r, hash, "s3", h.region, time.Now()); err != nil {
		return errors.New("the request cannot be signed")
	}
	return nil
}
