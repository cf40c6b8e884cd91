package doctor

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stokerdata/stoker/internal/doctor/pystack"
	"github.com/stokerdata/stoker/internal/proc"
)

// TestVerdictInTime: there is a verdict fifteen seconds after the first batch of any job, or after the wait for one has
// timed out. Both clocks are simulated.
func TestVerdictInTime(t *testing.T) {
	const within, look = 15.0, 200 * time.Microsecond
	attached := Options{Seconds: FirstVerdict.Seconds(), Patience: 2, Most: 14.5}
	for _, c := range []struct {
		name  string
		opt   Options
		batch float64       // seconds until the loop is in its first step; 0: never
		cost  time.Duration // of a sample
		spent time.Duration // CPU time of each
		late  float64       // additional seconds from the start that are allowed
	}{
		{"attached", attached, 0.1, 0, look, 0},
		{"attached to one that is slow to begin", attached, 4, 0, look, 0},
		{"attached to one that never trains", attached, 0, 0, look, 0},
		{"a command with an end", Options{Seconds: 10}, 3, 0, look, 3},
		{"a command without one", Options{}, 3, 0, look, 3},
		{"a command whose start takes a minute", Options{}, 70, 0, look, 70},
		{"a command that never trains", Options{}, 0, 0, look, 60},
		{"attached, and looks are dear", attached, 4, 0, 100 * look, 0},
		{"very many threads", Options{}, 3, time.Second, look, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := recorded{t, t.TempDir()}
				m.run(100, 1, "python train.py", 'S', "running")
				m.children(100)
				c.opt.PID, c.opt.FS = 100, proc.FS{Proc: m.dir, Sys: m.dir}
				start, given := time.Now(), time.Duration(0)
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				defer cancel()
				if c.opt.Seconds == 0 {
					c.opt.First = func(r *Report) {
						if given = time.Since(start); r.Line == "" || r.Verdict == "" {
							t.Errorf("first: %q %q", r.Verdict, r.Line)
						}
						cancel()
					}
				}
				w, err := newCollector(c.opt)
				if err != nil {
					t.Fatal(err)
				}
				defer w.close()
				turn, spent := 0, time.Duration(0)
				w.pace.cpu = func() time.Duration { return spent }
				w.open = func(pid int) (stacks, error) {
					return scripted{pid, func() []pystack.Frame {
						time.Sleep(c.cost)
						spent += c.spent
						turn++
						switch {
						case c.batch == 0 || time.Since(start).Seconds() < c.batch:
							return stack("/home/u/make.py", "main")
						case turn%2 == 0:
							return stack("/home/u/train.py", "train_step", "/home/u/train.py", "main")
						}
						return stack(torchData+"/dataloader.py", "__next__", "/home/u/train.py", "main")
					}}, nil
				}
				w.run(ctx)
				if given == 0 {
					given = time.Since(start)
				}
				if got := given.Seconds(); got > within+c.late {
					t.Errorf("the verdict came after %.1f s, %.1f were allowed", got, within+c.late)
				} else if got < 8 {
					t.Errorf("the verdict came after %.1f s: too few to say anything", got)
				}
			})
		})
	}
}

// TestWatchingKeepsItsBudget: whatever a sample costs, the observation takes less than one per cent of a core, and
// still samples often enough for a verdict. Both clocks are simulated.
func TestWatchingKeepsItsBudget(t *testing.T) {
	for _, c := range []struct {
		name              string
		begin, look, slow time.Duration // CPU time: of the first sample, of each sample, of the slow readings
		least             int           // samples
	}{
		{"a cheap job", time.Millisecond, 50 * time.Microsecond, time.Millisecond, 250},
		{"a common one", 10 * time.Millisecond, 200 * time.Microsecond, 4 * time.Millisecond, 100},
		{"a program that is hard to find one's way in", 60 * time.Millisecond, 300 * time.Microsecond, 3 * time.Millisecond, 30},
		{"many threads", 20 * time.Millisecond, 2 * time.Millisecond, 4 * time.Millisecond, 15},
		{"very many", 30 * time.Millisecond, 3 * time.Millisecond, 10 * time.Millisecond, 8},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := recorded{t, t.TempDir()}
				m.run(100, 1, "python train.py", 'S', "running")
				m.children(100)
				spent, looks := time.Duration(0), 0
				opt := Options{PID: 100, FS: proc.FS{Proc: m.dir, Sys: m.dir}, Seconds: FirstVerdict.Seconds()}
				opt.Progress = func(float64, bool) { spent += c.slow }
				w, err := newCollector(opt)
				if err != nil {
					t.Fatal(err)
				}
				defer w.close()
				w.pace.cpu = func() time.Duration { return spent }
				start := time.Now()
				w.open = func(pid int) (stacks, error) {
					return scripted{pid, func() []pystack.Frame {
						if looks++; looks == 1 {
							spent += c.begin
						}
						spent += c.look
						if looks%2 == 0 {
							return stack("/home/u/train.py", "train_step", "/home/u/train.py", "main")
						}
						return stack(torchData+"/dataloader.py", "__next__", "/home/u/train.py", "main")
					}}, nil
				}
				w.run(t.Context())
				if share := spent.Seconds() / time.Since(start).Seconds(); share >= 0.01 || share <= 0 {
					t.Errorf("it took %.2f%% of a core, with %d looks", 100*share, looks)
				}
				if looks < c.least {
					t.Errorf("%d looks, at least %d were expected", looks, c.least)
				}
			})
		})
	}
}
