package pack

import (
	"context"
	"fmt"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/stokerdata/stoker/internal/store/stores"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// ReadOptions change how a pack is read. Nil means the defaults.
type ReadOptions struct {
	// VerifyChunks compares the checksum of every chunk before its first record is used. For that it reads each chunk
	// completely. Without it, only the head of a chunk and each value read are compared with their own checksums.
	// Data that no loader reads, such as paths, is not.
	VerifyChunks bool
	// URL is the name of the pack in messages, "" for its location.
	URL string
	// Listing, if set, is an existing listing of the pack's store.
	Listing store.Store
}

// Reader is an open pack. It is a driver.Source: it locates records and makes values from their bytes, but itself
// reads only the manifest. Tools can read records with Record. Except for Close, its methods may be called
// concurrently.
//
// The index of a chunk is learnt at the first use of one of its records and kept
// in flat arrays without pointers (index).
type Reader struct {
	st      store.Store
	man     *Manifest
	sch     *schema
	opt     ReadOptions
	info    driver.Info
	entries []store.Entry // of the shards
	pool    *store.Pool   // for Record

	chunks []chunkRef
	find   finder // of rows
	gone   rowSet // rows that are no records
	loaded []atomic.Bool
	locks  [64]sync.Mutex
	x      index
}

// chunkRef is the location of one chunk.
type chunkRef struct {
	shard   uint32
	number  uint32 // in its shard
	rows    int64
	offset  int64
	bytes   int64
	head    int64
	sum     Checksum
	headSum Checksum
}

// maxOpenShards is the maximum number of shards that Record, Verify and Describe keep open.
const maxOpenShards = 64

// Open opens the finished pack in the folder dir.
func Open(ctx context.Context, dir string, opt *ReadOptions) (*Reader, error) {
	st, err := stores.Open(ctx, dir)
	if err != nil {
		return nil, err
	}
	return OpenStore(ctx, st, opt)
}

// OpenStore opens the finished pack at the root of a store. The caller must close the store, after the reader.
func OpenStore(ctx context.Context, st store.Store, opt *ReadOptions) (*Reader, error) {
	listing := st
	if opt != nil && opt.Listing != nil {
		listing = opt.Listing
	}
	objects, bare := list(ctx, st, listing)
	wait := objects.lookAhead(ctx, st, bare)
	m, err := readManifestOf(ctx, st, objects)
	wait(err)
	if err != nil {
		return nil, err
	}
	r, err := newReader(st, m, opt)
	if err != nil {
		return nil, err
	}
	// The size of the shards limits the number of rows. The shards' real sizes are checked before memory of that size
	// is allocated.
	if err := r.lookAtShards(ctx, objects); err != nil {
		return nil, err
	}
	r.x.allocate(m.Fields, m.Stored(), len(r.chunks))
	return r, nil
}

// newReader makes a reader without an index of records.
func newReader(st store.Store, m *Manifest, opt *ReadOptions) (*Reader, error) {
	sch, err := newSchema(m.Fields, m.Paths)
	if err != nil {
		return nil, err
	}
	r := &Reader{st: st, man: m, sch: sch, entries: make([]store.Entry, len(m.Shards)), pool: store.NewPool(st, maxOpenShards)}
	if opt != nil {
		r.opt = *opt
	}
	if r.opt.URL == "" {
		r.opt.URL = st.String()
	}
	n := 0
	for i := range m.Shards {
		r.entries[i] = store.Entry{Name: m.Shards[i].File, Size: m.Shards[i].Bytes}
		n += len(m.Shards[i].Chunks)
	}
	r.chunks = make([]chunkRef, 0, n)
	first := make([]int64, 0, n+1)
	at := int64(0)
	for i := range m.Shards {
		for k, c := range m.Shards[i].Chunks {
			r.chunks = append(r.chunks, chunkRef{uint32(i), uint32(k), c.Rows, c.Offset, c.Bytes, c.Head, c.XXH3, c.HeadXXH3})
			first = append(first, at)
			at += c.Rows
		}
	}
	r.find, r.gone = newFinder(append(first, at)), m.removedRows()
	r.loaded = make([]atomic.Bool, n)
	r.x.fields = newFieldIndexes(sch)
	r.info = driver.Info{URL: r.opt.URL, Format: "pack", Len: m.Records, Objects: int64(len(m.Shards)), Fingerprint: m.Fingerprint}
	for i := range m.Fields {
		r.info.Fields = append(r.info.Fields, m.Fields[i].driver())
	}
	return r, nil
}

// driver returns the field in the form for loaders.
func (f *Field) driver() driver.Field {
	s := &f.Stats
	d := driver.Field{
		Name: f.Name, Kind: f.Kind, Classes: f.Classes, DType: f.DType, Shape: f.Shape, Format: f.Format, Boxes: f.Boxes, Stored: f.Stored,
		Mask: f.Mask, Columns: f.Columns, Stats: s,
		MaxBytes: max(s.MaxBytes, 1), // never 0, which would mean that it is not known
	}
	if n := f.Frames; n != nil {
		d.Width, d.Height, d.MaxWidth, d.MaxHeight = n.Width, n.Height, n.MaxWidth, n.MaxHeight
	}
	if f.Kind == driver.KindMasks && s.Rows != nil {
		d.Most = []int{int(s.Rows.Max)}
	}
	if im := s.Images; f.picture() && im != nil {
		d.MaxWidth, d.MaxHeight = im.MaxWidth, im.MaxHeight
		if im.MinWidth == im.MaxWidth && im.MinHeight == im.MaxHeight {
			d.Width, d.Height = im.MaxWidth, im.MaxHeight
		}
		if raw := im.Codecs[CodecName(driver.CodecRaw)]; im.MinChannels == im.MaxChannels && raw.Count == s.Count {
			d.Channels = im.MaxChannels
		}
	}
	return d
}

// Info implements driver.Source.
func (r *Reader) Info() *driver.Info { return &r.info }

// Close closes the files that Record opened.
func (r *Reader) Close() error { return r.pool.Close() }

// Manifest returns the pack's manifest. It must not be changed.
func (r *Reader) Manifest() *Manifest { return r.man }

// Len returns the number of records.
func (r *Reader) Len() int64 { return r.man.Records }

// Dir returns the location of the pack.
func (r *Reader) Dir() string { return r.st.String() }

// row returns the chunk of record id and its row in it.
func (r *Reader) row(id int64) (chunk int, row int64) {
	at := r.gone.stored(id)
	c := r.find.chunk(at)
	return c, at - r.find.first[c]
}

// Whereabouts returns the shard, the chunk and the row of record id.
func (r *Reader) Whereabouts(id int64) (shard string, chunk, row int64) {
	c, row := r.row(id)
	return r.man.Shards[r.chunks[c].shard].File, int64(r.chunks[c].number), row
}

// Name implements driver.Source.
func (r *Reader) Name(id int64) string {
	if id < 0 || id >= r.Len() {
		return fmt.Sprintf("%s, record %d", r.opt.URL, id)
	}
	return r.place(r.row(id))
}

// place returns the name of a row for messages.
func (r *Reader) place(c int, row int64) string {
	ref := &r.chunks[c]
	return fmt.Sprintf("%s, chunk %d, row %d", r.st.Path(r.man.Shards[ref.shard].File), ref.number, row)
}

func (r *Reader) chunkPlace(c int) string {
	ref := &r.chunks[c]
	return fmt.Sprintf("%s, chunk %d (bytes %d to %d)", r.st.Path(r.man.Shards[ref.shard].File), ref.number, ref.offset, ref.offset+ref.bytes)
}

// meanBytes returns the approximate size of record id in the shards.
func (r *Reader) meanBytes(id int64) int64 {
	c, _ := r.row(id)
	return r.chunks[c].bytes / r.chunks[c].rows
}

// chunkAt returns the chunk that begins at an offset of a shard, -1 for none.
func (r *Reader) chunkAt(shard, offset int64) int {
	c := sort.Search(len(r.chunks), func(i int) bool {
		ref := &r.chunks[i]
		return int64(ref.shard) > shard || int64(ref.shard) == shard && ref.offset >= offset
	})
	if c == len(r.chunks) || int64(r.chunks[c].shard) != shard || r.chunks[c].offset != offset {
		return -1
	}
	return c
}
