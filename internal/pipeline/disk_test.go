package pipeline

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/localcache"
	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/internal/store/counttest"
	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
	"github.com/stokerdata/stoker/store/storetest"
)

// cacheDir is a configuration with a cache on a disk, of an engine of its own.
func cacheDir(t testing.TB, dir string, limit int64, cfg Config) (*Pipeline, *calls) {
	cfg.Cache, cfg.CacheDir, cfg.CacheLimit, cfg.Memory, cfg.Threads = CacheOn, dir, limit, 192<<20, 2
	p, c, _ := openRemote(t, cfg)
	return p, c
}

// readBytes returns the number of bytes that were read from shards.
func (c *calls) readBytes() (n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.shards {
		n += e.Size
	}
	return n
}

func goThrough(t testing.TB, p *Pipeline, n int) {
	t.Helper()
	for range n {
		for _, b := range raggedBatches(t, p, int(p.Info().Steps)+1) {
			for i, id := range b.ids {
				if string(b.rows[i]) != string(windowValues()[id]) {
					t.Fatalf("row %d is not record %d", i, id)
				}
			}
		}
	}
}

// chunkBytesOf returns the size of all chunks of the pack and their number.
func chunkBytesOf(t testing.TB) (all int64, chunks int) {
	t.Helper()
	plain, _, _ := openRemote(t, Config{BatchSize: 64, Window: 16, Memory: 64 << 20})
	for n := range plain.order.window.Chunks() {
		all += plain.order.window.own.Chunk(n).Size
	}
	return all, plain.order.window.Chunks()
}

// If the disk has space for a share of the data, later epochs read the rest from the store, also in the next job. With
// a share in memory as well, they read the rest of that.
func TestCacheOnDisk(t *testing.T) {
	const later = 2
	all, chunks := chunkBytesOf(t)
	for _, window := range []int{0, 16} {
		for _, ram := range []int64{0, 25} {
			for _, percent := range []int64{25, 50, 75, 200} {
				if (ram > 0 || window == 0) && percent != 50 {
					continue
				}
				t.Run(fmt.Sprint(window, " ", ram, " ", percent), func(t *testing.T) {
					dir := t.TempDir()
					limit := all * percent / 100
					cfg := Config{BatchSize: 64, Window: window, CacheMemory: all * ram / 100}
					for run := range 2 {
						p, c := cacheDir(t, dir, limit, cfg)
						p.Start(item.Position{})
						goThrough(t, p, later)
						st, hedges := p.Stats(), p.fetch.Counters().Hedges
						if err := p.Close(); err != nil {
							t.Fatal(err)
						}
						d := st.CacheDisk
						if d == nil || d.Bytes > limit || d.HitBytes == 0 || d.Note != "" || run == 1 && d.Damaged > 0 {
							t.Fatalf("%+v", d)
						}
						inMemory := int64(0)
						if st.CacheMemory != nil && percent < 100 {
							inMemory = st.CacheMemory.Bytes
						}
						// A chunk takes a little more on the disk, and one more does not fit.
						room := min(limit-int64(chunks)*2*4096-all/int64(chunks), all-inMemory)
						if percent > 100 {
							room = all
						}
						if d.Bytes < room {
							t.Errorf("run %d: %d bytes are kept, with room for %d", run, d.Bytes, limit)
						}
						// Without caching, only needed bytes are read, even for records as small as these. The next
						// epoch has begun.
						rest := float64(all - d.Bytes - inMemory)
						most := (later + 1) * 1.01 * rest
						if run == 0 {
							most += float64(d.Bytes + inMemory)
						} else {
							most += float64(inMemory)
						}
						if got := c.readBytes(); hedges == 0 && float64(got) > most {
							t.Errorf("run %d: %d bytes were read of the store, at most %.0f were to be", run, got, most)
						}
					}
				})
			}
		}
	}
}

// The ranks of a node fill one cache: each chunk is read from the store by one of them.
func TestRanksShareTheDisk(t *testing.T) {
	all, _ := chunkBytesOf(t)
	for _, window := range []int{0, 16} {
		dir := t.TempDir()
		var ranks []*Pipeline
		var read []*calls
		for rank := range 3 {
			p, c := cacheDir(t, dir, 1<<30, Config{BatchSize: 20, Window: window, Rank: rank, WorldSize: 3})
			p.Start(item.Position{})
			ranks, read = append(ranks, p), append(read, c)
		}
		var wg sync.WaitGroup
		for _, p := range ranks {
			wg.Go(func() { goThrough(t, p, 1+window/16) })
		}
		wg.Wait()
		got := int64(0)
		for _, c := range read {
			got += c.readBytes()
		}
		if float64(got) > 1.01*float64(all) {
			t.Errorf("window %d: %d bytes were read of the store, there are %d", window, got, all)
		}
	}
}

// Two jobs with different orders share a cache that is too small. Each publishes its uses, the chunk that both need
// last is replaced, and all rows are right.
func TestTwoJobsShareTheDisk(t *testing.T) {
	all, _ := chunkBytesOf(t)
	dir := t.TempDir()
	var jobs []*Pipeline
	for seed := range 2 {
		cfg := remoteConfig(t, Config{BatchSize: 50, Window: 8, Cache: CacheOn, CacheDir: dir, CacheLimit: all / 2, Memory: 40 << 20, Threads: 1})
		cfg.Seed = uint64(seed)
		p := mustOpen(t, cfg)
		p.Start(item.Position{Row: int64(seed) * 100})
		jobs = append(jobs, p)
	}
	for range jobs[0].Info().Steps * 2 {
		for _, p := range jobs {
			for _, b := range raggedBatches(t, p, 1) {
				checkRows(t, b)
			}
		}
	}
	gone := int64(0)
	for _, p := range jobs {
		st := p.Stats().CacheDisk
		gone += st.Gone
		if st.Bytes > all/2 || st.Note != "" || st.Damaged > 0 {
			t.Errorf("%+v", st)
		}
	}
	if gone == 0 {
		t.Error("nothing has made room for anything")
	}
}

// An object with a new version is read again, and the cached bytes of the old version are removed.
func TestCacheOfAnotherVersion(t *testing.T) {
	objects, err := remotePack()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	p, _ := cacheDir(t, dir, 1<<30, Config{BatchSize: 64, Window: 16})
	p.Start(item.Position{})
	goThrough(t, p, 1)
	before := p.Stats().CacheDisk.Bytes
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	cfg := remoteConfig(t, Config{BatchSize: 64, Window: 16, Cache: CacheOn, CacheDir: dir, CacheLimit: 1 << 30, Memory: 64 << 20})
	var s *counttest.Store
	cfg.OpenSource = func(ctx context.Context, _ string) (driver.Source, error) {
		m := storetest.NewMemory(nil)
		for _, name := range slices.Sorted(maps.Keys(objects)) {
			m.Put(name, nil)
			m.Put(name, objects[name]) // another version of each
		}
		s = counttest.New(m, nil)
		return pack.OpenStore(ctx, s, nil)
	}
	again := mustOpen(t, cfg)
	if got := again.Stats().CacheDisk; got.Bytes != 0 {
		t.Errorf("%d bytes of another version are kept", got.Bytes)
	}
	again.Start(item.Position{})
	goThrough(t, again, 2)
	if got := again.Stats().CacheDisk; got.Bytes != before || s.Stats().Bytes < before {
		t.Errorf("%+v, before it was %d", got, before)
	}
}

// lentChunks opens a pipeline, runs enough epochs for its chunks to be in the system's cache, and returns the chunk
// files.
func lentChunks(t *testing.T, window, epochs int, open func(context.Context, string) (driver.Source, error)) (*Pipeline, []string) {
	t.Helper()
	dir := t.TempDir()
	cfg := remoteConfig(t, Config{BatchSize: 64, Window: window, Cache: CacheOn, CacheDir: dir, CacheLimit: 1 << 30, Memory: 192 << 20, Threads: 2})
	if open != nil {
		cfg.OpenSource = open
	}
	p := mustOpen(t, cfg)
	p.Start(item.Position{})
	goThrough(t, p, epochs)
	var files []string
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() && strings.Contains(path, "/chunks/") {
			files = append(files, path)
		}
		return err
	})
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	return p, files
}

// Chunks that are removed while they are used from memory are read from the store, and every row is right.
func TestLentChunksAreTakenAway(t *testing.T) {
	for _, window := range []int{0, 16} {
		p, files := lentChunks(t, window, 3, nil)
		for try := range 2 {
			var wg sync.WaitGroup
			wg.Go(func() {
				for _, name := range files {
					_ = os.Truncate(name, 0)
					_ = os.Remove(name)
				}
			})
			goThrough(t, p, 2)
			wg.Wait()
			if st := p.Stats().CacheDisk; st.Damaged > int64(len(files)*(try+1)) || st.Note != "" {
				t.Errorf("%+v", st)
			}
		}
	}
}

// faulty is a source with some records whose pages cannot be read, once each.
type faulty struct {
	driver.Source
	mu   sync.Mutex
	seen map[int64]bool
	on   bool
}

func (f *faulty) Learn(e driver.Extent, b []byte) error { return f.Source.(driver.Indexer).Learn(e, b) }

func (f *faulty) Parse(g *driver.Group) error {
	err := f.Source.Parse(g)
	f.mu.Lock()
	defer f.mu.Unlock()
	for k, id := range g.IDs {
		if f.on && id%5 == 0 && !f.seen[id] {
			f.seen[id] = true
			g.Records[k].Err = recordread.Unreadable(&cdec.Error{Kind: cdec.ErrUnreadable, Msg: cdec.Unreadable})
		}
	}
	return err
}

// If a record's chunk disappears during decoding, the record is read again.
func TestLentRecordGoes(t *testing.T) {
	objects, err := remotePack()
	if err != nil {
		t.Fatal(err)
	}
	var f *faulty
	p, _ := lentChunks(t, 0, 3, func(ctx context.Context, _ string) (driver.Source, error) {
		src, err := pack.OpenStore(ctx, storetest.NewMemory(objects), nil)
		f = &faulty{Source: src, seen: map[int64]bool{}}
		return f, err
	})
	f.mu.Lock()
	f.on = true
	f.mu.Unlock()
	goThrough(t, p, 2)
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := int64(len(f.seen)); n < p.Info().Len/5 {
		t.Errorf("%d records could not be read at first", n)
	}
}

// Chunks stay in the system's cache once a second epoch has begun, unless the environment disables that.
func TestWhatIsLent(t *testing.T) {
	for _, c := range []struct {
		value  string
		epochs int
		lends  bool
	}{{"", 1, false}, {"", 2, true}, {"auto", 2, true}, {"off", 3, false}} {
		t.Setenv(localcache.PagesVariable, c.value)
		p, _ := lentChunks(t, 0, c.epochs, nil)
		ob := p.src.Object(0)
		o, err := p.caches.disk.Store(ob.Store).Open(t.Context(), ob.Entry.Name)
		if err != nil {
			t.Fatal(err)
		}
		chunk := localcache.Chunks(p.src)[0]
		l, _ := store.As[store.Lender](o)
		b := make([]byte, 100)
		if err := o.ReadAt(t.Context(), b, chunk.Off); err != nil {
			t.Fatal(err)
		}
		if got := l.Lend(chunk.Off, 100, 0, time.Now().Add(time.Second)); bytes.Equal(got, b) != c.lends {
			t.Errorf("%+v: %d bytes are lent", c, len(got))
		}
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Setenv(localcache.PagesVariable, "sometimes")
	p, _ := cacheDir(t, t.TempDir(), 1<<30, Config{BatchSize: 64})
	if note := p.Info().CacheNote; !strings.Contains(note, localcache.PagesVariable+" is \"sometimes\"") {
		t.Errorf("what is said is %q", note)
	}
}

// If the cache cannot be created, that is reported and everything works without it.
func TestNoCacheOnDisk(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p, _ := cacheDir(t, file, 1<<30, Config{BatchSize: 64, Window: 16})
	if p.Info().CacheNote == "" {
		t.Error("nothing is said")
	}
	p.Start(item.Position{})
	goThrough(t, p, 1)
	if p.Stats().CacheDisk != nil {
		t.Error("there are counters of no cache")
	}
}
