package s3store

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/stokerdata/stoker/internal/store/node"
	"github.com/stokerdata/stoker/internal/store/ranged"
)

// regions are those of buckets that were asked for.
var regions struct {
	sync.Mutex
	of map[string]string
}

// waitForRegion is how long another process is waited for that asks.
const waitForRegion = 5 * time.Second

// regionOf says in which of Amazon's regions a bucket lies; "" when nobody says. One of
// the processes of the user on this machine asks.
func regionOf(ctx context.Context, name string, ask func() string) string {
	regions.Lock()
	defer regions.Unlock()
	if r, ok := regions.of[name]; ok {
		return r
	}
	f, err := node.Open("region", name)
	if err == nil {
		defer f.Close()
		f.Lock(ctx, waitForRegion) // without it several ask
		if r := string(f.Read()); isRegion(r) {
			return keepRegion(name, r)
		}
	}
	found := ask()
	if found != "" && err == nil {
		_ = f.Write([]byte(found)) // without it others ask, too
	}
	return keepRegion(name, found)
}

// keepRegion keeps the region of a bucket for the process. The lock is held.
func keepRegion(name, region string) string {
	if region != "" {
		if regions.of == nil {
			regions.of = map[string]string{}
		}
		regions.of[name] = region
	}
	return region
}

// forgetRegion has it asked for again: the bucket lies elsewhere by now.
func forgetRegion(name string) {
	regions.Lock()
	defer regions.Unlock()
	delete(regions.of, name)
	if f, err := node.Find("region", name); err == nil {
		defer f.Close()
		if f.TryLock() {
			_ = f.Write([]byte("-")) // which is none
		}
	}
}

func isRegion(s string) bool {
	return len(s) > 1 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

// askRegion asks Amazon.
func askRegion(ctx context.Context, name, bundle string) string {
	found := ""
	c, err := ranged.New(ranged.Options{Endpoint: "https://s3.us-east-1." + amazon, CABundle: bundle, Attempts: 3,
		Classify: func(_ int, h http.Header, _ []byte) (ranged.Class, string) {
			found = h.Get("X-Amz-Bucket-Region")
			return ranged.Permanent, ""
		}})
	if err != nil {
		return ""
	}
	// Whether we may read it or not, the answer says where it is.
	_, info, err := c.Do(ctx, ranged.Call{Request: ranged.Request{URL: "https://s3.us-east-1." + amazon + "/" + name}, Op: "find", Method: http.MethodHead})
	if err == nil {
		found = info.Header.Get("X-Amz-Bucket-Region")
	}
	if !isRegion(found) {
		return ""
	}
	return found
}
