package fetch

import "testing"

// A pipeline that has an eighth of an engine has an eighth of the window, and memory for all workers.
func TestMemoryIsDividedByShare(t *testing.T) {
	const need = 1 << 20
	admitted := func(share float64, workers int, change func(*Config), attach bool) (n int) {
		d := newDisk(1000, need, 1000)
		f := open(d, 64<<20, 1<<20)
		defer f.Close()
		f.cfg.Ahead, f.cfg.Workers = true, workers
		f.cfg.Share = func() float64 { return share }
		if change != nil {
			change(&f.cfg)
		}
		for ; n < 1000; n++ {
			u, _ := f.Locate(t.Context(), int64(n), []int64{int64(n)}, false)
			if attach {
				f.Attach(u, u, 0, nil)
			}
			if !f.Admit(u) {
				break
			}
		}
		return n
	}
	remote := func(c *Config) { c.Remote = true }
	chunks := func(c *Config) { c.Ahead = false }
	for _, c := range []struct {
		name        string
		share       float64
		workers     int
		change      func(*Config)
		ahead, most int // units without a batch, and with one
	}{
		{"alone", 1, 2, nil, 15, 62},
		{"one of eight", 1. / 8, 2, nil, 1, 4},
		{"with many workers", 1. / 8, 10, nil, 1, 12},
		{"remote", 1. / 8, 2, remote, 15, 62},
		{"chunks", 1. / 8, 2, chunks, 15, 62},
	} {
		if n := admitted(c.share, c.workers, c.change, false); n != c.ahead {
			t.Errorf("%s: %d units without a batch are read, want %d", c.name, n, c.ahead)
		}
		if n := admitted(c.share, c.workers, c.change, true); n != c.most {
			t.Errorf("%s: %d units with a batch are read, want %d", c.name, n, c.most)
		}
	}
}
