package chart

import (
	"math"
	"testing"
)

func TestShareBar(t *testing.T) {
	for share, want := range map[float64]string{0: "", 1e-9: "▏", 0.5: "██", 0.53: "██", 0.54: "██▏", 1: "████", 7: "████", -1: ""} {
		if got := ShareBar(share, 4); got != want {
			t.Errorf("%v: %q, want %q", share, got, want)
		}
	}
	if got := ShareBar(math.NaN(), 4); got != "" {
		t.Errorf("no number: %q", got)
	}
}

func TestSparkline(t *testing.T) {
	if got := Sparkline([]float64{0.9, 0, 0.5, 1, 2, math.NaN(), -1}, 6); got != "▁▅██▁▁" {
		t.Errorf("%q", got)
	}
	if got := Sparkline(nil, 6) + Sparkline([]float64{1}, -1); got != "" {
		t.Errorf("%q", got)
	}
}
