package drivertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/internal/store/faulttest"
	"github.com/stokerdata/stoker/internal/store/retry"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// OpenStore opens the source under test from a store.
type OpenStore func(ctx context.Context, st store.Store) (driver.Source, error)

// Faults tests a source with a store that fails in every possible way: with an error, a short read,
// a truncated or changed object, wrong bytes, or by hanging. Each time the source must return
// either the correct records, or an error that names the object and, for reads, the byte range. It
// must not panic or hang. When the store works again, the source must work again. checked means
// that checksums cover all bytes of a record, so that a wrong byte must be detected.
func Faults(t *testing.T, st store.Store, checked bool, open OpenStore) {
	f := &faults{st: st, open: open, checked: checked}
	f.look(t)
	t.Run("Opening", f.opening)
	t.Run("Reading", f.reading)
	t.Run("Hanging", f.hanging)
	t.Run("Flipped", f.flipped)
}

type faults struct {
	st      store.Store
	open    OpenStore
	checked bool

	names  []string // of the objects
	sizes  []int64
	most   int64
	ids    []int64
	clean  map[int64]copied
	memory int // limit of memory for reading
}

// patience is the time that a cancelled call may take to return. It is long so that the test passes
// on busy machines.
const patience = time.Minute

var errFault = errors.New("the device is on fire")

// look reads the source without faults.
func (f *faults) look(t *testing.T) {
	err := f.st.List(t.Context(), "", &store.ListOptions{Hidden: true}, func(e store.Entry) error {
		f.names, f.sizes = append(f.names, e.Name), append(f.sizes, e.Size)
		f.most = max(f.most, e.Size)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	s, err := f.open(t.Context(), f.st)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	f.ids = few(s.Info())
	f.ids = f.ids[:min(len(f.ids), 24)]
	o := &opened{s, recordread.NewObjects(s, nil)}
	defer o.obj.Close()
	f.clean = all(t, o, f.ids)
	for _, r := range f.clean {
		for _, v := range r {
			f.memory += 4 * (len(v.Bytes) + 1<<10)
		}
	}
	f.memory += 4*int(f.most) + 1<<20
}

// check checks the form of an error.
func (f *faults) check(t *testing.T, doing string, err error) {
	t.Helper()
	text := err.Error()
	at := f.st.Path("") // all names are below it
	if len(f.names) == 1 && f.names[0] == "" {
		at = filepath.Dir(at) // a format may list the folder of a file
	}
	named := strings.Contains(text, at)
	switch {
	case strings.Contains(text, "internal error") || strings.Contains(text, "panic"):
		t.Errorf("%s: it panicked: %v", doing, err)
	case strings.Contains(text, "\n"):
		t.Errorf("%s: the error has several lines: %v", doing, err)
	case !named:
		t.Errorf("%s: the error names no object: %v", doing, err)
	case errors.Is(err, errBudget):
		t.Errorf("%s: it takes more memory than %d bytes: %v", doing, f.memory, err)
	}
}

// try opens the source. A panic is reported as a test error.
func (f *faults) try(t *testing.T, ctx context.Context, st store.Store) (s driver.Source, err error) {
	t.Helper()
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("opening panicked: %v\n%s", p, debug.Stack())
			err = fmt.Errorf("%s: it panicked", f.st.Path(""))
		}
	}()
	return f.open(ctx, st)
}

// kinds returns new faults, with the errors that they must cause.
func (f *faults) kinds() []struct {
	fault *faulttest.Fault
	is    error
} {
	return []struct {
		fault *faulttest.Fault
		is    error
	}{
		{faulttest.Error(errFault).On(faulttest.Open), errFault},
		{faulttest.Error(errFault).On(faulttest.Read), errFault},
		{faulttest.Error(errFault).On(faulttest.Read).After(1), errFault},
		{faulttest.Short().On(faulttest.Read), store.ErrShort},
		{faulttest.Truncate(0), store.ErrChanged},
		{faulttest.Truncate(1), store.ErrChanged},
		{faulttest.Truncate(f.most / 2), store.ErrChanged},
		{faulttest.Changed(), store.ErrChanged},
	}
}

// opening fails while the source is opened, or makes bad files.
func (f *faults) opening(t *testing.T) {
	list := f.kinds()
	for _, op := range []faulttest.Op{faulttest.List, faulttest.Stat} {
		list = append(list, f.kinds()[0])
		list[len(list)-1].fault = faulttest.Error(errFault).On(op)
	}
	for _, c := range list {
		doing := "opened with " + c.fault.String()
		s, err := f.try(t, t.Context(), faulttest.New(f.st, 1, c.fault))
		if err == nil {
			if c.is == errFault && c.fault.Hits() > 0 && s.Info().BadFiles == 0 {
				t.Errorf("%s: a failure was not noticed", doing)
			}
			s.Close()
			continue
		}
		f.check(t, doing, err)
		if !errors.Is(err, c.is) {
			t.Errorf("%s: error is %v", doing, err)
		}
	}
}

// read reads records with the fault, then again without it.
func (f *faults) read(t *testing.T, ctx context.Context, s driver.Source, on *atomic.Bool) ([]driver.Record, error) {
	obj := recordread.NewObjects(s, &retry.Options{Attempts: 1})
	defer obj.Close()
	b := newBuffer(false)
	b.budget = f.memory
	r := recordread.NewDirect(s, obj)
	r.Alloc = b.alloc
	on.Store(true)
	defer on.Store(false)
	return r.Read(ctx, f.ids)
}

// same compares records with their values without faults.
func (f *faults) same(t *testing.T, doing string, recs []driver.Record) (failed int, first error) {
	t.Helper()
	for k := range recs {
		rec := &recs[k]
		if rec.Err != nil {
			f.check(t, doing, rec.Err)
			if failed++; first == nil {
				first = rec.Err
			}
		} else if !same(f.clean[rec.ID], copyRecord(rec)) {
			t.Errorf("%s: record %d has wrong content, and no error", doing, rec.ID)
		}
	}
	return failed, first
}

// well checks that everything can be read without faults.
func (f *faults) well(t *testing.T, doing string, s driver.Source) {
	t.Helper()
	recs, err := f.read(t, t.Context(), s, new(atomic.Bool))
	if err != nil {
		t.Errorf("%s, afterwards: %v", doing, err)
		return
	}
	if n, err := f.same(t, doing+", afterwards", recs); n > 0 {
		t.Errorf("%s: afterwards %d records fail, the first one with: %v", doing, n, err)
	}
}

// reading makes the store fail while records are read from a source that was opened without faults.
func (f *faults) reading(t *testing.T) {
	for _, c := range f.kinds() {
		doing := "read with " + c.fault.String()
		var on atomic.Bool
		s, err := f.open(t.Context(), faulttest.New(f.st, 1, c.fault.While(on.Load)))
		if err != nil {
			t.Fatal(err)
		}
		recs, err := f.read(t, t.Context(), s, &on)
		n := 0
		if err != nil {
			f.check(t, doing, err)
		} else {
			n, err = f.same(t, doing, recs)
		}
		switch {
		case err != nil && !errors.Is(err, c.is):
			t.Errorf("%s: %d records fail, the first one with: %v", doing, n, err)
		case err == nil && c.fault.Hits() > 0 && c.is == errFault:
			t.Errorf("%s: a failure was not noticed", doing)
		}
		if e := new(store.Error); errors.As(err, &e) && e.Op == "read" && e.Len > 0 && !strings.Contains(err.Error(), fmt.Sprintf("bytes %d to %d", e.Off, e.Off+e.Len)) {
			t.Errorf("%s: the error does not say which bytes: %v", doing, err)
		}
		f.well(t, doing, s)
		if err := s.Close(); err != nil {
			t.Errorf("%s: Close: %v", doing, err)
		}
	}
}

// hanging checks that a hanging call ends when its context is cancelled.
func (f *faults) hanging(t *testing.T) {
	why := errors.New("given up")
	for _, op := range []faulttest.Op{faulttest.List, faulttest.Stat, faulttest.Open, faulttest.Read} {
		for _, after := range []int64{0, 1, 3} {
			hang := faulttest.Hang().On(op).After(after)
			f.giveUp(t, fmt.Sprintf("opening, %s hangs", op), hang, why, func(ctx context.Context) error {
				s, err := f.try(t, ctx, faulttest.New(f.st, 1, hang))
				if err == nil {
					s.Close()
				}
				return err
			})
		}
	}
	for _, op := range []faulttest.Op{faulttest.Open, faulttest.Read} {
		for _, after := range []int64{0, 1, 3} {
			var on atomic.Bool
			hang := faulttest.Hang().On(op).After(after).While(on.Load)
			s, err := f.open(t.Context(), faulttest.New(f.st, 1, hang))
			if err != nil {
				t.Fatal(err)
			}
			doing := fmt.Sprintf("reading, %s hangs", op)
			f.giveUp(t, doing, hang, why, func(ctx context.Context) error {
				_, err := f.read(t, ctx, s, &on)
				return err
			})
			f.well(t, doing, s)
			s.Close()
		}
	}
}

// giveUp runs do, and cancels it once it hangs.
func (f *faults) giveUp(t *testing.T, doing string, hang *faulttest.Fault, why error, do func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	done := make(chan error, 1)
	go func() { done <- do(ctx) }()
	var err error
	for waiting := true; waiting; {
		select {
		case err = <-done:
			waiting = false
		case <-time.After(time.Millisecond):
			if hang.Hits() == 0 {
				continue
			}
			cancel(why)
			select {
			case err = <-done:
				waiting = false
			case <-time.After(patience):
				t.Fatalf("%s: it does not end when it is given up", doing)
			}
		}
	}
	if hang.Hits() > 0 && !errors.Is(err, why) && !errors.Is(err, context.Canceled) {
		t.Errorf("%s: error is %v", doing, err)
	}
}

// flips is the number of bytes to damage, one after the other.
const flips = 60

// flipped damages single bytes: at the start and the end of objects, where formats have their
// metadata, and some between.
func (f *faults) flipped(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	n := int64(flips)
	if testing.Short() { // each flip opens the source twice, one after the other, which is slow for compressed data
		n = flips / 5
	}
	for i := range n {
		k := rng.IntN(len(f.names))
		size := f.sizes[k]
		if size == 0 {
			continue
		}
		at := rng.Int64N(size)
		switch i % 3 {
		case 0:
			at = (i / 3) % size
		case 1:
			at = max(size-1-i/3, 0)
		}
		doing := fmt.Sprintf("byte %d of %s is changed", at, f.st.Path(f.names[k]))
		flip := func() *faulttest.Fault { return faulttest.Flip(at).Named(f.names[k]) }
		// The fault happens during opening.
		s, err := f.try(t, t.Context(), faulttest.New(f.st, 1, flip()))
		if err != nil {
			f.check(t, doing, err)
		} else {
			s.Close()
		}
		// The fault happens during reading.
		var on atomic.Bool
		s, err = f.open(t.Context(), faulttest.New(f.st, 1, flip().While(on.Load)))
		if err != nil {
			t.Fatal(err)
		}
		recs, err := f.read(t, t.Context(), s, &on)
		if err != nil {
			f.check(t, doing, err)
		}
		for r := range recs {
			switch rec := &recs[r]; {
			case rec.Err != nil:
				f.check(t, doing, rec.Err)
			case f.checked && !same(f.clean[rec.ID], copyRecord(rec)):
				t.Errorf("%s: record %d has wrong content, and no error", doing, rec.ID)
			}
		}
		if f.checked {
			f.well(t, doing, s)
		}
		s.Close()
	}
}
