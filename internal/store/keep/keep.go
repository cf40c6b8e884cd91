// Package keep caches a fixed part of a store in memory, for good: this part is kept after its first read, and
// never replaced.
//
// This is best for a job that reads all data again and again in a different order each time. On average each byte
// is equally far from its next use, so there is no gain in replacing one by another, and a cache that does (such as
// least recently used) has fewer hits. A hash decides which pieces belong to the part before anything is read, so
// that it depends only on the data.
package keep

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/store/pieces"
	"github.com/stokerdata/stoker/store"
)

// Piece is a range of an object that is kept as a whole or not at all.
type Piece = pieces.Piece

// Kept is the cache for some stores. Its methods may be called from any goroutine, except Close, which must come
// after the last read.
type Kept struct {
	limit   int64
	block   *arena.Block
	mem     []byte
	objects map[string][]piece // by Piece.Path, ordered by offset, in the same order as in mem

	hits, hitBytes, fillBytes, pastBytes atomic.Int64
}

// piece is a piece that is kept.
type piece struct {
	off int64
	mem []byte
	at  int64 // in Kept.mem
	*state
}

func (c *piece) end() int64 { return c.off + int64(len(c.mem)) }

// state is the progress of a piece.
type state struct {
	mu   sync.Mutex
	full atomic.Bool
	bad  atomic.Bool   // its bytes are damaged, and not used any more
	busy chan struct{} // closed when the goroutine that fills it has finished
}

// New chooses the pieces to keep: those with the smallest hashes that fit into limit bytes, and a part of the next
// one. Memory is only taken when it is filled.
func New(limit int64, list []Piece) (*Kept, error) {
	k := &Kept{block: arena.NewBlock(arena.NewBudget(limit+2<<20), arena.PurposeRead), objects: map[string][]piece{}}
	type ranked struct {
		Piece
		hash uint64
	}
	all := make([]ranked, len(list))
	for i, p := range list {
		all[i] = ranked{p, pieces.Hash(p)}
	}
	slices.SortStableFunc(all, func(a, b ranked) int { return cmp.Compare(a.hash, b.hash) })
	for i := range all {
		if k.limit == limit {
			all = all[:i]
			break
		}
		all[i].Size = min(all[i].Size, limit-k.limit)
		k.limit += all[i].Size
	}
	slices.SortFunc(all, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Off, b.Off))
	})
	var err error
	if k.mem, err = k.block.Bytes(int(k.limit)); err != nil {
		return nil, err
	}
	at := int64(0)
	for _, p := range all {
		end := at + p.Size
		k.objects[p.Path] = append(k.objects[p.Path], piece{p.Off, k.mem[at:end:end], at, new(state)})
		at = end
	}
	return k, nil
}

// Stats are the counters of the cache.
type Stats struct {
	// Limit is the number of bytes once all pieces are filled, Bytes the number that is filled now.
	Limit int64 `json:"limit"`
	Bytes int64 `json:"bytes"`
	// Hits is the number of reads with at least a part from the cache, HitBytes these bytes. MissBytes is the
	// number of bytes from the store: pieces that are not kept, and kept pieces once each.
	Hits      int64 `json:"hits"`
	HitBytes  int64 `json:"hit_bytes"`
	MissBytes int64 `json:"miss_bytes"`
}

// Stats returns the counters.
func (k *Kept) Stats() Stats {
	return Stats{
		Limit: k.limit, Bytes: k.fillBytes.Load(), Hits: k.hits.Load(), HitBytes: k.hitBytes.Load(),
		MissBytes: k.fillBytes.Load() + k.pastBytes.Load(),
	}
}

// Close frees the memory.
func (k *Kept) Close() { k.block.Free() }

// Store returns s with the cache around it.
func (k *Kept) Store(s store.Store) store.Store { return &kept{s, k} }

type kept struct {
	store.Store
	k *Kept
}

// Unwrap returns the store inside.
func (s *kept) Unwrap() store.Store { return s.Store }

func (s *kept) Open(ctx context.Context, name string) (store.Object, error) {
	o, err := s.Store.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	return s.around(name, o), nil
}

// OpenEntry opens an object from its listing entry, without a request to the store if possible.
func (s *kept) OpenEntry(ctx context.Context, e store.Entry) (store.Object, error) {
	o, err := store.OpenEntry(ctx, s.Store, e)
	if err != nil {
		return nil, err
	}
	return s.around(e.Name, o), nil
}

func (s *kept) around(name string, o store.Object) store.Object {
	of, size := s.k.objects[s.Path(name)], o.Size()
	below, _ := store.As[store.Lender](o)
	return store.Lending(store.Intercept(o, true, func(ctx context.Context, next store.Next, p []byte, off int64) error {
		if off < 0 || off > size || int64(len(p)) > size-off {
			return next.Read(ctx, p, off) // returns the right error
		}
		return s.k.read(ctx, next, of, p, off)
	}), &lender{s.k, of, below})
}

// lender lends kept pieces of an object, and memory that the store inside lends.
type lender struct {
	k     *Kept
	of    []piece
	below store.Lender // nil for none
}

// Lend implements store.Lender. Adjacent pieces of an object are also adjacent in memory.
func (l *lender) Lend(off, n, tail int64, now time.Time) []byte {
	i, _ := slices.BinarySearchFunc(l.of, off, func(c piece, off int64) int { return cmp.Compare(c.end()-1, off) })
	if i == len(l.of) || l.of[i].off > off {
		if l.below != nil {
			return l.below.Lend(off, n, tail, now)
		}
		return nil
	}
	from := l.of[i].at + off - l.of[i].off
	for to := off; ; i++ {
		if i == len(l.of) || l.of[i].off > to || !l.of[i].full.Load() || l.of[i].bad.Load() || tail > arena.Tail {
			return nil
		}
		if to = l.of[i].end(); to >= off+n {
			break
		}
	}
	l.k.hits.Add(1)
	l.k.hitBytes.Add(n)
	return l.k.mem[from : from+n : from+n]
}

// past reads bytes that are not kept.
func (k *Kept) past(ctx context.Context, next store.Next, p []byte, off int64) error {
	err := next.Read(ctx, p, off)
	if err == nil {
		k.pastBytes.Add(int64(len(p)))
	}
	return err
}

// read takes kept pieces from memory and reads the rest.
func (k *Kept) read(ctx context.Context, next store.Next, of []piece, p []byte, off int64) error {
	hit, start := int64(0), off
	at := func(i int) (off, size int64) { return of[i].off, int64(len(of[i].mem)) }
	err := pieces.Cut(len(of), at, off, int64(len(p)), func(i int, off, n int64) error {
		to := p[off-start : off-start+n]
		if i < 0 || of[i].bad.Load() {
			return k.past(ctx, next, to, off)
		}
		had, err := k.fill(ctx, next, &of[i])
		if err != nil {
			return err
		}
		copy(to, of[i].mem[off-of[i].off:])
		if had {
			hit += n
		}
		return nil
	})
	if hit > 0 && err == nil {
		k.hits.Add(1)
		k.hitBytes.Add(hit)
	}
	return err
}

// fill makes sure that a piece is filled, and reports whether it was before. One goroutine reads, the others wait.
func (k *Kept) fill(ctx context.Context, next store.Next, c *piece) (had bool, err error) {
	for !c.full.Load() {
		c.mu.Lock()
		busy := c.busy
		if busy == nil && !c.full.Load() {
			c.busy = make(chan struct{})
		}
		c.mu.Unlock()
		if busy != nil {
			select {
			case <-busy:
			case <-ctx.Done():
				return false, context.Cause(ctx)
			}
			continue
		}
		if c.full.Load() {
			break
		}
		return false, k.readPiece(ctx, next, c)
	}
	return true, nil
}

// readPiece fills a piece. After a failure the next caller tries again.
func (k *Kept) readPiece(ctx context.Context, next store.Next, c *piece) (err error) {
	done := false
	defer func() { // also if the store panics
		if done {
			k.fillBytes.Add(int64(len(c.mem)))
			c.full.Store(true)
		}
		c.mu.Lock()
		close(c.busy)
		c.busy = nil
		c.mu.Unlock()
	}()
	err = next.Read(ctx, c.mem, c.off)
	done = err == nil
	return err
}

// Drop ends the use of the pieces of an object that have any of n bytes from an offset on. Others may read their memory
// right now, so that it is not filled again.
func (k *Kept) Drop(path string, off, n int64) {
	for i := range k.objects[path] {
		if c := &k.objects[path][i]; c.off < off+n && off < c.end() {
			c.bad.Store(true)
			c.full.Store(false)
		}
	}
}

// Has reports whether all of a piece is kept after its first read.
func (k *Kept) Has(p Piece) bool {
	of := k.objects[p.Path]
	i, _ := slices.BinarySearchFunc(of, p.Off, func(c piece, off int64) int { return cmp.Compare(c.end()-1, off) })
	return i < len(of) && of[i].off <= p.Off && p.Off+p.Size <= of[i].end()
}

// Pieces returns the pieces of an object that are kept, including one that is kept in part.
func (k *Kept) Pieces(path string) []Piece {
	var out []Piece
	for _, c := range k.objects[path] {
		out = append(out, Piece{Path: path, Off: c.off, Size: int64(len(c.mem))})
	}
	return out
}
