package fetch

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/recordread"
)

// reads measures the time from the first read of each request until the first answer.
type reads struct {
	mu    sync.Mutex
	began map[[2]int64]time.Time
	took  map[[2]int64]time.Duration
	made  int
	rng   *rand.Rand
}

// watch gives each read of d a usual time, and one in share reads a longer time.
func watch(d *disk, usual, spread, late time.Duration, share int) *reads {
	r := &reads{began: map[[2]int64]time.Time{}, took: map[[2]int64]time.Duration{}, rng: rand.New(rand.NewPCG(5, 5))}
	d.read = func(ctx context.Context, object, off int64, _ int) error {
		at := [2]int64{object, off}
		r.mu.Lock()
		r.made++
		if _, ok := r.began[at]; !ok {
			r.began[at] = time.Now()
		}
		t := usual + time.Duration((2*r.rng.Float64()-1)*float64(spread))
		if r.rng.IntN(share) == 0 {
			t += late
		}
		r.mu.Unlock()
		select {
		case <-time.After(t):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if _, ok := r.took[at]; !ok {
			r.took[at] = time.Since(r.began[at])
		}
		return nil
	}
	return r
}

// quantile returns the time below which the share q of the requests stayed.
func (r *reads) quantile(q float64) time.Duration {
	var all []time.Duration
	for _, t := range r.took {
		all = append(all, t)
	}
	slices.Sort(all)
	return all[int(q*float64(len(all)-1))]
}

// run reads records of d with f, one a unit, to places of their own or not.
func run(t *testing.T, d *disk, f *Fetcher, records int, placed bool) Counters {
	t.Helper()
	defer f.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := 0; n < records; n++ {
			u := f.Pop()
			for ; u == nil; u = f.Pop() {
				f.Dry()
				<-f.Kick()
			}
			check(t, d, u)
			f.Done(u)
		}
	}()
	for n, id := range shuffled(int64(records), 3) {
		u, _ := f.Locate(t.Context(), int64(n), []int64{id}, false)
		var place func(k, field int, n int64) []byte
		if placed {
			memory := make([]byte, d.size)
			place = func(_, _ int, n int64) []byte { return memory[:n:n] }
		}
		f.Attach(u, u, 0, place)
		for !f.Admit(u) {
			<-f.Space()
		}
	}
	<-done
	return f.Counters()
}

// From a remote server that answers one request in a hundred two seconds late, almost no record is two seconds late.
func TestFewLateAnswers(t *testing.T) {
	for name, placed := range map[string]bool{"own memory": false, "in place": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const records = 30_000
				d := newDisk(records, 1000, 1)
				r := watch(d, 60*time.Millisecond, 20*time.Millisecond, 2*time.Second, 100)
				c := run(t, d, open(d, 4<<20, 1<<18), records, placed)
				t.Logf("p50 %v, p99 %v, p99.9 %v; %d of %d reads were made again", r.quantile(0.5), r.quantile(0.99), r.quantile(0.999), c.Hedges, c.Requests)
				if p := r.quantile(0.999); p > 2060*time.Millisecond/10 {
					t.Errorf("one in a thousand takes %v or more", p)
				}
				if extra := float64(r.made-len(r.took)) / float64(len(r.took)); extra > 0.03 {
					t.Errorf("%.1f%% more is read", 100*extra)
				}
			})
		})
	}
}

// If all answers are late, few requests are repeated.
func TestAllLateAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const records = 20_000
		d := newDisk(records, 1000, 1)
		r := watch(d, 60*time.Millisecond, 20*time.Millisecond, 0, 100)
		usual := d.read
		d.read = func(ctx context.Context, object, off int64, n int) error {
			r.mu.Lock()
			slow := r.made > records/4
			r.mu.Unlock()
			if slow {
				time.Sleep(2 * time.Second)
			}
			return usual(ctx, object, off, n)
		}
		c := run(t, d, open(d, 4<<20, 1<<18), records, false)
		t.Logf("%d of %d reads were made again", c.Hedges, c.Requests)
		if c.Hedges*hedgeShare > c.Requests+2*hedgeShare {
			t.Errorf("%d of %d reads were made again", c.Hedges, c.Requests)
		}
	})
}

// Late reads and their repetitions do not exceed the limit of reads that each take a thread.
func TestLateReadsWithinTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const records, most = 20_000, 16
		d := newDisk(records, 1000, 1)
		watch(d, 5*time.Millisecond, time.Millisecond, 10*time.Second, 10)
		f := New(Config{Source: d, Objects: recordread.NewObjects(d, nil), Memory: 4 << 20, Urgent: 1 << 18, Budget: arena.NewBudget(16 << 20), MostReads: most})
		c := run(t, d, f, records, false)
		t.Logf("%d of %d reads were made again, at most %d at a time", c.Hedges, c.Requests, d.most)
		if c.Hedges == 0 || d.most > most {
			t.Errorf("%d reads were made again; %d at a time, want at most %d", c.Hedges, d.most, most)
		}
	})
}

// The time after which a large read is late depends only on the usual time for its bytes.
func TestLateOfManyBytes(t *testing.T) {
	const n = 100 << 10
	for name, c := range map[string]struct {
		took        func(n int64) time.Duration
		least, most time.Duration // of ten times as many bytes
	}{
		"a full link": {func(n int64) time.Duration { return time.Duration(n) * time.Microsecond }, 1024 * time.Millisecond, 3 * time.Second},
		"far away":    {func(int64) time.Duration { return 60 * time.Millisecond }, 60 * time.Millisecond, 150 * time.Millisecond},
	} {
		rng, h := rand.New(rand.NewPCG(5, 5)), hedger{}
		for range 1000 {
			size := n/2 + rng.Int64N(n)
			took := c.took(size)
			if rng.IntN(100) == 0 {
				took += 2 * time.Second
			}
			h.ended(took+time.Duration(rng.Int64N(int64(took/4))), size)
		}
		if late := h.lateFor(10 * n); late < c.least || late > c.most {
			t.Errorf("%s: a read of %d KiB is late after %v", name, 10*n>>10, late)
		}
	}
}

// A late read whose hedged read has answered belongs to no unit any more. Oldest does not report it, whatever its unit
// is used for by now.
func TestOldestIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const records, late = 600, 10 * time.Second
		d := newDisk(records, 1000, 1)
		var mu sync.Mutex
		seen := map[int64]bool{}
		d.read = func(_ context.Context, object, _ int64, _ int) error {
			mu.Lock()
			again := seen[object]
			seen[object] = true
			mu.Unlock()
			time.Sleep(60 * time.Millisecond)
			if object%100 == 99 && !again {
				time.Sleep(late)
			}
			return nil
		}
		f := open(d, 4<<20, 1<<18)
		defer f.Close()
		for n := int64(0); n < records; n += 4 {
			ids := []int64{n, n + 1, n + 2, n + 3}
			if n%8 == 4 { // a reused unit may be smaller than before
				ids = ids[3:]
			}
			u, _ := f.Locate(t.Context(), n, ids, false)
			f.Attach(u, u, 0, nil)
			for !f.Admit(u) {
				<-f.Space()
			}
			for got := f.Pop(); ; got = f.Pop() {
				if got == nil {
					<-f.Kick()
					continue
				}
				check(t, d, got)
				f.Done(got)
				break
			}
			if place, since, ok := f.Oldest(); ok {
				t.Fatalf("%s is being waited for, for %v: nothing is", place, since)
			}
		}
	})
}
