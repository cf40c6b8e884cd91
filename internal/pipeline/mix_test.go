package pipeline

import (
	"fmt"
	"math/big"
	"slices"
	"testing"

	"github.com/stokerdata/stoker/internal/sampler"
)

func TestMixShares(t *testing.T) {
	rats := func(weights ...string) (all []*big.Rat) {
		for _, w := range weights {
			r, ok := new(big.Rat).SetString(w)
			if !ok {
				t.Fatal(w)
			}
			all = append(all, r)
		}
		return all
	}
	for _, c := range []struct {
		weights []string
		want    []int64
	}{
		{[]string{"3", "1"}, []int64{3, 1}},
		{[]string{"0.7", "0.3"}, []int64{7, 3}},
		{[]string{"6", "0", "4"}, []int64{3, 0, 2}},
		{[]string{"1e-9", "1"}, []int64{1, sampler.MaxTurns - 1}},
		{[]string{"1e300", "1e-300", "1e300"}, []int64{sampler.MaxTurns / 2, 1, sampler.MaxTurns/2 - 1}},
	} {
		got, err := sharesOf(rats(c.weights...), len(c.weights))
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, %v; want %v", c.weights, got, err, c.want)
		}
	}
	var many []*big.Rat
	for i := range 1000 {
		many = append(many, rats(fmt.Sprint(1/float64(i+3)))...)
	}
	shares, err := sharesOf(many, len(many))
	sum := int64(0)
	for _, n := range shares {
		sum += n
	}
	if err != nil || sum != sampler.MaxTurns || slices.Min(shares) < 1 {
		t.Errorf("the shares of many weights have the sum %d, %v", sum, err)
	}
	for _, w := range [][]string{{"0", "0"}, {"2", "-1"}, {"2"}} {
		if got, err := sharesOf(rats(w...), 2); err == nil {
			t.Errorf("%v: %v", w, got)
		}
	}
}
