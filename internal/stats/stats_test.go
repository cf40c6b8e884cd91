package stats

import (
	"slices"
	"testing"
	"time"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{nil, 0}, {[]float64{3}, 3}, {[]float64{5, 1, 3}, 3}, {[]float64{4, 1, 3, 2}, 2.5},
	} {
		before := slices.Clone(c.values)
		if got := Median(c.values); got != c.want {
			t.Errorf("median of %v: %v, want %v", c.values, got, c.want)
		}
		if !slices.Equal(before, c.values) {
			t.Error("Median has changed its caller's values")
		}
	}
}

func TestDistributionOf(t *testing.T) {
	var times []time.Duration
	for i := range 100 {
		times = append(times, time.Duration(100-i)*time.Second)
	}
	if d := DistributionOf(Seconds(times)); d != (Distribution{Mean: 50.5, P50: 50, P95: 95, P99: 99, Max: 100}) {
		t.Errorf("%+v", d)
	}
	if d := DistributionOf([]float64{2}); d != (Distribution{2, 2, 2, 2, 2}) {
		t.Errorf("of one: %+v", d)
	}
	if d := DistributionOf(nil); d != (Distribution{}) {
		t.Errorf("of none: %+v", d)
	}
}
