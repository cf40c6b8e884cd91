package pipeline

import "testing"

func TestCores(t *testing.T) {
	for _, c := range []struct {
		procs  int
		set    string
		usable float64
		want   int
	}{
		{2, "", 0.5, 1}, // the runtime counts two cores for each quota below that
		{8, "", 8, 8},
		{3, "", 2.5, 3},
		{2, "2", 0.5, 2},
		{4, "", 0, 4}, // unknown
	} {
		if got := coresOf(c.procs, c.set, c.usable); got != c.want {
			t.Errorf("%d processors, GOMAXPROCS=%q, %.1f usable cores: %d, expected %d", c.procs, c.set, c.usable, got, c.want)
		}
	}
}
