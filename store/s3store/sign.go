package s3store

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/config"
)

const (
	// emptyHash is the SHA-256 of nothing.
	emptyHash  = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	hashHeader = "X-Amz-Content-Sha256"
)

// identity is what a profile says: one for the process, however many buckets there
// are, so that a server of credentials is asked once.
type identity struct {
	region, endpoint string
	credentials      *keys
}

var (
	identities   = map[string]*identity{}
	identitiesMu sync.Mutex
)

// configOf reads what the environment and the files of a profile say. It asks nobody
// for credentials.
func configOf(ctx context.Context, profile string) (*identity, error) {
	identitiesMu.Lock()
	defer identitiesMu.Unlock()
	if id := identities[profile]; id != nil {
		return id, nil
	}
	options := []func(*config.LoadOptions) error{
		// A service of Amazon must be asked somewhere for credentials.
		config.WithDefaultRegion("us-east-1"),
		// Its own cache is ours: no second one.
		config.WithCredentialsCacheOptions(func(o *aws.CredentialsCacheOptions) { o.ExpiryWindow = 0 }),
	}
	if profile != "" {
		options = append(options, config.WithSharedConfigProfile(profile))
	}
	conf, err := config.LoadDefaultConfig(context.WithoutCancel(ctx), options...)
	if err != nil {
		var none config.SharedConfigProfileNotExistError
		if errors.As(err, &none) {
			return nil, fmt.Errorf("there is no profile %q in ~/.aws/config or ~/.aws/credentials", none.Profile)
		}
		// What stands in these files may be secret.
		return nil, errors.New("the configuration in ~/.aws or the variables AWS_... cannot be read")
	}
	id := &identity{region: conf.Region, credentials: newKeys(conf.Credentials)}
	if conf.BaseEndpoint != nil {
		id.endpoint = *conf.BaseEndpoint
	}
	identities[profile] = id
	return id, nil
}

// keys are credentials that end. They are fetched again a little before that, by one
// who needs them while the others go on with the old ones.
type keys struct {
	from aws.CredentialsProvider
	now  func() time.Time

	mu    sync.Mutex
	have  aws.Credentials
	got   time.Time
	known bool
	wait  chan struct{} // open while somebody fetches
	err   error         // of the last fetch
	after time.Time     // when to try again behind a failure
}

func newKeys(from aws.CredentialsProvider) *keys { return &keys{from: from, now: time.Now} }

const (
	// early is how long before their end credentials are fetched again, but not before
	// nine tenths of their time are over.
	early = 5 * time.Minute
	// fetchTakes bounds a fetch.
	fetchTakes = time.Minute
	// fetchAgain is how long a failure to fetch is not tried again while the old ones
	// still serve.
	fetchAgain = 5 * time.Second
)

// state says whether the credentials serve, and whether it is time for others. The
// lock is held.
func (k *keys) state(now time.Time) (good, due bool) {
	if !k.known {
		return false, true
	}
	if !k.have.CanExpire {
		return true, false
	}
	left := k.have.Expires.Sub(now)
	return left > 0, left <= min(early, k.have.Expires.Sub(k.got)/10)
}

// get returns credentials that serve.
func (k *keys) get(ctx context.Context) (aws.Credentials, error) {
	for {
		k.mu.Lock()
		now := k.now()
		good, due := k.state(now)
		if due && k.wait == nil && (!good || !now.Before(k.after)) {
			k.wait = make(chan struct{})
			go k.fetch(context.WithoutCancel(ctx))
		}
		have, wait := k.have, k.wait
		k.mu.Unlock()
		if good {
			return have, nil
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return aws.Credentials{}, context.Cause(ctx)
		}
		k.mu.Lock()
		err := k.err
		k.mu.Unlock()
		if err != nil {
			return aws.Credentials{}, err
		}
	}
}

func (k *keys) fetch(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, fetchTakes)
	defer cancel()
	if c, ok := k.from.(*aws.CredentialsCache); ok {
		c.Invalidate()
	}
	got, err := k.from.Retrieve(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	if err == nil && got.CanExpire && !got.Expires.After(now) {
		err = errors.New("they have ended")
	}
	k.err = nil
	if err != nil {
		k.err, k.after = explained(err, k.known), now.Add(fetchAgain)
	} else {
		k.have, k.got, k.known = got, now, true
	}
	close(k.wait)
	k.wait = nil
}

// refused says that the server took the credentials for old ones. Where there may be
// others they are fetched for the next attempt.
func (k *keys) refused() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.have.CanExpire {
		return false
	}
	// Many may be refused at once: those that are new stay.
	if k.known && k.now().Sub(k.got) > fetchAgain {
		k.known = false
	}
	return true
}

// noKeys is the failure to get credentials. What the SDK says may have in it what a
// program or a server answered, and so a secret.
type noKeys struct{ again bool }

func (e *noKeys) Error() string {
	if e.again {
		return "the credentials could not be fetched: the server that gives them does not answer as it should"
	}
	return "no credentials were found: set AWS_PROFILE or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; of what anybody may read write ?anonymous=true behind the URL"
}

// Transient says whether it may go better the next time.
func (e *noKeys) Transient() bool { return e.again }

// explained says what a failure to fetch means; before says that it went well once.
func explained(err error, before bool) error {
	var answered interface{ HTTPStatusCode() int }
	var waited interface{ Timeout() bool }
	if before || errors.As(err, &answered) && answered.HTTPStatusCode() >= 500 || errors.As(err, &answered) && answered.HTTPStatusCode() == 429 ||
		errors.As(err, &waited) && waited.Timeout() && !isMetadata(err) {
		return &noKeys{again: true}
	}
	return &noKeys{}
}

// isMetadata says whether it is only that this machine is none of Amazon's.
func isMetadata(err error) bool {
	var op interface{ Operation() string }
	return errors.As(err, &op) && op.Operation() == "GetMetadata"
}

var signer = v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })

// sign signs a request for S3.
func (d *driver) sign(r *http.Request) error {
	if d.id == nil {
		return nil
	}
	have, err := d.id.credentials.get(r.Context())
	if err != nil {
		return err
	}
	hash := r.Header.Get(hashHeader)
	if hash == "" {
		hash = emptyHash
		r.Header.Set(hashHeader, hash)
	}
	// The SDK's error is of what is in the request: its text does not matter.
	if err := signer.SignHTTP(r.Context(), have, r, hash, "s3", d.region, time.Now()); err != nil {
		return errors.New("the request cannot be signed")
	}
	return nil
}
