package fetch

import (
	"math/rand/v2"
	"testing"
	"time"
)

// link simulates a link: each read waits for wait, and all reads together get rate bytes per second.
type link struct {
	wait time.Duration
	rate float64
}

// step returns the time between two finished reads of size if depth are under way, and the time that each takes.
func (l link) step(depth int, size int64) (step, took time.Duration) {
	step = max(l.wait/time.Duration(depth), time.Duration(float64(size)/l.rate*float64(time.Second)))
	return step, step * time.Duration(depth)
}

// run feeds reads of size to a depth for counts counts, and returns how many counts ended with an increased depth.
func (l link) run(d *depth, now *time.Time, counts int, size int64) (tries int) {
	for range counts {
		was := d.now
		step, took := l.step(was, size)
		for ended := false; !ended; ended = d.reads == 0 {
			*now = now.Add(step)
			d.ended(*now, took, size, 1, true)
		}
		if d.now > was {
			tries++
		}
	}
	return tries
}

// A disk at its limit is tried less and less often, but never given up.
func TestDepthOfADiskAtItsLimit(t *testing.T) {
	var d depth
	d.init()
	now, disk := time.Unix(0, 0), link{2 * time.Millisecond, 60e6}
	disk.run(&d, &now, 2*mostHold, 100<<10) // what it has learnt, it knows
	tries := disk.run(&d, &now, 10*(mostHold+2), 100<<10)
	if tries < 9 || tries > 11 {
		t.Errorf("%d tries in %d counts, 1 in %d is right", tries, 10*(mostHold+2), mostHold)
	}
	if disk.run(&d, &now, 3, 100<<10); d.now > 2*firstDepth {
		t.Errorf("%d reads at a time where %d give as much", d.now, firstDepth)
	}
}

// If a link changes in either direction, the best depth is found again soon, however long nothing has been tried.
func TestDepthGrowsAgain(t *testing.T) {
	for name, after := range map[string]link{
		"faster":      {2 * time.Millisecond, 2e9},
		"far away":    {60 * time.Millisecond, 1e9},
		"a bit wider": {2 * time.Millisecond, 85e6},
	} {
		var d depth
		d.init()
		now, before := time.Unix(0, 0), link{2 * time.Millisecond, 60e6}
		before.run(&d, &now, 4*mostHold, 100<<10)
		for range 2 * mostHold {
			if d.hold >= mostHold-1 {
				break // the worst of times
			}
			before.run(&d, &now, 1, 100<<10)
		}
		had := d.now
		tries := after.run(&d, &now, 20, 100<<10)
		switch {
		case name == "a bit wider" && tries > 0:
			t.Errorf("%s: %d tries for a change that is none", name, tries)
		case name != "a bit wider" && d.now < 4*had:
			t.Errorf("%s: %d reads at a time after %d, hold %d", name, d.now, had, d.hold)
		}
	}
}

// One count with a different speed, as happens on any machine, is not treated as a new link.
func TestDepthOfOneOddCount(t *testing.T) {
	var d depth
	d.init()
	now, disk := time.Unix(0, 0), link{2 * time.Millisecond, 60e6}
	disk.run(&d, &now, 4*mostHold, 100<<10)
	for range 2 * mostHold {
		if d.hold >= mostHold-1 {
			break
		}
		disk.run(&d, &now, 1, 100<<10)
	}
	tries := 0
	for range 20 {
		tries += link{2 * time.Millisecond, 15e6}.run(&d, &now, 1, 100<<10)
		tries += disk.run(&d, &now, 1, 100<<10)
	}
	if tries > 0 {
		t.Errorf("%d tries", tries)
	}
}

// One slow count, as from a server that pauses, does not end a try of more reads.
func TestDepthOfASlowCount(t *testing.T) {
	for slow := range 8 {
		var d depth
		d.init()
		d.mount = true
		now, mount, pause := time.Unix(0, 0), link{20 * time.Millisecond, 1e9}, link{80 * time.Millisecond, 1e9}
		mount.run(&d, &now, slow, 10<<10)
		pause.run(&d, &now, 1, 10<<10)
		mount.run(&d, &now, 12, 10<<10)
		if d.now < 256 {
			t.Errorf("a pause in count %d: %d reads at a time, hold %d", slow, d.now, d.hold)
		}
	}
}

// curve is a mount whose files per second were measured with some numbers of reads. Between two of them, and before the
// first, the rate is linear.
type curve []struct {
	reads int
	rate  float64
}

func (c curve) at(depth int) float64 {
	n, rate := 0, 0.0
	for _, p := range c {
		if depth <= p.reads {
			return rate + (p.rate-rate)*float64(depth-n)/float64(p.reads-n)
		}
		n, rate = p.reads, p.rate
	}
	return rate
}

// On FUSE mounts with 20 ms per read the search reaches 0.9 of the best rate of the curve, also if counts differ by a
// tenth. The curves are those of plain threads: through the page cache with 12 background reads, and direct.
func TestDepthOfAMountByItsCurve(t *testing.T) {
	for name, c := range map[string]curve{
		"through the cache": {{32, 396}, {64, 542}, {128, 631}},
		"direct":            {{32, 568}, {64, 1060}, {96, 1590}, {128, 2030}, {256, 2120}},
	} {
		for seed := range uint64(20) {
			var d depth
			d.init()
			d.start(&Config{Mount: true})
			now, rng := time.Unix(0, 0), rand.New(rand.NewPCG(seed, 0))
			for range 60 {
				rate := c.at(d.now) * (0.95 + rng.Float64()/10)
				step := time.Duration(float64(time.Second) / rate)
				for ended := false; !ended; ended = d.reads == 0 {
					now = now.Add(step)
					d.ended(now, step*time.Duration(d.now), 111_000, 1, true)
				}
			}
			if got, best := c.at(d.now), c[len(c)-1].rate; got < 0.9*best {
				t.Errorf("%s, seed %d: %d reads at a time have %.0f files/s, the best is %.0f", name, seed, d.now, got, best)
			}
		}
	}
}
