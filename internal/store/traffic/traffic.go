// Package traffic counts what the process asks of servers, by endpoint: requests,
// bytes, what had to be tried again, what a server refused because it was too
// much, and how long answers took. Stores that reach over a network count here;
// whoever shows figures reads them.
package traffic

import (
	"cmp"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Endpoint counts for one server. Its methods may be called from any goroutine.
type Endpoint struct {
	name string

	requests, bytes, retries, throttled, errors, inFlight atomic.Int64
	took                                                  [buckets]atomic.Int64
}

var (
	mu  sync.Mutex
	all = map[string]*Endpoint{}
)

// Of returns the counters of an endpoint, such as "https://example.org": the same
// ones for the whole process.
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
	// Requests are those that were sent, with what was tried again.
	Requests int64 `json:"requests"`
	// Bytes are those of bodies that were asked for and came.
	Bytes int64 `json:"bytes"`
	// Retries are requests that were sent because one before failed.
	Retries int64 `json:"retries"`
	// Throttled are answers that said that it was too much.
	Throttled int64 `json:"throttled"`
	// Errors are requests that failed, throttled ones among them.
	Errors int64 `json:"errors"`
	// InFlight are requests that are out.
	InFlight int64 `json:"in_flight"`
	// P50 and P99 are how long requests took that succeeded, to about a tenth.
	P50 time.Duration `json:"p50_ns"`
	P99 time.Duration `json:"p99_ns"`
}

// All returns the counters of all endpoints that were asked for something, by name.
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

// Begin counts a request that is sent; again says that one before it failed.
func (e *Endpoint) Begin(again bool) {
	e.requests.Add(1)
	e.inFlight.Add(1)
	if again {
		e.retries.Add(1)
	}
}

// End counts how it ended.
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

// Times are counted in buckets that are eight to a doubling, from 16 µs on.
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

// lower is where a bucket begins.
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
