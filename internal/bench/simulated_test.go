package bench

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stokerdata/stoker/internal/handoff"
	"github.com/stokerdata/stoker/internal/pipeline"
)

// slowLoader has a batch of 4 rows at regular intervals, whether or not the trainer waits for it. Its time is
// synctest's.
type slowLoader struct {
	every   time.Duration
	ready   time.Time // of the next batch
	batches int       // in an epoch
	n       int
}

func (l *slowLoader) Start(int64, int64) error       { l.ready = time.Now().Add(l.every); return nil }
func (l *slowLoader) Data(handoff.Batch) []byte      { return nil }
func (l *slowLoader) Release(handoff.Batch) error    { return nil }
func (l *slowLoader) Stats() (pipeline.Stats, error) { return pipeline.Stats{}, nil }

func (l *slowLoader) Next(time.Duration) (handoff.Message, error) {
	if l.n++; l.n > l.batches {
		l.n = 0
		return handoff.EpochEnd{}, nil
	}
	time.Sleep(time.Until(l.ready))
	l.ready = l.ready.Add(l.every)
	return handoff.Batch{Rows: 4}, nil
}

// A simulated accelerator reports loaders that are slower or faster than the accelerator.
func TestTrainerTellsWaitingFromComputing(t *testing.T) {
	for _, c := range []struct {
		load, step time.Duration
		au         float64
		waited     float64
		wait, took float64 // of a step, in seconds
	}{
		{10 * time.Millisecond, 2 * time.Millisecond, 0.2, 1, 0.008, 0.010},
		{2 * time.Millisecond, 10 * time.Millisecond, 1, 0, 0, 0.010},
		{4 * time.Millisecond, 0, 0, 1, 0.004, 0.004},
	} {
		synctest.Test(t, func(t *testing.T) {
			o := &Options{Step: c.step, Steps: 101}
			l := &slowLoader{every: c.load, batches: 30}
			tr := &trainer{o: o, c: l, clock: &stopClock{}, every: 1}
			if err := tr.firstSteps(1); err != nil {
				t.Fatal(err)
			}
			if err := tr.run(); err != nil {
				t.Fatal(err)
			}
			r := &Result{Records: 120}
			r.fill(o, []*trainer{tr}, []pipeline.Stats{{}}, []pipeline.Stats{{}}, tr.total)
			if r.Steps != 100 || r.Examples != 400 || r.Waited != c.waited {
				t.Errorf("%+v", r)
			}
			near(t, "AU", 1+r.AU, 1+c.au)
			near(t, "wait", 1+r.Wait.P50, 1+c.wait)
			near(t, "step", r.StepTime.P50, c.took)
			near(t, "longest step", r.StepTime.Max, c.took)
			near(t, "examples/s", r.PerSecond, 4/c.took)
			near(t, "epoch", r.Epoch, 30*c.took)
		})
	}
}

// Feed finds the number of accelerators on a data path that is simulated too.
func TestFeed(t *testing.T) {
	const batch, step = 100, 200 * time.Millisecond // one accelerator takes 500 examples/s
	for _, c := range []struct {
		name        string
		speed       float64 // examples/s at most
		records     int64
		target      float64
		refused     int // from so many on there is no memory
		want, tries int
		more        string
		overhead    float64
	}{
		{name: "one", speed: 700, records: 1e6, target: 0.9, want: 1, tries: 2},
		{name: "none", speed: 100, records: 1e6, target: 0.9, want: 0, tries: 1},
		{name: "many", speed: 20_000, records: 1e6, target: 0.9, want: 44, tries: 2},
		{name: "the data ends", speed: 20_000, records: 1000, target: 0.9, want: 10, tries: 1, more: "more than 10 were not tried: the data has 10 batches"},
		{name: "worse than it seemed", speed: 20_000, overhead: 0.5, records: 1e6, target: 0.9, want: 22},
		{name: "no memory", speed: 20_000, records: 1e6, target: 0.9, refused: 8, want: 7, more: "with 8 accelerators: no memory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			run := func(_ context.Context, o Options) (*Result, error) {
				r := &Result{Records: c.records, Accelerators: o.Accelerators, PerSecond: c.speed, AU: 1}
				if o.Step == 0 {
					return r, nil
				}
				if c.refused > 0 && o.Accelerators >= c.refused {
					return nil, &handoff.Failure{Message: handoff.Error{Reason: "no memory"}}
				}
				r.AU = min(1, c.speed*(1-c.overhead)*step.Seconds()/float64(batch*o.Accelerators))
				return r, nil
			}
			o := Options{Config: pipeline.Config{BatchSize: batch}, Step: step}
			f, err := feed(context.Background(), o, c.target, func(string, ...any) {}, run)
			if err != nil {
				t.Fatal(err)
			}
			if f.Accelerators != c.want || f.Note != c.more || c.tries > 0 && len(f.Runs) != c.tries || len(f.Runs) > 8 {
				t.Errorf("%d in %d runs, note %q", f.Accelerators, len(f.Runs), f.Note)
			}
			if !slices.IsSortedFunc(f.Runs, func(a, b *Result) int { return a.Accelerators - b.Accelerators }) {
				t.Errorf("runs %+v", f.Runs)
			}
		})
	}
	failed := errors.New("no")
	if _, err := feed(context.Background(), Options{}, 0.9, nil, func(context.Context, Options) (*Result, error) { return nil, failed }); !errors.Is(err, failed) {
		t.Errorf("a run that fails: %v", err)
	}
}
