package sampler

import "testing"

// Each variant of a record comes once in as many epochs as there are variants, and all are equally likely in an epoch.
func TestVariant(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 7, 8, 12, 32} {
		for record := range int64(50) {
			for round := range int64(3) {
				seen := map[int]bool{}
				for turn := range int64(n) {
					v := Variant(7, round*int64(n)+turn, record, n)
					if v < 0 || v >= n || seen[v] {
						t.Fatalf("of %d variants of record %d, epoch %d has %d", n, record, round*int64(n)+turn, v)
					}
					seen[v] = true
				}
			}
		}
		const records = 20000
		counts := make([]int, n)
		for record := range int64(records) {
			counts[Variant(1, 5, record, n)]++
		}
		for v, c := range counts {
			if mean := records / n; c < mean-mean/4 || c > mean+mean/4 {
				t.Errorf("variant %d of %d is that of %d of %d records", v, n, c, records)
			}
		}
	}
	// These values must never change: states of training runs depend on them.
	var got [12]int
	for i := range got {
		got[i] = Variant(42, int64(i), 1000, 4)
	}
	if got != variantsFor42 {
		t.Errorf("the variants of record 1000 with seed 42 are %v", got)
	}
	if Variant(1, 0, 3, 8) == Variant(2, 0, 3, 8) && Variant(1, 0, 4, 8) == Variant(2, 0, 4, 8) && Variant(1, 0, 5, 8) == Variant(2, 0, 5, 8) {
		t.Error("the seed does not matter")
	}
}

var variantsFor42 = [12]int{3, 0, 1, 2, 3, 2, 1, 0, 2, 1, 0, 3}
