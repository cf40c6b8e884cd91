// Package traffic counts the requests of this process to servers, by endpoint: requests, bytes, retries, throttled
// requests and latency. Network stores count here, and the commands and metrics that show these numbers read them.
package traffic

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stokerdata/stoker/internal/units"
)

// Endpoint has the counters of one server. Its methods may be called from any goroutine.
type Endpoint struct {
	name string

	requests, bytes, retries, throttled, errors, inFlight atomic.Int64
	took                                                  [buckets]atomic.Int64
	trouble                                               atomic.Pointer[Trouble]
}

var (
	mu  sync.Mutex
	all = map[string]*Endpoint{}
)

// Of returns the counters of an endpoint, such as "https://example.org". The whole process shares them.
func Of(name string) *Endpoint {
	mu.Lock()
	defer mu.Unlock()
	e := all[name]
	if e == nil {
		e = &Endpoint{name: name}
		all[name] = e
	}
	return e
}

// Stats are the counters of an endpoint at one moment.
type Stats struct {
	Endpoint string `json:"endpoint"`
	// Requests is the number of sent requests, including retries.
	Requests int64 `json:"requests"`
	// Bytes is the number of received bytes of bodies that were wanted.
	Bytes int64 `json:"bytes"`
	// Retries is the number of requests that were sent because an earlier one failed.
	Retries int64 `json:"retries"`
	// Throttled is the number of responses that said that there are too many requests.
	Throttled int64 `json:"throttled"`
	// Errors is the number of failed requests, including throttled ones.
	Errors int64 `json:"errors"`
	// InFlight is the number of requests in progress.
	InFlight int64 `json:"in_flight"`
	// P50 and P99 are percentiles of the duration of successful requests, to about 10%.
	P50 time.Duration `json:"p50_ns"`
	P99 time.Duration `json:"p99_ns"`
}

// All returns the counters of all endpoints with requests, by name.
func All() []Stats {
	mu.Lock()
	defer mu.Unlock()
	var out []Stats
	for _, e := range all {
		if s := e.Stats(); s.Requests > 0 {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b Stats) int { return cmp.Compare(a.Endpoint, b.Endpoint) })
	return out
}

// Begin counts a request that is sent. Again means that it is a retry.
func (e *Endpoint) Begin(again bool) {
	e.requests.Add(1)
	e.inFlight.Add(1)
	if again {
		e.retries.Add(1)
	}
}

// End counts the end of a request.
func (e *Endpoint) End(took time.Duration, bytes int64, err error, throttled bool) {
	e.inFlight.Add(-1)
	e.bytes.Add(bytes)
	if throttled {
		e.throttled.Add(1)
	}
	if err != nil {
		e.errors.Add(1)
		return
	}
	e.took[bucket(took)].Add(1)
	if e.trouble.Load() != nil {
		e.trouble.Store(nil)
	}
}

// Trouble describes a server that has failed all requests since a moment.
type Trouble struct {
	Endpoint string
	// Last is the last failure, such as "the server answers 503 SlowDown", without names of objects.
	Last string
	// Failures is the number of requests that failed in a row.
	Failures int64
	// Since is the time of the first of them.
	Since time.Time
}

// String returns the trouble for messages.
func (t Trouble) String() string {
	return fmt.Sprintf("%s: %s (%d failed requests in a row in %s)", t.Endpoint, t.Last, t.Failures, units.Seconds(time.Since(t.Since).Seconds()))
}

// Fail records a failure of the server, which the next successful request clears. A missing object is not a failure.
func (e *Endpoint) Fail(why string) {
	for {
		old := e.trouble.Load()
		next := Trouble{Endpoint: e.name, Last: why, Failures: 1, Since: time.Now()}
		if old != nil {
			next.Failures, next.Since = old.Failures+1, old.Since
		}
		if e.trouble.CompareAndSwap(old, &next) {
			return
		}
	}
}

// Troubles returns the servers whose last request failed, by name.
func Troubles() []Trouble {
	mu.Lock()
	defer mu.Unlock()
	var out []Trouble
	for _, e := range all {
		if t := e.trouble.Load(); t != nil {
			out = append(out, *t)
		}
	}
	slices.SortFunc(out, func(a, b Trouble) int { return cmp.Compare(a.Endpoint, b.Endpoint) })
	return out
}

// Stats returns the counters.
func (e *Endpoint) Stats() Stats {
	var h [buckets]int64
	for i := range h {
		h[i] = e.took[i].Load()
	}
	return Stats{
		Endpoint: e.name, Requests: e.requests.Load(), Bytes: e.bytes.Load(), Retries: e.retries.Load(),
		Throttled: e.throttled.Load(), Errors: e.errors.Load(), InFlight: e.inFlight.Load(),
		P50: quantile(&h, 0.5), P99: quantile(&h, 0.99),
	}
}

// Durations are counted in buckets, eight per doubling, from 16 µs on.
const (
	perDouble = 8
	unit      = 2 * time.Microsecond
	buckets   = 30 * perDouble
)

func bucket(d time.Duration) int {
	n := uint64(max(d, 0) / unit)
	if n < perDouble {
		return 0
	}
	shift := bits.Len64(n) - 4 // n>>shift is 8 to 15
	return min(shift*perDouble+int(n>>shift)-perDouble+1, buckets-1)
}

// lower returns where a bucket begins.
func lower(i int) time.Duration {
	if i == 0 {
		return 0
	}
	i--
	return time.Duration((perDouble+i%perDouble)<<(i/perDouble)) * unit
}

func quantile(h *[buckets]int64, q float64) time.Duration {
	total := int64(0)
	for _, n := range h {
		total += n
	}
	if total == 0 {
		return 0
	}
	rank, seen := int64(q*float64(total-1)), int64(0)
	for i, n := range h {
		if seen += n; seen > rank {
			return (lower(i) + lower(i+1)) / 2
		}
	}
	return lower(buckets)
}
