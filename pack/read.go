package pack

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/source/driver"
)

// Reads of neighbouring records become one: up to maxGap bytes between two
// images are read along, because a second read costs more than that.
const (
	maxGap      = 16 << 10
	maxCombined = 8 << 20
)

// want is one value to be read.
type want struct {
	k      int // position in the request
	field  int // in Values
	chunk  int
	shard  uint32
	offset int64 // in the shard
	size   int64
}

// extent is one read: wants[from:to].
type extent struct {
	from, to int
	fd       int
	offset   int64
	buf      []byte
	have     int // bytes that were in memory
	err      error
}

// plan is the scratch memory of one Read.
type plan struct {
	wants   []want
	extents []extent
}

var plans = sync.Pool{New: func() any { return new(plan) }}

// Read reads the records ids into buf as driver.Source describes it: Values[0]
// of each record is the image, Values[1] the label where the pack has labels. In
// a pack without images Values are Reader.Fields.
func (r *Reader) Read(ctx context.Context, ids []int64, buf *driver.Buffer) error {
	if len(buf.Records) != len(ids) {
		return fmt.Errorf("read of %d records into a buffer of %d", len(ids), len(buf.Records))
	}
	p := plans.Get().(*plan)
	defer p.put()
	r.look(ctx, p, ids, buf, false)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := r.combine(p, buf); err != nil {
		return err
	}
	r.fetch(ctx, p)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for i := range p.extents {
		e := &p.extents[i]
		for _, w := range p.wants[e.from:e.to] {
			rec := &buf.Records[w.k]
			if e.err != nil {
				rec.Err = fmt.Errorf("%s, bytes %d to %d: %w", r.place(w.chunk, rec.ID-r.first[w.chunk]), w.offset, w.offset+w.size, e.err)
				continue
			}
			at := w.offset - e.offset
			rec.Values[w.field].Bytes = e.buf[at : at+w.size]
		}
	}
	return nil
}

// ReadMemory implements driver.MemoryReader.
func (r *Reader) ReadMemory(ids []int64, buf *driver.Buffer) bool {
	if len(buf.Records) != len(ids) {
		return false
	}
	p := plans.Get().(*plan)
	defer p.put()
	return r.look(context.Background(), p, ids, buf, true)
}

func (p *plan) put() {
	clear(p.extents)
	p.wants, p.extents = p.wants[:0], p.extents[:0]
	plans.Put(p)
}

// look fills in what is known of the records and those values that are in
// memory, and notes the others in p. With inMemory it stops at the first other
// one, or when the index of a chunk would have to be read, and returns false.
func (r *Reader) look(ctx context.Context, p *plan, ids []int64, buf *driver.Buffer, inMemory bool) bool {
	now := time.Now()
	for k, id := range ids {
		if ctx.Err() != nil || inMemory && len(p.wants) > 0 {
			return false
		}
		rec := &buf.Records[k]
		rec.ID, rec.Err = id, nil
		if id < 0 || id >= r.Len() {
			rec.Err = fmt.Errorf("record %d is outside of the %d records of %s", id, r.Len(), r.dir)
			continue
		}
		c, _ := r.locate(id)
		if inMemory && !r.loaded[c].Load() {
			return false
		}
		if err := r.ensure(c); err != nil {
			rec.Err = err
			continue
		}
		if r.recs != nil {
			r.recordValues(p, k, c, id, rec.Values, now)
			continue
		}
		ref := &r.chunks[c]
		v := driver.Value{Codec: driver.Codec(r.codec[id]), Orientation: int32(r.orient[id])}
		offset, size := ref.offset+int64(r.start[id]), int64(r.size[id])
		switch v.Codec {
		case driver.CodecRaw, driver.CodecDCT:
			v.Bytes = r.mapped(ref.shard, offset, size, now)
		case driver.CodecJPEG:
			// Its decoder reads ahead of what it uses.
			if b := r.mapped(ref.shard, offset, size+arena.Tail, now); b != nil {
				v.Bytes = b[:size:size]
			}
		}
		if v.Bytes == nil {
			p.wants = append(p.wants, want{k: k, chunk: c, shard: ref.shard, offset: offset, size: size})
		}
		v.Width, v.Height = r.dims(id)
		if v.Codec == driver.CodecRaw {
			v.Channels = 3
		}
		rec.Values[0] = v
		if r.label != nil {
			rec.Values[1] = driver.Value{Int: r.label[id]}
		}
	}
	return len(p.wants) == 0
}

// combine sorts the wants by their place, makes extents of them and takes
// memory for each.
func (r *Reader) combine(p *plan, buf *driver.Buffer) error {
	slices.SortFunc(p.wants, func(a, b want) int {
		if a.shard != b.shard {
			return int(int64(a.shard) - int64(b.shard))
		}
		switch {
		case a.offset < b.offset:
			return -1
		case a.offset > b.offset:
			return 1
		}
		return 0
	})
	for i := 0; i < len(p.wants); {
		w := p.wants[i]
		end := w.offset + w.size
		to := i + 1
		for to < len(p.wants) {
			n := p.wants[to]
			if n.shard != w.shard || n.offset > end+maxGap || n.offset+n.size-w.offset > maxCombined {
				break
			}
			end = max(end, n.offset+n.size)
			to++
		}
		e := extent{from: i, to: to, offset: w.offset}
		var err error
		if e.fd, e.err = r.fd(w.shard); e.err == nil {
			if r.recs != nil && to == i+1 {
				e.buf, err = buf.Take(w.k, w.field, w.size)
			} else {
				e.buf, err = buf.Alloc(int(end - w.offset))
			}
			if err != nil {
				return fmt.Errorf("no memory for %d bytes of %s: %w", end-w.offset, filepath.Join(r.dir, r.man.Shards[w.shard].File), err)
			}
		}
		p.extents = append(p.extents, e)
		i = to
	}
	return nil
}

// fetch reads the extents. What is in memory is copied at once; for the rest
// the kernel is asked for all of it before the first wait, so that the disk
// sees several reads at a time.
func (r *Reader) fetch(ctx context.Context, p *plan) {
	cold := 0
	if len(p.extents) > 1 && !r.noNowait.Load() {
		for i := range p.extents {
			e := &p.extents[i]
			if e.err != nil || len(e.buf) == 0 {
				continue
			}
			n, err := readResident(e.fd, e.buf, e.offset)
			if errors.Is(err, unix.EOPNOTSUPP) {
				r.noNowait.Store(true)
				break
			}
			e.have = n
			if n < len(e.buf) {
				cold++
			}
		}
	}
	if cold > 1 {
		for i := range p.extents {
			if e := &p.extents[i]; e.err == nil && e.have < len(e.buf) {
				_ = unix.Fadvise(e.fd, e.offset+int64(e.have), int64(len(e.buf)-e.have), unix.FADV_WILLNEED)
			}
		}
	}
	for i := range p.extents {
		e := &p.extents[i]
		if e.err != nil || e.have == len(e.buf) {
			continue
		}
		if ctx.Err() != nil {
			return
		}
		e.err = pread(e.fd, e.buf[e.have:], e.offset+int64(e.have))
	}
}

// Name says where record id lies: its path in the source and its place.
func (r *Reader) Name(id int64) string {
	if id < 0 || id >= r.Len() {
		return fmt.Sprintf("%s, record %d", r.dir, id)
	}
	c, row := r.locate(id)
	if r.col.path < 0 {
		return r.place(c, row)
	}
	var buf []byte
	v, err := r.view(c, &buf)
	if err != nil {
		return r.place(c, row)
	}
	return fmt.Sprintf("%s (%s)", v.path(row), r.place(c, row))
}
