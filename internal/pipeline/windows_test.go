package pipeline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/racetest"
	"github.com/stokerdata/stoker/internal/store/counttest"
	"github.com/stokerdata/stoker/internal/store/faulttest"
	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
	"github.com/stokerdata/stoker/store/storetest"
)

// fewer divides the records and chunks of the pack under the race detector, which makes each byte slow. The pass with
// the invariants has the whole pack.
var fewer = func() int64 {
	if racetest.Enabled {
		return 4
	}
	return 1
}()

// windowLen is the number of records in the pack, of at most wholeLen.
var windowLen = wholeLen / fewer

const wholeLen = 12_000

// remotePack is a pack of records of src in chunks of 64 KiB, in a store with the abilities of a bucket.
var remotePack = sync.OnceValues(func() (map[string][]byte, error) { return packOf(windowSource()) })

// wholePack is remotePack with all records, also under the race detector.
var wholePack = sync.OnceValues(func() (map[string][]byte, error) {
	if windowLen == wholeLen {
		return remotePack()
	}
	s := windowSource()
	s.n = wholeLen
	return packOf(s)
})

func packOf(src driver.Source) (map[string][]byte, error) {
	dir, err := os.MkdirTemp("", "windows")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	to := filepath.Join(dir, "pack")
	if _, err := pack.WriteSource(context.Background(), src, to, &pack.Options{ChunkBytes: 64 << 10, ShardBytes: 4 << 20 / fewer}); err != nil {
		return nil, err
	}
	files, err := os.ReadDir(to)
	if err != nil {
		return nil, err
	}
	objects := map[string][]byte{}
	for _, f := range files {
		if objects[f.Name()], err = os.ReadFile(filepath.Join(to, f.Name())); err != nil {
			return nil, err
		}
	}
	return objects, nil
}

// windowValues are the values of all records of the whole pack.
var windowValues = sync.OnceValue(func() [][]byte {
	s := windowSource()
	out := make([][]byte, wholeLen)
	for id := range out {
		out[id] = s.value(int64(id))
	}
	return out
})

func windowSource() *valueSource {
	return &valueSource{n: windowLen, own: true, max: 4000, wide: 4000, bad: map[int64]bool{}}
}

// calls records the reads from a store.
type calls struct {
	store.Store
	mu       sync.Mutex
	manifest int
	shards   []driver.Extent // by the number of the shard
}

func (c *calls) Unwrap() store.Store { return c.Store }

func (c *calls) Open(ctx context.Context, name string) (store.Object, error) {
	o, err := c.Store.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	shard := -1
	if name != pack.ManifestName {
		if _, err := fmt.Sscanf(name, "shard-%d.arrow", &shard); err != nil {
			return nil, err
		}
	}
	return store.Intercept(o, false, func(ctx context.Context, next store.Next, p []byte, off int64) error {
		c.mu.Lock()
		if shard < 0 {
			c.manifest++
		} else {
			c.shards = append(c.shards, driver.Extent{Object: int64(shard), Offset: off, Size: int64(len(p)), Field: -1})
		}
		c.mu.Unlock()
		return next.Read(ctx, p, off)
	}), nil
}

func openRemote(t testing.TB, cfg Config) (*Pipeline, *calls, *counttest.Store) {
	t.Helper()
	return openRemoteOf(t, remotePack, cfg)
}

func openRemoteOf(t testing.TB, pk func() (map[string][]byte, error), cfg Config) (*Pipeline, *calls, *counttest.Store) {
	t.Helper()
	objects, err := pk()
	if err != nil {
		t.Fatal(err)
	}
	c := &calls{Store: storetest.NewMemory(objects)}
	counted := counttest.New(c, nil)
	cfg = remoteConfigOf(t, pk, cfg)
	cfg.OpenSource = func(ctx context.Context, _ string) (driver.Source, error) { return pack.OpenStore(ctx, counted, nil) }
	return mustOpen(t, cfg), c, counted
}

// remoteConfig is a configuration for the pack in a store with no more abilities than
// a bucket.
func remoteConfig(t testing.TB, cfg Config) Config {
	t.Helper()
	return remoteConfigOf(t, remotePack, cfg)
}

func remoteConfigOf(t testing.TB, pk func() (map[string][]byte, error), cfg Config) Config {
	t.Helper()
	objects, err := pk()
	if err != nil {
		t.Fatal(err)
	}
	cfg.OpenSource = func(ctx context.Context, _ string) (driver.Source, error) {
		return pack.OpenStore(ctx, storetest.NewMemory(objects), nil)
	}
	cfg.Shuffle, cfg.Seed = true, 11
	if racetest.Enabled {
		cfg.Lookahead = cfg.Memory / 4 / fewer // the default reads more epochs ahead if they are smaller
	}
	return cfg
}

// checkRows holds rows against the records that they should be.
func checkRows(t *testing.T, b raggedBatch) {
	t.Helper()
	for i, id := range b.ids {
		if !bytes.Equal(b.rows[i], windowValues()[id]) {
			t.Fatalf("row %d is not record %d", i, id)
		}
	}
}

// Each chunk is read once in an epoch, in one read, by one rank but for few; and the
// manifest once.
func TestWindowReadsChunksOnce(t *testing.T) {
	for _, world := range []int{1, 4, 16} {
		t.Run(fmt.Sprint(world), func(t *testing.T) {
			reads, chunks, seen := 0, 0, map[int64]bool{}
			for rank := range world {
				p, c, counted := openRemoteOf(t, wholePack, Config{BatchSize: 64 / world, Window: 16, Rank: rank, WorldSize: world, Threads: 2, Memory: 64 << 20})
				chunks = p.Info().Order.Chunks
				if o := p.Info().Order; o.Mode != OrderWindows || o.Window != 16 || o.InUse != 16/world {
					t.Fatalf("%+v", o)
				}
				p.Start(item.Position{})
				for e := range 2 {
					for _, b := range raggedBatches(t, p, int(p.Info().Steps)+1) {
						checkRows(t, b)
						for _, id := range b.ids {
							if e == 0 && seen[id] {
								t.Fatalf("record %d comes twice", id)
							}
							seen[id] = seen[id] || e == 0
						}
					}
				}
				w, hedges := p.order.window, p.fetch.Counters().Hedges
				if err := p.Close(); err != nil {
					t.Fatal(err)
				}
				// The number of times that each chunk may be read: once for each epoch that has it, including the next
				// epoch, which has begun.
				uses := map[driver.Extent]int{}
				for e := range int64(3) {
					mine := map[int]bool{}
					for pos := int64(rank); pos < w.Len(); pos += int64(world) {
						mine[w.Chunk(w.epoch(e).At(pos))] = true
					}
					for n := range mine {
						uses[w.own.Chunk(n)]++
					}
					if e == 0 {
						reads += len(mine)
					}
				}
				for _, e := range c.shards {
					n, is := uses[e]
					uses[e] = n - 1
					if n <= 0 {
						hedges-- // late reads are repeated
					}
					if !is || hedges < 0 {
						t.Fatalf("rank %d of %d read bytes %d to %d of shard %d, which are no chunk of its, or once too often", rank, world, e.Offset, e.Offset+e.Size, e.Object)
					}
				}
				if c.manifest != 1 { // reads that were given up when the pipeline was closed count as errors
					t.Errorf("the manifest was read %d times; %+v", c.manifest, counted.Stats())
				}
			}
			if len(seen) != wholeLen || chunks < 320 || float64(reads) > 1.05*float64(chunks) {
				t.Errorf("%d records, %d reads of %d chunks", len(seen), reads, chunks)
			}
		})
	}
}

func TestWindowOrder(t *testing.T) {
	var whole []int64
	for _, batch := range []int{1, 64, 100} {
		p, _, _ := openRemote(t, Config{BatchSize: batch, Window: 7, Memory: 64 << 20})
		p.Start(item.Position{})
		var ids []int64
		for _, b := range raggedBatches(t, p, int(p.Info().Steps)) {
			ids = append(ids, b.ids...)
		}
		checkOnce(t, ids, windowLen)
		if whole == nil {
			whole = ids
			want := p.order.window.epoch(0)
			for pos, id := range ids {
				if want.At(int64(pos)) != id {
					t.Fatalf("position %d is record %d", pos, id)
				}
			}
		}
		equal(t, "the order in other batches", whole, ids)
		// And from the middle, over the end of the epoch.
		at := 5000 / fewer
		p.Start(item.Position{Row: at})
		b := raggedBatches(t, p, 3)
		equal(t, "from the middle", whole[at:at+int64(batch)], b[0].ids)
		checkRows(t, b[0])
		p.Start(item.Position{Row: windowLen - 10})
		for range 2 {
			b := raggedBatches(t, p, 1)
			checkRows(t, b[0])
		}
	}
}

// A loop that two ranks have left continues with four, and has each record once.
func TestWindowElastic(t *testing.T) {
	seen := map[int64]int{}
	run := func(world, steps int, from item.Position) (to item.Position) {
		for rank := range world {
			p, _, _ := openRemote(t, Config{BatchSize: 32 / world, Window: 8, Rank: rank, WorldSize: world, Memory: 64 << 20})
			p.Start(from)
			for _, b := range raggedBatches(t, p, steps) {
				for _, id := range b.ids {
					seen[id]++
				}
				to = b.pos
			}
		}
		return to
	}
	all := int(windowLen+31) / 32
	at := run(2, all/4, item.Position{})
	at = run(4, all/4, at)
	at = run(1, all/8, at)
	run(8, all-2*(all/4)-all/8, at)
	for id, n := range seen {
		if n != 1 {
			t.Fatalf("record %d came %d times", id, n)
		}
	}
	if int64(len(seen)) != windowLen {
		t.Fatalf("%d records came", len(seen))
	}
}

// With the least memory that the window needs, a loop runs to the end. with a little less, it is refused with the size
// that fits.
func TestWindowMemory(t *testing.T) {
	window := int(128 / fewer)
	p, _, _ := openRemote(t, Config{BatchSize: 16, Window: window, Threads: 2, Memory: 64 << 20})
	o := p.Info().Order
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	lo, hi := int64(1)<<20, int64(64)<<20
	open := func(memory int64) (*Pipeline, error) {
		return Open(t.Context(), remoteConfig(t, Config{BatchSize: 16, Window: window, Threads: 2, Memory: memory}))
	}
	var refusal, err error
	for hi-lo > 1<<10 {
		mid := (lo + hi) / 2
		p, err := open(mid)
		if err != nil {
			lo = mid
			if strings.Contains(err.Error(), "window") {
				refusal = err
			}
			continue
		}
		hi = mid
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if refusal == nil || !strings.Contains(refusal.Error(), fmt.Sprintf("window:%d fits", window/2)) {
		t.Errorf("%v", refusal)
	}
	p, err = open(hi)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	p.Start(item.Position{})
	for range 2 {
		var ids []int64
		for _, b := range raggedBatches(t, p, int(p.Info().Steps)+1) {
			checkRows(t, b)
			ids = append(ids, b.ids...)
		}
		checkOnce(t, ids, windowLen)
	}
	if s := p.Stats(); s.MemoryPeak > hi {
		t.Errorf("%d bytes were in use, of %d; the window has %d", s.MemoryPeak, hi, o.WindowBytes)
	}
}

// Data without chunks is read in runs of neighbours. Data in memory is not read.
func TestWindowOfOtherSources(t *testing.T) {
	for name, src := range variants(3000, 300) {
		p := mustOpen(t, Config{BatchSize: 32, Window: 2, Shuffle: true, Memory: 64 << 20, OpenSource: use(src)})
		p.Start(item.Position{})
		var ids []int64
		for range p.Info().Steps {
			b := raggedBatches(t, p, 1)
			ids = append(ids, b[0].ids...)
		}
		checkOnce(t, ids, 3000)
		if o := p.Info().Order; o.Mode != OrderWindows {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

// If several ranks read each chunk, rank 0 says so once, with what to type.
func TestWindowOfManyRanks(t *testing.T) {
	chunks := func() int {
		p, _, _ := openRemote(t, Config{BatchSize: 8, Window: 7, Memory: 64 << 20})
		return p.Info().Order.Chunks
	}()
	for _, c := range []struct {
		ranks, rank, window int
		want                []string
	}{
		{ranks: 1, window: 7},
		{ranks: 4, window: 8},
		{ranks: 4, window: 6, want: []string{"on 2 ranks", "6 is not a multiple of 4", `"window:8"`}},
		{ranks: 4, rank: 1, window: 6},
		{ranks: 3, window: 2 * chunks, want: []string{"on 3 ranks", "all " + fmt.Sprint(chunks), fmt.Sprintf(`"window:%d"`, (chunks-1)/3*3)}},
		{ranks: 2 * chunks, window: 4, want: []string{fmt.Sprintf("%d chunks for %d ranks", chunks, 2*chunks), "shuffle=True", "--chunk-size"}},
		{ranks: 4, window: WindowAuto},
	} {
		var said []string
		_, _, _ = openRemote(t, Config{
			BatchSize: 4 * c.ranks, Window: c.window, Memory: 256 << 20, WorldSize: c.ranks, Rank: c.rank, LocalWorldSize: 1,
			Say: func(what string) { said = append(said, what) },
		})
		switch {
		case len(c.want) == 0 && len(said) > 0, len(c.want) > 0 && len(said) != 1:
			t.Errorf("%+v: %q", c, said)
		case len(said) == 1:
			for _, part := range c.want {
				if !strings.Contains(said[0], part) {
					t.Errorf("%+v: %q is not in %q", c, part, said[0])
				}
			}
		}
	}
}

// If a chunk cannot be read as a whole, only its unreadable records fail. A restart in the middle gives up the pending
// reads.
func TestWindowFaults(t *testing.T) {
	broken := errors.New("a sector is broken")
	bad := faulttest.Error(broken).On(faulttest.Read).Named("shard-00001.arrow").Bytes(1_000_000/fewer, 1_000_000/fewer+10)
	p := mustOpen(t, remoteConfig(t, Config{BatchSize: 16, Window: 8, Memory: 64 << 20, OnError: OnErrorSkip,
		Decorate: func(s store.Store) store.Store { return faulttest.New(s, 1, bad) }}))
	for _, row := range []int64{0, windowLen / 4, windowLen / 8, 0} {
		p.Start(item.Position{Row: row})
		for _, b := range raggedBatches(t, p, 5) {
			checkRows(t, b)
		}
	}
	p.Start(item.Position{})
	var ids []int64
	for {
		ev, err := p.Next(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		if ev.Kind == EventEpochEnd {
			if ev.Skipped != 1 || !errors.Is(ev.Bad[0].Cause, broken) {
				t.Errorf("%d were replaced: %v", ev.Skipped, ev.Bad)
			}
			break
		}
		got, rows := raggedRows(p, ev)
		checkRows(t, raggedBatch{ids: got, rows: rows})
		ids = append(ids, got...)
		p.Release(ev.Slot)
	}
	slices.Sort(ids)
	if n := int64(len(slices.Compact(ids))); n != windowLen-1 {
		t.Errorf("%d records came", n)
	}
}

func TestWindowRefusals(t *testing.T) {
	for want, cfg := range map[string]Config{
		"shuffle is off":        {Window: 2},
		"must be between":       {Window: -2, Shuffle: true},
		"exclude each other":    {Window: 2, Shuffle: true, Bucket: &Bucket{By: "data"}},
		"in their own order":    {Window: 2, Shuffle: true, Sequence: &Sequence{Length: 4}},
		"not for shuffle, drop": {Window: 2, Shuffle: true, Order: OrderClient},
	} {
		cfg.BatchSize = 4
		shuffle := cfg.Shuffle
		cfg = remoteConfig(t, cfg)
		cfg.Shuffle = shuffle
		if p, err := Open(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
			if err == nil {
				p.Close()
			}
		}
	}
}

// Positions belong to an order: another window or other chunks have another identity.
func TestWindowIdentity(t *testing.T) {
	var ids []string
	add := func(p *Pipeline) {
		id := p.identity(p.src.Info())
		ids = append(ids, id.Order+" "+id.Pipeline)
	}
	for _, window := range []int{0, 7, 8} {
		p, _, _ := openRemote(t, Config{BatchSize: 8, Window: window, Memory: 64 << 20})
		add(p)
		if window == 8 {
			n := p.Info().Len
			for _, at := range []int64{2, 3} {
				if err := p.useWindow([]int64{0, at, n}, nil); err != nil {
					t.Fatal(err)
				}
				add(p)
			}
		}
	}
	slices.Sort(ids)
	if len(slices.Compact(ids)) != 5 {
		t.Error(ids)
	}
}

// With an automatic order, records in a bucket come by windows and those in local files in any order. If memory is
// short, the window is smaller.
func TestWindowAuto(t *testing.T) {
	p, _, _ := openRemoteOf(t, wholePack, Config{BatchSize: 8, Window: WindowAuto, Memory: 64 << 20})
	o := p.Info().Order
	if o.Mode != OrderWindows || o.Window != autoWindow || !strings.Contains(o.Why, "in memory:") {
		t.Errorf("%+v", o)
	}
	for memory := int64(4 << 20); ; memory += 128 << 10 { // the least that is enough
		small, err := Open(t.Context(), remoteConfigOf(t, wholePack, Config{BatchSize: 8, Window: WindowAuto, Memory: memory, Threads: 1}))
		if err != nil && memory < 64<<20 {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if o := small.Info().Order; o.Mode != OrderWindows || o.Window >= autoWindow || !strings.Contains(o.Why, "does not fit") {
			t.Errorf("%+v", o)
		}
		if err := small.Close(); err != nil {
			t.Fatal(err)
		}
		break
	}
	many, _, _ := openRemoteOf(t, wholePack, Config{BatchSize: 8, Window: WindowAuto, WorldSize: 4, Memory: 64 << 20})
	if o := many.Info().Order; o.Window != autoWindow || o.InUse != 64 {
		t.Errorf("%+v", o)
	}
	held, _, _ := openRemoteOf(t, wholePack, Config{BatchSize: 8, Window: WindowAuto, Memory: 64 << 20, CacheMemory: 32 << 20})
	if o := held.Info().Order; o.Mode == OrderWindows || !strings.Contains(o.Why, "cache_memory holds") {
		t.Errorf("%+v", o)
	}
	for _, limit := range []int64{1 << 10, 1 << 30} {
		c := Config{BatchSize: 8, Window: WindowAuto, Memory: 64 << 20, Cache: CacheOn, CacheDir: t.TempDir(), CacheLimit: limit, WorldSize: 2}
		kept, _, _ := openRemoteOf(t, wholePack, c)
		if o := kept.Info().Order; (o.Mode == OrderWindows) != (limit < 1<<30) {
			t.Errorf("a limit of %d bytes: %+v", limit, o)
		}
	}
	objects, err := wholePack()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, data := range objects {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	here := mustOpen(t, Config{Source: dir, BatchSize: 8, Shuffle: true, Window: WindowAuto})
	if o := here.Info().Order; o.Mode != OrderFull || o.Why == "" || here.Config().Window != 0 {
		t.Errorf("%+v", o)
	}
	full := mustOpen(t, Config{Source: dir, BatchSize: 8, Shuffle: true})
	if full.Info().Fingerprint != here.Info().Fingerprint {
		t.Error("the same order has two fingerprints")
	}
}

// Local files are read by the same rules: those in memory are used in place.
func TestWindowOfLocalPack(t *testing.T) {
	objects, err := remotePack()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, data := range objects {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	remote, _, _ := openRemote(t, Config{BatchSize: 50, Window: 5, Memory: 64 << 20})
	for _, source := range []string{dir, fmt.Sprint(dir, "#where=n%20<%20", windowLen*3/4), dir + "#where=n%20<%20100"} {
		p := mustOpen(t, Config{Source: source, BatchSize: 50, Shuffle: true, Seed: 11, Window: 5, Memory: 64 << 20})
		p.Start(item.Position{})
		remote.Start(item.Position{})
		var ids []int64
		for range p.Info().Steps {
			b := raggedBatches(t, p, 1)[0]
			checkRows(t, b)
			if p.Info().Len == windowLen {
				sameBatches(t, "a local pack", raggedBatches(t, remote, 1), []raggedBatch{b})
			}
			ids = append(ids, b.ids...)
		}
		checkOnce(t, ids, p.Info().Len)
	}
}

// With memory for a share of the data, later epochs read the rest from the store, and cached bytes are read once.
func TestCacheInMemory(t *testing.T) {
	const epochs = 4
	for _, window := range []int{0, 16} {
		for _, percent := range []int64{25, 50, 75, 200} {
			t.Run(fmt.Sprint(window, " ", percent), func(t *testing.T) {
				var chunks []driver.Extent
				all := int64(0)
				plain, _, _ := openRemote(t, Config{BatchSize: 64, Window: 16, Memory: 64 << 20})
				for n := range plain.order.window.Chunks() {
					chunks = append(chunks, plain.order.window.own.Chunk(n))
					all += chunks[n].Size
				}
				p, c, _ := openRemote(t, Config{BatchSize: 64, Window: window, Memory: 128 << 20, CacheMemory: all * percent / 100, Threads: 2})
				p.Start(item.Position{})
				for range epochs {
					for _, b := range raggedBatches(t, p, int(p.Info().Steps)+1) {
						checkRows(t, b)
					}
				}
				st, reads := p.Stats(), p.fetch.Counters()
				kept := map[driver.Extent]int64{} // how much of a chunk
				rest := all                       // the part that is not cached
				for _, e := range chunks {
					ob := p.src.Object(e.Object)
					for _, q := range p.caches.ram.Pieces(ob.Store.Path(ob.Entry.Name)) {
						if q.Off == e.Offset {
							kept[driver.Extent{Object: e.Object, Offset: e.Offset, Size: q.Size, Field: -1}] = q.Size
							rest -= q.Size
						}
					}
				}
				if err := p.Close(); err != nil {
					t.Fatal(err)
				}
				limit := min(all*percent/100, all)
				if k := st.CacheMemory; k == nil || k.Limit != limit || k.Bytes != limit || k.HitBytes == 0 || p.Info().Memory.Cache != limit {
					t.Fatalf("%+v of %d, %+v", k, limit, p.Info().Memory)
				}
				if float64(rest) > 1.01*float64(all-limit) {
					t.Errorf("%d bytes of %d are not kept, with room for %d", rest, all, limit)
				}
				past := int64(0)
				seen := map[driver.Extent]bool{}
				for _, e := range c.shards {
					if _, is := kept[e]; !is {
						past += e.Size
					} else if seen[e] {
						t.Errorf("%d bytes that are kept were read again", e.Size)
					} else {
						seen[e] = true
					}
				}
				// Later epochs have begun, as far as memory allowed to read ahead; late reads are repeated. No unneeded
				// bytes are read between records, even for records as small as these.
				if most := 1.01 * float64(epochs*(all-limit)+max(all-limit, reads.Peak)); reads.Hedges == 0 && float64(past) > most {
					t.Errorf("%d bytes were read in addition, at most %.0f were to be", past, most)
				}
			})
		}
	}
}
