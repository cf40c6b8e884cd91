package localcache

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/internal/store/disk"
)

// Warmed are the number and size of all chunks and of the cached ones.
type Warmed struct {
	Chunks, Bytes   int64 // of all data
	Kept, KeptBytes int64 // in the cache
	Now, NowBytes   int64 // of those, that were not before
}

// errFull ends Warm when the cache is full.
var errFull = errors.New("there is no room for more")

// Warm caches all of the data, as far as it fits. progress gets the number of bytes of each cached chunk. The chunks
// are read by readers goroutines.
func (c *Cache) Warm(ctx context.Context, readers int, progress func(bytes int64)) (Warmed, error) {
	type chunk struct {
		object, off, size int64
		k                 disk.Key
	}
	var w struct{ chunks, bytes, kept, keptBytes, now, nowBytes atomic.Int64 }
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	objects := recordread.NewObjects(c.src, nil)
	objects.Decorate = c.Store
	todo := make(chan chunk)
	var wg sync.WaitGroup
	for range readers {
		wg.Go(func() {
			var buf []byte
			for t := range todo {
				was := c.Chunks.Has(t.k)
				if !was {
					if int64(cap(buf)) < t.size {
						buf = make([]byte, t.size)
					}
					if err := objects.Read(ctx, t.object, buf[:t.size], t.off); err != nil {
						cancel(err)
						return
					}
					if !c.Chunks.Has(t.k) {
						cancel(errFull)
						return
					}
					w.now.Add(1)
					w.nowBytes.Add(t.size)
				}
				w.kept.Add(1)
				w.keptBytes.Add(t.size)
				progress(t.size)
			}
		})
	}
	full := false
	err := c.Keys(func(object, off, size int64, k disk.Key) error {
		w.chunks.Add(1)
		w.bytes.Add(size)
		if full = full || ctx.Err() != nil; full {
			return nil
		}
		select {
		case todo <- chunk{object, off, size, k}:
		case <-ctx.Done():
		}
		return nil
	})
	close(todo)
	wg.Wait()
	if why := context.Cause(ctx); why != nil && !errors.Is(why, errFull) {
		err = why
	}
	if cerr := objects.Close(); err == nil {
		err = cerr
	}
	return Warmed{w.chunks.Load(), w.bytes.Load(), w.kept.Load(), w.keptBytes.Load(), w.now.Load(), w.nowBytes.Load()}, err
}

// Bytes returns the size of all remote data.
func (c *Cache) Bytes() (n int64) {
	for i := range c.src.Info().Objects {
		if ob := c.src.Object(i); Remote(ob.Store) {
			n += ob.Entry.Size
		}
	}
	return n
}
