package pack

import (
	"context"
	"fmt"
	"path/filepath"
	"sort"

	"github.com/zeebo/xxh3"

	"github.com/stokerdata/stoker/pack/internal/arrowipc"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
	"github.com/stokerdata/stoker/store/localstore"
)

// This file is the Reader as a driver.Source: objects are the shards, the head
// of a chunk is the index of its records.

// Object describes a shard.
func (r *Reader) Object(n int64) driver.Object {
	s := &r.man.Shards[n]
	e := r.entries[n]
	e.Name, e.Size = s.File, s.Bytes
	return driver.Object{Store: r.st, Entry: e, Keep: true}
}

// statShards notes what the shards are at present.
func (r *Reader) statShards() error {
	r.st = localstore.New(r.dir)
	r.entries = make([]store.Entry, len(r.man.Shards))
	for i := range r.man.Shards {
		e, err := r.st.Stat(r.ctx, r.man.Shards[i].File)
		if err != nil {
			return fmt.Errorf("the pack is not whole: shard %w", err)
		}
		if e.Size != r.man.Shards[i].Bytes {
			return fmt.Errorf("the pack is not whole: shard %s has %d bytes, its manifest says %d", filepath.Join(r.dir, e.Name), e.Size, r.man.Shards[i].Bytes)
		}
		r.entries[i] = e
	}
	return nil
}

// locate returns the chunk of record id and its row in it.
func (r *Reader) locate(id int64) (chunk int, row int64) {
	n := len(r.chunks)
	// Most chunks have about as many rows as the others.
	c := int(float64(id) / float64(r.first[n]) * float64(n))
	for range 4 {
		switch {
		case c >= n || id < r.first[c]:
			c--
		case id >= r.first[c+1]:
			c++
		default:
			return c, id - r.first[c]
		}
	}
	c = sort.Search(n, func(i int) bool { return r.first[i+1] > id })
	return c, id - r.first[c]
}

// Locate implements driver.Source.
func (r *Reader) Locate(g *driver.Group) {
	for k, id := range g.IDs {
		rec := &g.Records[k]
		switch {
		case rec.Err != nil:
		case id < 0 || id >= r.Len():
			rec.Err = fmt.Errorf("record %d is outside of the %d records of %s", id, r.Len(), r.dir)
		default:
			c, row := r.locate(id)
			ref := &r.chunks[c]
			shard := int64(ref.shard)
			if !r.loaded[c].Load() {
				size := ref.head
				if r.opt.VerifyChunks {
					size = ref.bytes
				}
				g.Missing = append(g.Missing, driver.Missing{K: k, Extent: driver.Extent{Object: shard, Offset: ref.offset, Size: size}})
				break
			}
			if r.recs != nil {
				r.locateRecord(g, c, id, row)
				break
			}
			g.Extents = append(g.Extents, driver.Extent{
				Object: shard, Offset: ref.offset + int64(r.start[id]), Size: int64(r.size[id]), Field: -1,
				// Decoders of files read ahead of what they use.
				Tail: driver.Codec(r.codec[id]) < driver.CodecRaw,
			})
		}
		g.Next()
	}
}

// Learn implements driver.Indexer: b is the head of a chunk, or all of it.
func (r *Reader) Learn(e driver.Extent, b []byte) error {
	c := sort.Search(len(r.chunks), func(i int) bool {
		ref := &r.chunks[i]
		return int64(ref.shard) > e.Object || int64(ref.shard) == e.Object && ref.offset >= e.Offset
	})
	if c == len(r.chunks) || int64(r.chunks[c].shard) != e.Object || r.chunks[c].offset != e.Offset {
		return fmt.Errorf("%s has no chunk at byte %d of shard %d", r.dir, e.Offset, e.Object)
	}
	mu := &r.locks[c%len(r.locks)]
	mu.Lock()
	defer mu.Unlock()
	if r.loaded[c].Load() {
		return nil
	}
	ref := &r.chunks[c]
	if int64(len(b)) == ref.bytes && r.opt.VerifyChunks {
		if got := Checksum(xxh3.Hash(b)); got != ref.sum {
			return fmt.Errorf("%s is damaged: checksum %016x, the manifest says %016x", r.chunkPlace(c), uint64(got), uint64(ref.sum))
		}
	}
	v, err := r.viewOf(c, b[:ref.head])
	if err == nil {
		err = r.index(c, v)
	}
	if err != nil {
		return fmt.Errorf("%s: %w; stoker verify says what else is damaged", r.chunkPlace(c), err)
	}
	r.loaded[c].Store(true)
	return nil
}

// viewOf checks the layout of chunk c, whose head is given.
func (r *Reader) viewOf(c int, head []byte) (*view, error) {
	v := &view{r: r, c: c, head: head}
	var err error
	if v.lay, err = arrowipc.ParseBatch(head, r.chunks[c].bytes, r.cols); err != nil {
		return nil, err
	}
	return v, v.check()
}

// Parse implements driver.Source.
func (r *Reader) Parse(g *driver.Group) error {
	for k, id := range g.IDs {
		rec := &g.Records[k]
		if rec.Err != nil {
			continue
		}
		if r.recs != nil {
			r.parseRecord(rec.Values, g.Bytes[g.First[k]:g.First[k+1]], id)
			continue
		}
		v := &rec.Values[0]
		v.Bytes, v.Codec, v.Orientation = g.Bytes[g.First[k]], driver.Codec(r.codec[id]), int32(r.orient[id])
		v.Width, v.Height = r.dims(id)
		if v.Codec == driver.CodecRaw {
			v.Channels = 3
		}
		if r.label != nil {
			rec.Values[1].Int = r.label[id]
		}
	}
	return nil
}

// Name says where record id lies.
func (r *Reader) Name(id int64) string {
	if id < 0 || id >= r.Len() {
		return fmt.Sprintf("%s, record %d", r.dir, id)
	}
	return r.place(r.locate(id))
}

// Find implements driver.Finder: the path of a record in what the pack was made
// of, and its place.
func (r *Reader) Find(_ context.Context, id int64) string {
	if id < 0 || id >= r.Len() || r.col.path < 0 {
		return r.Name(id)
	}
	c, row := r.locate(id)
	var buf []byte
	v, err := r.view(c, &buf)
	if err != nil {
		return r.place(c, row)
	}
	return fmt.Sprintf("%s (%s)", v.path(row), r.place(c, row))
}
