package doctor

import "testing"

// TestPagesOfALine: a line whose pages come from a mapped file makes the batch, even if it uses an earlier result, such
// as the numbers of the rows.
func TestPagesOfALine(t *testing.T) {
	k := ownKey{body: 3}
	these := map[ownKey]bool{k: true}
	inside := ownKey{body: 3, leaf: place{file: "memmap.py", line: 7}} // of the same line, called by it
	for _, c := range []struct {
		name        string
		x           ownStat
		made, found map[ownKey]bool
		want        moved
	}{
		{"made ready in memory", ownStat{ran: 10}, nil, these, moved{ready: 10}},
		{"made ready, a page now and then", ownStat{ran: 100, faults: 4}, nil, these, moved{ready: 100}},
		{"made ready, pages at its beginning", ownStat{ran: 10, faults: 2}, nil, these, moved{ready: 10}},
		{"uses numbers, and waits for pages", ownStat{ran: 10, faults: 3}, nil, these, moved{made: 2, read: 8}},
		{"makes it, and waits for pages", ownStat{ran: 10, slept: 1, waited: 2, faults: 5}, these, nil, moved{made: 2, read: 8, late: 1, waited: 2}},
		{"makes it in memory", ownStat{ran: 10}, these, nil, moved{made: 10}},
		{"the step's own pages", ownStat{ran: 10, faults: 5}, nil, nil, moved{}},
		{"never seen to run", ownStat{}, these, nil, moved{}},
	} {
		if got := settlement(k, c.x, c.made, c.found, ownCounts{k: c.x}.mapping(), 0.8); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
		half := ownStat{ran: c.x.ran / 2, slept: c.x.slept, waited: c.x.waited}
		lines := ownCounts{k: half, inside: {ran: c.x.ran / 2, faults: c.x.faults}}.mapping()
		c.want.made, c.want.read, c.want.ready = c.want.made/2, c.want.read/2, c.want.ready/2
		if got := settlement(k, half, c.made, c.found, lines, 0.8); got != c.want {
			t.Errorf("%s, the waiting inside of what it calls: %+v, want %+v", c.name, got, c.want)
		}
	}
}
