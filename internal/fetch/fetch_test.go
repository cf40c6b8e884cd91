package fetch

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/faultsource"
	"github.com/stokerdata/stoker/source/driver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func blobs(n int64, size int) *faultsource.Memory {
	data := make([]byte, size)
	m := faultsource.NewMemory(n, []driver.Field{{Name: "x", Kind: driver.KindImage}}, func(id int64, v []driver.Value) error {
		v[0].Bytes = data
		return nil
	})
	m.Copy = true
	return m
}

func get(t *testing.T, r *Reader) *Buffer {
	t.Helper()
	b, err := r.Get(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestReadAndReuse(t *testing.T) {
	budget := arena.NewBudget(8 << 20)
	r := NewReader(blobs(100, 5000), budget, 1, 1, 16)
	for range 5 {
		b := get(t, r)
		if err := r.Read(context.Background(), 0, b, []int64{5, 7, 9}); err != nil {
			t.Fatal(err)
		}
		if len(b.Records) != 3 || b.Records[2].ID != 9 || len(b.Records[1].Values[0].Bytes) != 5000 {
			t.Fatalf("%+v", b.Records)
		}
		r.Done(b)
	}
	c := r.Counters()
	if c.Records != 15 || c.Bytes < 15*5000 || c.Retries != 0 {
		t.Fatalf("%+v", c)
	}
	r.Free()
	if budget.Used() != 0 {
		t.Fatalf("%d bytes are held after Free", budget.Used())
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	b := get(t, r)
	if _, err := r.Get(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("error is %v", err)
	}
	if err := r.Read(ctx, 0, b, []int64{1}); !errors.Is(err, context.Canceled) {
		t.Fatalf("error is %v", err)
	}
}

func TestRetries(t *testing.T) {
	for _, c := range []struct {
		fault   *faultsource.Fault
		retries int64
		fails   bool
	}{
		{&faultsource.Fault{Err: syscall.EIO, Whole: true, Times: 3}, 3, false},
		{&faultsource.Fault{Err: fmt.Errorf("x: %w", syscall.ETIMEDOUT), Times: 1}, 1, false},
		{&faultsource.Fault{Err: syscall.EIO, Whole: true}, 4, true},
		{&faultsource.Fault{Err: errors.New("bad"), Whole: true}, 0, true},
		{&faultsource.Fault{Err: syscall.ENOENT, Whole: true}, 0, true},
		{&faultsource.Fault{Panic: "oops"}, 0, true},
	} {
		r := NewReader(faultsource.Wrap(blobs(10, 10), func(id int64) *faultsource.Fault { return c.fault }), arena.NewBudget(1<<20), 1, 1, 4)
		r.Backoff = time.Microsecond
		b := get(t, r)
		err := r.Read(context.Background(), 0, b, []int64{3})
		if (err != nil) != c.fails || r.Counters().Retries != c.retries {
			t.Errorf("%+v: error %v after %d retries", c.fault, err, r.Counters().Retries)
		}
		if b.Records[0].ID != 3 {
			t.Errorf("%+v: the record has lost its number", c.fault)
		}
		r.Done(b)
		r.Free()
	}
}

// Reads that together pass the budget wait for each other; none fails and none
// waits for ever.
func TestReadsShareTheBudget(t *testing.T) {
	const workers, size = 6, 300 << 10
	budget := arena.NewBudget(4 << 20) // room for about three groups of four
	r := NewReader(blobs(1000, size), budget, workers, 2*workers, 4)
	done := make(chan *Buffer, 2*workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range int64(20) {
				b, err := r.Get(context.Background())
				if err == nil {
					err = r.Read(context.Background(), w, b, []int64{i, i + 1, i + 2, i + 3})
				}
				if err != nil {
					t.Error(err)
					return
				}
				done <- b
			}
		})
	}
	finished := make(chan struct{})
	go func() {
		for b := range done {
			time.Sleep(100 * time.Microsecond) // a slow decoder
			r.Done(b)
		}
		close(finished)
	}()
	wg.Wait()
	close(done)
	<-finished
	if budget.Peak() > budget.Limit() {
		t.Fatalf("%d bytes were used", budget.Peak())
	}
	r.Free()
}

func TestTooLargeForTheBudget(t *testing.T) {
	r := NewReader(blobs(10, 3<<20), arena.NewBudget(2<<20), 1, 2, 4)
	b := get(t, r)
	err := r.Read(context.Background(), 0, b, []int64{1})
	var me *MemoryError
	if !errors.As(err, &me) || !strings.Contains(err.Error(), "does not fit the 2 MiB") {
		t.Fatalf("error is %v", err)
	}
	r.Done(b)
	r.Free()
}

func TestOldest(t *testing.T) {
	src := faultsource.Wrap(blobs(10, 10), func(id int64) *faultsource.Fault {
		if id == 4 {
			return &faultsource.Fault{Delay: time.Hour}
		}
		return nil
	})
	r := NewReader(src, arena.NewBudget(1<<20), 2, 2, 4)
	if _, _, ok := r.Oldest(); ok {
		t.Fatal("something is outstanding before the first read")
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- r.Read(ctx, 1, get(t, r), []int64{4}) }()
	for {
		id, since, ok := r.Oldest()
		if ok && since > 5*time.Millisecond {
			if id != 4 {
				t.Fatalf("record %d is outstanding", id)
			}
			break
		}
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("error is %v", err)
	}
	if _, _, ok := r.Oldest(); ok {
		t.Fatal("something is outstanding after the last read")
	}
}
