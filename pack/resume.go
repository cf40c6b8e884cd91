package pack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/stokerdata/stoker/pack/internal/arrowipc"
)

// resume reads the journal, checks that what it promises is there, and sets
// the writer to go on behind it. Without a journal it begins a new one.
func (w *writer) resume(ctx context.Context) error {
	mine := journalHeader{
		Format: journalFormat, Version: Version, Command: w.in.command(), Source: w.man.Source, Options: w.man.Options,
		Labels: w.in.classes() != nil, Metadata: w.opt.Metadata,
	}
	h, entries, err := w.jnl.read()
	if w.opt.Restart || errors.Is(err, errNoJournal) {
		if err := w.removeShards(0); err != nil {
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
	if h.Options != mine.Options || h.Command != mine.Command || h.Source.Path != mine.Source.Path && h.Source.Fingerprint != mine.Source.Fingerprint {
		return fmt.Errorf("%s was begun with other arguments; finish it with: %s (or start anew with --restart)", w.dst, h.command(w.dst))
	}
	if h.Source.Fingerprint != mine.Source.Fingerprint {
		return fmt.Errorf("%s has changed since the packing of it into %s was interrupted (%d files then, %d now, or other times of change): start anew with --restart",
			h.Source.Path, w.dst, h.Source.Files, mine.Source.Files)
	}
	good, err := w.checkWritten(ctx, entries)
	if err != nil {
		return err
	}
	return w.adopt(entries[:good])
}

// checkWritten returns how many entries of the journal are backed by what is
// in the shards: it compares the checksums of all chunks.
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
			ok = e.Shard == shard && e.Stats != nil && c.Offset >= at && c.Bytes > 0 && c.Rows > 0 && c.Offset < 1<<50 && c.Bytes <= maxChunkBytes &&
				e.Next > next && e.Next <= w.in.len()
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
			for i, f := lo, (*os.File)(nil); i < to; i++ {
				if err := context.Cause(gctx); err != nil {
					return err
				}
				if int64(i) >= first.Load() {
					return nil
				}
				if f == nil {
					var err error
					if f, err = w.openWritten(entries[i].Shard); err != nil {
						lower(i)
						return nil
					}
					defer f.Close()
				}
				if entries[i].Chunk == nil {
					if st, err := f.Stat(); err != nil || st.Size() != entries[i].Done {
						lower(i)
					}
					continue
				}
				if err := checkChunk(f, *entries[i].Chunk, make([]byte, 256<<10)); err != nil {
					lower(i)
					return nil
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

// openWritten opens shard i under whichever name it has.
func (w *writer) openWritten(i int) (*os.File, error) {
	f, err := os.Open(filepath.Join(w.dst, shardName(i)))
	if errors.Is(err, os.ErrNotExist) {
		return os.Open(w.shards.partialPath(i))
	}
	return f, err
}

// adopt sets the writer behind the last of the entries, all of which are good,
// and forgets everything behind them.
func (w *writer) adopt(entries []journalEntry) error {
	sw := w.shards
	for _, e := range entries {
		if e.Shard == len(sw.shards) {
			sw.shards = append(sw.shards, Shard{File: shardName(e.Shard)})
		}
		s := &sw.shards[e.Shard]
		if e.Chunk == nil {
			s.Bytes = e.Done
			continue
		}
		s.Chunks = append(s.Chunks, *e.Chunk)
		s.Records += e.Chunk.Rows
		w.took(e.Next, e.Skipped, e.Stats)
	}
	w.before = w.next
	for i := range w.next {
		w.bytesOld += w.in.bytes(i)
	}
	if len(entries) == 0 {
		if err := w.removeShards(0); err != nil {
			return err
		}
		return w.rewriteHeaderOnly()
	}
	if err := w.jnl.truncate(entries[len(entries)-1].end); err != nil {
		return err
	}
	if err := w.removeShards(len(sw.shards)); err != nil {
		return err
	}
	last := len(sw.shards) - 1
	if entries[len(entries)-1].Chunk == nil {
		return nil // ends with a finished shard
	}
	// The last shard is open. Its footer, if it has one, is cut off again.
	partial := sw.partialPath(last)
	if _, err := os.Stat(partial); errors.Is(err, os.ErrNotExist) {
		if err := w.opt.fs.Rename(filepath.Join(w.dst, shardName(last)), partial); err != nil {
			return writeError("cannot rename "+shardName(last), err)
		}
	}
	f, err := w.opt.fs.OpenFile(partial, os.O_RDWR|os.O_APPEND, 0o644)
	if err != nil {
		return writeError("cannot open "+partial, err)
	}
	chunks := sw.shards[last].Chunks
	at := chunks[len(chunks)-1].Offset + chunks[len(chunks)-1].Bytes
	var blocks []arrowipc.Block
	if blocks, err = blocksOf(f, chunks); err == nil {
		err = f.Truncate(at)
	}
	if err != nil {
		f.Close()
		return writeError("cannot go on with "+partial, err)
	}
	sw.attach(f, at, blocks)
	return nil
}

// rewriteHeaderOnly cuts the journal behind its header.
func (w *writer) rewriteHeaderOnly() error {
	h, _, err := w.jnl.read()
	if err != nil {
		return err
	}
	if err := w.jnl.truncate(0); err != nil {
		return err
	}
	return w.jnl.append(h)
}

// removeShards removes the shards from number from on.
func (w *writer) removeShards(from int) error {
	entries, err := os.ReadDir(w.dst)
	if err != nil {
		return fmt.Errorf("cannot list %s: %w", w.dst, plain(err))
	}
	for _, e := range entries {
		n := strings.TrimSuffix(e.Name(), partialSuffix)
		var i int
		if _, err := fmt.Sscanf(n, "shard-%d"+shardSuffix, &i); err != nil || shardName(i) != n || i < from {
			continue
		}
		if err := w.opt.fs.Remove(filepath.Join(w.dst, e.Name())); err != nil {
			return writeError("cannot remove "+e.Name(), err)
		}
	}
	return nil
}
