package doctor

import (
	"math"
	"strings"
	"testing"
)

// TestEveryJobIsJudgedByItsWaiting checks rules of all verdicts for every mixture of observations. A trainer that waits
// is never called fed, only verdicts with a resource have a gain, and an unsure verdict is marked in the first line.
func TestEveryJobIsJudgedByItsWaiting(t *testing.T) {
	tried := 0
	try := func(s shares, frames int, trains, weak bool) {
		tried++
		c := &collector{}
		c.framesOK = frames
		c.tree = &tree{members: map[int]*process{}}
		if trains {
			c.trainers = map[key]bool{{pid: 7}: true}
			c.tree.members[7] = &process{pid: 7, trainer: &trainerState{weak: weak}}
		}
		r := &Report{Gains: map[Verdict]float64{}, Waiting: round(s.loading(), 4), Seconds: 12}
		r.Loader.Trainers = len(c.trainers)
		f := &findings{c: c, r: r, s: &s, sum: &bin{}}
		for _, x := range checks {
			if a := x.about(); a.cause != causeIdle || a.verdict == Accelerator {
				r.Gains[a.verdict] = round(x.gain(f), 3)
			}
		}
		for v, gain := range r.Gains {
			if math.IsNaN(gain) || gain < 1 || gain > 1/minTime {
				t.Fatalf("%+v: without %s %v times as fast", s, v, gain)
			}
		}
		c.decide(r, &s, &bin{})
		calledFed := r.Verdict == Healthy || r.Verdict == Accelerator
		switch {
		case calledFed && (s.loading()+s.other > mostWaiting+1e-4 || !trains || weak || s.samples == 0):
			t.Fatalf("%+v, trains %v, weak %v: %s", s, trains, weak, r.Verdict)
		case (calledFed || r.Verdict == Unknown) && r.Gain != 1:
			t.Fatalf("%+v: %s promises %v", s, r.Verdict, r.Gain)
		case !calledFed && r.Verdict != Unknown && r.Gain < actGain:
			t.Fatalf("%+v: %s gains %v", s, r.Verdict, r.Gain)
		case !trains && r.Confidence >= 0.5, r.Verdict == Unknown && r.Confidence > 0.3, r.Confidence < 0 || r.Confidence > 1:
			t.Fatalf("%+v, trains %v: %s, %v sure", s, trains, r.Verdict, r.Confidence)
		}
		if r.Line = f.line(); r.Confidence < 0.5 != strings.Contains(r.Line, "% sure)") {
			t.Fatalf("%v sure: %q", r.Confidence, r.Line)
		}
	}
	shared := []float64{0, 0.02, 0.14, 0.4, 1}
	if testing.Short() {
		shared = []float64{0, 0.14, 1}
	}
	for _, wait := range shared {
		for _, load := range shared {
			for _, slept := range shared {
				if wait+load+slept > 1 {
					continue
				}
				for own := causeCPU; own < causeOther; own++ {
					for lanes := range 3 {
						for _, busy := range []float64{0, 0.3, 1} {
							for _, samples := range []float64{0, 3, 400} {
								for bits := range 1 << 5 {
									s := shares{
										samples: samples, step: 1 - wait - load - slept, wait: wait, other: slept, serial: use(map[cause]float64{own: load}),
										lanes: float64(lanes), cores: 2, tree: 1, exact: bits&1 > 0, threads: bits&2 > 0,
									}
									if samples == 0 {
										s.step, s.wait, s.other, s.serial = 0, 0, 0, use(nil)
									}
									if s.lanes > 0 {
										s.busy, s.use = busy, use(map[cause]float64{own: busy, causeIdle: 1 - busy})
									}
									try(s, bits&4*100, bits&8 > 0, bits&24 == 24)
								}
							}
						}
					}
				}
			}
		}
	}
	if tried < 10000 {
		t.Errorf("%d mixtures", tried)
	}
}
