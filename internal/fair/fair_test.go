package fair

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// virtual returns a node whose CPU time is the time of a bubble, in which turns are the only work. Each turn costs the
// process half as much again.
func virtual(turns int) (*Node, *atomic.Int64) {
	n, began := NewNode(turns), time.Now()
	var process atomic.Int64
	n.thread = func() time.Duration { return time.Since(began) }
	n.process = func() time.Duration { return time.Duration(process.Load()) }
	n.seen = 0
	return n, &process
}

// work lets workers of parts take turns for d, and returns the time in turns of each part.
func work(t *testing.T, d time.Duration, workers int, process *atomic.Int64, parts ...*Part) []time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	used := make([]atomic.Int64, len(parts))
	var wg sync.WaitGroup
	for i, p := range parts {
		for range workers {
			wg.Go(func() {
				var turn Turn
				for {
					turn.Next(ctx, p)
					if !turn.holds {
						return
					}
					time.Sleep(time.Duration(500+100*i) * time.Microsecond)
					process.Add(int64(time.Duration(500+100*i) * 1500 * time.Nanosecond))
					used[i].Add(int64(time.Duration(500+100*i) * time.Microsecond))
					turn.Done()
				}
			})
		}
	}
	wg.Wait()
	sums := make([]time.Duration, len(parts))
	for i := range used {
		sums[i] = time.Duration(used[i].Load())
	}
	return sums
}

func TestWeights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, process := virtual(2)
		a, b := n.Join(3, 0), n.Join(1, 0)
		if a.Share() != 0.75 || b.Share() != 0.25 {
			t.Errorf("shares %g and %g", a.Share(), b.Share())
		}
		used := work(t, time.Second, 2, process, a, b)
		if got := 100 * float64(used[0]) / float64(used[0]+used[1]); math.Abs(got-75) > 1 {
			t.Errorf("a weight of 3 beside one of 1 got %.1f%% of the CPU time", got)
		}
		a.Weigh(0)
		if b.Share() != 1 {
			t.Errorf("the share beside an idle pipeline is %g", b.Share())
		}
		a.Weigh(1)
		used = work(t, time.Second, 2, process, a, b)
		if got := 100 * float64(used[0]) / float64(used[0]+used[1]); math.Abs(got-50) > 1 {
			t.Errorf("a pipeline whose weight is the same for a while got %.1f%% of the CPU time", got)
		}
		a.Close()
		if used := work(t, time.Second, 2, process, b); used[0] < 1900*time.Millisecond || b.Share() != 1 {
			t.Errorf("the last pipeline has %v of 2 s", used[0])
		}
	})
}

func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, others := range []int{0, 1} {
			n, process := virtual(4)
			p := n.Join(1, 0.4)
			parts := []*Part{p}
			for range others {
				parts = append(parts, n.Join(1, 0))
			}
			used := work(t, 10*time.Second, 2, process, parts...)
			// With the overhead, as long as there is work.
			if got := 1.5 * used[0].Seconds() / 10; math.Abs(got-0.4) > 0.02 {
				t.Errorf("with %d others, %.3f cores were used, with a limit of 0.4", others, got)
			}
		}
	})
}

func TestMemory(t *testing.T) {
	n := NewNode(2)
	var sum int64
	for range 8 {
		p := n.Join(1, 0)
		got := p.Memory(800, 1)
		p.Took(got)
		sum += got
	}
	if sum > 900 || sum < 700 {
		t.Errorf("eight pipelines have %d of 800 bytes", sum)
	}
	for range 100 {
		p := n.Join(1, 0)
		got := p.Memory(800, 1)
		p.Took(got)
		if sum += got; got < 800/32 && sum < 1500 || sum > 1600 {
			t.Errorf("one of many pipelines has %d bytes, all have %d", got, sum)
		}
	}
	n = NewNode(2)
	a, b := n.Join(3, 0), n.Join(1, 0)
	ma := a.Memory(800, 4)
	a.Took(ma)
	if mb := b.Memory(1<<40, 4); ma != 300 || mb != 100 {
		t.Errorf("weights of 3 and 1 have %d and %d bytes", ma, mb)
	}
	a.Close()
	a.Close()
	if n.taken != 0 {
		t.Errorf("%d bytes are taken after the end", n.taken)
	}
}

// A worker that waits goes on when its pipeline is closed or its context done.
func TestEnd(t *testing.T) {
	n := NewNode(1)
	a, b := n.Join(1, 0), n.Join(1, 0)
	var turn Turn
	turn.Next(t.Context(), a)
	closed, done := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	wait := func(c chan<- struct{}, ctx context.Context, p *Part) {
		defer close(c)
		var turn Turn
		turn.Next(ctx, p)
		turn.Done()
		turn.Leave()
	}
	go wait(closed, t.Context(), b)
	go wait(done, ctx, a)
	cancel()
	b.Close()
	for _, c := range []chan struct{}{closed, done} {
		select {
		case <-c:
		case <-time.After(time.Minute):
			t.Fatal("a worker waits for ever")
		}
	}
	turn.Done()
	turn.Leave()
	turn.Leave()
	if n.turns != 1 {
		t.Errorf("%d turns are free", n.turns)
	}
	turn.Next(t.Context(), nil)
	turn.Done()
	var none *Part
	none.Close()
}
