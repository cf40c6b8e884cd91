package traffic

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestBuckets(t *testing.T) {
	last := -1
	for d := time.Duration(0); d < time.Minute; d += d/64 + time.Microsecond {
		i := bucket(d)
		if i < last {
			t.Fatalf("%v is in bucket %d, less in %d", d, i, last)
		}
		last = i
		if d < lower(i) || d >= lower(i+1) {
			t.Fatalf("%v is in bucket %d, from %v to %v", d, i, lower(i), lower(i+1))
		}
	}
	if i := bucket(1 << 62); i != buckets-1 {
		t.Errorf("bucket %d", i)
	}
	if bucket(-1) != 0 {
		t.Error("a clock that goes back")
	}
}

func TestCounts(t *testing.T) {
	name := "test://" + t.TempDir() // the counters are those of the process
	e := Of(name)
	if Of(name) != e {
		t.Error("another one")
	}
	for i := range 1000 {
		e.Begin(false)
		took := 20 * time.Millisecond
		if i%50 == 0 {
			took = 2 * time.Second
		}
		e.End(took, 100, nil, false)
	}
	e.Begin(true)
	e.End(time.Millisecond, 0, errors.New("slow down"), true)
	e.Begin(false)
	s := e.Stats()
	if s.Requests != 1002 || s.Bytes != 100_000 || s.Retries != 1 || s.Throttled != 1 || s.Errors != 1 || s.InFlight != 1 {
		t.Errorf("%+v", s)
	}
	if s.P50 < 17*time.Millisecond || s.P50 > 23*time.Millisecond || s.P99 < 1700*time.Millisecond || s.P99 > 2300*time.Millisecond {
		t.Errorf("p50 %v, p99 %v", s.P50, s.P99)
	}
	found := false
	for _, o := range All() {
		found = found || o == s
	}
	if !found {
		t.Error("not among all endpoints")
	}
}

// A server is in trouble from its first failure to its next success.
func TestTroubles(t *testing.T) {
	name := "test://" + t.TempDir()
	e := Of(name)
	mine := func() (out []Trouble) {
		for _, t := range Troubles() {
			if t.Endpoint == name {
				out = append(out, t)
			}
		}
		return out
	}
	for range 3 {
		e.Fail("the server answers 503 SlowDown")
		e.End(time.Millisecond, 0, errors.New("slow down"), true)
	}
	got := mine()
	if len(got) != 1 || got[0].Failures != 3 || !strings.HasPrefix(got[0].String(), name+": the server answers 503 SlowDown (3 failed requests in a row in ") {
		t.Errorf("%v", got)
	}
	e.End(time.Millisecond, 0, nil, false)
	if got := mine(); got != nil {
		t.Errorf("%v after a success", got)
	}
}
