package fetch

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/internal/store/retry"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// starting is a disk that can read objects in the background, or reports that it cannot. It counts the open objects.
type starting struct {
	*disk
	not        bool
	keep       bool
	mayNotOpen func(object int64) error
	starts     atomic.Int64
	open       atomic.Int64
	// began holds the times at which reads of objects began, if it is set.
	began *sync.Map
}

func (d *starting) Object(n int64) driver.Object {
	o := d.disk.Object(n)
	o.Store, o.Keep = startStore{diskStore{d.disk, n}, d}, d.keep
	return o
}

type startStore struct {
	diskStore
	of *starting
}

func (s startStore) Open(context.Context, string) (store.Object, error) {
	if s.of.mayNotOpen != nil {
		if err := s.of.mayNotOpen(s.n); err != nil {
			return nil, err
		}
	}
	s.of.open.Add(1)
	return startObject{diskObject(s.diskStore), s.of}, nil
}

type startObject struct {
	diskObject
	of *starting
}

func (o startObject) Start(int64, int64) bool {
	o.of.starts.Add(1)
	if o.of.began != nil {
		o.of.began.Store(o.n, time.Now())
	}
	return !o.of.not
}

func (o startObject) Close() error {
	o.of.open.Add(-1)
	return nil
}

func (d *starting) fetcher() *Fetcher {
	obj := recordread.NewObjects(d, &retry.Options{Attempts: 2, Backoff: time.Millisecond})
	return New(Config{Source: d, Objects: obj, Memory: 16 << 20, Urgent: 1 << 20, Budget: arena.NewBudget(34 << 20)})
}

// Background reads begin together, whether or not their objects stay open. Blocking reads do not begin before they are
// waited for. No object stays open.
func TestReadsBeginTogether(t *testing.T) {
	for _, keep := range []bool{false, true} {
		for _, not := range []bool{false, true} {
			d := &starting{disk: newDisk(3000, 3000, 1), keep: keep, not: not}
			f := d.fetcher()
			drive(t, d.disk, f, shuffled(3000, 7), 8, func(u *Unit) { check(t, d.disk, u) })
			f.Close()
			if n := d.starts.Load(); not && n > 64 || !not && n < 100 {
				t.Errorf("%v, %v: %d of 3000 reads were begun", keep, not, n)
			}
			if err := f.obj.Close(); err != nil || d.open.Load() != 0 {
				t.Errorf("%v, %v: %d are open, %v", keep, not, d.open.Load(), err)
			}
		}
	}
}

// If an object cannot be opened, only its record fails, whatever else begins at the same time.
func TestErrorsOfWhatBegins(t *testing.T) {
	gone := errors.New("gone")
	d := &starting{disk: newDisk(1000, 3000, 1)}
	d.mayNotOpen = func(object int64) error {
		if object%7 == 3 {
			return gone
		}
		return nil
	}
	f := d.fetcher()
	drive(t, d.disk, f, shuffled(1000, 7), 8, func(u *Unit) {
		for k, id := range u.IDs {
			if err := u.Records[k].Err; errors.Is(err, gone) != (id%7 == 3) {
				t.Errorf("record %d: %v", id, err)
			}
		}
	})
	f.Close()
	if d.open.Load() != 0 {
		t.Errorf("%d are open", d.open.Load())
	}
}

// A read that has begun and is given up is closed.
func TestWhatBeginsIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &starting{disk: newDisk(64, 3000, 1)}
		d.read = func(ctx context.Context, _, _ int64, _ int) error { <-ctx.Done(); return context.Cause(ctx) }
		f := d.fetcher()
		ctx, cancel := context.WithCancel(t.Context())
		u, n := f.Locate(ctx, 0, shuffled(64, 1), false)
		f.Attach(u, u, 0, nil)
		if n != 64 || !f.Admit(u) {
			t.Fatal("it is not admitted")
		}
		synctest.Wait()
		if d.starts.Load() == 0 {
			t.Error("nothing begins")
		}
		cancel()
		<-f.Kick()
		f.Done(f.Pop())
		f.Close()
		if d.open.Load() != 0 {
			t.Errorf("%d are open", d.open.Load())
		}
	})
}

// The depth grows as usual if most reads begin together, and reads that end together make way for as many.
func TestDepthGrowsWhereReadsBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const records = 40000
		d := &starting{disk: newDisk(records, 3000, 1), began: new(sync.Map)}
		d.read = func(_ context.Context, object, _ int64, _ int) error {
			began := time.Now()
			if at, ok := d.began.Load(object); ok {
				began = at.(time.Time)
			}
			time.Sleep(time.Until(began.Add(time.Millisecond)))
			return nil
		}
		f := d.fetcher()
		drive(t, d.disk, f, shuffled(records, 7), 8, func(*Unit) {})
		f.Close()
		if n := d.starts.Load(); f.depth.now < 128 || n < records*9/10 {
			t.Errorf("up to %d at a time, %d of %d were begun", f.depth.now, n, records)
		}
	})
}

// If reads that begin together are slow, the finished ones do not wait for the others.
func TestWhatComesSlowlyIsHandedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &starting{disk: newDisk(8, 3000, 1)}
		d.read = func(_ context.Context, object, _ int64, _ int) error {
			time.Sleep(time.Duration(object/4) * 20 * time.Millisecond)
			return nil
		}
		f := d.fetcher()
		f.depth.now = 8 * leastReaders // so that one reader begins all
		ids := make([]int64, 8)
		for i := range ids {
			ids[i] = int64(i)
		}
		u, _ := f.Locate(t.Context(), 0, ids, false)
		f.Attach(u, u, 0, nil)
		if !f.Admit(u) {
			t.Fatal("it is not admitted")
		}
		for there, after := range []time.Duration{0, 21 * time.Millisecond, 20 * time.Millisecond, 20 * time.Millisecond} {
			time.Sleep(after)
			synctest.Wait()
			f.mu.Lock()
			if left, want := u.left, []int{8, 3, 2, 1}[there]; left != want {
				t.Errorf("%d reads of 8 are left, want %d", left, want)
			}
			f.mu.Unlock()
		}
		time.Sleep(20 * time.Millisecond)
		synctest.Wait()
		f.Done(f.Pop())
		f.Close()
	})
}
