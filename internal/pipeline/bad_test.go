package pipeline

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/source/sourcetest"
	"github.com/stokerdata/stoker/internal/store/faulttest"
	"github.com/stokerdata/stoker/store"
)

// withFaults is a source of n images whose records have faults.
func withFaults(n int64, fault func(id int64) *sourcetest.Fault) *sourcetest.Source {
	return sourcetest.Wrap(sourcetest.Raw(n, 8, 8, 3, 5), fault)
}

// all reads an epoch and returns the records of its batches, and why it ended early.
func all(t *testing.T, p *Pipeline) (batches [][]int64, pos []item.Position, end Event, err error) {
	t.Helper()
	for {
		ev, err := p.Next(testContext(t))
		if err != nil || ev.Kind == EventEpochEnd {
			return batches, pos, ev, err
		}
		g := read(p, ev)
		batches, pos = append(batches, g.index), append(pos, g.pos)
	}
}

// The replacement of a bad record depends only on the bad records. It does not depend on the rank, the threads, the
// resume position, or which bad records are already known.
func TestSubstitutesAreTheSame(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for round := range 12 {
		const n, batch = 60, 12
		bad := map[int64]bool{}
		for at := rng.Int64N(n); len(bad) < 12; at = rng.Int64N(n) {
			for range 1 + rng.IntN(5) { // in runs, over the end too
				bad[at] = true
				at = (at + 1) % n
			}
		}
		cut := &sourcetest.Fault{Cut: 7}
		gone := &sourcetest.Fault{Err: fmt.Errorf("x: %w", fs.ErrNotExist)}
		fault := func(id int64) *sourcetest.Fault {
			switch {
			case !bad[id]:
				return nil
			case id%3 == 0:
				return gone
			}
			return cut
		}
		good := func(id int64) int64 {
			for bad[id] {
				id = (id + 1) % n
			}
			return id
		}
		open := func(world, rank, threads int, fault func(int64) *sourcetest.Fault, seed uint64) *Pipeline {
			cfg := Config{
				OpenSource: use(withFaults(n, fault)), BatchSize: batch / world, WorldSize: world, Rank: rank, Threads: threads, Shuffle: round%4 > 0, Seed: seed,
				OnError: OnErrorSkip, Quarantine: filepath.Join(t.TempDir(), "bad"),
			}
			if round%2 == 0 {
				cfg.Outputs = imageOps(opRRC)
			}
			return mustOpen(t, cfg)
		}
		plain := open(1, 0, 2, func(int64) *sourcetest.Fault { return nil }, uint64(round))
		plain.Start(item.Position{})
		var want [][]int64
		var at []item.Position
		for range 2 { // epochs
			ids, pos, _, _ := all(t, plain)
			for _, b := range ids {
				for i := range b {
					b[i] = good(b[i])
				}
			}
			want, at = append(want, ids...), append(at, pos...)
		}
		for world := 1; world <= 3; world++ {
			for rank := range world {
				p := open(world, rank, 1+rng.IntN(3), fault, uint64(round))
				check := func(from int) {
					p.Start(item.Position{})
					if from > 0 {
						p.Start(at[from-1])
					}
					for i := from; i < len(want); i++ {
						g := take(t, p)
						if g.end != nil {
							g = take(t, p)
						}
						each := batch / world
						if w := want[i][rank*each : rank*each+each]; !slices.Equal(g.index, w) {
							t.Fatalf("round %d, rank %d of %d, from batch %d: batch %d is %v, want %v; bad are %v", round, rank, world, from, i, g.index, w, bad)
						}
					}
				}
				from := rng.IntN(len(want))
				check(from)                // without known bad records
				check(rng.IntN(len(want))) // in the same process
				check(0)                   // from the beginning
				p.Close()
				p = open(world, rank, 1+rng.IntN(3), fault, uint64(round))
				check(from)
			}
		}
	}
}

// Failures of the machine do not replace records. They are retried, and then end the run with the reason and advice.
func TestMachineFails(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		hint string
	}{
		"memory":      {os.NewSyscallError("mmap", syscall.ENOMEM), "memory limit"},
		"decoder":     {&cdec.Error{Kind: cdec.ErrNoMemory, Msg: "no memory for a row"}, "memory limit"},
		"descriptors": {syscall.EMFILE, "ulimit -n"},
		"disk":        {&store.Error{Op: "read", Path: "x", Err: syscall.ENOSPC}, "df -h"},
		"threads":     {syscall.EAGAIN, "ulimit -u"},
		"network":     {syscall.ECONNRESET, "timeout="},
		"all gone":    {&store.Error{Op: "open", Path: "x", Err: fs.ErrNotExist}, "mounted"},
		"all refused": {&store.Error{Op: "open", Path: "x", Err: fs.ErrPermission}, "permissions"},
		"bad disk":    {&store.Error{Op: "read", Path: "x", Err: syscall.EIO}, "dmesg"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var fails atomic.Bool
			src := withFaults(40, func(int64) *sourcetest.Fault {
				if fails.Load() {
					return &sourcetest.Fault{Err: c.err}
				}
				return nil
			})
			p := mustOpen(t, Config{OpenSource: use(src), BatchSize: 8, OnError: OnErrorSkip, MaxBad: "1", Timeout: 1, Threads: 2})
			fails.Store(true)
			p.Start(item.Position{})
			_, _, _, err := all(t, p)
			var run *RunError
			if !errors.As(err, &run) || !errors.Is(err, errors.Unwrap(run)) || run.Tries < 2 || !strings.Contains(run.Hint(), c.hint) ||
				!strings.Contains(err.Error(), fmt.Sprintf("tried %d times", run.Tries)) {
				t.Fatalf("error is %v", err)
			}
			// The failure passes: no record is replaced, and none stays marked as bad.
			p.Start(item.Position{})
			time.AfterFunc(50*time.Millisecond, func() { fails.Store(false) })
			p.cfg.Timeout = 60
			ids, _, end, err := all(t, p)
			if err != nil || end.Skipped > 0 {
				t.Fatalf("%d replaced, %v", end.Skipped, err)
			}
			checkOnce(t, slices.Concat(ids...), 40)
		})
	}
}

// An error that a failing store gives for all objects makes one record bad if others can be read.
func TestOneObjectFails(t *testing.T) {
	for _, cause := range []error{fs.ErrNotExist, fs.ErrPermission, syscall.EIO, syscall.ELOOP, store.ErrShort} {
		for _, onError := range []string{OnErrorRaise, OnErrorSkip} {
			src := withFaults(40, func(id int64) *sourcetest.Fault {
				if id == 9 {
					return &sourcetest.Fault{Err: &store.Error{Op: "read", Path: "x", Err: cause}}
				}
				return nil
			})
			p := mustOpen(t, Config{OpenSource: use(src), BatchSize: 8, OnError: onError})
			p.Start(item.Position{})
			ids, _, end, err := all(t, p)
			var rec *RecordError
			if raise := onError == OnErrorRaise; raise && (!errors.As(err, &rec) || rec.ID != 9) || !raise && (err != nil || end.Skipped != 1 || ids[1][1] != 10) {
				t.Errorf("%v, %s: %v, %v", cause, onError, ids, err)
			}
		}
	}
}

// Also for a source that is read in order.
func TestMachineFailsInOrder(t *testing.T) {
	_, compressed := plainAndCompressed(t, func(int) int { return 2000 }, 2, 50)
	var fails atomic.Bool
	p := mustOpen(t, Config{Source: compressed, BatchSize: 10, OnError: OnErrorSkip, Timeout: 1, Decorate: func(s store.Store) store.Store {
		return faulttest.New(s, 1, faulttest.Error(syscall.EMFILE).While(fails.Load))
	}})
	fails.Store(true)
	p.Start(item.Position{})
	_, err := p.Next(testContext(t))
	var run *RunError
	if !errors.As(err, &run) {
		t.Fatalf("error is %v", err)
	}
	fails.Store(false)
	p.Start(item.Position{})
	if b := raggedBatches(t, p, 10); b[9].ids[9] != 99 {
		t.Error(b[9].ids)
	}
}

// More bad records than are allowed end the run with a summary by reason.
func TestMaxBad(t *testing.T) {
	open := func(bad int64, max string, world int) error {
		src := withFaults(400, func(id int64) *sourcetest.Fault {
			switch {
			case id%2 == 0 && id < 2*bad && id%6 == 0:
				return &sourcetest.Fault{Err: fmt.Errorf("checksum %d is wrong", id)}
			case id%2 == 0 && id < 2*bad:
				return &sourcetest.Fault{Err: errors.New("it ends too early")}
			}
			return nil
		})
		p := mustOpen(t, Config{OpenSource: use(src), BatchSize: 8, OnError: OnErrorSkip, MaxBad: max, WorldSize: world})
		p.Start(item.Position{})
		_, _, _, err := all(t, p)
		return err
	}
	for _, c := range []struct {
		bad   int64
		max   string
		world int
		ends  bool
	}{
		{20, "5%", 1, false}, {21, "5%", 1, true}, {20, DefaultMaxBad, 1, false}, {30, DefaultMaxBad, 1, true}, {30, "30", 1, false}, {31, "30", 1, true},
		{200, "", 1, false}, {200, "100%", 1, false}, {1, "0", 1, true}, {40, "5%", 4, true}, {0, "0", 1, false},
	} {
		err := open(c.bad, c.max, c.world)
		var many *BadRecordsError
		if errors.As(err, &many) != c.ends || !c.ends && err != nil {
			t.Errorf("%+v: error is %v", c, err)
		}
		if c.bad == 30 && c.ends && (!strings.Contains(err.Error(), `x "it ends too early", `) || !strings.Contains(err.Error(), `"checksum N is wrong"`) || many.Hint() == "") {
			t.Errorf("error is %v", err)
		}
	}
	for _, max := range []string{"-1", "5", "x%", "101%", "NaN%", "1.5"} {
		_, err := Config{BatchSize: 1, OnError: OnErrorSkip, MaxBad: max}.withDefaults()
		if (err == nil) != (max == "5") {
			t.Errorf("max_bad %q: %v", max, err)
		}
	}
	if _, err := (Config{BatchSize: 1, Quarantine: "x"}).withDefaults(); err == nil || !strings.Contains(err.Error(), "on_error") {
		t.Error(err)
	}
}

// Records in the quarantine file are not read again, also by another process. Those of other data are ignored.
func TestQuarantine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bad.jsonl")
	if err := os.WriteFile(path, []byte(`{"source":"other:","data":"else","record":1,"reason":"x"}`+"\n"+`{"source":"memory:","da`), 0o600); err != nil {
		t.Fatal(err)
	}
	cut := &sourcetest.Fault{Cut: 7}
	open := func(fault *sourcetest.Fault) *Pipeline {
		return mustOpen(t, Config{OpenSource: use(withFaults(40, func(id int64) *sourcetest.Fault {
			if id == 3 || id == 4 {
				return fault
			}
			return nil
		})), BatchSize: 8, OnError: OnErrorSkip, Quarantine: path})
	}
	for process := range 3 {
		p := open(cut)
		for range 2 {
			p.Start(item.Position{})
			ids, _, end, err := all(t, p)
			if err != nil || end.Skipped != 2 || ids[0][3] != 5 || ids[0][4] != 5 || ids[0][1] != 1 {
				t.Fatalf("%v, %+v, %v", ids, end, err)
			}
		}
		p.Close()
		if process == 0 {
			cut = &sourcetest.Fault{Cut: 7}
		}
	}
	if n := cut.Hits(); n > 0 {
		t.Errorf("records in quarantine were read %d times", n)
	}
	b, err := os.ReadFile(path)
	if lines := strings.Split(string(b), "\n"); err != nil || len(lines) != 5 || strings.Count(string(b), `"record":3,"name":"memory record 3","reason":"`) != 1 {
		t.Errorf("%s, %v", b, err)
	}
}

// The resource that a stream waits for is always named, with the requests that failed meanwhile.
func TestWaitingNamesFailedRequests(t *testing.T) {
	src := withFaults(40, func(id int64) *sourcetest.Fault {
		return &sourcetest.Fault{Err: fmt.Errorf("reading: %w", syscall.ECONNRESET)}
	})
	p := mustOpen(t, Config{OpenSource: use(src), BatchSize: 8})
	p.Start(item.Position{})
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		s := p.Stats()
		if strings.Contains(s.Waiting, `times "connection reset by peer"`) || strings.Contains(s.Waiting, "connection reset") && strings.Contains(s.Waiting, " times ") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waiting for %q", s.Waiting)
		}
	}
}
