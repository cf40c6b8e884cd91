package lease

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/stokerdata/stoker/internal/store/node"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server provides values that expire, a different one each time.
type server struct {
	n    atomic.Int64
	ends time.Duration // 0 for never
	fail atomic.Bool
	// pass makes failures transient, tries counts them.
	pass  bool
	tries atomic.Int64
}

type noAnswer struct{ pass bool }

func (e noAnswer) Error() string   { return "no answer" }
func (e noAnswer) Transient() bool { return e.pass }

func (s *server) fetch(context.Context) (int64, time.Time, error) {
	if s.fail.Load() {
		s.tries.Add(1)
		return 0, time.Time{}, noAnswer{s.pass}
	}
	n := s.n.Add(1)
	if s.ends == 0 {
		return n, time.Time{}, nil
	}
	return n, time.Now().Add(s.ends), nil
}

func (s *server) lease(key string) *Lease[int64] {
	return Shared(func() string { return key }, s.fetch)
}

func get(t *testing.T, l *Lease[int64]) int64 {
	t.Helper()
	n, err := l.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// All leases with one key, as in many processes, cause one fetch, and one more after Refused.
func TestShared(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	t.Setenv(node.Env, dir)
	s := &server{ends: time.Hour}
	var all [16]*Lease[int64]
	var wg sync.WaitGroup
	for i := range all {
		all[i] = s.lease("a")
		wg.Go(func() {
			if n, err := all[i].Get(t.Context()); n != 1 || err != nil {
				t.Errorf("%d, %v", n, err)
			}
		})
	}
	wg.Wait()
	if get(t, s.lease("b")) != 2 || get(t, s.lease("")) != 3 || get(t, Shared(func() string { return "" }, s.fetch)) != 4 {
		t.Error("what has another key is shared")
	}
	for i, l := range all {
		l.mu.Lock()
		l.got = l.got.Add(-2 * fetchAgain) // Refused keeps a value that is new
		l.mu.Unlock()
		if i > 0 {
			l.mu.Lock()
			l.known = false // like Refused
			l.mu.Unlock()
		} else if !l.Refused() {
			t.Error("there is no other one")
		}
	}
	// The record has the refused value with an older time.
	f, err := node.Open("keys", "a")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Write([]byte(strings.Replace(string(f.Read()), `"Got":"2`, `"Got":"1`, 1))); err != nil {
		t.Fatal(err)
	}
	for _, l := range all {
		if n := get(t, l); n != 5 {
			t.Errorf("%d after it was refused", n)
		}
	}
	// A damaged record is fetched again.
	if err := f.Write([]byte(`{"Have":"x"}`)); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if n := get(t, s.lease("a")); n != 6 {
		t.Errorf("%d", n)
	}
	// The old value is used while a new one cannot be fetched.
	s.fail.Store(true)
	if n := get(t, s.lease("a")); n != 6 {
		t.Errorf("%d", n)
	}
	if _, err := s.lease("c").Get(t.Context()); err == nil {
		t.Error("there is one without a fetch")
	}
}

// One process finds out that there are no credentials and tells those that ask in the next seconds. A transient
// error is only told for a moment.
func TestSharedFailure(t *testing.T) {
	for _, pass := range []bool{false, true} {
		t.Setenv(node.Env, filepath.Join(t.TempDir(), "run"))
		s := &server{ends: time.Hour, pass: pass}
		s.fail.Store(true)
		var all [16]*Lease[int64]
		var wg sync.WaitGroup
		for i := range all {
			all[i] = s.lease("a")
			wg.Go(func() {
				var says interface{ Transient() bool }
				_, err := all[i].Get(t.Context())
				if err == nil || !strings.HasPrefix(err.Error(), "no answer") || !errors.As(err, &says) || says.Transient() != pass {
					t.Errorf("%v", err)
				}
			})
		}
		wg.Wait()
		if n := s.tries.Load(); !pass && n != 1 {
			t.Errorf("it was tried %d times", n)
		}
		age := func(by time.Duration) {
			f, err := node.Open("keys", "a")
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			var r record[int64]
			if err := json.Unmarshal(f.Read(), &r); err != nil || r.Failure != "no answer" || r.Passing != pass {
				t.Fatalf("%+v, %v", r, err)
			}
			r.Failed = time.Now().Add(-by)
			b, err := json.Marshal(r)
			if err == nil {
				err = f.Write(b)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		// Fetching works again, but a recent error is still told.
		s.fail.Store(false)
		age(fetchAgain / 2)
		if _, err := s.lease("a").Get(t.Context()); (err == nil) != pass {
			t.Errorf("pass %v: %v", pass, err)
		}
		if !pass {
			age(fetchAgain + time.Second)
		}
		for _, l := range all {
			if n := get(t, l); n != 1 {
				t.Errorf("%d", n)
			}
		}
	}
}

// A value that never expires is not in a file.
func TestEndless(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	t.Setenv(node.Env, dir)
	s := &server{}
	if get(t, s.lease("a")) != 1 || get(t, s.lease("a")) != 2 {
		t.Error("it is shared")
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err != nil || info.Size() > 0 {
			t.Errorf("%s has something in it", e.Name())
		}
	}
}

// If nothing can be shared, each process fetches for itself.
func TestAlone(t *testing.T) {
	t.Setenv(node.Env, "off")
	s := &server{ends: time.Hour}
	if get(t, s.lease("a")) != 1 || get(t, s.lease("a")) != 2 {
		t.Error("it is shared")
	}
}

// Different variables and different files make different keys.
func TestKey(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	key := func() string { return Key("x", []string{"profile"}, []string{"STOKER_TEST_"}, []string{file}) }
	seen := map[string]bool{key(): true}
	t.Setenv("STOKER_TEST_A", "1")
	seen[key()] = true
	t.Setenv("STOKER_TEST_A", "2")
	seen[key()] = true
	if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	seen[key()] = true
	if again := key(); len(seen) != 4 || !seen[again] {
		t.Errorf("%d keys", len(seen))
	}
}

// A value that does not expire is fetched again when it is refused. Once it is the same again, a retry is useless.
func TestRefusedForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		value := "a"
		l := Shared(func() string { return "" }, func(context.Context) (string, time.Time, error) { return value, time.Time{}, nil })
		for i, c := range []struct {
			value string
			after time.Duration
			again bool
		}{
			{"a", 0, true},            // fetched again
			{"a", 0, false},           // it was the same
			{"b", time.Second, true},  // fetched again
			{"b", 0, true},            // it was another one
			{"b", time.Second, true},  // fetched again
			{"b", 0, false},           // it was the same
			{"b", time.Second, true},  // for the next operation
			{"b", rereadAgain, false}, // it was the same
		} {
			if _, err := l.Get(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(c.after)
			value = c.value
			if got := l.Refused(); got != c.again {
				t.Errorf("%d: %v", i, got)
			}
			if got, err := l.Get(t.Context()); err != nil || c.again && got != c.value {
				t.Errorf("%d: %q, %v", i, got, err)
			}
		}
	})
}
