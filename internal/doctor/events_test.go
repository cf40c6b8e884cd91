package doctor

import (
	"testing"
)

// seconds returns a timeline of one metric, with a value for each second.
func seconds(m metric, values ...float64) *timeline {
	l := &timeline{}
	l.known[m] = true
	for i, v := range values {
		b := bin{t: float64(i), dt: 1, training: 1}
		b.v[m] = v
		l.add(b)
	}
	return l
}

func eventsOf(l *timeline, name string) []Event {
	c := &collector{}
	c.sys.cpu.Cores, c.sys.cores = 1, 1
	var out []Event
	for _, e := range findEvents(l, c) {
		if e.Name == name {
			out = append(out, e)
		}
	}
	return out
}

func TestEventLevels(t *testing.T) {
	// Glances: careful from 50%, warning from 70%, critical from 90%, when it lasts.
	low, high := 0.6, 0.95
	l := seconds(mUser, 0, low, low, low, high, high, low, low, 0, high, high, 0)
	got := eventsOf(l, "CPU_USER")
	want := Event{Start: 1, End: 8, Level: Careful, Name: "CPU_USER", Value: 95, Threshold: 50, Unit: "%"}
	if len(got) != 1 || got[0] != want {
		t.Errorf("%+v", got)
	}
	if got := eventsOf(seconds(mUser, high, high, high, high, high, high, high), "CPU_USER"); len(got) != 1 || got[0].Level != Critical || got[0].End != 7 {
		t.Errorf("%+v", got)
	}
	if got := eventsOf(seconds(mSystem, high, high, high), "CPU_SYSTEM"); len(got) != 0 {
		t.Errorf("three seconds are not an event: %+v", got)
	}
}

func TestIdleAccelerator(t *testing.T) {
	l := &timeline{}
	l.known[gGPU] = true
	for i, v := range []float64{1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0} {
		l.add(bin{t: float64(i), dt: 1, training: 1, gpus: []float64{v}})
	}
	got := eventsOf(l, "GPU0_IDLE")
	if len(got) != 2 || got[0].Start != 3 || got[0].End != 6 || got[0].Level != Careful || got[1].Value != 6 || got[1].Level != Warning {
		t.Errorf("%+v", got)
	}
}

func TestTimelineStaysShort(t *testing.T) {
	l := &timeline{}
	const n = 5000
	for i := range n {
		b := bin{t: float64(i), dt: 1}
		b.v[mRun] = 1
		l.add(b)
	}
	if len(l.bins) > maxBins {
		t.Errorf("%d bins", len(l.bins))
	}
	sum, end := 0.0, 0.0
	for _, b := range l.bins {
		if b.t != end {
			t.Fatalf("a gap before %.0f", b.t)
		}
		end = b.t + b.dt
		sum += b.v[mRun]
	}
	if sum != n || end != n {
		t.Errorf("sum %.0f, end %.0f", sum, end)
	}
}
