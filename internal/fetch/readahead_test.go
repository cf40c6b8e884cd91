package fetch

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/internal/store/retry"
	"github.com/stokerdata/stoker/store"
)

// openAlong opens a Fetcher for a remote store, with memory for a part of the data.
func openAlong(d *disk, memory int64) *Fetcher {
	obj := recordread.NewObjects(d, &retry.Options{Attempts: 2, Backoff: time.Millisecond})
	return New(Config{Source: d, Objects: obj, Memory: memory, Urgent: 1 << 20, Remote: true, Ahead: true, Budget: arena.NewBudget(2*memory + 1<<21)})
}

// busyServer simulates a server that needs time for each read and almost none for its bytes, one read after another.
func busyServer(work time.Duration, rate float64) func(context.Context, int64, int64, int) error {
	var mu sync.Mutex
	free := time.Now() // from when on it is
	return func(_ context.Context, _, _ int64, n int) error {
		mu.Lock()
		free = time.Unix(0, max(free.UnixNano(), time.Now().UnixNano())).Add(work + time.Duration(float64(n)/rate*float64(time.Second)))
		until := free
		mu.Unlock()
		time.Sleep(time.Until(until))
		return nil
	}
}

// checkEmpty reports an error if anything is left after everything has been used.
func checkEmpty(t *testing.T, f *Fetcher) {
	t.Helper()
	if f.account.inUse() != 0 || f.account.units != 0 || f.account.attached != 0 || f.candidates.n != 0 || len(f.candidates.holding) != 0 || len(f.queues.view.chains[0]) != 0 {
		t.Errorf("left: %d bytes, %d attached, %d units, %d candidates, %d of them with bytes, %d in view", f.account.inUse(), f.account.attached, f.account.units, f.candidates.n, len(f.candidates.holding), len(f.queues.view.chains[0]))
	}
}

// If a read costs more than its bytes, later records are read ahead within the memory. An epoch takes half of the reads
// and no more bytes.
func TestReadsAlongWhereReadsAreDear(t *testing.T) {
	const records, size, memory = 4096, 100 << 10, 224 << 20
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(records, size, 64)
		d.read = busyServer(time.Millisecond, 4e9)
		f := openAlong(d, memory)
		start := time.Now()
		drive(t, d, f, shuffled(records, 5), 8, func(u *Unit) { time.Sleep(4 * time.Millisecond); check(t, d, u) })
		took := time.Since(start)
		f.Close()
		checkEmpty(t, f)
		t.Logf("%d reads, %v", d.reads, took)
		if d.reads > records*6/10 || d.bytes > records*size*11/10 {
			t.Errorf("%d records took %d reads of %d MiB", records, d.reads, d.bytes>>20)
		}
		if took > records*time.Millisecond*8/10 {
			t.Errorf("it took %v, a read for each record %v", took, records*time.Millisecond)
		}
		if f.account.peak > memory {
			t.Errorf("%d bytes were in use of %d", f.account.peak, memory)
		}
	})
}

// If the link is full, records are read ahead only to measure it. They come about as fast as without, from the
// beginning.
func TestReadsNothingAlongWhereTheLinkIsFull(t *testing.T) {
	const records, size, rate = 6000, 100 << 10, 100e6
	run := func(ahead bool) (half, took time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			d := newDisk(records, size, 64)
			d.read = sharedLink(10*time.Millisecond, rate, 32<<10)
			f := openAlong(d, 224<<20)
			if !ahead {
				f.readahead.may, f.readahead.on = false, false
			}
			start, seen := time.Now(), 0
			drive(t, d, f, shuffled(records, 5), 8, func(u *Unit) {
				if seen += len(u.IDs); seen >= records/2 && half == 0 {
					half = time.Since(start)
				}
				check(t, d, u)
			})
			took = time.Since(start)
			f.Close()
			checkEmpty(t, f)
			t.Logf("ahead %v: %d reads, %v, half after %v", ahead, d.reads, took, half)
		})
		return half, took
	}
	without, _ := run(false)
	half, took := run(true)
	link := time.Duration(records * float64(size) / rate * float64(time.Second))
	if took > link+link/20 {
		t.Errorf("it took %v, the bytes %v", took, link)
	}
	if half > without+link/20 {
		t.Errorf("half of the records were there after %v, and without after %v", half, without)
	}
}

// Nothing is read ahead from a set that is too large, or with too little memory.
func TestReadsNothingAlongOfLargeSets(t *testing.T) {
	for _, c := range []struct {
		records, memory int64
		may             bool
	}{
		{5000, 256 << 20, true},
		{maxCandidates * mostOfSet, 256 << 20, true},
		{maxCandidates*mostOfSet + 1, 256 << 20, false},
		{5000, remoteWindow + 1<<20, false},
		{5000, 4 << 20, false},
	} {
		d := newDisk(c.records, 1000, 1000)
		f := openAlong(d, c.memory)
		if f.Prefetches() != c.may {
			t.Errorf("%d records, %d MiB: %v", c.records, c.memory>>20, !c.may)
		}
		f.Close()
	}
}

// Records that were read ahead are released for a unit that does not fit otherwise. All records come, also those whose
// joined read has failed.
func TestReadAlongGivesWay(t *testing.T) {
	const records, size, memory = 512, 100 << 10, 96 << 20
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(records, size, 64)
		bad := errors.New("bad")
		d.read = func(_ context.Context, object, off int64, n int) error {
			time.Sleep(time.Millisecond)
			if object == 3 && int64(n) > size {
				return &store.Error{Op: "read", Path: "disk", Off: off, Len: int64(n), Err: bad}
			}
			return nil
		}
		f := openAlong(d, memory)
		order := shuffled(records, 5)
		var units []*Unit
		for n := range int64(records) {
			u, _ := f.Locate(t.Context(), n, order[n:n+1], false)
			units = append(units, u)
		}
		for _, u := range units[64:] {
			if !f.Prefetch(u) {
				t.Fatal("there is no memory in view")
			}
		}
		use := func(want int) {
			t.Helper()
			for range want {
				u := f.Pop()
				for u == nil {
					<-f.Kick()
					u = f.Pop()
				}
				check(t, d, u)
				f.Done(u)
			}
		}
		for _, u := range units[:64] {
			f.Attach(u, u, 0, nil)
			if !f.Admit(u) {
				t.Fatal("there is no memory")
			}
		}
		use(64)
		synctest.Wait()
		if f.account.ahead == 0 || f.account.transit != 0 {
			t.Fatalf("%d bytes were read ahead, %d are on their way", f.account.ahead, f.account.transit)
		}
		large := units[64]
		f.Attach(large, large, 0, nil)
		large.need = memory - 1<<20 // as if it was as large as the memory
		if !f.Admit(large) {
			t.Fatal("there is no memory for what is needed now")
		}
		if f.account.ahead != 0 || f.account.used != memory-1<<20 {
			t.Errorf("%d bytes are still held for later next to %d", f.account.ahead, f.account.used)
		}
		use(1)
		for _, u := range units[65:256] {
			f.Attach(u, u, 0, nil)
			for !f.Admit(u) {
				use(1)
			}
		}
		for f.account.units > 0 {
			use(1)
		}
		for _, u := range units[256:] {
			f.Drop(u)
		}
		f.Close()
		checkEmpty(t, f)
	})
}

// a unit of prefetch candidates can be dropped while its records are read ahead, or after that.
func TestCandidateIsDropped(t *testing.T) {
	const records, size = 512, 100 << 10
	for _, wait := range []time.Duration{0, 5 * time.Millisecond, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			d := newDisk(records, size, 64)
			d.read = func(context.Context, int64, int64, int) error { time.Sleep(10 * time.Millisecond); return nil }
			f := openAlong(d, 128<<20)
			ctx, cancel := context.WithCancel(t.Context())
			order := shuffled(records, 5)
			var units []*Unit
			for n := range int64(records / 8) {
				u, _ := f.Locate(ctx, n, order[8*n:8*n+8], false)
				units = append(units, u)
				if n > 3 {
					f.Prefetch(u)
				}
			}
			for _, u := range units[:4] {
				if !f.Admit(u) {
					t.Fatal("there is no memory")
				}
			}
			time.Sleep(wait)
			for _, u := range units {
				f.Drop(u)
			}
			cancel()
			time.Sleep(time.Second)
			f.Close()
			checkEmpty(t, f)
		})
	}
}

// Records of the first batch are not read together with later records. Nothing is read ahead for the next epoch.
func TestReadsAlongWithinItsTurn(t *testing.T) {
	const records, size = 512, 50 << 10
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(records, size, 64)
		d.read = func(_ context.Context, _, _ int64, n int) error {
			time.Sleep(10 * time.Millisecond)
			if n > size {
				t.Errorf("%d bytes are read together", n)
			}
			return nil
		}
		f := openAlong(d, 128<<20)
		defer f.Close()
		var units []*Unit
		for n := range int64(records) {
			u, _ := f.Locate(t.Context(), n, []int64{n}, false)
			u.Awaited = n%2 == 0 && n < 256
			if u.Epoch = 0; n >= 256 {
				u.Epoch = 1
			}
			units = append(units, u)
		}
		for n, u := range units {
			if n < 256 && !u.Awaited || n >= 256 && n%2 == 1 {
				f.Prefetch(u)
			}
		}
		for n, u := range units {
			if !u.candidate && !f.Admit(u) {
				t.Fatalf("there is no memory for unit %d", n)
			}
		}
		time.Sleep(time.Second)
		for _, u := range units {
			f.Drop(u)
		}
	})
}

// The benefit of readahead is measured with it and without it, and again later.
func TestReadahead(t *testing.T) {
	for _, c := range []struct {
		name       string
		work, rate float64 // seconds for a read, bytes in a second
		pays       bool
	}{
		{"reads are dear", 1e-3, 2e9, true},
		{"bytes are dear", 1e-5, 1e8, false},
		{"bytes are half of it", 1e-3, 2e8, true},
		{"bytes are most of it", 1e-3, 2e7, false},
	} {
		a := readahead{may: true, on: true}
		now, rng := time.Unix(0, 0), rand.New(rand.NewPCG(1, 1))
		on, with := 0, 0.0
		const reads = 40_000
		for range reads {
			size := 100e3
			if a.on {
				size = 400e3
				on++
			}
			with += size
			took := c.work + size/c.rate*(0.9+0.2*rng.Float64())
			now = now.Add(time.Duration(took * float64(time.Second)))
			a.ended(now, int64(size), 0, true)
		}
		if share := float64(on) / reads; c.pays && share < 0.9 || !c.pays && share > 0.1 {
			t.Errorf("%s: on for %.2f of the reads", c.name, share)
		}
	}
}
