package pooled

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/stokerdata/stoker/internal/source/sourcetest"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWrapped(t *testing.T) {
	drivertest.Wrapped(t, drivertest.Wrapping{
		Open: func(testing.TB) driver.Source { return sourcetest.Mixed(30).Copied() },
		Wrap: func(t testing.TB, base driver.Source) driver.Source {
			src, err := New().Open(t.Context(), "a", NoRank, func(context.Context) (driver.Source, error) { return base, nil })
			if err != nil {
				t.Fatal(err)
			}
			return src
		},
	})
}

// opener opens memory sources of a version, and counts them.
type opener struct {
	mu      sync.Mutex
	version int
	made    []*sourcetest.Memory
	hold    chan struct{} // if set, opening waits for it
	began   chan struct{}
}

type versioned struct {
	*sourcetest.Memory
	info driver.Info
}

func (v *versioned) Info() *driver.Info { return &v.info }

func (o *opener) open(ctx context.Context) (driver.Source, error) {
	o.mu.Lock()
	version := o.version
	o.mu.Unlock()
	if o.began != nil {
		o.began <- struct{}{}
	}
	if o.hold != nil {
		select {
		case <-o.hold:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	m := sourcetest.Mixed(8)
	v := &versioned{m, *m.Info()}
	v.info.Fingerprint = fmt.Sprint("version ", version)
	o.mu.Lock()
	o.made = append(o.made, m)
	o.mu.Unlock()
	return v, nil
}

// wait waits until all sources but some are closed.
func (o *opener) wait(open int) {
	for ; ; time.Sleep(time.Millisecond) {
		n := 0
		for _, m := range o.made {
			if !m.Closed() {
				n++
			}
		}
		if n == open {
			return
		}
	}
}

func get(t *testing.T, p *Pool, o *opener, key string, rank int) driver.Source {
	t.Helper()
	src, err := p.Open(t.Context(), key, rank, o.open)
	if err != nil {
		t.Fatal(err)
	}
	return src
}

func shut(t *testing.T, all ...driver.Source) {
	t.Helper()
	for _, src := range all {
		if err := src.Close(); err != nil {
			t.Error(err)
		}
	}
}

func baseOf(src driver.Source) driver.Source { return src.(*Source).Base }

// A caller without a rank sees the data as it is when the caller opens it. Equal data is in memory once.
func TestCallers(t *testing.T) {
	p, o := New(), &opener{}
	a, b := get(t, p, o, "k", NoRank), get(t, p, o, "k", NoRank)
	if len(o.made) != 2 || baseOf(a) != baseOf(b) {
		t.Errorf("%d opened", len(o.made))
	}
	o.wait(1)
	other := get(t, p, o, "other", NoRank)
	if baseOf(other) == baseOf(a) {
		t.Error("another key has the same source")
	}
	o.version++
	c := get(t, p, o, "k", NoRank)
	if c.Info().Fingerprint != "version 1" || a.Info().Fingerprint != "version 0" {
		t.Errorf("%q after a change", c.Info().Fingerprint)
	}
	shut(t, a)
	drivertest.Records(t, b, 0, 7)
	shut(t, b, c, other)
	o.wait(0)
	if len(p.data) != 0 {
		t.Errorf("%d left", len(p.data))
	}
}

// Each rank of a job gets the source of the first one, once.
func TestRanks(t *testing.T) {
	p, o := New(), &opener{}
	plain := get(t, p, o, "k", NoRank)
	o.version++
	var all []driver.Source
	for rank := range 8 {
		all = append(all, get(t, p, o, "k", rank))
		if all[rank].Info().Fingerprint != "version 1" {
			t.Errorf("rank %d has %s", rank, all[rank].Info().Fingerprint)
		}
	}
	if len(o.made) != 2 {
		t.Errorf("%d opened", len(o.made))
	}
	o.version++
	again := []driver.Source{get(t, p, o, "k", 3), get(t, p, o, "k", 0)}
	for _, src := range again {
		if src.Info().Fingerprint != "version 2" {
			t.Errorf("again: %s", src.Info().Fingerprint)
		}
	}
	if len(o.made) != 3 {
		t.Errorf("%d opened", len(o.made))
	}
	shut(t, append(append(all, again...), plain)...)
	o.wait(0)
	if len(p.data) != 0 {
		t.Errorf("%d left", len(p.data))
	}
}

// Callers that come while a source is opened share the next opening, unless they are other ranks.
func TestTogether(t *testing.T) {
	for _, ranks := range []bool{false, true} {
		p, o := New(), &opener{hold: make(chan struct{}), began: make(chan struct{}, 9)}
		var mu sync.Mutex
		var all []driver.Source
		var wg sync.WaitGroup
		for rank := range 8 {
			r := NoRank
			if ranks {
				r = rank
			}
			wg.Go(func() {
				src, err := p.Open(t.Context(), "k", r, o.open)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				all = append(all, src)
			})
			if rank == 0 {
				<-o.began
			}
		}
		for waiting := 0; waiting < 8; {
			p.mu.Lock()
			d := p.data["k"]
			waiting = d.running.users
			if d.waiting != nil {
				waiting += d.waiting.users
			}
			p.mu.Unlock()
		}
		close(o.hold)
		wg.Wait()
		want := 2
		if ranks {
			want = 1
		}
		if len(all) != 8 || len(o.made) != want {
			t.Errorf("ranks %t: %d sources, %d opened", ranks, len(all), len(o.made))
		}
		shut(t, all...)
		o.wait(0)
		if len(p.data) != 0 {
			t.Errorf("ranks %t: %d left", ranks, len(p.data))
		}
	}
}

// An opening ends when all callers have given up, and fails for all callers.
func TestGivenUp(t *testing.T) {
	p, o := New(), &opener{hold: make(chan struct{}), began: make(chan struct{}, 9)}
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error)
	var stays driver.Source
	go func() { _, err := p.Open(ctx, "k", 0, o.open); errs <- err }()
	<-o.began
	go func() {
		src, err := p.Open(t.Context(), "k", 1, o.open)
		stays = src
		errs <- err
	}()
	for users := 0; users < 2; {
		p.mu.Lock()
		users = p.data["k"].running.users
		p.mu.Unlock()
	}
	cancel()
	if err := <-errs; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	close(o.hold)
	if err := <-errs; err != nil {
		t.Error(err)
	}
	shut(t, stays)
	o.hold = make(chan struct{})
	ctx, cancel = context.WithCancel(t.Context())
	go func() { _, err := p.Open(ctx, "k", NoRank, o.open); errs <- err }()
	<-o.began
	cancel()
	<-errs
	for left := 1; left > 0; { // the opening has ended, because no caller waits
		p.mu.Lock()
		left = len(p.data)
		p.mu.Unlock()
	}
	bad := errors.New("no such data")
	for _, fail := range []func(context.Context) (driver.Source, error){
		func(context.Context) (driver.Source, error) { return nil, bad },
		func(context.Context) (driver.Source, error) { panic(bad) },
	} {
		if _, err := p.Open(t.Context(), "k", 0, fail); err == nil {
			t.Error("no error")
		}
	}
	o.wait(0)
	if len(p.data) != 0 {
		t.Errorf("%d left", len(p.data))
	}
}

// The cache of a source has the largest limit of its users.
func TestKeep(t *testing.T) {
	c := &cacher{Memory: sourcetest.Mixed(8)}
	p := New()
	var all []*Source
	for rank := range 3 {
		src, err := p.Open(t.Context(), "k", rank, func(context.Context) (driver.Source, error) { return c, nil })
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, src.(*Source))
	}
	for i, want := range []int64{50, 70, 70} {
		driver.Keep(all[i], []int64{50, 70, 10}[i])
		if c.limit != want {
			t.Errorf("limit %d after user %d", c.limit, i)
		}
	}
	for _, s := range all {
		shut(t, s)
	}
}

type cacher struct {
	*sourcetest.Memory
	limit int64
}

func (c *cacher) Useful() int64 { return 100 }
func (c *cacher) Keep(n int64)  { c.limit = n }
