package localcache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/internal/store/counttest"
	"github.com/stokerdata/stoker/internal/store/disk"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
	"github.com/stokerdata/stoker/store/storetest"
)

func TestMain(m *testing.M) {
	if what := os.Getenv(nodeVariable); what != "" {
		node(what)
		return
	}
	goleak.VerifyTestMain(m)
}

// The test data: remote objects with chunks whose size is not a power of two.
const (
	objects, chunksOf, chunkBytes = 3, 12, 70_001
	objectBytes                   = chunksOf * chunkBytes
)

// bytesOf returns the bytes of an object, which depend on version.
func bytesOf(n int, version byte) []byte {
	b := make([]byte, objectBytes)
	filled := min(objectBytes, 1<<16)
	for i := range b[:filled] {
		b[i] = byte(i>>8) ^ byte(i*7) ^ byte(n) ^ version
	}
	for filled < len(b) { // they repeat after 64 KiB
		filled += copy(b[filled:], b[:filled])
	}
	return b
}

// data is a source that only describes the location of its bytes.
type data struct {
	info    driver.Info
	st      store.Store
	entries []store.Entry
	whole   bool // it has no chunks
}

func (d *data) Info() *driver.Info        { return &d.info }
func (d *data) Name(int64) string         { return "a record" }
func (d *data) Locate(*driver.Group)      {}
func (d *data) Parse(*driver.Group) error { return nil }
func (d *data) Close() error              { return nil }
func (d *data) Object(n int64) driver.Object {
	return driver.Object{Store: d.st, Entry: d.entries[n], Keep: true}
}

func (d *data) Chunks() []int64 {
	if d.whole {
		return nil
	}
	var list []int64
	for i := range objects*chunksOf + 1 {
		list = append(list, int64(i))
	}
	return list
}

func (d *data) Chunk(n int) driver.Extent {
	return driver.Extent{Object: int64(n / chunksOf), Offset: int64(n % chunksOf * chunkBytes), Size: chunkBytes}
}

// far returns the data in a remote store, and a counter of its reads.
func far(t testing.TB, version byte) (*data, *counttest.Store) {
	t.Helper()
	m := storetest.NewMemory(nil)
	for range version + 1 { // the version of an object is the number of earlier puts
		for n := range objects {
			m.Put(fmt.Sprintf("o%d", n), bytesOf(n, version))
		}
	}
	st := counttest.New(m, nil)
	d := &data{st: st, info: driver.Info{URL: "memory:", Format: "test", Objects: objects, Len: objects * chunksOf}}
	for n := range objects {
		e, err := st.Stat(context.Background(), fmt.Sprintf("o%d", n))
		if err != nil {
			t.Fatal(err)
		}
		d.entries = append(d.entries, e)
	}
	return d, st
}

// open opens a cache of the data; its messages go to the test's log.
func open(t *testing.T, src driver.Source, opt Options) *Cache {
	t.Helper()
	opt.Buffers, opt.Largest = 2, Largest(src)
	if opt.Say == nil {
		opt.Say = func(s string) { t.Log(s) }
	}
	c, err := Open(src, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, c) })
	return c
}

// closed closes a cache, once.
func closed(t *testing.T, c *Cache) {
	t.Helper()
	if c.src == nil {
		return
	}
	c.src = nil
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// readAll reads all bytes through the cache with concurrent reads of parts of chunks and across chunks. It compares
// them with the expected bytes.
func readAll(ctx context.Context, src driver.Source, decorate func(store.Store) store.Store, version byte) error {
	obj := recordread.NewObjects(src, nil)
	obj.Decorate = decorate
	defer obj.Close()
	var wg sync.WaitGroup
	errs := make([]error, 4)
	var next atomic.Int64
	for w := range errs {
		wg.Go(func() {
			for errs[w] == nil {
				const part, parts = 50_000, (objectBytes + 49_999) / 50_000
				at := next.Add(1) - 1
				if at >= objects*parts {
					return
				}
				n, off := at/parts, at%parts*part
				b := make([]byte, min(part, objectBytes-off))
				if errs[w] = obj.Read(ctx, n, b, off); errs[w] == nil && !bytes.Equal(b, bytesOf(int(n), version)[off:off+int64(len(b))]) {
					errs[w] = fmt.Errorf("object %d, bytes %d to %d are others", n, off, off+int64(len(b)))
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func TestFar(t *testing.T) {
	d, _ := far(t, 0)
	here := localstore.New(t.TempDir())
	if !Remote(d.st) || Remote(here) || !Of(d) || Local(d.st) != "" || Local(here) != here.String() || Of(&data{}) {
		t.Error(Remote(d.st), Remote(here), Of(d), Local(d.st), Local(here))
	}
}

// Without chunks objects are cut into parts of one size.
func TestPieces(t *testing.T) {
	d, _ := far(t, 0)
	if list := Pieces(d); len(list) != objects*chunksOf || list[chunksOf+1] != (disk.Piece{Path: "memory:o1", Off: chunkBytes, Size: chunkBytes}) || Largest(d) != disk.PieceBytes {
		t.Errorf("%+v", list)
	}
	d.whole = true
	d.entries[2].Size = 2*disk.PieceBytes + 5
	list := Pieces(d)
	if len(list) != objects+2 || list[0].Size != objectBytes || list[4] != (disk.Piece{Path: "memory:o2", Off: 2 * disk.PieceBytes, Size: 5}) {
		t.Errorf("%+v", list)
	}
}

// Cached bytes are read from the store once, also for later users. Another version is different data, and the cached
// bytes of the old version are removed.
func TestOpen(t *testing.T) {
	dir := t.TempDir()
	for run, version := range []byte{0, 0, 1, 1} {
		d, st := far(t, version)
		c := open(t, d, Options{Dir: dir, Limit: 1 << 30})
		before := c.Stats().Chunks
		if err := readAll(t.Context(), d, c.Store, version); err != nil {
			t.Error(err)
		}
		read, s := st.Stats().Bytes, c.Stats()
		fresh := run%2 == 0
		if want := int64(0); fresh && (read != objects*objectBytes || before != 0) || !fresh && (read != want || before != objects*chunksOf) || s.Chunks != objects*chunksOf {
			t.Errorf("run %d: %d bytes were read, %d chunks were there, %+v", run, read, before, s)
		}
		closed(t, c)
	}
}

// Warm caches as much as fits, reports the size and ends when its context does.
func TestWarm(t *testing.T) {
	for _, limit := range []int64{1 << 30, 10 * chunkBytes} {
		d, st := far(t, 0)
		c := open(t, d, Options{Dir: t.TempDir(), Limit: limit})
		var told atomic.Int64
		w, err := c.Warm(t.Context(), 3, func(n int64) { told.Add(n) })
		if err != nil || w.Chunks != objects*chunksOf || w.Bytes != objects*objectBytes || w.Kept != w.Now || told.Load() != w.KeptBytes {
			t.Fatalf("%+v, %d, %v", w, told.Load(), err)
		}
		if all := limit == 1<<30; all != (w.Kept == w.Chunks) || w.Kept < 7 || c.Bytes() != w.Bytes {
			t.Errorf("limit %d: %+v", limit, w)
		}
		before := st.Stats().Bytes
		again, err := c.Warm(t.Context(), 3, func(int64) {})
		if limit == 1<<30 && (err != nil || again.Now != 0 || again.Kept != w.Kept || st.Stats().Bytes != before) {
			t.Errorf("%+v, %v", again, err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		enough := errors.New("enough")
		cancel(enough)
		if _, err := c.Warm(ctx, 3, func(int64) {}); !errors.Is(err, enough) {
			t.Errorf("%v", err)
		}
	}
}

// The error for a folder that cannot be used names the data.
func TestOpenFails(t *testing.T) {
	d, _ := far(t, 0)
	file := t.TempDir() + "/file"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(d, Options{Dir: file, Buffers: 1, Largest: Largest(d), Say: func(string) {}}); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("%v", err)
	}
}
