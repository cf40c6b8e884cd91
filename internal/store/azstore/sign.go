package azstore

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/stokerdata/stoker/internal/store/lease"
)

// identity signs requests: with an account key, a shared access signature, or a token.
type identity struct {
	account string
	key     []byte
	sas     string
	token   *lease.Lease[string]
}

// identityOf finds the account, the endpoint and the credentials.
func identityOf(ctx context.Context, opt *Options) (*identity, string, error) {
	said := map[string]string{}
	for part := range strings.SplitSeq(os.Getenv("AZURE_STORAGE_CONNECTION_STRING"), ";") {
		if name, value, ok := strings.Cut(part, "="); ok {
			said[strings.ToLower(strings.TrimSpace(name))] = value
		}
	}
	first := func(all ...string) string {
		for _, s := range all {
			if s != "" {
				return s
			}
		}
		return ""
	}
	id := &identity{account: first(opt.Account, os.Getenv("AZURE_STORAGE_ACCOUNT"), os.Getenv("AZURE_STORAGE_ACCOUNT_NAME"), said["accountname"])}
	endpoint := first(opt.Endpoint, os.Getenv("AZURE_STORAGE_BLOB_ENDPOINT"), said["blobendpoint"])
	if strings.Trim(id.account, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
		return nil, "", errors.New("invalid account name: expected lower-case letters and digits")
	}
	if endpoint == "" {
		if id.account == "" {
			return nil, "", errors.New("no account: set AZURE_STORAGE_ACCOUNT or add ?account=NAME to the URL")
		}
		endpoint = "https://" + id.account + ".blob." + first(said["endpointsuffix"], "core.windows.net")
	}
	if opt.Anonymous {
		return id, endpoint, nil
	}
	key := first(os.Getenv("AZURE_STORAGE_KEY"), os.Getenv("AZURE_STORAGE_ACCOUNT_KEY"), said["accountkey"])
	id.sas = strings.TrimPrefix(first(os.Getenv("AZURE_STORAGE_SAS_TOKEN"), said["sharedaccesssignature"]), "?")
	switch {
	case key != "" && id.account != "":
		var err error
		if id.key, err = base64.StdEncoding.DecodeString(key); err != nil {
			return nil, "", errors.New("AZURE_STORAGE_KEY is not a storage account key: it is not base64")
		}
	case id.sas != "":
		if _, err := url.ParseQuery(id.sas); err != nil {
			return nil, "", errors.New("AZURE_STORAGE_SAS_TOKEN is not a shared access signature")
		}
	default:
		id.token = defaultToken()
	}
	return id, endpoint, nil
}

// noToken is the failure to get a token. The SDK's error is not shown, because it may contain a server's response.
type noToken struct{ again bool }

func (e *noToken) Error() string {
	return "no credentials found: set AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN or AZURE_STORAGE_CONNECTION_STRING, or run az login. For public data add ?anonymous=true to the URL"
}

// Transient reports whether a retry may succeed.
func (e *noToken) Transient() bool { return e.again }

// defaultToken is the token of the process: from the environment, a workload identity, a managed identity, or az
// login.
var defaultToken = sync.OnceValue(func() *lease.Lease[string] {
	before := false // whether a fetch has succeeded
	key := func() string {
		home, _ := os.UserHomeDir() // if unknown, no file is read
		return lease.Key("azure", []string{home}, []string{"AZURE_", "IDENTITY_", "MSI_", "IMDS_"}, []string{filepath.Join(cmp.Or(os.Getenv("AZURE_CONFIG_DIR"), filepath.Join(home, ".azure")), "azureProfile.json")})
	}
	return lease.Shared(key, func(ctx context.Context) (string, time.Time, error) {
		// A new one, because it caches its token, which may have been refused.
		from, err := azidentity.NewDefaultAzureCredential(nil)
		if err != nil {
			return "", time.Time{}, &noToken{again: before}
		}
		t, err := from.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{"https://storage.azure.com/.default"}})
		if err != nil {
			return "", time.Time{}, &noToken{again: before}
		}
		before = true
		return t.Token, t.ExpiresOn, nil
	})
})

// sign signs a request.
func (id *identity) sign(r *http.Request) error {
	switch {
	case id.key != nil:
		r.Header.Set("X-Ms-Date", time.Now().UTC().Format(http.TimeFormat))
		r.Header.Set("Authorization", "SharedKey "+id.account+":"+id.signature(r))
	case id.sas != "":
		if r.URL.RawQuery != "" {
			r.URL.RawQuery += "&"
		}
		r.URL.RawQuery += id.sas
	case id.token != nil:
		t, err := id.token.Get(r.Context())
		if err != nil {
			return err
		}
		r.Header.Set("X-Ms-Date", time.Now().UTC().Format(http.TimeFormat))
		r.Header.Set("Authorization", "Bearer "+t)
	}
	return nil
}

// signature returns the signature of a request with the account key.
func (id *identity) signature(r *http.Request) string {
	var b strings.Builder
	b.WriteString(r.Method + "\n")
	length := ""
	if r.ContentLength > 0 {
		length = itoa(r.ContentLength)
	}
	for _, name := range []string{"Content-Encoding", "Content-Language", "", "Content-MD5", "Content-Type", "Date", "If-Modified-Since", "If-Match", "If-None-Match", "If-Unmodified-Since", "Range"} {
		if name == "" {
			b.WriteString(length)
		} else {
			b.WriteString(r.Header.Get(name))
		}
		b.WriteByte('\n')
	}
	var names []string
	for name := range r.Header {
		if strings.HasPrefix(strings.ToLower(name), "x-ms-") {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(strings.ToLower(a), strings.ToLower(b)) })
	for _, name := range names {
		b.WriteString(strings.ToLower(name) + ":" + strings.TrimSpace(r.Header.Get(name)) + "\n")
	}
	b.WriteString("/" + id.account + r.URL.EscapedPath())
	query := r.URL.Query()
	names = names[:0]
	for name := range query {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		values := query[name]
		slices.Sort(values)
		b.WriteString("\n" + strings.ToLower(name) + ":" + strings.Join(values, ","))
	}
	mac := hmac.New(sha256.New, id.key)
	mac.Write([]byte(b.String()))
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
