package counttest_test

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stokerdata/stoker/internal/store/counttest"
	"github.com/stokerdata/stoker/internal/store/faulttest"
	"github.com/stokerdata/stoker/store"
	"github.com/stokerdata/stoker/store/storetest"
)

func TestStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := storetest.NewMemory(map[string][]byte{"d/x": make([]byte, 100)})
		s := counttest.New(faulttest.New(memory, 1,
			faulttest.Delay(time.Second).On(faulttest.Read),
			faulttest.Error(syscall.EIO).On(faulttest.Read).Bytes(50, 51),
			faulttest.Error(syscall.EIO).On(faulttest.Stat),
		), nil)
		o, err := s.Open(t.Context(), "d/x")
		if err != nil {
			t.Fatal(err)
		}
		if err := o.ReadAt(t.Context(), make([]byte, 10), 0); err != nil {
			t.Fatal(err)
		}
		if err := o.ReadAt(t.Context(), make([]byte, 10), 45); !errors.Is(err, syscall.EIO) {
			t.Fatal(err)
		}
		if _, err := s.Stat(t.Context(), "d/x"); err == nil {
			t.Fatal("no error")
		}
		stop := errors.New("enough") // of the caller, not of the store
		if err := s.List(t.Context(), "", nil, func(store.Entry) error { return stop }); err != stop {
			t.Fatal(err)
		}
		if got, want := s.Stats(), (counttest.Stats{Requests: 5, Bytes: 10, Errors: 2, Busy: 2 * time.Second}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}

// Oldest names the oldest request without I/O, for each kind of request.
func TestOldest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := storetest.NewMemory(map[string][]byte{"a": make([]byte, 100), "b": make([]byte, 100)})
		s := counttest.New(faulttest.New(memory, 1,
			faulttest.Delay(time.Hour).Bytes(7, 8).On(faulttest.Read), faulttest.Delay(2*time.Hour).On(faulttest.Stat)), nil)
		if r, ok := s.Oldest(); ok {
			t.Fatalf("%+v is out", r)
		}
		o, err := s.Open(t.Context(), "b")
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() { _ = o.ReadAt(t.Context(), make([]byte, 20), 5) })
		synctest.Wait()
		time.Sleep(time.Minute)
		wg.Go(func() { _, _ = s.Stat(t.Context(), "a") })
		synctest.Wait()
		r, ok := s.Oldest()
		if want := (counttest.Request{Op: "read", Path: "memory:b", Off: 5, Len: 20, Since: begin}); !ok || r.Op != want.Op || r.Path != want.Path ||
			r.Off != want.Off || r.Len != want.Len || !r.Since.Equal(want.Since) {
			t.Errorf("%+v, %v, want %+v", r, ok, want)
		}
		if n := s.Stats().InFlight; n != 2 {
			t.Errorf("%d requests are out", n)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if r, ok := s.Oldest(); !ok || r.Op != "stat" || r.Path != "memory:a" {
			t.Errorf("%+v, %v", r, ok)
		}
		wg.Wait()
		if r, ok := s.Oldest(); ok || s.Stats().InFlight != 0 {
			t.Errorf("%+v is out", r)
		}
	})
}

// More requests than slots are all counted, and the fields of Oldest belong together while requests come and go.
func TestManyRequests(t *testing.T) {
	objects := map[string][]byte{}
	for i := range 10 {
		objects[fmt.Sprint(i)] = make([]byte, 1000)
	}
	s := counttest.New(storetest.NewMemory(objects), nil)
	var wg sync.WaitGroup
	for w := range 10 {
		o, err := s.Open(t.Context(), fmt.Sprint(w))
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			for range 500 {
				if err := o.ReadAt(t.Context(), make([]byte, w+1), int64(w)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for {
		if r, ok := s.Oldest(); ok {
			if r.Op != "read" || r.Path != fmt.Sprintf("memory:%d", r.Off) || r.Len != r.Off+1 {
				t.Fatalf("%+v", r)
			}
		}
		select {
		case <-done:
			if n := s.Stats(); n.Requests != 10+5000 || n.InFlight != 0 {
				t.Errorf("%+v", n)
			}
		default:
			continue
		}
		break
	}
	synctest.Test(t, func(t *testing.T) {
		s := counttest.New(faulttest.New(storetest.NewMemory(objects), 1, faulttest.Delay(time.Second).On(faulttest.Stat)), nil)
		for range 2000 {
			go func() { _, _ = s.Stat(t.Context(), "1") }()
		}
		synctest.Wait()
		if n := s.Stats().InFlight; n != 2000 {
			t.Errorf("%d are out", n)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := s.Stats(); n.InFlight != 0 || n.Requests != 2000 || n.Busy != 2000*time.Second {
			t.Errorf("%+v", n)
		}
		if r, ok := s.Oldest(); ok {
			t.Errorf("%+v", r)
		}
	})
}
