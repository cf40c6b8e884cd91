package pipeline

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stokerdata/stoker/internal/inflight"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/source/sourcetest"
)

func TestEachRecordOncePerEpoch(t *testing.T) {
	for _, n := range []int64{1, 5, 16, 100, 257} {
		for _, shuffle := range []bool{false, true} {
			p := mustOpen(t, Config{OpenSource: use(sourcetest.Raw(n, 8, 6, 3, 10)), BatchSize: 16, Shuffle: shuffle, Seed: 3, Threads: 2})
			p.Start(item.Position{})
			batches, ends := epochs(t, p, 3)
			steps := int(p.Info().Steps)
			if len(batches) != 3*steps {
				t.Fatalf("%d batches in 3 epochs of %d steps", len(batches), steps)
			}
			for e := range 3 {
				part := batches[e*steps : (e+1)*steps]
				checkOnce(t, indexes(part), n)
				if ends[e].Epoch != int64(e) {
					t.Fatalf("end of epoch %d instead of %d", ends[e].Epoch, e)
				}
				for i, b := range part {
					want := item.Position{Epoch: int64(e), Row: int64(i+1) * 16}
					if i == steps-1 {
						want = item.Position{Epoch: int64(e + 1)}
					}
					if b.epoch != int64(e) || b.step != int64(i) || b.pos != want {
						t.Fatalf("batch %d of epoch %d is called %d of %d with position %+v after it", i, e, b.step, b.epoch, b.pos)
					}
				}
			}
			if !shuffle && batches[0].index[0] != 0 {
				t.Fatal("without shuffle the first record is not the first")
			}
		}
	}
}

func TestRowsHoldWhatTheSourceHas(t *testing.T) {
	src := sourcetest.Raw(64, 7, 5, 3, 10)
	src.Copy = true
	p := mustOpen(t, Config{OpenSource: use(src), BatchSize: 24, Shuffle: true, Seed: 1})
	p.Start(item.Position{})
	for range 3 {
		ev, err := p.Next(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		checkRaw(t, p, ev, src)
		p.Release(ev.Slot)
	}
}

// The batches are the same for any number of threads, prefetch depth and memory.
func TestSameBatchesWhateverTheThreads(t *testing.T) {
	var want []uint64
	for _, threads := range []int{1, 2, 5} {
		for _, prefetch := range []int{1, 7} {
			src := sourcetest.Raw(300, 31, 40, 3, 10)
			src.Copy = prefetch == 1
			p := mustOpen(t, Config{
				OpenSource: use(src), BatchSize: 50, Shuffle: true, Seed: 9, Threads: threads, Prefetch: prefetch,
				Outputs: imageOps(opRRC, opFlip), Memory: int64(64+64*prefetch) << 20,
			})
			p.Start(item.Position{Epoch: 2})
			batches, _ := epochs(t, p, 2)
			if want == nil {
				want = sums(batches)
			}
			equal(t, fmt.Sprintf("threads %d prefetch %d", threads, prefetch), sums(batches), want)
		}
	}
}

// The global order and the pixels do not depend on the number of ranks.
func TestRanksShareTheGlobalBatch(t *testing.T) {
	const n, world, batch = 203, 3, 8
	whole := mustOpen(t, Config{OpenSource: use(sourcetest.Raw(n, 20, 20, 3, 5)), BatchSize: world * batch, Shuffle: true, Seed: 4, Outputs: imageOps(opRRC)})
	whole.Start(item.Position{})
	want, _ := epochs(t, whole, 2)
	var parts [world][]got
	for r := range world {
		p := mustOpen(t, Config{OpenSource: use(sourcetest.Raw(n, 20, 20, 3, 5)), BatchSize: batch, Rank: r, WorldSize: world, Shuffle: true, Seed: 4, Outputs: imageOps(opRRC)})
		p.Start(item.Position{})
		parts[r], _ = epochs(t, p, 2)
		if len(parts[r]) != len(want) {
			t.Fatalf("rank %d has %d batches of %d", r, len(parts[r]), len(want))
		}
	}
	for i, w := range want {
		var rows []uint64
		for r := range world {
			rows = append(rows, parts[r][i].rowsum...)
			if parts[r][i].pos != w.pos {
				t.Fatalf("batch %d: rank %d is at %+v, not %+v", i, r, parts[r][i].pos, w.pos)
			}
		}
		equal(t, fmt.Sprintf("batch %d", i), rows, w.rowsum)
	}
}

// From any position the rest of the stream is the same, also with another
// batch size and world size.
func TestResumeAnywhere(t *testing.T) {
	const n = 77
	open := func(batch, rank, world int) *Pipeline {
		return mustOpen(t, Config{OpenSource: use(sourcetest.Raw(n, 16, 16, 3, 5)), BatchSize: batch, Rank: rank, WorldSize: world, Shuffle: true, Seed: 11, Outputs: imageOps(opRRC, opFlip)})
	}
	p := open(8, 0, 1)
	p.Start(item.Position{})
	all, _ := epochs(t, p, 2)
	for i, b := range all {
		if i+1 == len(all) {
			break
		}
		p.Start(b.pos)
		for k := i + 1; k < min(i+4, len(all)); k++ {
			g := take(t, p)
			if g.end != nil {
				g = take(t, p)
			}
			if g.step != all[k].step || g.epoch != all[k].epoch {
				t.Fatalf("after a restart behind batch %d comes batch %d of epoch %d, not %d of %d", i, g.step, g.epoch, all[k].step, all[k].epoch)
			}
			equal(t, "resumed batch", g.rowsum, all[k].rowsum)
		}
	}
	// Row 24 was left by batches of 8; two ranks with batches of 5 go on there.
	a, b := open(5, 0, 2), open(5, 1, 2)
	pos := all[2].pos
	a.Start(pos)
	b.Start(pos)
	restA, _ := epochs(t, a, 1)
	restB, _ := epochs(t, b, 1)
	var rest []uint64
	for i := range restA {
		rest = append(rest, restA[i].rowsum...)
		rest = append(rest, restB[i].rowsum...)
	}
	equal(t, "rest of the epoch on two ranks", rest, sums(all[3:10]))
}

func TestDropLast(t *testing.T) {
	p := mustOpen(t, Config{OpenSource: use(sourcetest.Raw(50, 4, 4, 3, 5)), BatchSize: 16, DropLast: true, Shuffle: true})
	p.Start(item.Position{})
	batches, _ := epochs(t, p, 2)
	if len(batches) != 6 || p.Info().Steps != 3 {
		t.Fatalf("%d batches in two epochs, Steps is %d", len(batches), p.Info().Steps)
	}
	for _, b := range batches {
		if b.rows != 16 {
			t.Fatalf("a batch of %d rows", b.rows)
		}
	}
	if batches[2].pos != (item.Position{Epoch: 1}) {
		t.Fatalf("position after the last batch is %+v", batches[2].pos)
	}
	// A position too close to the end first gives the end of that epoch.
	p.Start(item.Position{Epoch: 4, Row: 40})
	if g := take(t, p); g.end == nil || g.end.Epoch != 4 {
		t.Fatalf("%+v", g)
	}
	if g := take(t, p); g.epoch != 5 || g.step != 0 {
		t.Fatalf("%+v", g)
	}
}

// Restarts at random times give only the batches of the last Start, and lose no slot.
func TestRestarts(t *testing.T) {
	src := sourcetest.Wrap(sourcetest.Raw(400, 24, 24, 3, 5), func(id int64) *sourcetest.Fault {
		if id%50 == 0 {
			return &sourcetest.Fault{Delay: time.Millisecond}
		}
		return nil
	})
	p := mustOpen(t, Config{OpenSource: use(src), BatchSize: 32, Shuffle: true, Seed: 5, Outputs: imageOps(opRRC), Threads: 3})
	rng := rand.New(rand.NewPCG(1, 2))
	want := map[item.Position]got{}
	p.Start(item.Position{})
	pos := item.Position{}
	for len(want) < 26 {
		g := take(t, p)
		if g.end == nil {
			want[pos] = g
			pos = g.pos
		}
	}
	restarts := 60
	if testing.Short() {
		restarts = 15
	}
	for range restarts {
		pos := item.Position{Epoch: rng.Int64N(2), Row: rng.Int64N(13) * 32}
		gen := p.Start(pos)
		for range rng.IntN(4) {
			ev, err := p.Next(testContext(t))
			if err != nil {
				t.Fatal(err)
			}
			if ev.Gen != gen {
				t.Fatalf("an event of generation %d after Start returned %d", ev.Gen, gen)
			}
			if ev.Kind == EventEpochEnd {
				continue
			}
			if rng.IntN(10) == 0 {
				time.Sleep(time.Millisecond)
			}
			g := read(p, ev)
			equal(t, fmt.Sprintf("batch at %+v", pos), g.rowsum, want[pos].rowsum)
			pos = g.pos
			if pos.Epoch > 1 {
				break
			}
		}
	}
	p.Start(item.Position{})
	for range 13 {
		take(t, p)
	}
	if held := p.Held(); held != 0 {
		t.Fatalf("%d slots are held", held)
	}
}

func TestErrorNamesTheRecord(t *testing.T) {
	broken := errors.New("checksum is wrong")
	for _, f := range []*sourcetest.Fault{{Err: broken}, {Panic: "oops"}, {Cut: 5}} {
		src := sourcetest.Wrap(sourcetest.Raw(100, 8, 8, 3, 5), func(id int64) *sourcetest.Fault {
			if id == 37 {
				return f
			}
			return nil
		})
		p := mustOpen(t, Config{OpenSource: use(src), BatchSize: 10, Outputs: imageOps(opRRC)})
		p.Start(item.Position{})
		for i := range 3 {
			if g := take(t, p); g.step != int64(i) {
				t.Fatalf("batch %d instead of %d", g.step, i)
			}
		}
		_, err := p.Next(testContext(t))
		var re *RecordError
		if !errors.As(err, &re) || re.ID != 37 || !strings.Contains(err.Error(), "memory record 37") {
			t.Fatalf("error is %v", err)
		}
		if f.Err != nil && !errors.Is(err, broken) || strings.Contains(err.Error(), "\n") {
			t.Fatalf("error is %v", err)
		}
		// The stream can be started after the bad batch.
		p.Start(item.Position{Row: 40})
		if g := take(t, p); g.step != 4 {
			t.Fatalf("batch %d after a restart", g.step)
		}
	}
}

func TestSkip(t *testing.T) {
	bad := map[int64]bool{3: true, 4: true, 99: true}
	open := func(threads int) *Pipeline {
		src := sourcetest.Wrap(sourcetest.Raw(100, 8, 8, 3, 5), func(id int64) *sourcetest.Fault {
			if bad[id] {
				return &sourcetest.Fault{Cut: 7}
			}
			return nil
		})
		return mustOpen(t, Config{OpenSource: use(src), BatchSize: 16, Shuffle: true, Seed: 2, OnError: OnErrorSkip, Outputs: imageOps(opRRC), Threads: threads})
	}
	p := open(3)
	p.Start(item.Position{})
	all, ends := epochs(t, p, 2)
	count := map[int64]int{}
	for _, id := range indexes(all[:7]) {
		count[id]++
	}
	if len(indexes(all[:7])) != 100 || count[5] != 3 || count[0] != 2 || count[3] != 0 {
		t.Fatalf("replacements: %v", count)
	}
	for _, end := range ends {
		if end.Skipped != 3 || len(end.Bad) != 3 {
			t.Fatalf("end of epoch reports %d skipped: %v", end.Skipped, end.Bad)
		}
	}
	if !strings.Contains(ends[0].Bad[0].Error(), "memory record") {
		t.Fatal(ends[0].Bad[0])
	}
	// Resuming in the middle gives the same batches, including replacements.
	q := open(1)
	q.Start(all[2].pos)
	for _, want := range all[3:7] {
		equal(t, "resumed", take(t, q).rowsum, want.rowsum)
	}
	if n := p.Stats().Skipped; n < 6 {
		t.Fatalf("Stats says %d skipped", n)
	}
}

func TestSkipGivesUpWhenNothingIsGood(t *testing.T) {
	src := sourcetest.Wrap(sourcetest.Raw(20, 8, 8, 3, 5), func(int64) *sourcetest.Fault { return &sourcetest.Fault{Cut: -1} })
	p := mustOpen(t, Config{OpenSource: use(src), BatchSize: 4, OnError: OnErrorSkip})
	p.Start(item.Position{})
	_, err := p.Next(testContext(t))
	if err == nil || !strings.Contains(err.Error(), "none of the 19 records after it") {
		t.Fatalf("error is %v", err)
	}
}

func TestCrashedRecordsAreBad(t *testing.T) {
	p := mustOpen(t, Config{OpenSource: use(sourcetest.Raw(20, 8, 8, 3, 5)), BatchSize: 20, OnError: OnErrorSkip, Crashed: []int64{3, 4, 99}})
	p.Start(item.Position{})
	got := take(t, p)
	want := []int64{0, 1, 2, 5, 5, 5, 6}
	if !slices.Equal(got.index[:7], want) {
		t.Errorf("records %v, not %v", got.index[:7], want)
	}
	p = mustOpen(t, Config{OpenSource: use(sourcetest.Raw(20, 8, 8, 3, 5)), BatchSize: 4, Crashed: []int64{5}})
	p.Start(item.Position{})
	take(t, p)
	if _, err := p.Next(testContext(t)); err == nil || !strings.Contains(err.Error(), "record 5 (memory record 5): it crashed the engine twice") {
		t.Errorf("error: %v", err)
	}
}

// Suspects are decoded one at a time, without delaying other records.
func TestSuspectsAreDecodedAlone(t *testing.T) {
	suspects := []int64{1, 2, 3, 30, 31}
	f, err := os.Create(filepath.Join(t.TempDir(), "inflight"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var decoding []int64
	var mu sync.Mutex
	p := mustOpen(t, Config{
		OpenSource: use(sourcetest.Raw(200, 8, 8, 3, 5)), BatchSize: 50, Threads: 4, Suspects: suspects,
		InFlight: inflight.Open(int(f.Fd())),
		Decoding: func(id int64) {
			mu.Lock()
			defer mu.Unlock()
			decoding = append(decoding, id)
			together := 0
			noted, _ := os.ReadFile(f.Name())
			for ; len(noted) >= 8; noted = noted[8:] {
				if slices.Contains(suspects, int64(binary.LittleEndian.Uint64(noted))-1) {
					together++
				}
			}
			if together > 1 {
				t.Errorf("%d suspects are decoded at a time", together)
			}
		},
	})
	p.Start(item.Position{})
	for range 4 {
		take(t, p)
	}
	mu.Lock()
	defer mu.Unlock()
	slices.Sort(decoding) // later epochs are decoded as well
	if decoding = slices.Compact(decoding); len(decoding) != 200 {
		t.Errorf("%d records were decoded: %v", len(decoding), decoding)
	}
}

func TestPassingFaultsAreRetried(t *testing.T) {
	f := &sourcetest.Fault{Err: fmt.Errorf("reading: %w", syscall.EIO), Times: 2}
	src := sourcetest.Wrap(sourcetest.Raw(40, 8, 8, 3, 5), func(id int64) *sourcetest.Fault {
		if id == 7 {
			return f
		}
		return nil
	})
	p := mustOpen(t, Config{OpenSource: use(src), BatchSize: 8})
	p.Start(item.Position{})
	batches, _ := epochs(t, p, 1)
	checkOnce(t, indexes(batches), 40)
	if n := p.Stats().Retries; n != 2 {
		t.Fatalf("%d retries", n)
	}
}

func TestStuckDiskIsReportedAndCanBeLeft(t *testing.T) {
	src := sourcetest.Wrap(sourcetest.Raw(40, 8, 8, 3, 5), func(id int64) *sourcetest.Fault {
		if id == 12 {
			return &sourcetest.Fault{Delay: time.Hour}
		}
		return nil
	})
	p := mustOpen(t, Config{OpenSource: use(src), BatchSize: 8})
	p.Start(item.Position{})
	take(t, p)
	ctx, cancel := context.WithTimeout(context.Background(), 1200*time.Millisecond)
	defer cancel()
	if _, err := p.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("error is %v", err)
	}
	s := p.Stats()
	if !strings.HasPrefix(s.Waiting, "fetch: reading memory record 12 for ") || s.WaitingSeconds < 1 {
		t.Fatalf("Waiting is %q (%v)", s.Waiting, s.WaitingSeconds)
	}
	p.Start(item.Position{Row: 16})
	if g := take(t, p); g.step != 2 {
		t.Fatalf("batch %d", g.step)
	}
}

func TestAllSlotsHeld(t *testing.T) {
	p := mustOpen(t, Config{OpenSource: use(sourcetest.Raw(400, 8, 8, 3, 5)), BatchSize: 8, Prefetch: 1})
	p.Start(item.Position{})
	var slots []int
	for range p.Info().Slots {
		ev, err := p.Next(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		slots = append(slots, ev.Slot)
	}
	if p.Held() != p.Info().Slots {
		t.Fatalf("%d of %d slots are held", p.Held(), p.Info().Slots)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := p.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("error is %v", err)
	}
	p.Release(slots[1])
	p.Release(slots[1]) // a second time does no harm
	p.Release(-1)
	if ev, err := p.Next(testContext(t)); err != nil || ev.Slot != slots[1] {
		t.Fatalf("%+v %v", ev, err)
	}
}

func TestCloseEndsNext(t *testing.T) { synctest.Test(t, testCloseEndsNext) }

func testCloseEndsNext(t *testing.T) {
	src := sourcetest.Raw(40, 8, 8, 3, 5)
	p, err := Open(context.Background(), Config{OpenSource: use(src), BatchSize: 8, Memory: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		_, err := p.Next(context.Background())
		done <- err
	}()
	synctest.Wait() // until Next waits
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, ErrClosed) {
		t.Fatalf("error is %v", err)
	}
	if !src.Closed() {
		t.Fatal("the source was not closed")
	}
	p.Start(item.Position{})
	p.Release(0)
	if _, err := p.Next(context.Background()); !errors.Is(err, ErrClosed) {
		t.Fatalf("error is %v", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{BatchSize: 0}, "batch_size must be a whole number from 1 to 1048576, not 0"},
		{Config{BatchSize: 4, Rank: 2, WorldSize: 2}, "rank is 2"},
		{Config{BatchSize: 4, OnError: "ignore"}, `not "ignore"`},
		{Config{BatchSize: 64, DropLast: true}, "there would be no batch"},
		{Config{BatchSize: 4, Fields: []string{"lable"}}, `did you mean "label"?`},
		{Config{BatchSize: 4, Outputs: imageOps(`{"op":"RandomResizeCrop","size":8}`)}, `did you mean "RandomResizedCrop"?`},
		{Config{BatchSize: 4, Outputs: imageOps(`{"op":"Resize","sise":8}`)}, `did you mean "size"?`},
		{Config{BatchSize: 1 << 18, Memory: 32 << 20}, "set memory to that or more"},
		{Config{BatchSize: 4, OpenSource: use(sourcetest.Raw(0, 8, 8, 3, 5))}, "holds no records"},
	} {
		if c.cfg.OpenSource == nil {
			c.cfg.OpenSource = use(sourcetest.Raw(40, 8, 8, 3, 5))
		}
		if c.cfg.Memory == 0 {
			c.cfg.Memory = 64 << 20
		}
		p, err := Open(context.Background(), c.cfg)
		if err == nil {
			p.Close()
			t.Errorf("%+v was accepted, want %q", c.cfg, c.want)
			continue
		}
		if !strings.Contains(err.Error(), c.want) {
			t.Errorf("error is %q, want %q", err, c.want)
		}
	}
}
