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

// regions are the known regions of buckets.
var regions struct {
	sync.Mutex
	of map[string]string
}

// waitForRegion is the maximum wait for another process that asks for the region.
const waitForRegion = 5 * time.Second

// regionOf returns the region of a bucket at Amazon, "" if unknown. Only one of the user's processes on this
// machine asks.
func regionOf(ctx context.Context, name string, ask func() string) string {
	regions.Lock()
	defer regions.Unlock()
	if r, ok := regions.of[name]; ok {
		return r
	}
	f, err := node.Open("region", name)
	if err == nil {
		defer f.Close()
		f.Lock(ctx, waitForRegion) // without the lock several processes ask
		if r := string(f.Read()); isRegion(r) {
			return keepRegion(name, r)
		}
	}
	found := ask()
	if found != "" && err == nil {
		_ = f.Write([]byte(found)) // if this fails, other processes also ask
	}
	return keepRegion(name, found)
}

// keepRegion stores the region of a bucket for the process. The lock is held.
func keepRegion(name, region string) string {
	if region != "" {
		if regions.of == nil {
			regions.of = map[string]string{}
		}
		regions.of[name] = region
	}
	return region
}

// forgetRegion discards a region that is wrong.
func forgetRegion(name string) {
	regions.Lock()
	defer regions.Unlock()
	delete(regions.of, name)
	tellRegion(name, "-") // not a region
}

// learnRegion replaces a region that is wrong.
func learnRegion(name, region string) {
	regions.Lock()
	defer regions.Unlock()
	keepRegion(name, region)
	tellRegion(name, region)
}

// tellRegion replaces the region of a bucket for other processes, if one of them has asked for it.
func tellRegion(name, region string) {
	f, err := node.Find("region", name)
	if err != nil {
		return
	}
	defer f.Close()
	if f.TryLock() {
		_ = f.Write([]byte(region)) // if this fails, other processes learn it like this one
	}
}

func isRegion(s string) bool {
	return len(s) > 1 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

// askRegion asks Amazon.
func askRegion(ctx context.Context, name, bundle string) string {
	found := ""
	c, err := ranged.New(ranged.Options{Endpoint: "https://s3.us-east-1." + amazon, CABundle: bundle, Attempts: 3,
		Classify: func(_ int, h http.Header, _ []byte) ranged.Verdict {
			found = h.Get("X-Amz-Bucket-Region")
			return ranged.Verdict{Class: ranged.Permanent}
		}})
	if err != nil {
		return ""
	}
	// Even a denied request has the region in its response.
	_, info, err := c.Do(ctx, ranged.Call{Request: ranged.Request{URL: "https://s3.us-east-1." + amazon + "/" + name}, Op: "find", Method: http.MethodHead})
	if err == nil {
		found = info.Header.Get("X-Amz-Bucket-Region")
	}
	if !isRegion(found) {
		return ""
	}
	return found
}
