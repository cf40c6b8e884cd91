// Package keep holds a part of what a store has in memory, for good: what is read of
// the part is there from then on, and nothing makes room for anything else.
//
// That is the best that can be done for who reads all there is again and again, each
// time in another order: any byte is as far from its next use as any other on
// average, so to give one up for another gains nothing, and a cache that does (the
// least recently used) hits less often. What belongs to the part is decided before
// anything is read, by a hash, so that it depends on nothing but the data.
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

// Piece is a range of an object that is kept as a whole, or not.
type Piece = pieces.Piece

// Kept is what is kept of some stores. Its methods may be called from any goroutine,
// except Close, which is called when nobody reads any more.
type Kept struct {
	limit   int64
	block   *arena.Block
	mem     []byte
	objects map[string][]piece // by Piece.Path, in the order of their offsets, as in mem

	hits, hitBytes, fillBytes, pastBytes atomic.Int64
}

// piece is one that is kept.
type piece struct {
	off int64
	mem []byte
	at  int64 // in Kept.mem
	*state
}

func (c *piece) end() int64 { return c.off + int64(len(c.mem)) }

// state is how far a piece has come.
type state struct {
	mu   sync.Mutex
	full atomic.Bool
	busy chan struct{} // closed when who fills it is done
}

// New chooses what is kept: as many pieces as fit limit bytes, those whose hashes are
// the smallest, and of the next one as much as is left. Memory is taken as it is filled.
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

// Stats are what was kept and what that has saved.
type Stats struct {
	// Limit is how many bytes are kept once all of them were read, Bytes how many are.
	Limit int64 `json:"limit"`
	Bytes int64 `json:"bytes"`
	// Hits are reads of which a part at least came from here, HitBytes those bytes;
	// MissBytes were read of the store: those that are not kept, and each one that is, once.
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

// Close gives the memory back.
func (k *Kept) Close() { k.block.Free() }

// Store is s with what is kept in front of it.
func (k *Kept) Store(s store.Store) store.Store { return &kept{s, k} }

type kept struct {
	store.Store
	k *Kept
}

// Unwrap finds the abilities of the store below.
func (s *kept) Unwrap() store.Store { return s.Store }

// Open opens an object.
func (s *kept) Open(ctx context.Context, name string) (store.Object, error) {
	o, err := s.Store.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	return s.around(name, o), nil
}

// OpenEntry opens an object that was described, without asking the store where it need
// not be asked.
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
			return next.Read(ctx, p, off) // which says what is wrong
		}
		return s.k.read(ctx, next, of, p, off)
	}), &lender{s.k, of, below})
}

// lender lends what is kept of an object, and what the store below lends.
type lender struct {
	k     *Kept
	of    []piece
	below store.Lender // nil for none
}

// Lend implements store.Lender. Pieces that follow each other in the object do so in memory.
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
		if i == len(l.of) || l.of[i].off > to || !l.of[i].full.Load() || tail > arena.Tail {
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

// past reads what is not kept.
func (k *Kept) past(ctx context.Context, next store.Next, p []byte, off int64) error {
	err := next.Read(ctx, p, off)
	if err == nil {
		k.pastBytes.Add(int64(len(p)))
	}
	return err
}

// read takes what is kept from there, and reads the rest.
func (k *Kept) read(ctx context.Context, next store.Next, of []piece, p []byte, off int64) error {
	hit, start := int64(0), off
	at := func(i int) (off, size int64) { return of[i].off, int64(len(of[i].mem)) }
	err := pieces.Cut(len(of), at, off, int64(len(p)), func(i int, off, n int64) error {
		to := p[off-start : off-start+n]
		if i < 0 {
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

// fill makes a piece be there, and says whether it was before. One reads, the others wait.
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

// readPiece fills a piece. Where it fails, the next one to ask tries again.
func (k *Kept) readPiece(ctx context.Context, next store.Next, c *piece) (err error) {
	done := false
	defer func() { // also when the store panics
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

// Has says whether all of a piece is kept, once it was read.
func (k *Kept) Has(p Piece) bool {
	of := k.objects[p.Path]
	i, _ := slices.BinarySearchFunc(of, p.Off, func(c piece, off int64) int { return cmp.Compare(c.end()-1, off) })
	return i < len(of) && of[i].off <= p.Off && p.Off+p.Size <= of[i].end()
}

// Pieces are those of an object that are kept, or part of which is.
func (k *Kept) Pieces(path string) []Piece {
	var out []Piece
	for _, c := range k.objects[path] {
		out = append(out, Piece{Path: path, Off: c.off, Size: int64(len(c.mem))})
	}
	return out
}
