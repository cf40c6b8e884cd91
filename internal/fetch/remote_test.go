package fetch

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/recordread"
)

// openFar opens a Fetcher for a remote store.
func openFar(d *disk, exact bool) *Fetcher {
	return New(Config{Source: d, Objects: recordread.NewObjects(d, nil), Memory: 32 << 20, Urgent: 1 << 20, Remote: true, Exact: exact, Budget: arena.NewBudget(65 << 20)})
}

// The first records take one round trip for their index and one for themselves, however much index of later records is
// read meanwhile.
func TestFirstRecordsFar(t *testing.T) {
	const way = 60 * time.Millisecond
	for _, indexed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			d := newDisk(8192, 4000, 8)
			d.indexed = indexed
			d.read = func(ctx context.Context, _, _ int64, _ int) error { time.Sleep(way); return nil }
			f := openFar(d, false)
			start, seen, took := time.Now(), 0, time.Duration(0)
			drive(t, d, f, shuffled(8192, 5), 4, func(u *Unit) {
				if seen += len(u.IDs); seen >= 200 && took == 0 {
					took = time.Since(start)
				}
				check(t, d, u)
			})
			f.Close()
			want := way
			if indexed {
				want = 2 * way
			}
			if took != want {
				t.Errorf("index %v: the first 200 records are there after %v, in %v at best", indexed, took, want)
			}
			if d.most > maxDepth {
				t.Errorf("%d reads at once", d.most)
			}
		})
	}
}

// The photographs of a first batch fill the link from the beginning. A quarter of them is on its way at a time, and
// with fewer reads the link would be idle between them.
func TestFirstPhotographsFillTheLink(t *testing.T) {
	const way, rate, size, batch = 60 * time.Millisecond, 125e6, 112 << 10, 256
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(2048, size, 8)
		var mu sync.Mutex
		free := time.Now() // from when on the link is
		d.read = func(_ context.Context, _, _ int64, n int) error {
			mu.Lock()
			free = time.Unix(0, max(free.UnixNano(), time.Now().Add(way).UnixNano())).Add(time.Duration(float64(n) / rate * float64(time.Second)))
			until := free
			mu.Unlock()
			time.Sleep(time.Until(until))
			return nil
		}
		f := New(Config{Source: d, Objects: recordread.NewObjects(d, nil), Memory: 128 << 20, Urgent: 1 << 20, Remote: true, Budget: arena.NewBudget(256 << 20)})
		start, seen, took := time.Now(), 0, time.Duration(0)
		drive(t, d, f, shuffled(2048, 5), 1, func(u *Unit) {
			if seen += len(u.IDs); seen >= batch && took == 0 {
				took = time.Since(start)
			}
		})
		f.Close()
		least := way + time.Duration(batch*float64(size)/rate*float64(time.Second))
		if took > least+way/3 {
			t.Errorf("the first %d records are there after %v, in %v at best", batch, took, least)
		}
	})
}

// sharedLink simulates a link of rate bytes per second after a delay. All reads under way share the link, a part at a
// time.
func sharedLink(way time.Duration, rate float64, part int) func(context.Context, int64, int64, int) error {
	var mu sync.Mutex
	free := time.Now() // from when on the link is
	return func(_ context.Context, _, _ int64, n int) error {
		time.Sleep(way)
		for ; n > 0; n -= part {
			mu.Lock()
			free = time.Unix(0, max(free.UnixNano(), time.Now().UnixNano())).Add(time.Duration(float64(min(n, part)) / rate * float64(time.Second)))
			until := free
			mu.Unlock()
			time.Sleep(time.Until(until))
		}
		return nil
	}
}

// epochs reads the same records in two epochs, all concurrently, and returns when the last record of each epoch was
// ready.
func epochs(t *testing.T, d *disk, records int64) (ends [2]time.Duration) {
	t.Helper()
	f := New(Config{Source: d, Objects: recordread.NewObjects(d, nil), Memory: 512 << 20, Urgent: 1 << 20, Remote: true, Budget: arena.NewBudget(1 << 30)})
	defer f.Close()
	start := time.Now()
	for n := range 2 * records {
		u, _ := f.Locate(t.Context(), n, []int64{n % records}, false)
		u.Epoch = n / records
		f.Attach(u, u, 0, nil)
		if !f.Admit(u) {
			t.Fatal("there is no memory")
		}
	}
	for left := 2 * records; left > 0; {
		u := f.Pop()
		if u == nil {
			<-f.Kick()
			continue
		}
		check(t, d, u)
		ends[u.Epoch] = time.Since(start)
		f.Done(u)
		left--
	}
	return ends
}

// The end of an epoch does not share the link with reads ahead for the next one, and the link is not idle between them.
func TestEpochsShareNoLink(t *testing.T) {
	const way, rate = 10 * time.Millisecond, 100e6
	for _, size := range []int64{112 << 10, 8 << 20} {
		synctest.Test(t, func(t *testing.T) {
			records := int64(160<<20) / size
			d := newDisk(records, size, 1)
			d.read = sharedLink(way, rate, 32<<10)
			ends := epochs(t, d, records)
			link := time.Duration(float64(records*size) / rate * float64(time.Second))
			if most := link + mostWay*time.Second/rate + 2*way; ends[0] > most {
				t.Errorf("reads of %d KiB: an epoch ends after %v, its bytes take %v", size>>10, ends[0], link)
			}
			// Large reads leave a way there and back between the epochs.
			if most := 2*link + 5*way; ends[1] > most {
				t.Errorf("reads of %d KiB: two epochs end after %v, their bytes take %v", size>>10, ends[1], 2*link)
			}
		})
	}
}

// The first batch does not share the link with reads ahead, and all of it is read concurrently. The link is then full
// again at most one round trip later.
func TestFirstBatchSharesNoLink(t *testing.T) {
	const rate = 125e6
	for _, c := range []struct{ size, awaited, records int64 }{{112 << 10, 256, 640}, {8 << 20, 16, 24}, {4 << 10, 1, 256}, {112 << 10, 8, 400}} {
		synctest.Test(t, func(t *testing.T) {
			d := newDisk(c.records, c.size, 1)
			rng, link := rand.New(rand.NewPCG(1, 1)), sharedLink(0, rate, 32<<10)
			var later []time.Time // the times at which later reads were requested
			begun := int64(0)
			d.read = func(ctx context.Context, object, off int64, n int) error {
				d.mu.Lock()
				way := 40*time.Millisecond + time.Duration(rng.Int64N(int64(40*time.Millisecond)))
				if object < c.awaited {
					begun++
				} else {
					later = append(later, time.Now())
				}
				d.mu.Unlock()
				time.Sleep(way)
				return link(ctx, object, off, n)
			}
			f := New(Config{Source: d, Objects: recordread.NewObjects(d, nil), Memory: 768 << 20, Urgent: 1 << 20, Remote: true, Budget: arena.NewBudget(2 << 30)})
			defer f.Close()
			start := time.Now()
			for n := range c.records {
				u, _ := f.Locate(t.Context(), n, []int64{n}, false)
				u.Awaited = n < c.awaited
				f.Attach(u, u, 0, nil)
				if !f.Admit(u) {
					t.Fatal("there is no memory")
				}
			}
			var first time.Duration
			for left, awaited := c.records, c.awaited; left > 0; {
				u := f.Pop()
				if u == nil {
					<-f.Kick()
					continue
				}
				check(t, d, u)
				if u.Awaited {
					if awaited--; awaited == 0 {
						first = time.Since(start)
					}
				}
				f.Done(u)
				left--
			}
			all := time.Since(start)
			early := 0 // requests before the bytes under way would arrive within a round trip
			for _, at := range later {
				if at.Before(start.Add(first - mostWay*time.Second/rate)) {
					early++
				}
			}
			bytes := func(n int64) time.Duration { return time.Duration(float64(n*c.size) / rate * float64(time.Second)) }
			t.Logf("%d of %d KiB: there after %v, their bytes take %v; all after %v of %v; %d early", c.awaited, c.size>>10, first, bytes(c.awaited), all, bytes(c.records), early)
			if least := bytes(c.awaited) + 40*time.Millisecond; first > least+50*time.Millisecond {
				t.Errorf("%d of %d KiB are there after %v, in %v at best", c.awaited, c.size>>10, first, least)
			}
			if most := bytes(c.records) + 200*time.Millisecond; all > most {
				t.Errorf("%d of %d KiB first: all are there after %v, want %v at most", c.awaited, c.size>>10, all, most)
			}
			if early > 0 || begun != c.awaited {
				t.Errorf("%d of %d KiB: %d reads of them, %d of what comes later before they are there", c.awaited, c.size>>10, begun, early)
			}
		})
	}
}

// A late read of a first batch delays other reads only briefly.
func TestFirstBatchThatIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const records, late = 64, 10 * time.Second
		d := newDisk(records, 1000, 1)
		d.read = func(ctx context.Context, object, _ int64, _ int) error {
			time.Sleep(60 * time.Millisecond)
			if object == 0 {
				time.Sleep(late)
			}
			return nil
		}
		f := openFar(d, true)
		defer f.Close()
		start := time.Now()
		for n := range int64(records) {
			u, _ := f.Locate(t.Context(), n, []int64{n}, false)
			u.Awaited = n == 0
			f.Attach(u, u, 0, nil)
			if !f.Admit(u) {
				t.Fatal("there is no memory")
			}
		}
		for left := records - 1; left > 0; {
			u := f.Pop()
			if u == nil {
				<-f.Kick()
				continue
			}
			check(t, d, u)
			f.Done(u)
			left--
		}
		if took := time.Since(start); took > 2*firstLate {
			t.Errorf("the data after a late read is there after %v", took)
		}
	})
}

// A large read on a full shared link takes longer than the others, and is not late.
func TestLargeReadsOfAFullLinkAreNotLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const records, size = 16384, 64 << 10
		d := newDisk(records, size, 16)
		d.read = sharedLink(10*time.Millisecond, 100e6, 32<<10)
		f := New(Config{Source: d, Objects: recordread.NewObjects(d, nil), Memory: 512 << 20, Urgent: 1 << 20, Remote: true, Budget: arena.NewBudget(1 << 30)})
		defer f.Close()
		for n := range int64(records / 16) {
			ids := []int64{16 * n}
			if n%10 == 9 { // all of an object, in one read
				for k := int64(1); k < 16; k++ {
					ids = append(ids, 16*n+k)
				}
			}
			u, _ := f.Locate(t.Context(), n, ids, false)
			f.Attach(u, u, 0, nil)
			if !f.Admit(u) {
				t.Fatal("there is no memory")
			}
		}
		for left := records / 16; left > 0; {
			if u := f.Pop(); u != nil {
				check(t, d, u)
				f.Done(u)
				left--
				continue
			}
			<-f.Kick()
		}
		if c := f.Counters(); c.Hedges*100 > c.Requests {
			t.Errorf("%d of %d reads were made again", c.Hedges, c.Requests)
		}
	})
}

// A late read at the end of an epoch does not block the reads of the next epoch.
func TestNextEpochPassesWhatIsLate(t *testing.T) {
	const size, records, late = 1 << 20, 100, 10 * time.Second
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(records, size, 1)
		link, seen := sharedLink(10*time.Millisecond, 100e6, 32<<10), 0
		d.read = func(ctx context.Context, object, off int64, n int) error {
			d.mu.Lock()
			if object == records-1 {
				seen++
			}
			stuck := object == records-1 && seen <= 1+maxAgain
			d.mu.Unlock()
			if stuck {
				time.Sleep(late)
			}
			return link(ctx, object, off, n)
		}
		// All of the second epoch can be ready before the end of the first one, except the same record, which is not
		// late there.
		if ends := epochs(t, d, records); ends[1] > late {
			t.Errorf("the next epoch was there after %v, what is late came after %v", ends[1], ends[0])
		}
	})
}

// Large reads arrive in the order of need: they do not share the link with all reads ahead.
func TestLargeReadsComeInTheirOrder(t *testing.T) {
	const way, rate, size, first, part = 10 * time.Millisecond, 100e6, 4 << 20, 4, 256 << 10
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(40, size, 1)
		d.read = sharedLink(way, rate, part)
		f := New(Config{Source: d, Objects: recordread.NewObjects(d, nil), Memory: 256 << 20, Urgent: 1 << 20, Remote: true, Budget: arena.NewBudget(512 << 20)})
		start, seen, took := time.Now(), 0, time.Duration(0)
		drive(t, d, f, shuffled(40, 5), 1, func(u *Unit) {
			if seen += len(u.IDs); seen >= first && took == 0 {
				took = time.Since(start)
			}
		})
		f.Close()
		// The other reads under way have at most largeBytes for each read that is allowed.
		if most := way + time.Duration((first*size+RemoteDepth*largeBytes)/rate*float64(time.Second)); took > most {
			t.Errorf("the first %d are there after %v, want %v at most", first, took, most)
		}
	})
}

// Reads that are requested together run concurrently, also if fewer readers are waiting. Those readers take one read
// each, and others start the rest.
func TestAllOfAUnitIsOutAtOnce(t *testing.T) {
	const way, extents = 60 * time.Millisecond, 48
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(1024, 4000, 8)
		d.read = func(ctx context.Context, _, _ int64, _ int) error { time.Sleep(way); return nil }
		f := openFar(d, true)
		defer f.Close()
		drive(t, d, f, []int64{0}, 1, func(u *Unit) { check(t, d, u) })
		synctest.Wait() // its reader waits for more
		var far []int64
		for o := range int64(extents) {
			far = append(far, 8+16*o)
		}
		start := time.Now()
		drive(t, d, f, far, extents, func(u *Unit) { check(t, d, u) })
		if took := time.Since(start); took != way {
			t.Errorf("%d reads of one unit took %v, at once they take %v", extents, took, way)
		}
		if d.most != extents {
			t.Errorf("%d reads at once, %d are wanted", d.most, extents)
		}
	})
}

// If a part of the data is cached, nothing is read ahead. Otherwise records are read ahead if that pays.
func TestExact(t *testing.T) {
	const records, size = 2048, 1000
	var even []int64
	for id := int64(0); id < records; id += 2 {
		even = append(even, id)
	}
	for _, exact := range []bool{false, true} {
		// If the machine pauses for a while, reads look late and are read twice.
		synctest.Test(t, func(t *testing.T) {
			d := newDisk(records, size, records)
			f := openFar(d, exact)
			drive(t, d, f, even, 16, func(u *Unit) { check(t, d, u) })
			f.Close()
			wanted := int64(len(even)) * size
			if exact && d.bytes != wanted || !exact && d.bytes < wanted+wanted/2 {
				t.Errorf("exact %v: %d bytes were read for %d", exact, d.bytes, wanted)
			}
		})
	}
}

// Bytes that are read ahead cost no more than a separate read.
func TestGaps(t *testing.T) {
	for _, c := range []struct {
		far, exact bool
		took       time.Duration
		rate       float64
		least      int64
		most       int64
	}{
		{false, false, time.Millisecond, 1e9, maxGap, maxGap},
		{true, true, time.Millisecond, 1e9, 0, 0},
		{true, false, 60 * time.Millisecond, 125e6, maxGap, maxGap},
		{true, false, 60 * time.Millisecond, 10e6, 1500, 2000},
		{true, false, 10 * time.Millisecond, 100e6, 7000, 9000},
		{true, false, time.Millisecond, 1e6, 50, 80},
	} {
		g := gaps{remote: c.far, exact: c.exact}
		now := time.Now()
		for range 1000 {
			now = now.Add(10 * time.Millisecond)
			g.ended(now, c.took, int64(c.rate/100))
		}
		if n := g.most(); n < c.least || n > c.most {
			t.Errorf("%+v: %d", c, n)
		}
	}
}
