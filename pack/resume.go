package pack

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/stokerdata/stoker/store"
)

// resume reads the journal, checks that the files it lists exist, and sets the writer to continue after them. Without
// a journal it starts a new one.
func (w *writer) resume(ctx context.Context) error {
	mine := w.header()
	h, entries, err := w.jnl.read(ctx)
	if w.opt.Restart || errors.Is(err, errNoJournal) {
		if err := w.removeShards(ctx, 0); err != nil {
			return err
		}
		if err := w.jnl.truncate(0); err != nil {
			return err
		}
		return w.jnl.append(mine)
	}
	if err != nil {
		return err
	}
	if h.Options != mine.Options || h.Command != mine.Command || h.Part != mine.Part || h.Parts != mine.Parts || h.Append != mine.Append || h.Source.Path != mine.Source.Path && h.Source.Fingerprint != mine.Source.Fingerprint {
		why := ""
		if err := differs(h.manifest(), mine); err != nil {
			why = ": " + err.Error()
		}
		return fmt.Errorf("%s was begun with other arguments%s; finish it with: %s (or start over with --restart)", w.st, why, h.command(w.st.String()))
	}
	if h.Source.Fingerprint != mine.Source.Fingerprint {
		return fmt.Errorf("%s has changed since the packing of it into %s was interrupted (%d files then, %d now, or other times of change): start over with --restart",
			h.Source.Path, w.st, h.Source.Files, mine.Source.Files)
	}
	good, err := w.checkWritten(ctx, entries)
	if err != nil {
		return err
	}
	return w.adopt(ctx, h, entries[:good])
}

// checkWritten returns the number of journal entries whose data is in the shards. It compares the checksums of all
// chunks.
func (w *writer) checkWritten(ctx context.Context, entries []journalEntry) (int, error) {
	good := len(entries)
	shard, at, next := 0, int64(0), int64(0)
	done := true
	for i, e := range entries { // the order that a writer makes
		ok := false
		switch {
		case e.Chunk != nil:
			if done && i > 0 {
				shard, at = shard+1, 0
			}
			done = false
			c := e.Chunk
			ok = e.Shard == shard && len(e.Stats) == len(w.man.Fields) && c.Offset >= at && c.Bytes > 0 && c.Rows > 0 && c.Offset < 1<<50 && c.Bytes <= maxChunkBytes &&
				e.Next > next && e.Next > w.from && e.Next <= w.to
			at, next = c.Offset+c.Bytes, e.Next
		case e.Done > 0:
			ok = e.Shard == shard && !done
			done = true
		}
		if !ok {
			good = i
			break
		}
	}
	first := atomic.Int64{}
	first.Store(int64(good))
	var mu sync.Mutex // of progress
	checked := int64(0)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(w.opt.Threads)
	lower := func(i int) {
		for {
			v := first.Load()
			if v <= int64(i) || first.CompareAndSwap(v, int64(i)) {
				return
			}
		}
	}
	for from := 0; from < good; {
		to := from + 1
		for to < good && entries[to].Shard == entries[from].Shard {
			to++
		}
		lo := from
		g.Go(func() error {
			r, closeIt, err := w.openWritten(gctx, entries[lo].Shard, entries[to-1].Chunk == nil)
			if err != nil {
				lower(lo)
				return context.Cause(gctx)
			}
			defer closeIt()
			buf := make([]byte, 256<<10)
			for i := lo; i < to; i++ {
				if err := context.Cause(gctx); err != nil {
					return err
				}
				if int64(i) >= first.Load() {
					return nil
				}
				if entries[i].Chunk == nil {
					if r.Size() != entries[i].Done {
						lower(i)
					}
					continue
				}
				if err := checkChunk(gctx, r, *entries[i].Chunk, buf); err != nil {
					lower(i)
					return context.Cause(gctx)
				}
				mu.Lock()
				checked += entries[i].Chunk.Rows
				w.progress("checking", checked, false)
				mu.Unlock()
			}
			return nil
		})
		from = to
	}
	if err := g.Wait(); err != nil {
		return 0, err
	}
	return int(first.Load()), nil
}

// openWritten opens shard i for checking: the finished file, or its unfinished upload in any state.
func (w *writer) openWritten(ctx context.Context, i int, done bool) (reader, func(), error) {
	o, err := w.st.Open(ctx, w.shards.piece.shard(i))
	if err == nil || done {
		return o, func() { _ = o.Close() }, err
	}
	r, ok := store.As[store.Resumer](w.st)
	if !ok {
		return nil, nil, err
	}
	p, err := r.Resume(ctx, w.shards.piece.shard(i))
	if err != nil {
		return nil, nil, err
	}
	return p, func() { _ = leave(ctx, p) }, nil
}

// adopt positions the writer after the last of the entries, all of which are good, and discards everything after
// them.
func (w *writer) adopt(ctx context.Context, h *journalHeader, entries []journalEntry) error {
	sw := w.shards
	for _, e := range entries {
		if e.Shard == len(sw.shards) {
			sw.shards = append(sw.shards, Shard{File: sw.piece.shard(e.Shard)})
		}
		s := &sw.shards[e.Shard]
		if e.Chunk == nil {
			s.Bytes, s.FrameXXH3 = e.Done, e.Frame
			continue
		}
		s.Chunks = append(s.Chunks, *e.Chunk)
		s.Records += e.Chunk.Rows
		w.took(e.Next, e.Skipped, e.Stats)
	}
	w.before = w.next - w.from
	for i := w.from; i < w.next; i++ {
		w.bytesOld += w.in.bytes(i)
	}
	if err := w.removeShards(ctx, len(sw.shards)); err != nil {
		return err
	}
	if len(entries) == 0 {
		if err := w.jnl.truncate(0); err != nil {
			return err
		}
		return w.jnl.append(h)
	}
	last := entries[len(entries)-1]
	if err := w.jnl.truncate(last.end); err != nil {
		return err
	}
	if last.Chunk == nil {
		return nil // ends with a finished shard
	}
	// The last shard is open. Its footer, if it has one, is cut off again.
	r, ok := store.As[store.Resumer](w.st)
	if !ok {
		return fmt.Errorf("internal error: %s has a journal and cannot go on with a shard", w.st)
	}
	p, err := r.Resume(ctx, sw.piece.shard(last.Shard))
	if err != nil {
		return writeError(err)
	}
	chunks := sw.shards[last.Shard].Chunks
	at := last.Chunk.Offset + last.Chunk.Bytes
	blocks, err := blocksOf(ctx, p, chunks)
	if err == nil {
		err = p.Truncate(at)
	}
	if err != nil {
		_ = leave(ctx, p)
		return fmt.Errorf("cannot go on with %s: %w", w.st.Path(sw.piece.shard(last.Shard)), writeError(err))
	}
	sw.attach(p, at, blocks)
	return nil
}

// removeShards removes the shards from number from on, whole or not.
func (w *writer) removeShards(ctx context.Context, from int) error {
	var names []string
	err := w.st.List(ctx, "", &store.ListOptions{Shallow: true}, func(e store.Entry) error {
		var i int
		n := strings.TrimSuffix(e.Name, store.PartialSuffix)
		if _, err := fmt.Sscanf(n, "shard-"+w.shards.piece.infix()+"%d"+shardSuffix, &i); err == nil && w.shards.piece.shard(i) == n && i >= from && !e.Dir {
			names = append(names, e.Name)
		}
		return nil
	})
	if err != nil && !errors.Is(err, store.ErrNotExist) {
		return err
	}
	for _, n := range names {
		if err := w.remove(ctx, n); err != nil {
			return writeError(err)
		}
	}
	return nil
}

// remove removes an object or an unfinished upload, by the name that List shows.
func (w *writer) remove(ctx context.Context, name string) error {
	return removeWritten(ctx, w.st, name)
}

func removeWritten(ctx context.Context, st store.WriteStore, name string) error {
	whole, partial := strings.CutSuffix(name, store.PartialSuffix)
	r, ok := store.As[store.Resumer](st)
	if !partial || !ok {
		return st.Remove(ctx, name)
	}
	p, err := r.Resume(ctx, whole)
	if err != nil {
		return err
	}
	return p.Abort()
}
