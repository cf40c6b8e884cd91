package pipeline

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/source/sourcetest"
)

// giveAll gives batches in pieces of at most 3 records.
func giveAll(t *testing.T, g *Given, batches [][]int64) {
	t.Helper()
	for _, b := range batches {
		for len(b) > 0 {
			n := min(3, len(b))
			if err := g.Add(b[:n], n == len(b)); err != nil {
				t.Fatal(err)
			}
			b = b[n:]
		}
	}
}

// TestOrderOfTheClient checks that batches are the given ones: of any size, with repeated records, for any number of
// threads and any time of arrival.
func TestOrderOfTheClient(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var batches [][]int64
	for range 120 {
		b := make([]int64, 1+rng.IntN(10))
		for i := range b {
			b[i] = rng.Int64N(50)
		}
		batches = append(batches, b)
	}
	var want []uint64
	for _, threads := range []int{1, 3} {
		for _, inPieces := range []bool{false, true} {
			src := sourcetest.Raw(50, 30, 40, 3, 10)
			src.Copy = inPieces
			p := mustOpen(t, Config{OpenSource: use(src), BatchSize: 10, Order: OrderClient, Seed: 9, Threads: threads, Outputs: imageOps(opRRC, opFlip)})
			pos := item.Position{Epoch: 1 << 40, Row: 7}
			given := p.NewGiven(pos)
			p.StartGiven(pos, given)
			if !inPieces {
				giveAll(t, given, batches)
			}
			var all []got
			for i := range batches {
				if inPieces {
					giveAll(t, given, batches[i:i+1])
				}
				b := take(t, p)
				pos.Row += int64(len(batches[i]))
				if b.pos != pos || b.step != int64(i) {
					t.Fatalf("batch %d is called %d, with the position %v after it, not %v", i, b.step, b.pos, pos)
				}
				equal(t, "records", b.index, batches[i])
				all = append(all, b)
			}
			if want == nil {
				want = sums(all)
			}
			equal(t, "pixels", sums(all), want)
			if len(given.ends) > 2 {
				t.Fatalf("%d records and %d batches are still remembered", len(given.ids), len(given.ends))
			}
			select { // no further event comes
			case <-p.streams.wake:
				if ev, err, ok := p.tryNext(); ok {
					t.Fatalf("%v, %v behind the last batch", ev, err)
				}
			case <-time.After(time.Millisecond):
			}
		}
	}
}

// A record that comes twice gets different random transforms.
func TestOrderOfTheClientDrawsByPlace(t *testing.T) {
	p := mustOpen(t, Config{OpenSource: use(sourcetest.Raw(5, 30, 40, 3, 10)), BatchSize: 8, Order: OrderClient, Outputs: imageOps(opRRC)})
	pos := item.Position{Epoch: 3}
	given := p.NewGiven(pos)
	p.StartGiven(pos, given)
	giveAll(t, given, [][]int64{{2, 2, 2, 2, 2, 2, 2, 2}})
	seen := map[uint64]bool{}
	for _, sum := range take(t, p).rowsum {
		seen[sum] = true
	}
	if len(seen) != 8 {
		t.Fatalf("%d different rows of 8 times the same record", len(seen))
	}
}

func TestMark(t *testing.T) {
	src := sourcetest.Wrap(sourcetest.Raw(20, 8, 8, 3, 5), func(id int64) *sourcetest.Fault {
		if id%7 == 3 {
			return &sourcetest.Fault{Cut: 7}
		}
		return nil
	})
	p := mustOpen(t, Config{OpenSource: use(src), BatchSize: 8, OnError: OnErrorMark, Order: OrderClient, Outputs: imageOps(opRRC)})
	given := p.NewGiven(item.Position{})
	p.StartGiven(item.Position{}, given)
	giveAll(t, given, [][]int64{{0, 3, 4, 10}, {17, 3}, {1}})
	equal(t, "first", take(t, p).index, []int64{0, -4, 4, -11})
	equal(t, "second", take(t, p).index, []int64{-18, -4})
	equal(t, "third", take(t, p).index, []int64{1})
}

func TestGivenLimits(t *testing.T) {
	for _, c := range []struct {
		ids   []int64
		whole bool
		want  string
	}{
		{nil, true, "without records"},
		{[]int64{1, 2, 3, 4, 5}, false, "5 records, where batch_size is 4"},
		{[]int64{1, -1}, true, "record -1 is outside of the 9"},
		{[]int64{9}, true, "record 9 is outside"},
	} {
		if err := newGiven(9, 4, 0).Add(c.ids, c.whole); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: got %v, want %q", c.ids, err, c.want)
		}
	}
	g := newGiven(9, 1<<20, 0)
	block := make([]int64, 1<<20)
	var err error
	for range 5 {
		if err = g.Add(block, true); err != nil {
			break
		}
	}
	if err == nil || !strings.Contains(err.Error(), "ahead of the batches") {
		t.Fatalf("%d records were taken: %v", len(g.ids), err)
	}
	for _, cfg := range []Config{{Shuffle: true}, {DropLast: true}, {WorldSize: 2}} {
		cfg.OpenSource, cfg.BatchSize, cfg.Order = use(sourcetest.Raw(9, 8, 8, 3, 5)), 4, OrderClient
		if _, err := Open(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "order is") {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}
