package pipeline

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/source/sourcetest"
	"github.com/stokerdata/stoker/source/driver"
)

// An explicit prefetch is the number of slots that the ring gets. Otherwise it is refused with the memory that it needs
// and the prefetch that fits. Both values then work.
func TestExplicitPrefetchHoldsOrIsRefused(t *testing.T) {
	open := func(prefetch int, memory int64) (*Pipeline, error) {
		return Open(context.Background(), Config{OpenSource: use(sourcetest.Raw(400, 64, 64, 3, 5)), BatchSize: 64,
			Threads: 2, Prefetch: prefetch, Memory: memory})
	}
	holds := func(prefetch int, memory int64) {
		t.Helper()
		p, err := open(prefetch, memory)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if info := p.Info(); info.Slots != prefetch+2 || info.Memory.Ring+info.Memory.Read+info.Memory.Scratch > memory {
			t.Errorf("prefetch %d in %d bytes: %d slots, %+v", prefetch, memory, info.Slots, info.Memory)
		}
	}
	holds(4, 64<<20)

	for _, prefetch := range []int{100, 1000} {
		p, err := open(prefetch, 64<<20)
		if err == nil {
			defer p.Close()
			t.Fatalf("prefetch %d in 64 MiB gives %d slots without a word", prefetch, p.Info().Slots)
		}
		var need, fits int64
		tail := err.Error()[strings.LastIndex(err.Error(), " need "):]
		if _, scan := fmt.Sscanf(tail, " need %d MiB; set memory to that or more, or prefetch to %d or less", &need, &fits); scan != nil {
			t.Fatalf("%v: %v", err, scan)
		}
		if !strings.HasPrefix(err.Error(), fmt.Sprintf("%d batches (prefetch) do not fit the memory budget of 64 MiB", prefetch)) {
			t.Error(err)
		}
		if prefetch == 100 {
			holds(prefetch, need<<20)
		}
		holds(int(fits), 64<<20)
		if p, err := open(int(fits)+1, 64<<20); err == nil {
			p.Close()
			t.Errorf("prefetch %d was said to be the most that fits, but %d does", fits, fits+1)
		}
	}
}

// Engines of several processes of a training each take their share of the cores and of the free memory. Explicit
// numbers are used unchanged.
func TestEnginesOnOneMachineShareIt(t *testing.T) {
	open := func(cfg Config) Info {
		cfg.OpenSource, cfg.BatchSize = use(sourcetest.Raw(400, 64, 64, 3, 5)), 64
		p, err := Open(context.Background(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		return p.Info()
	}
	for _, name := range []string{"GOMAXPROCS", "LOCAL_WORLD_SIZE", "SLURM_JOB_ID", "SLURM_STEP_ID", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"} {
		t.Setenv(name, "")
	}
	defer func(n int) { cores = n }(cores)
	cores = 12
	alone := open(Config{})
	t.Setenv("LOCAL_WORLD_SIZE", "4")
	shared := open(Config{})
	if alone.Threads != 12 || shared.Threads != 3 {
		t.Errorf("%d threads alone, %d of 4", alone.Threads, shared.Threads)
	}
	if ratio := float64(alone.Memory.Budget) / float64(shared.Memory.Budget); ratio < 3 || ratio > 5 { // free memory varies
		t.Errorf("%d bytes alone, %d of 4", alone.Memory.Budget, shared.Memory.Budget)
	}
	if told := open(Config{LocalWorldSize: 2}); told.Threads != 6 {
		t.Errorf("%d threads of 2", told.Threads)
	}
	if asked := open(Config{Threads: 5, Memory: 100 << 20}); asked.Threads != 5 || asked.Memory.Budget != 100<<20 {
		t.Errorf("5 threads in 100 MiB became %d in %d", asked.Threads, asked.Memory.Budget)
	}
}

// holding is a source that holds records in memory.
type holding struct{ driver.Source }

func (holding) Held() int64 { return 50 << 20 }

// Memory that a source holds for its records is part of the budget.
func TestWhatASourceHoldsIsCounted(t *testing.T) {
	open := func(memory int64) (*Pipeline, error) {
		src := holding{sourcetest.Raw(400, 64, 64, 3, 5)}
		return Open(context.Background(), Config{OpenSource: use(src), BatchSize: 64, Threads: 2, Memory: memory})
	}
	p, err := open(64 << 20)
	if err == nil {
		_ = p.Close()
		t.Fatal("64 MiB are enough for a source that holds 50")
	}
	if !strings.Contains(err.Error(), "50 MiB of records that are held because their files are compressed, ") {
		t.Error(err)
	}
	var need int64
	tail := err.Error()[strings.LastIndex(err.Error(), " need "):]
	if _, scan := fmt.Sscanf(tail, " need %d MiB; set memory to that or more", &need); scan != nil || need <= 64 {
		t.Fatal(err)
	}
	if p, err = open(need << 20); err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if m := p.Info().Memory; m.Held != 50<<20 || m.Ring+m.Read+m.Lookahead+m.Scratch+m.Held > need<<20 {
		t.Errorf("%+v", m)
	}
}

// making is a source that creates the values of images in the memory of its groups.
type making struct{ driver.Source }

func (m making) Parse(g *driver.Group) error {
	if err := m.Source.Parse(g); err != nil {
		return err
	}
	for k := range g.Records {
		v := &g.Records[k].Values[0]
		b, err := g.Alloc(len(v.Bytes))
		if err != nil {
			return fmt.Errorf("no memory for the %d bytes of an image: %w", len(v.Bytes), err)
		}
		copy(b, v.Bytes)
		v.Bytes = b
	}
	return nil
}

// There is memory for each worker whose source decodes images itself, however many workers and however large the
// images.
func TestMemoryForWhatSourcesMake(t *testing.T) {
	records, n := int64(400), 3
	if testing.Short() {
		records, n = 100, 1
	}
	for _, side := range []int{32, 700} {
		src := func() driver.Source { return making{sourcetest.Raw(records, side, side, 3, 5).Copied()} }
		p := mustOpen(t, Config{OpenSource: use(src()), BatchSize: 16, Threads: 8, Shuffle: true, Memory: 160 << 20})
		p.Start(item.Position{})
		batches, _ := epochs(t, p, n)
		checkOnce(t, indexes(batches)[:records], records)
	}
}

// caching is a source that caches the data that it unpacks.
type caching struct {
	driver.Source
	useful, may int64
}

func (c *caching) Useful() int64 { return c.useful }
func (c *caching) Keep(n int64)  { c.may = n }
func (c *caching) Held() int64   { return c.may }

// Memory for a source's cache is part of the budget, and yields to necessary memory.
func TestWhatASourceKeepsIsCounted(t *testing.T) {
	open := func(memory, useful int64) (*caching, Info) {
		src := &caching{sourcetest.Raw(400, 64, 64, 3, 5), useful, 1 << 40}
		p, err := Open(context.Background(), Config{OpenSource: use(src), BatchSize: 64, Threads: 2, Memory: memory})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		return src, p.Info()
	}
	for _, c := range []struct{ memory, useful, least, most int64 }{
		{300 << 20, 1 << 40, 100 << 20, 100 << 20}, {300 << 20, 1 << 20, 1 << 20, 1 << 20}, {24 << 20, 1 << 40, 0, 7 << 20}, {0, 3 << 20, 3 << 20, 3 << 20},
	} {
		src, info := open(c.memory, c.useful)
		if src.may < c.least || src.may > c.most {
			t.Errorf("%d bytes of memory, %d useful: it may keep %d", c.memory, c.useful, src.may)
		}
		if m := info.Memory; m.Held != src.may || m.Ring+m.Read+m.Lookahead+m.Scratch+m.Held > m.Budget {
			t.Errorf("%+v", m)
		}
	}
}
