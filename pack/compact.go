package pack

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/stokerdata/stoker/internal/store/stores"
	"github.com/stokerdata/stoker/store"
)

// compactEvery is the interval at which the manifest is updated with rewritten shards. An interrupted run loses at
// most this much work.
const compactEvery = 10 * time.Second

// CompactOptions are options of Compact. Nil means the defaults.
type CompactOptions struct {
	// Progress, if set, is called with the records of every rewritten chunk.
	Progress func(records, bytes int64)
}

// Compacted is the result of Compact.
type Compacted struct {
	Manifest *Manifest
	// Shards is the number of rewritten or deleted shards, Freed the number of bytes freed. Stray lists deleted files
	// that belonged to nothing.
	Shards int
	Freed  int64
	Stray  []string
}

// Compact frees the space of removed records in the pack in the folder dir. It rewrites the affected shards without
// them and deletes the old shards. Records, their order and all values do not change. A reader that has the pack open
// no longer finds the old shards. Compact can be interrupted and resumed.
func Compact(ctx context.Context, dir string, opt *CompactOptions) (*Compacted, error) {
	st, err := stores.OpenWrite(ctx, dir)
	if err != nil {
		return nil, err
	}
	return CompactIn(ctx, st, opt)
}

// CompactIn is Compact for any store.
func CompactIn(ctx context.Context, st store.WriteStore, opt *CompactOptions) (*Compacted, error) {
	if opt == nil {
		opt = &CompactOptions{}
	}
	m, done, err := changing(ctx, st)
	if err != nil {
		return nil, err
	}
	defer done()
	f, err := pieces(ctx, st)
	if err != nil {
		return nil, err
	}
	if names := append(f.names, f.unfinished...); len(names) > 0 {
		return nil, fmt.Errorf("%s is being appended to (%s): finish that first, or delete the file", st, names[0])
	}
	r, err := OpenStore(ctx, st, nil)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	w := &compactor{r: r, st: st, opt: opt, m: m}
	if err := w.shards(ctx); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("%w: run the same command again", ErrInterrupted)
		}
		return nil, err
	}
	stray, err := strayShards(ctx, st, m)
	if err != nil {
		return nil, err
	}
	for _, name := range stray {
		if err := (&writer{st: st}).remove(ctx, name); err != nil && !errors.Is(err, store.ErrNotExist) {
			return nil, writeError(err)
		}
	}
	return &Compacted{Manifest: m, Shards: w.count, Freed: w.freed, Stray: stray}, nil
}

// strayShards lists files with names of shards that the manifest does not list. They are from an interrupted run.
func strayShards(ctx context.Context, st store.Store, m *Manifest) (names []string, err error) {
	listed := make(map[string]bool, len(m.Shards))
	for i := range m.Shards {
		listed[m.Shards[i].File] = true
	}
	err = st.List(ctx, "", &store.ListOptions{Shallow: true, Hidden: true}, func(e store.Entry) error {
		if !e.Dir && isShard(strings.TrimSuffix(e.Name, store.PartialSuffix)) && !listed[e.Name] {
			names = append(names, e.Name)
		}
		return nil
	})
	return names, err
}

type compactor struct {
	r     *Reader
	st    store.WriteStore
	opt   *CompactOptions
	m     *Manifest
	buf   []byte // a chunk
	count int
	freed int64
}

// shards rewrites the shards with removed rows.
func (w *compactor) shards(ctx context.Context) error {
	shards := slices.Clone(w.m.Shards)
	number := w.m.nextPiece()
	var now []Shard // the new list
	var old []string
	last := time.Now()
	put := func(rest []Shard) error {
		if len(old) == 0 {
			return nil
		}
		w.m.Shards = append(slices.Clone(now), rest...)
		if err := replaceManifest(ctx, w.st, w.m); err != nil {
			return err
		}
		if err := removeAll(ctx, w.st, old); err != nil {
			return err
		}
		old, last = nil, time.Now()
		return nil
	}
	chunk := 0
	for i := range shards {
		s := &shards[i]
		if !slices.ContainsFunc(s.Chunks, func(c Chunk) bool { return len(c.Removed) > 0 }) {
			now = append(now, *s)
			chunk += len(s.Chunks)
			continue
		}
		fresh, err := w.shard(ctx, Piece{Whole: true, Number: number}, chunk, s)
		if err != nil {
			return err
		}
		chunk += len(s.Chunks)
		number++
		w.count++
		w.freed += s.Bytes
		for k := range fresh {
			w.freed -= fresh[k].Bytes
		}
		now = append(now, fresh...)
		old = append(old, s.File)
		if time.Since(last) > compactEvery {
			if err := put(shards[i+1:]); err != nil {
				return err
			}
		}
	}
	return put(nil)
}

// shard writes the records of shard s under the names of a piece. chunk is the number of its first chunk in the pack.
func (w *compactor) shard(ctx context.Context, piece Piece, chunk int, s *Shard) (shards []Shard, err error) {
	images, err := parseImages(w.m.Options.Images)
	if w.m.Options.Images != "" && err != nil {
		return nil, err
	}
	opt := Options{images: images}
	sch := w.r.sch
	out := newShardWriter(w.st, piece, sch, schemaMeta(w.m.Fields, opt.keeps), maxShardBytes)
	build := newChunkBuilder(sch, w.m.Options.ChunkBytes)
	defer func() {
		if err != nil && out.open() {
			_ = out.up.Abort()
		}
	}()
	flush := func() error {
		if build.rows == 0 {
			return nil
		}
		if !out.open() {
			if err := out.begin(ctx); err != nil {
				return err
			}
		}
		c, err := out.add(build.batch())
		build.reset()
		if w.opt.Progress != nil {
			w.opt.Progress(c.Rows, c.Bytes)
		}
		return err
	}
	var rec Record
	for k := range s.Chunks {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		if err := w.chunk(ctx, chunk+k, &rec, build, flush); err != nil {
			return nil, err
		}
	}
	if err := flush(); err != nil {
		return nil, err
	}
	if out.open() {
		if err := out.finish(ctx); err != nil {
			return nil, err
		}
	}
	return out.shards, nil
}

// maxShardBytes is larger than any shard that is rewritten.
const maxShardBytes = 1 << 62

// chunk adds the records of chunk c to those that are being written.
func (w *compactor) chunk(ctx context.Context, c int, rec *Record, build *chunkBuilder, flush func() error) error {
	r := w.r
	ref := &r.chunks[c]
	o, v, err := w.whole(ctx, c)
	if err != nil {
		return err
	}
	for row := range ref.rows {
		if _, has := r.gone.record(r.find.first[c] + row); !has {
			continue
		}
		if err := v.record(ctx, o, row, rec, everything); err != nil {
			return err
		}
		one := record{path: rec.Path, values: make([]value, len(rec.Values))}
		for i := range rec.Values {
			one.values[i] = stored(&rec.Values[i])
		}
		if !build.fits(&one) {
			if err := flush(); err != nil {
				return err
			}
		}
		build.add(&one)
	}
	return nil
}

// whole reads chunk c and compares its checksum: a damaged chunk must not get a new, valid one. The checksums of its
// values are then not needed.
func (w *compactor) whole(ctx context.Context, c int) (reader, *view, error) {
	r, ref := w.r, &w.r.chunks[c]
	o, err := r.pool.Open(ctx, r.entries[ref.shard])
	if err != nil {
		return nil, nil, err
	}
	defer o.Close()
	w.buf = grow(w.buf, int(ref.bytes))
	if err := o.ReadAt(ctx, w.buf, ref.offset); err != nil {
		return nil, nil, err
	}
	if got := Checksum(xxh3.Hash(w.buf)); got != ref.sum {
		return nil, nil, r.damaged(c, fmt.Errorf("checksum %016x, should be %016x", uint64(got), uint64(ref.sum)))
	}
	v, err := r.viewOf(c, w.buf[:ref.head])
	if err != nil {
		return nil, nil, err
	}
	v.right = true
	return &piecewise{w.buf, ref.offset}, v, nil
}

// piecewise is a part of a shard that was read.
type piecewise struct {
	b  []byte
	at int64
}

// Size implements reader.
func (p *piecewise) Size() int64 { return p.at + int64(len(p.b)) }

// ReadAt implements reader. Reading outside of the part is a mistake of the caller.
func (p *piecewise) ReadAt(_ context.Context, to []byte, off int64) error {
	if from := off - p.at; from < 0 || from+int64(len(to)) > int64(len(p.b)) {
		return fmt.Errorf("internal error: bytes %d to %d of a part that has %d to %d", off, off+int64(len(to)), p.at, p.Size())
	}
	copy(to, p.b[off-p.at:])
	return nil
}
