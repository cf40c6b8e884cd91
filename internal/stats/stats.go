// Package stats summarises measured values: medians, percentiles and spread. Reports and decisions use the same
// definitions.
package stats

import (
	"math"
	"slices"
	"time"
)

// Median returns the middle of values, between the middle two of an even number;
// 0 of none.
func Median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return 0
	}
	v := slices.Sorted(slices.Values(values))
	if n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[n/2]
}

// Distribution is the distribution of values, such as times in seconds.
type Distribution struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
}

// DistributionOf sums up values; percentiles are by the nearest rank. It is zero
// for none.
func DistributionOf(values []float64) Distribution {
	if len(values) == 0 {
		return Distribution{}
	}
	sorted := slices.Sorted(slices.Values(values))
	sum := 0.0
	for _, v := range sorted {
		sum += v
	}
	return Distribution{
		Mean: sum / float64(len(sorted)), P50: nearestRank(sorted, 0.5), P95: nearestRank(sorted, 0.95),
		P99: nearestRank(sorted, 0.99), Max: sorted[len(sorted)-1],
	}
}

// nearestRank is the smallest of sorted values that a share p of all does not
// exceed.
func nearestRank(sorted []float64, p float64) float64 {
	rank := int(math.Ceil(p * float64(len(sorted))))
	return sorted[min(max(rank-1, 0), len(sorted)-1)]
}

// Seconds turns times into numbers.
func Seconds(times []time.Duration) []float64 {
	out := make([]float64, len(times))
	for i, t := range times {
		out[i] = t.Seconds()
	}
	return out
}
