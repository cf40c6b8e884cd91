package limit_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stokerdata/stoker/internal/store/limit"
	"github.com/stokerdata/stoker/store"
	"github.com/stokerdata/stoker/store/storetest"
)

// The clock of a synctest bubble moves only when everybody waits: what is taken is
// exactly the rate.
func TestBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := limit.New(storetest.NewMemory(map[string][]byte{"x": make([]byte, 1<<20)}), limit.Options{BytesPerSecond: 10_000})
		start := time.Now()
		var wg sync.WaitGroup
		for w := range 4 {
			o, err := s.Open(t.Context(), "x")
			if err != nil {
				t.Fatal(err)
			}
			wg.Go(func() {
				for i := range 5 {
					if err := o.ReadAt(t.Context(), make([]byte, 5000), int64(w*i)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		// 100,000 bytes, of which a tenth of a second's come at once.
		if d := time.Since(start); d < 9900*time.Millisecond-time.Microsecond || d > 9901*time.Millisecond {
			t.Errorf("it took %v", d)
		}
	})
}

func TestRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := limit.New(storetest.NewMemory(map[string][]byte{"x": make([]byte, 10)}), limit.Options{RequestsPerSecond: 2})
		start := time.Now()
		o, err := s.Open(t.Context(), "x") // at once
		if err == nil {
			err = o.ReadAt(t.Context(), make([]byte, 10), 0)
		}
		if err == nil {
			_, err = s.Stat(t.Context(), "x")
		}
		if err == nil {
			err = s.List(t.Context(), "", nil, func(store.Entry) error { return nil })
		}
		if err != nil {
			t.Error(err)
		}
		if d := time.Since(start); d != 1500*time.Millisecond {
			t.Errorf("it took %v", d)
		}
	})
}

func TestCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := limit.New(storetest.NewMemory(map[string][]byte{"x": make([]byte, 1000)}), limit.Options{BytesPerSecond: 10})
		o, err := s.Open(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		why := errors.New("why")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(why) })
		if err := o.ReadAt(ctx, make([]byte, 1000), 0); !errors.Is(err, why) || !strings.Contains(err.Error(), "memory:x, bytes 0 to 1000") {
			t.Errorf("error is %v", err)
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if err := o.ReadAt(ctx, make([]byte, 1000), 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error is %v", err)
		}
	})
}
