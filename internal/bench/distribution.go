package bench

import (
	"slices"
	"time"
)

// Distribution says how long something took, in seconds.
type Distribution struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
}

// distribution sorts its argument.
func distribution(times []time.Duration) Distribution {
	if len(times) == 0 {
		return Distribution{}
	}
	slices.Sort(times)
	var sum time.Duration
	for _, t := range times {
		sum += t
	}
	// The nearest rank: the smallest time that p of all do not exceed.
	at := func(p float64) float64 {
		n := float64(len(times))
		rank := int(p * n)
		if float64(rank) < p*n {
			rank++
		}
		return times[min(max(rank-1, 0), len(times)-1)].Seconds()
	}
	return Distribution{
		Mean: sum.Seconds() / float64(len(times)), P50: at(0.5), P95: at(0.95), P99: at(0.99),
		Max: times[len(times)-1].Seconds(),
	}
}

// median returns the middle of values, 0 for none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	v := slices.Sorted(slices.Values(values))
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}
