package fetch

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/internal/store/retry"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// disk is a source of records of fixed size in a few objects, with an index of
// each object's first bytes that has to be learnt. Its reads are counted and
// can be slow, late or fail.
type disk struct {
	info    driver.Info
	size    int64
	per     int64 // records of an object
	indexed bool

	mu     sync.Mutex
	learnt map[int64]bool
	reads  int
	bytes  int64
	most   int // reads at a time
	out    int
	read   func(ctx context.Context, object, off int64, n int) error
}

func newDisk(records, size, per int64) *disk {
	return &disk{
		size: size, per: per, learnt: map[int64]bool{},
		info: driver.Info{URL: "disk", Format: "disk", Len: records, Objects: (records + per - 1) / per, Fields: []driver.Field{{Name: "x", Kind: driver.KindBytes, MaxBytes: size}}},
	}
}

func (d *disk) Info() *driver.Info   { return &d.info }
func (d *disk) Name(id int64) string { return fmt.Sprintf("record %d", id) }
func (d *disk) Close() error         { return nil }
func (d *disk) Object(n int64) driver.Object {
	return driver.Object{Store: diskStore{d, n}, Entry: store.Entry{Size: d.per*d.size + 64, Version: "1"}, Keep: true}
}

func (d *disk) Locate(g *driver.Group) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for k, id := range g.IDs {
		switch o := id / d.per; {
		case g.Records[k].Err != nil:
		case d.indexed && !d.learnt[o]:
			g.Missing = append(g.Missing, driver.Missing{K: k, Extent: driver.Extent{Object: o, Size: 64}})
		default:
			g.Extents = append(g.Extents, driver.Extent{Object: o, Offset: 64 + id%d.per*d.size, Size: d.size})
		}
		g.Next()
	}
}

func (d *disk) Learn(e driver.Extent, b []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(b) != 64 {
		return errors.New("a short index")
	}
	d.learnt[e.Object] = true
	return nil
}

func (d *disk) Parse(g *driver.Group) error {
	for k := range g.IDs {
		if g.Records[k].Err == nil {
			g.Records[k].Values[0].Bytes = g.Bytes[g.First[k]]
		}
	}
	return nil
}

type diskStore struct {
	d *disk
	n int64
}

func (s diskStore) Open(context.Context, string) (store.Object, error) { return diskObject(s), nil }
func (s diskStore) List(context.Context, string, *store.ListOptions, func(store.Entry) error) error {
	return nil
}
func (s diskStore) Stat(context.Context, string) (store.Entry, error) { return store.Entry{}, nil }
func (s diskStore) String() string                                    { return "disk" }
func (s diskStore) Path(string) string                                { return fmt.Sprintf("disk/%d", s.n) }
func (s diskStore) Close() error                                      { return nil }

type diskObject diskStore

func (o diskObject) Size() int64     { return o.d.per*o.d.size + 64 }
func (o diskObject) Version() string { return "1" }
func (o diskObject) Close() error    { return nil }

// content is byte off of an object: the number of the record that it is in.
func (o diskObject) ReadAt(ctx context.Context, p []byte, off int64) error {
	d := o.d
	d.mu.Lock()
	d.reads++
	d.bytes += int64(len(p))
	d.out++
	d.most = max(d.most, d.out)
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		d.out--
		d.mu.Unlock()
	}()
	if d.read != nil {
		if err := d.read(ctx, o.n, off, len(p)); err != nil {
			return err
		}
	}
	for i := max(0, 64-off); i < int64(len(p)); {
		at := off + i - 64
		id, in := uint64(o.n*d.per+at/d.size), at%d.size
		rec := p[i:min(i+d.size-in, int64(len(p)))]
		for k := range min(len(rec), 8) {
			rec[k] = byte(id >> (8 * ((in + int64(k)) % 8)))
		}
		for k := 8; k < len(rec); k *= 2 {
			copy(rec[k:], rec[:k])
		}
		i += int64(len(rec))
	}
	return ctx.Err()
}

func check(t *testing.T, d *disk, u *Unit) {
	t.Helper()
	if err := recordread.Parse(d, &u.Group); err != nil {
		t.Fatal(err)
	}
	for k, id := range u.IDs {
		rec := &u.Records[k]
		if rec.Err != nil {
			t.Fatalf("record %d: %v", id, rec.Err)
		}
		b := rec.Values[0].Bytes
		if int64(len(b)) != d.size || binary.LittleEndian.Uint64(b) != uint64(id) || !bytes.Equal(b[:8], b[len(b)-8:]) {
			t.Fatalf("record %d has %d bytes: %x", id, len(b), b[:8])
		}
	}
}

func open(d *disk, memory, urgent int64) *Fetcher {
	obj := recordread.NewObjects(d, &retry.Options{Attempts: 2, Backoff: time.Millisecond})
	return New(Config{Source: d, Objects: obj, Memory: memory, Urgent: urgent, Budget: arena.NewBudget(2*memory + 1<<21)})
}

// drive acts as the planner and as a worker that takes pause for each unit. It reads all records of order, in units of
// rows.
func drive(t *testing.T, d *disk, f *Fetcher, order []int64, rows int, work func(u *Unit)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan struct{})
	count := 0
	go func() {
		defer close(done)
		last := int64(-1)
		for count < len(order) {
			u := f.Pop()
			if u == nil {
				f.Dry()
				select {
				case <-f.Kick():
				case <-ctx.Done():
					return
				}
				continue
			}
			if u.Order() < last && u.Lo == 0 {
				t.Errorf("unit %d after %d", u.Order(), last)
			}
			work(u)
			count += len(u.IDs)
			f.Done(u)
		}
	}()
	var waiting []*Unit
	var scouts []*Unit
	at, n, seen := 0, int64(0), 0
	for at < len(order) || len(scouts) > 0 {
		if len(scouts) == 0 || len(scouts[0].Missing) > 0 && len(scouts) < 64 && at < len(order) {
			u, m := f.Locate(ctx, n, order[at:min(at+rows, len(order))], false)
			if len(u.Missing) > 0 {
				f.Learn(u)
			}
			at, n = at+m, n+1
			scouts = append(scouts, u)
			continue
		}
		u := scouts[0]
		if len(u.Missing) > 0 {
			if f.Learned(u) {
				had := append([]int64(nil), u.IDs...)
				rests := []*Unit{}
				for n := f.Relocate(u); n < len(had); {
					rest, more := f.Locate(ctx, u.Order(), had[n:], false)
					rests = append(rests, rest)
					n += more
				}
				scouts = append(scouts[:1:1], append(rests, scouts[1:]...)...)
				if len(u.Missing) > 0 {
					f.Learn(u)
				}
				continue
			}
		} else {
			// The planner attaches units in order. Here that happens immediately.
			f.Attach(u, u, 0, nil)
			if f.Admit(u) {
				scouts, seen = scouts[1:], max(seen-1, 0)
				waiting = append(waiting, u)
				continue
			}
			for range 16 { // so does the planner
				if seen == len(scouts) {
					if !f.Prefetches() || at == len(order) {
						break
					}
					u, m := f.Locate(ctx, n, order[at:min(at+rows, len(order))], false)
					if len(u.Missing) > 0 {
						f.Learn(u)
					}
					at, n = at+m, n+1
					scouts = append(scouts, u)
				}
				if len(scouts[seen].Missing) > 0 || !f.Prefetch(scouts[seen]) {
					break
				}
				seen++
			}
		}
		select {
		case <-f.Space():
		case <-time.After(30 * time.Second):
			t.Fatalf("nothing moves: %+v", f.Counters())
		}
	}
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatalf("units are missing: %d of %d records, %+v", count, len(order), f.Counters())
	}
	_ = waiting
}

func shuffled(n int64, seed uint64) []int64 {
	order := make([]int64, n)
	for i := range order {
		order[i] = int64(i)
	}
	rand.New(rand.NewPCG(seed, 1)).Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	return order
}

func TestEveryRecord(t *testing.T) {
	for _, indexed := range []bool{false, true} {
		for _, memory := range []int64{64 << 10, 1 << 20, 32 << 20} {
			d := newDisk(3000, 3000, 70)
			d.indexed = indexed
			f := open(d, memory, 16<<10)
			drive(t, d, f, shuffled(3000, 7), 8, func(u *Unit) { check(t, d, u) })
			f.Close()
			if f.account.used != 0 || f.account.urgent != 0 || f.account.units != 0 {
				t.Errorf("memory %d: %d and %d bytes of %d units are left", memory, f.account.used, f.account.urgent, f.account.units)
			}
			if err := f.obj.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestNeighboursAreReadTogether(t *testing.T) {
	d := newDisk(4096, 1024, 4096)
	f := open(d, 32<<20, 1<<20)
	order := make([]int64, 4096)
	for i := range order {
		order[i] = int64(i)
	}
	drive(t, d, f, order, 16, func(u *Unit) { check(t, d, u) })
	f.Close()
	if d.reads > 400 {
		t.Errorf("%d reads for 4096 neighbouring records", d.reads)
	}
	if d.bytes < 4<<20 || d.bytes > 4<<20+1<<18 {
		t.Errorf("%d bytes were read of 4 MiB", d.bytes)
	}
}

// A store with 20 ms per read gets enough concurrent reads to be as fast as its workers.
func TestDepthGrowsWhereReadsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(20_000, 4000, 1000)
		d.read = func(ctx context.Context, _, _ int64, _ int) error { time.Sleep(20 * time.Millisecond); return nil }
		f := open(d, 16<<20, 1<<20)
		start := time.Now()
		drive(t, d, f, shuffled(20_000, 3), 8, func(u *Unit) { time.Sleep(4 * time.Millisecond); check(t, d, u) })
		took := time.Since(start) // of the test's own clock
		f.Close()
		// The worker alone takes 10 s; 8 concurrent reads would take 50 s.
		if took > 11*time.Second {
			t.Errorf("it took %v of at least 10 s, with up to %d reads at a time", took, d.most)
		}
		if d.most < 32 || d.most > maxDepth {
			t.Errorf("up to %d reads at a time", d.most)
		}
	})
}

// If reads get slower the more there are, the depth does not grow.
func TestDepthStaysWhereItGivesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(6000, 4000, 1) // with no neighbours
		disk := make(chan struct{}, 1)
		d.read = func(ctx context.Context, _, _ int64, _ int) error {
			disk <- struct{}{}
			defer func() { <-disk }()
			time.Sleep(2 * time.Millisecond)
			return nil
		}
		f := open(d, 4<<20, 1<<20)
		drive(t, d, f, shuffled(6000, 3), 8, func(u *Unit) { check(t, d, u) })
		f.Close()
		if d.most > 2*firstDepth+1 {
			t.Errorf("up to %d reads at a time", d.most)
		}
	})
}

func TestLateReadsAreMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(20_000, 4000, 1000)
		rng := rand.New(rand.NewPCG(1, 1))
		late := 0
		d.read = func(ctx context.Context, _, _ int64, _ int) error {
			d.mu.Lock()
			slow := rng.IntN(100) == 0
			if slow {
				late++
			}
			d.mu.Unlock()
			if slow {
				time.Sleep(2 * time.Second)
			} else {
				time.Sleep(time.Millisecond)
			}
			return nil
		}
		f := open(d, 16<<20, 1<<20)
		start := time.Now()
		drive(t, d, f, shuffled(20_000, 3), 8, func(u *Unit) { time.Sleep(4 * time.Millisecond); check(t, d, u) })
		took := time.Since(start)
		c := f.Counters()
		f.Close()
		if took > 11*time.Second+500*time.Millisecond {
			t.Errorf("it took %v of at least 10 s; %d late reads, %d made again", took, late, c.Hedges)
		}
		if c.Hedges == 0 || c.Hedges*hedgeShare > c.Requests+2*hedgeShare {
			t.Errorf("%d of %d reads were made again", c.Hedges, c.Requests)
		}
	})
}

// A read that is made again may be late as well.
func TestLateReadsAreMadeAgainAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(20_000, 4000, 1000)
		tries := 0
		d.read = func(_ context.Context, object, off int64, _ int) error {
			d.mu.Lock()
			slow := object == 7 && off/d.size == 500 && tries < 3
			if slow {
				tries++
			}
			d.mu.Unlock()
			if slow {
				time.Sleep(5 * time.Second)
			} else {
				time.Sleep(time.Millisecond)
			}
			return nil
		}
		f := open(d, 2<<20, 1<<18)
		start := time.Now()
		drive(t, d, f, shuffled(20_000, 3), 8, func(u *Unit) { time.Sleep(4 * time.Millisecond); check(t, d, u) })
		took := time.Since(start)
		f.Close()
		if took > 11*time.Second || tries != 3 {
			t.Errorf("it took %v of at least 10 s; read %d times late", took, tries)
		}
	})
}

func TestErrorsAreOfTheirRecord(t *testing.T) {
	d := newDisk(200, 512, 200)
	bad := &store.Error{Op: "read", Path: "disk/0", Off: 64 + 17*512, Len: 512, Err: errors.New("bad sector")}
	d.read = func(_ context.Context, _, off int64, n int) error {
		if at := int64(64 + 17*512); off < at+512 && off+int64(n) > at {
			return bad
		}
		return nil
	}
	f := open(d, 1<<20, 1<<18)
	defer f.Close()
	failed := 0
	order := make([]int64, 200)
	for i := range order {
		order[i] = int64(i)
	}
	drive(t, d, f, order, 8, func(u *Unit) {
		for k, id := range u.IDs {
			if err := u.Records[k].Err; err != nil {
				if failed++; id != 17 || !errors.Is(err, bad) {
					t.Errorf("record %d: %v", id, err)
				}
			}
		}
	})
	if failed != 1 {
		t.Errorf("%d records failed", failed)
	}
}

func TestErrorsOfTheIndex(t *testing.T) {
	d := newDisk(100, 512, 10)
	d.indexed = true
	d.read = func(_ context.Context, object, off int64, n int) error {
		if object == 3 && off == 0 {
			return syscall.EACCES
		}
		return nil
	}
	f := open(d, 1<<20, 1<<18)
	defer f.Close()
	var failed []int64
	drive(t, d, f, shuffled(100, 5), 4, func(u *Unit) {
		for k, id := range u.IDs {
			if u.Records[k].Err != nil {
				failed = append(failed, id)
			}
		}
	})
	if len(failed) != 10 {
		t.Fatalf("%d records failed: %v", len(failed), failed)
	}
	for _, id := range failed {
		if id/10 != 3 {
			t.Errorf("record %d failed", id)
		}
	}
}

func TestPassingErrorsAreRepeated(t *testing.T) {
	d := newDisk(50, 512, 50)
	times := 0
	d.read = func(context.Context, int64, int64, int) error {
		d.mu.Lock()
		defer d.mu.Unlock()
		if times++; times == 1 {
			return syscall.EIO
		}
		return nil
	}
	f := open(d, 1<<20, 1<<18)
	defer f.Close()
	drive(t, d, f, shuffled(50, 5), 8, func(u *Unit) { check(t, d, u) })
}

func TestTooLargeForTheMemory(t *testing.T) {
	d := newDisk(4, 1<<20, 4)
	f := open(d, 768<<10, 256<<10)
	defer f.Close()
	drive(t, d, f, []int64{2}, 1, func(u *Unit) {
		var m *MemoryError
		if !errors.As(u.Records[0].Err, &m) || !strings.Contains(m.Error(), "raise memory") {
			t.Errorf("%v", u.Records[0].Err)
		}
	})
}

// Large extents are read in pieces, several at a time, straight to their destination if they have one.
func TestPieces(t *testing.T) {
	const size = 3*maxRequest + 8
	d := newDisk(4, size, 4)
	f := open(d, 4*size, size+1<<16)
	defer f.Close()
	drive(t, d, f, []int64{2, 1}, 1, func(u *Unit) { check(t, d, u) })
	if d.reads < 8 {
		t.Errorf("%d reads", d.reads)
	}
	place := make([]byte, size)
	u, _ := f.Locate(t.Context(), 9, []int64{3}, false)
	f.Attach(u, u, 0, func(k, field int, n int64) []byte { return place[:n] })
	if !f.Admit(u) {
		t.Fatal("not admitted")
	}
	for f.Ready() == 0 {
		<-f.Kick()
	}
	if u = f.Pop(); &u.Bytes[0][0] != &place[0] {
		t.Error("not read to its place")
	}
	check(t, d, u)
	f.Done(u)
}

// Urgent units get memory although later units hold all of the rest.
func TestUrgentNeverWaitsForWhatComesLater(t *testing.T) {
	d := newDisk(1000, 1024, 1000)
	f := open(d, 64<<10, 16<<10)
	defer f.Close()
	var held []*Unit
	for n := int64(0); ; n++ {
		u, _ := f.Locate(t.Context(), 100+n, []int64{n * 8, n*8 + 1, n*8 + 2, n*8 + 3}, false)
		if !f.Admit(u) {
			break
		}
		held = append(held, u)
	}
	for n := int64(0); n < 20; n++ {
		u, _ := f.Locate(t.Context(), n, []int64{990}, true)
		f.Attach(u, u, 0, nil)
		if !f.AdmitUrgent(u) {
			t.Fatal("an urgent unit was not admitted")
		}
		for f.Ready() == 0 {
			<-f.Kick()
		}
		u = f.Pop()
		check(t, d, u)
		f.Done(u)
	}
	for _, u := range held {
		f.Drop(u)
	}
}

func TestOldestNamesTheObject(t *testing.T) {
	d := newDisk(10, 512, 5)
	stuck := make(chan struct{})
	d.read = func(ctx context.Context, object, _ int64, _ int) error {
		if object == 1 {
			close(stuck)
			<-ctx.Done()
			return context.Cause(ctx)
		}
		return nil
	}
	f := open(d, 1<<20, 1<<18)
	ctx, cancel := context.WithCancel(t.Context())
	u, _ := f.Locate(ctx, 1, []int64{7}, false)
	f.Attach(u, u, 0, nil)
	f.Admit(u)
	<-stuck
	if place, _, ok := f.Oldest(); !ok || !strings.Contains(place, "record 7") || !strings.Contains(place, "disk/1, bytes 1088 to 1600") {
		t.Errorf("%q, %v", place, ok)
	}
	cancel()
	f.Close()
}
