package feed

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// Claims are what a token permits: the batches of one pipeline, until a time.
type Claims struct {
	Manifest string `json:"manifest"`
	Pipeline string `json:"pipeline"`
	// Expires is in seconds of Unix time.
	Expires int64 `json:"expires"`
}

// A token is "stk1.CLAIMS.KEY". KEY is the HMAC-SHA256 of CLAIMS under the servers' secret. The client never sends KEY:
// each request has CLAIMS, a time, a random number, and the HMAC-SHA256 of these and the ticket under KEY. So a request
// that was overheard gives neither the token nor a second batch.
const tokenPrefix = "stk1"

// maxAuthorization is the longest text in a request's header.
const maxAuthorization = 2 << 10

const (
	minSecret = 16
	maxSecret = 4 << 10
)

// b64 is strict, so that a header has one form.
var b64 = base64.RawURLEncoding.Strict()

// Secret is the key of all servers of a data set.
type Secret []byte

// ReadSecret reads a secret from a file. Space around it is not part of it.
func ReadSecret(path string) (Secret, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading the secret: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	if err != nil {
		return nil, fmt.Errorf("reading the secret %s: %w", path, err)
	}
	data = bytes.TrimSpace(data)
	if len(data) < minSecret || len(data) > maxSecret {
		return nil, fmt.Errorf("the secret in %s must have %d to %d bytes: write one with  head -c 32 /dev/urandom | base64 > %s", path, minSecret, maxSecret, path)
	}
	return data, nil
}

func sum(key []byte, parts ...[]byte) []byte {
	h := hmac.New(sha256.New, key)
	for _, p := range parts {
		var n [8]byte
		binary.LittleEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		h.Write(p)
	}
	return h.Sum(nil)
}

// Token returns a token.
func (s Secret) Token(c Claims) string {
	text, err := json.Marshal(c)
	if err != nil {
		panic("feed: " + err.Error()) // there is nothing in claims that cannot be written
	}
	claims := b64.EncodeToString(text)
	return tokenPrefix + "." + claims + "." + b64.EncodeToString(sum(s, []byte(claims)))
}

// Token is a client's token.
type Token struct {
	claims string
	key    []byte
}

// ParseToken reads a token.
func ParseToken(text string) (*Token, error) {
	parts := strings.Split(strings.TrimSpace(text), ".")
	if len(text) > maxAuthorization || len(parts) != 3 || parts[0] != tokenPrefix {
		return nil, errors.New("this is not a token of  stoker token")
	}
	key, err := b64.DecodeString(parts[2])
	if err != nil || len(key) != sha256.Size {
		return nil, errors.New("the token is damaged")
	}
	return &Token{claims: parts[1], key: key}, nil
}

// Sign returns the value of the request header "authorization" for a ticket. Each request needs another one.
func (t *Token) Sign(ticket []byte, now time.Time) string {
	once := make([]byte, onceSize)
	binary.BigEndian.PutUint64(once, uint64(now.Unix()))
	if _, err := rand.Read(once[8:]); err != nil {
		panic("feed: " + err.Error()) // crypto/rand never fails
	}
	return t.header(ticket, once)
}

// header returns the header for a time and a random number.
func (t *Token) header(ticket, once []byte) string {
	proof := sum(t.key, []byte(t.claims), once, ticket)
	return "Stoker " + t.claims + "." + b64.EncodeToString(once) + "." + b64.EncodeToString(proof)
}

const (
	// onceSize is the size of the time and the random number of a request.
	onceSize = 24
	// clockSkew is by how much the clocks of a client and a server may differ.
	clockSkew = 2 * time.Minute
	// maxSeen bounds the requests that a server remembers: 4,000 requests per second.
	maxSeen = 1 << 20
)

// Guard checks requests on a server.
type Guard struct {
	secret Secret

	mu   sync.Mutex
	seen map[[onceSize]byte]int64 // by time and random number: when it may be forgotten
	next int64                    // when to look for those
}

// NewGuard returns a Guard for tokens of a secret.
func NewGuard(secret Secret) *Guard {
	return &Guard{secret: secret, seen: map[[onceSize]byte]int64{}}
}

// Errors of Check. They tell a client no more than it needs.
var (
	ErrNoToken  = errors.New("the request has no token: set token= to a file that  stoker token  wrote")
	ErrBadToken = errors.New("the token is not one of this server: was it made with another secret?")
	ErrExpired  = errors.New("the token has expired: make another one with  stoker token")
	ErrScope    = errors.New("the token is for another manifest or pipeline")
	ErrReplayed = errors.New("the request was sent before, or the clocks of the two machines differ by more than two minutes")
	ErrCrowded  = errors.New("more requests than a server can check for replays: start more servers")
)

// Check refuses a request without a valid token for its ticket, and a request that was seen before.
func (g *Guard) Check(authorization string, raw []byte, t *Ticket, now time.Time) error {
	if authorization == "" {
		return ErrNoToken
	}
	parts := strings.Split(strings.TrimPrefix(authorization, "Stoker "), ".")
	if len(authorization) > maxAuthorization || !strings.HasPrefix(authorization, "Stoker ") || len(parts) != 3 {
		return ErrBadToken
	}
	once, err1 := b64.DecodeString(parts[1])
	proof, err2 := b64.DecodeString(parts[2])
	if err1 != nil || err2 != nil || len(once) != onceSize {
		return ErrBadToken
	}
	if !hmac.Equal(proof, sum(sum(g.secret, []byte(parts[0])), []byte(parts[0]), once, raw)) {
		return ErrBadToken
	}
	// From here on the claims are those of a token that was made with the secret.
	var c Claims
	text, err := b64.DecodeString(parts[0])
	if err != nil || json.Unmarshal(text, &c) != nil {
		return ErrBadToken
	}
	switch {
	case now.Unix() >= c.Expires:
		return ErrExpired
	case c.Manifest != t.Manifest || c.Pipeline != t.Pipeline:
		return ErrScope
	}
	at := int64(binary.BigEndian.Uint64(once))
	skew := int64(clockSkew / time.Second)
	if at < now.Unix()-skew || at > now.Unix()+skew {
		return ErrReplayed
	}
	return g.first([onceSize]byte(once), at+skew, now.Unix())
}

// first refuses a request that is known. It remembers others until their time is too old to be accepted.
func (g *Guard) first(once [onceSize]byte, until, now int64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if now >= g.next || len(g.seen) >= maxSeen {
		g.next = now + 10
		for k, end := range g.seen {
			if end < now {
				delete(g.seen, k)
			}
		}
	}
	if _, known := g.seen[once]; known {
		return ErrReplayed
	}
	if len(g.seen) >= maxSeen {
		return ErrCrowded
	}
	g.seen[once] = until
	return nil
}
