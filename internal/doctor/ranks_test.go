package doctor

import (
	"strings"
	"testing"
)

// TestSlowRank uses the figures of the rank that the others wait for.
func TestSlowRank(t *testing.T) {
	rank := func(step, wait, together, late float64) rankCounts {
		r := rankCounts{together: together, training: 50}
		r.trainer[causeStep], r.trainer[causeWait] = step, wait
		r.lanes[causeLatency], r.lanes[causeIdle] = late, 50-late
		r.stalled[causeLatency] = wait
		return r
	}
	for _, c := range []struct {
		name  string
		ranks map[int]rankCounts
		want  int // its process; 0 for none
	}{
		{"one of three is slow", map[int]rankCounts{10: rank(95, 5, 60, 0), 11: rank(30, 70, 2, 50), 12: rank(98, 2, 65, 0)}, 11},
		{"all alike", map[int]rankCounts{10: rank(50, 50, 5, 40), 11: rank(52, 48, 5, 40)}, 0},
		{"the others do not wait for it", map[int]rankCounts{10: rank(95, 5, 0, 0), 11: rank(30, 70, 0, 50)}, 0},
		{"a launcher with nothing to say", map[int]rankCounts{9: {}, 10: rank(95, 5, 60, 0), 11: rank(30, 70, 2, 50)}, 11},
		{"too few looks", map[int]rankCounts{10: rank(9, 1, 6, 0), 11: rank(3, 7, 0, 5)}, 0},
		{"one", map[int]rankCounts{10: rank(30, 70, 0, 50)}, 0},
	} {
		b := bin{dt: 10, training: 50, ranks: c.ranks}
		for _, r := range c.ranks {
			b.trainerCounts.add(&r.trainerCounts)
		}
		slow := b.slowest()
		if (slow == nil) != (c.want == 0) || slow != nil && slow.pid != c.want {
			t.Errorf("%s: %+v", c.name, slow)
		}
		if slow == nil {
			continue
		}
		col := &collector{}
		col.sys.cores = 8
		col.rankNames, col.collectives = map[int]string{11: "rank 1"}, map[string]int{"backward": 60}
		l := timeline{bins: []bin{b}}
		s, sum := col.measure(&l)
		if gain := 1 / s.timeWithout(Latency); gain < 3 || gain > 3.6 {
			t.Errorf("%s: gain %.2f, want that of the slow rank, 3.33", c.name, gain)
		}
		f := &findings{c: col, s: &s, sum: &sum, r: &Report{Verdict: Latency, Gain: 3.3, Waiting: s.loading(), Confidence: 0.9}}
		ranksCheck{}.evidence(f)
		if text := f.line() + strings.Join(f.said, " "); !strings.Contains(text, "rank 1") || !strings.Contains(text, "in backward") {
			t.Errorf("%s: %s", c.name, text)
		}
	}
}
