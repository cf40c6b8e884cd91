package fetch

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/source/driver"
)

// Chunks describes how the records of a source are grouped in chunks, and the order in which they are needed.
type Chunks struct {
	// Of returns the chunk of a record. Records returns the record range of a chunk, without its end.
	Of      func(id int64) int
	Records func(chunk int) (from, to int64)
	// Number returns the id in an epoch of a record from Records, and Plain converts it back. Both are nil if ids are
	// the same in all epochs.
	Number func(epoch, id int64) int64
	Plain  func(n int64) int64
	// Extent returns the extent of a whole chunk. If it returns false or is nil, the chunk's records are located one by
	// one and neighbours are read together.
	Extent func(chunk int) (driver.Extent, bool)
	// Group is the most records of a unit, Held the most chunks in memory at a time.
	Group, Held int
	// Next fills ids with the records of the next group and returns their number. It also returns the position of the
	// first record, the distance between records, and whether they belong to the first batch.
	Next func(ids []int64) (n int, at Place, step int64, awaited bool)
	// Last returns the last position in an epoch at which a record of a chunk is needed.
	Last func(epoch int64, chunk int) int64
}

// Place is a position in an epoch.
type Place struct{ Epoch, Pos int64 }

func (p Place) before(q Place) bool {
	return p.Epoch < q.Epoch || p.Epoch == q.Epoch && p.Pos < q.Pos
}

// Chunked reads records whose order uses few chunks at a time. A chunk is read when the first of its records is needed,
// in one read or a few large ones. It stays in memory until the last record has been used. Later chunks are read as far
// ahead as memory allows. Units are built from records whose chunks are in memory, so that they are ready immediately.
//
// Memory is granted in the order of need. It has space for all chunks that the order uses at a time, so early records
// never wait for later ones.
//
// Its methods are called by one goroutine at a time.
type Chunked struct {
	f   *Fetcher
	c   Chunks
	ctx context.Context

	order  int64
	groups []*chunkGroup // not units yet; only the last one is not admitted as a whole
	spare  []*chunkGroup
	lead   int // records in groups
	held   map[int]*heldChunk
	// loading is a chunk that is not located yet: the source has to read its index first.
	loading *heldChunk
	units   []*Unit // these wait for memory of their own
}

// chunkGroup is a group of records that will become a unit.
type chunkGroup struct {
	ids  []int64
	from []*heldChunk // the chunks of the admitted records, which come first
	at   Place        // of the first record
	step int64
	// awaited reports that the records belong to the first batch.
	awaited bool
}

// heldChunk is a chunk that is being read or is in memory.
type heldChunk struct {
	chunk int
	u     *Unit
	base  int64 // the first record
	turn  Turn  // of the first record that is needed
	whole bool
	// learnt reports that the source has parsed the chunk's index, with the error err.
	learnt bool
	err    error
	last   Place
	// uses counts the records that were admitted and are not done.
	uses atomic.Int64
	// gone reports that no reader needs the chunk any more. Guarded by Fetcher.mu.
	gone bool
}

const (
	// maxWhole is the size limit of one read of a whole chunk.
	maxWhole = 16 << 20
	// maxLead is the number of records that may be admitted ahead of the units. leadStep is the number per step.
	maxLead  = 1 << 18
	leadStep = 1 << 13
	// leadEpochs is the number of epochs ahead: all chunks of a small set are in memory, so memory does not limit them.
	leadEpochs = 4
	// maxMade is the number of units that may wait for a batch.
	maxMade = 256
)

// Chunked starts to read. Its units come after order in the order of need. Its reads end with ctx.
func (f *Fetcher) Chunked(ctx context.Context, order int64, c *Chunks) *Chunked {
	return &Chunked{f: f, c: *c, ctx: ctx, order: order, held: map[int]*heldChunk{}}
}

// Take makes as much progress as memory allows. It appends the units that have become ready to list, which has the
// unused units. Fetcher.Space signals when there may be more.
func (r *Chunked) Take(list []*Unit) []*Unit {
	for admitted := 0; ; {
		n, stuck := r.admit()
		admitted += n
		before := len(list)
		list = r.make(list, stuck)
		switch {
		case r.ctx.Err() != nil:
			return list
		case len(list) > before && len(list) < maxMade:
			// More memory may be free now.
		case stuck || r.full():
			return list
		case admitted >= leadStep:
			r.f.Wake() // continue when others had their turn
			return list
		}
	}
}

// admit admits the records of one group. It returns their number and whether the next record is blocked.
func (r *Chunked) admit() (n int, stuck bool) {
	if r.full() {
		return 0, false
	}
	g := r.last()
	if g == nil || len(g.from) == len(g.ids) {
		g = r.newGroup()
	}
	for len(g.from) < len(g.ids) {
		i := len(g.from)
		chunk := r.c.Of(r.plain(g.ids[i]))
		at := Place{g.at.Epoch, g.at.Pos + int64(i)*g.step}
		h := r.held[chunk]
		if h == nil {
			if h = r.load(chunk, at, g.awaited); h == nil {
				return n, true
			}
		}
		if h.last.before(at) { // it is needed again in another epoch
			h.last = r.lastOf(chunk, at)
		}
		h.uses.Add(1)
		g.from = append(g.from, h)
		n++
		r.lead++
	}
	return n, false
}

// full reports whether enough records are admitted ahead of the units.
func (r *Chunked) full() bool {
	return r.lead >= maxLead || r.lead > 0 && r.last().at.Epoch-r.groups[0].at.Epoch > leadEpochs
}

// plain returns a record's number as in Chunks.Records.
func (r *Chunked) plain(n int64) int64 {
	if r.c.Plain == nil {
		return n
	}
	return r.c.Plain(n)
}

func (r *Chunked) last() *chunkGroup {
	if len(r.groups) == 0 {
		return nil
	}
	return r.groups[len(r.groups)-1]
}

// lastOf returns the last place of a chunk in the epoch of at. Records that are repeated at the end of an epoch come
// after that place.
func (r *Chunked) lastOf(chunk int, at Place) Place {
	return Place{at.Epoch, max(r.c.Last(at.Epoch, chunk), at.Pos)}
}

func (r *Chunked) newGroup() *chunkGroup {
	g := &chunkGroup{ids: make([]int64, 0, r.c.Group)}
	if n := len(r.spare); n > 0 {
		g, r.spare = r.spare[n-1], r.spare[:n-1]
	}
	ids := g.ids[:cap(g.ids)]
	n, at, step, awaited := r.c.Next(ids)
	*g = chunkGroup{ids: ids[:n], from: g.from[:0], at: at, step: step, awaited: awaited}
	r.groups = append(r.groups, g)
	return g
}

// load queues the read of a chunk if memory for it is free, and otherwise returns nil.
func (r *Chunked) load(chunk int, at Place, awaited bool) *heldChunk {
	f := r.f
	h := r.loading
	if h == nil {
		if len(r.held) >= r.c.Held && !r.sweep(at) {
			return nil
		}
		h = &heldChunk{chunk: chunk, last: r.lastOf(chunk, at), turn: Turn{Epoch: at.Epoch, Awaited: awaited}}
		h.base, _ = r.c.Records(chunk)
		if r.c.Extent != nil {
			if e, ok := r.c.Extent(chunk); ok {
				h.whole = true
				h.u = r.unit(h.base, h.base+1, h.turn)
				h.u.whole = true
				h.u.Begin(h.u.ids, f.fields)
				h.u.Extents = append(h.u.Extents, e)
				h.u.Next()
				h.u.measure(f)
			}
		}
		if !h.whole {
			r.locate(h)
		}
	}
	if !r.known(h) || !r.reserve(h, at) {
		r.loading = h
		return nil
	}
	r.loading = nil
	r.held[chunk] = h
	return h
}

// unit returns an empty unit for a chunk's records.
func (r *Chunked) unit(from, to int64, turn Turn) *Unit {
	u := r.f.newUnit()
	r.order++
	u.ctx, u.order, u.rushed, u.chunk, u.Turn = r.ctx, r.order, false, true, turn
	u.ids = u.ids[:0]
	for id := from; id < to; id++ {
		u.ids = append(u.ids, id)
	}
	u.readErrs = u.readErrs[:0]
	u.IDs, u.Want = u.ids, r.f.cfg.Fields
	return u
}

// locate locates the records of a chunk.
func (r *Chunked) locate(h *heldChunk) {
	h.whole, h.learnt = false, true
	from, to := r.c.Records(h.chunk)
	h.u = r.unit(from, to, h.turn)
	for k, id := range h.u.ids {
		if r.c.Number != nil { // the numbers may differ in the next epoch; those records are then read separately
			h.u.ids[k] = r.c.Number(h.last.Epoch, id)
		}
	}
	r.locateUnit(h.u)
	if len(h.u.Missing) > 0 {
		r.f.Learn(h.u)
	}
}

// locateUnit locates all records of a unit, even if the unit gets too large.
func (r *Chunked) locateUnit(u *Unit) {
	u.Begin(u.ids, r.f.fields)
	for k, err := range u.readErrs {
		u.Records[k].Err = err
	}
	if u.err = recordread.LocateOnce(r.f.src, &u.Group); u.err != nil {
		u.Group.Relocate()
		for range u.IDs {
			u.Next()
		}
	}
	u.measure(r.f)
}

// known reports whether the source knows the positions of the records of a chunk.
func (r *Chunked) known(h *heldChunk) bool {
	for !h.whole && len(h.u.Missing) > 0 {
		if !r.f.Learned(h.u) {
			return false
		}
		r.locateUnit(h.u)
		if len(h.u.Missing) > 0 {
			r.f.Learn(h.u)
		}
	}
	return true
}

// reserve queues the reads of a chunk if memory for it is free.
func (r *Chunked) reserve(h *heldChunk, at Place) bool {
	f, u := r.f, h.u
	f.mu.Lock()
	defer f.mu.Unlock()
	most := f.account.planned
	if u.need > most { // its records are read one by one later
		u.need = 0
		for i := range u.Extents {
			u.Extents[i].Size = 0
		}
	}
	for u.need > 0 && f.account.used > 0 && f.account.used+u.need > most {
		if !r.sweepLocked(at) {
			return false
		}
	}
	f.account.reserve(u, false)
	f.issue(u)
	return true
}

// sweep frees chunks that are not needed after a place of the order, and reports whether there were any.
func (r *Chunked) sweep(at Place) bool {
	r.f.mu.Lock()
	defer r.f.mu.Unlock()
	return r.sweepLocked(at)
}

func (r *Chunked) sweepLocked(at Place) bool {
	any := false
	for n, h := range r.held {
		if h.uses.Load() == 0 && h.u.complete && h.last.before(at) {
			delete(r.held, n)
			r.f.freeLocked(h.u)
			any = true
		}
	}
	// If no unit is under way that could free memory, one chunk is freed and later read again. Otherwise the reader
	// would wait forever.
	if !any && r.f.account.units == len(r.held) && r.lead == 0 {
		for n, h := range r.held {
			if h.uses.Load() == 0 && h.u.complete {
				delete(r.held, n)
				r.f.freeLocked(h.u)
				return true
			}
		}
	}
	return any
}

// usedLocked counts a record of a chunk as done. The caller holds Fetcher.mu.
func (h *heldChunk) usedLocked(f *Fetcher) {
	if h.uses.Add(-1) == 0 && h.gone {
		f.freeLocked(h.u)
	}
}

// make builds units from the groups whose chunks are in memory. If the last group is alone and waits for memory, its
// admitted records become a unit of their own, since using them may free the memory.
func (r *Chunked) make(list []*Unit, stuck bool) []*Unit {
	for len(list) < maxMade {
		for len(r.units) > 0 {
			if !r.f.AdmitUrgent(r.units[0]) {
				return list
			}
			list = append(list, r.units[0])
			r.units = r.units[:copy(r.units, r.units[1:])]
		}
		if len(r.groups) == 0 {
			return list
		}
		g := r.groups[0]
		n := len(g.from)
		if n == 0 || n < len(g.ids) && !stuck || !r.there(g.from) {
			return list
		}
		ids, from := g.ids[:n], g.from
		u := r.of(ids, from)
		if u.need > 0 && n > 1 { // single records fit
			r.undo(u)
			for k := range ids {
				r.units = append(r.units, r.of(ids[k:k+1], from[k:k+1]))
			}
		} else {
			r.units = append(r.units, u)
		}
		r.lead -= n
		if n < len(g.ids) {
			g.ids = g.ids[:copy(g.ids, g.ids[n:])]
			g.from, g.at.Pos = g.from[:0], g.at.Pos+int64(n)*g.step
		} else {
			r.groups = r.groups[:copy(r.groups, r.groups[1:])]
			r.spare = append(r.spare, g)
		}
	}
	return list
}

// there reports whether chunks have been read, and lets the source parse their index.
func (r *Chunked) there(of []*heldChunk) bool {
	r.f.mu.Lock()
	for _, h := range of {
		if !h.u.complete {
			r.f.mu.Unlock()
			return false
		}
	}
	r.f.mu.Unlock()
	for _, h := range of {
		if h.learnt {
			continue
		}
		if h.u.Records[0].Err != nil && r.ctx.Err() == nil {
			// The chunk cannot be read as a whole. Its records are read one by one, so that only the damaged ones fail.
			r.f.mu.Lock()
			r.f.freeLocked(h.u)
			r.f.mu.Unlock()
			r.locate(h)
			for !r.known(h) {
				select {
				case <-r.f.space:
				case <-r.ctx.Done():
					return false
				}
			}
			r.f.mu.Lock()
			r.f.account.reserve(h.u, false) // its previous reservation
			r.f.issue(h.u)
			r.f.mu.Unlock()
			r.f.Wake()
			return false
		}
		if _, ok := driver.As[driver.Indexer](r.f.src); ok && h.u.Records[0].Err == nil {
			h.err = recordread.Learn(r.f.src, h.u.Extents[0], h.u.Bytes[0])
		}
		h.learnt = true
	}
	return true
}

// of builds a unit from records in their chunks.
func (r *Chunked) of(ids []int64, from []*heldChunk) *Unit {
	f := r.f
	u := f.newUnit()
	r.order++
	u.ctx, u.order = r.ctx, r.order
	u.ids = append(u.ids[:0], ids...)
	u.readErrs = u.readErrs[:0]
	u.IDs, u.Want = u.ids, f.cfg.Fields
	u.Begin(u.ids, f.fields)
	if u.err = recordread.LocateOnce(f.src, &u.Group); u.err != nil {
		u.Group.Relocate()
		for range u.IDs {
			u.Next()
		}
	}
	for i := range u.Missing { // the chunk could not be read, or is damaged
		k := u.Missing[i].K
		u.Records[k].Err = from[k].failed(r.plain(u.ids[k]))
	}
	n := len(u.Extents)
	if cap(u.blocks) < n {
		u.blocks = make([]*block, n)
	}
	u.blocks = u.blocks[:n]
	clear(u.blocks)
	u.Bytes = u.Bytes[:0]
	for range n {
		u.Bytes = append(u.Bytes, nil)
	}
	u.need, u.InMemory = 0, false
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	for k := range ids {
		h := from[k]
		u.from = append(u.from, h)
		for i := u.First[k]; i < u.First[k+1]; i++ {
			e := &u.Extents[i]
			b, bl, err := h.bytes(e, r.plain(ids[k]), int(i-u.First[k]))
			switch {
			case err != nil:
				u.Records[k].Err = err
			case b == nil && e.Size > 0:
				if b = f.obj.Resident(e, now); b == nil {
					u.need += pieceBytes(e.Size)
				}
			}
			if bl != nil {
				bl.refs++
			}
			u.Bytes[i], u.blocks[i] = b, bl
		}
	}
	return u
}

// undo releases a unit that was built by of.
func (r *Chunked) undo(u *Unit) {
	r.f.mu.Lock()
	defer r.f.mu.Unlock()
	for _, h := range u.from { // the chunks stay in use
		h.uses.Add(1)
	}
	r.f.freeLocked(u)
}

// bytes returns the bytes of a record's j-th extent. The caller holds Fetcher.mu.
func (h *heldChunk) bytes(e *driver.Extent, id int64, j int) ([]byte, *block, error) {
	u := h.u
	if h.whole {
		c := &u.Extents[0]
		at := e.Offset - c.Offset
		if len(u.Bytes) == 0 || u.Bytes[0] == nil || e.Object != c.Object || at < 0 || at+e.Size > int64(len(u.Bytes[0])) {
			return nil, nil, nil
		}
		return u.Bytes[0][at : at+e.Size : at+e.Size], u.blocks[0], nil
	}
	k := int(id - h.base)
	i := int(u.First[k]) + j
	switch {
	case u.Records[k].Err != nil:
		return nil, nil, u.Records[k].Err
	case i >= int(u.First[k+1]) || u.Extents[i] != *e || u.Bytes[i] == nil:
		return nil, nil, nil // the source found a different position, or the record is read separately
	}
	return u.Bytes[i], u.blocks[i], nil
}

// failed returns the reason why a record of the chunk cannot be located.
func (h *heldChunk) failed(id int64) error {
	if h.err != nil {
		return h.err
	}
	u, k := h.u, 0
	if !h.whole {
		k = int(id - h.base)
	}
	if err := u.Records[k].Err; err != nil {
		return err
	}
	if k < len(u.readErrs) && u.readErrs[k] != nil {
		return u.readErrs[k]
	}
	return errNoIndex
}

// Stop gives up the units that were not taken. Reads under way end with the context.
func (r *Chunked) Stop() {
	f := r.f
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, u := range r.units {
		f.freeLocked(u)
	}
	for _, g := range r.groups {
		for _, h := range g.from {
			h.uses.Add(-1)
		}
	}
	r.units, r.groups = nil, nil
	if h := r.loading; h != nil {
		h.u.dropped = true
	}
	for _, h := range r.held {
		h.gone = true
		switch {
		case !h.u.complete:
			h.u.dropped = true
		case h.uses.Load() == 0:
			f.freeLocked(h.u)
		}
	}
	clear(r.held)
}
