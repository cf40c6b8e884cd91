package pipeline

import (
	"fmt"
	"sync"

	"github.com/stokerdata/stoker/internal/budget"
	"github.com/stokerdata/stoker/internal/fetch"
	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/internal/sampler"
	"github.com/stokerdata/stoker/internal/units"
	"github.com/stokerdata/stoker/source/driver"
)

// This file builds the order by windows of chunks, if it is requested or chosen.

// WindowAuto is the value of Config.Window for a choice based on the data.
const WindowAuto = -1

const (
	// chunkBytes is about how large the chunks are of a source that has none.
	chunkBytes = 8 << 20
	// maxChunkRecords is the most records of such a chunk. guessedRecords is their number if the sizes are unknown.
	maxChunkRecords = 65_536
	guessedRecords  = 1024
	// perChunk is the memory for a chunk in addition to its bytes.
	perChunk = 4096
	// sampled is the number of records whose sizes are read.
	sampled = 256
)

// The values of OrderInfo.Mode.
const (
	OrderSource  = "source"
	OrderFull    = "full"
	OrderWindows = "window"
)

// OrderInfo describes the order of the records.
type OrderInfo struct {
	// Mode is OrderSource, OrderFull, OrderWindows or OrderClient.
	Mode string `json:"mode"`
	// Window is the number of chunks in use at a time, Chunks the number of all chunks. This rank uses InUse chunks of
	// a window, with WindowBytes bytes.
	Window      int   `json:"window,omitempty"`
	Chunks      int   `json:"chunks,omitempty"`
	InUse       int   `json:"in_use,omitempty"`
	WindowBytes int64 `json:"window_bytes,omitempty"`
	// Why is the reason for the choice, if it was automatic.
	Why string `json:"why,omitempty"`
}

// String returns the form that is used in states: "full", "window:16".
func (o OrderInfo) String() string {
	if o.Mode == OrderWindows {
		return fmt.Sprintf("%s:%d", o.Mode, o.Window)
	}
	return o.Mode
}

// window is the order by windows of a pipeline.
type window struct {
	*sampler.Windows
	starts []int64
	seed   uint64
	// own reports the source's own chunks, which are read as a whole. largest is about the size of the largest one.
	own     driver.Chunker
	largest int64
	inUse   int

	mu   sync.Mutex
	last [2]struct {
		n int64
		*sampler.WindowEpoch
	}
}

// chooseOrder sets up the order by windows.
func (p *Pipeline) chooseOrder(info *driver.Info) error {
	cfg := &p.cfg
	if cfg.Window == WindowAuto {
		p.order.why = p.auto(info)
	}
	if cfg.Window == 0 {
		return nil
	}
	if p.records.epochs && p.records.variants < 2 {
		return fmt.Errorf("an order by windows needs records that are the same in each epoch, and those of %s differ; use shuffle for all records", info.URL)
	}
	if info.Sequential {
		return fmt.Errorf("%s can only be read in order, since it is compressed, and an order by windows reads chunks in another one: "+
			"make a pack of it (stoker pack) and shuffle that, or turn shuffle off", info.URL)
	}
	starts, own := p.chunks(info)
	if err := p.useWindow(starts, own); err != nil {
		return err
	}
	if what := p.order.window.readAgain(cfg.WorldSize); what != "" && cfg.Rank == 0 && p.order.why == "" && cfg.Say != nil {
		cfg.Say(what)
	}
	return nil
}

// readAgain returns a warning if several ranks read each chunk, "" otherwise.
func (w *window) readAgain(ranks int) string {
	n := w.Readers(ranks)
	if n < 2 {
		return ""
	}
	// The nearest number of chunks that is a multiple of the ranks and not all chunks.
	better := min((w.Window()+ranks-1)/ranks, (w.Chunks()-1)/ranks) * ranks
	why, hint := fmt.Sprintf("%d is not a multiple of %d ranks", w.Window(), ranks), fmt.Sprintf(`set shuffle="window:%d"`, better)
	if w.Whole() {
		why = fmt.Sprintf("that window holds all %d chunks", w.Chunks())
	}
	if better == 0 {
		why, hint = fmt.Sprintf("there are %d chunks for %d ranks", w.Chunks(), ranks), "set shuffle=True"
		if w.own != nil {
			hint += ", or make smaller chunks: stoker pack --chunk-size"
		}
	}
	return fmt.Sprintf(`shuffle="window:%d" reads each chunk on %d ranks: %s; %s`, w.Window(), n, why, hint)
}

// useWindow sets up the order for Config.Window.
func (p *Pipeline) useWindow(starts []int64, own driver.Chunker) error {
	w, err := sampler.NewWindows(starts, p.cfg.Window)
	if err != nil {
		return fmt.Errorf("making an order by windows: %w", err)
	}
	p.order.window = &window{Windows: w, starts: starts, seed: p.cfg.Seed, own: own, inUse: w.InUse(p.cfg.WorldSize)}
	p.order.window.largest = chunkBytes + chunkBytes/2
	if own != nil {
		p.order.window.largest = 0
		for c := range w.Chunks() {
			p.order.window.largest = max(p.order.window.largest, own.Chunk(c).Size)
		}
	}
	return nil
}

// chunks returns the chunks of the source, or runs of its records of about the same size, with the same number of
// records each.
func (p *Pipeline) chunks(info *driver.Info) (starts []int64, own driver.Chunker) {
	if starts, own = driver.ChunksOf(p.src); own != nil {
		return starts, own
	}
	n := int64(guessedRecords)
	if size := p.recordBytes(info); size > 0 {
		n = min(max(int64(chunkBytes/size), 1), maxChunkRecords)
	}
	for at := int64(0); at < info.Len; at += n {
		starts = append(starts, at)
	}
	return append(starts, info.Len), nil
}

// recordBytes returns about the size of a record, 0 if it is unknown. It must be the same whenever the source is
// opened.
func (p *Pipeline) recordBytes(info *driver.Info) float64 {
	total, known := 0.0, true
	for i := range info.Fields {
		st := info.Fields[i].Stats
		if known = known && st != nil && st.Count > 0; known {
			total += float64(st.Bytes) / float64(st.Count)
		}
	}
	if known && total > 0 {
		return total
	}
	if _, learns := driver.As[driver.Indexer](p.src); !learns {
		var g driver.Group
		ids := make([]int64, min(info.Len, sampled))
		for i := range ids {
			ids[i] = int64(i) * (info.Len - 1) / max(int64(len(ids))-1, 1)
		}
		g.Begin(ids, len(info.Fields))
		if recordread.LocateOnce(p.src, &g) == nil && len(g.Missing) == 0 && len(g.Extents) > 0 {
			total = 0
			for i := range g.Extents {
				total += float64(g.Extents[i].Size)
			}
			return total / float64(len(ids))
		}
	}
	total = 0
	for i := range info.Fields {
		total += float64(info.Fields[i].MaxBytes)
	}
	return total
}

// epoch is the order of an epoch.
func (w *window) epoch(n int64) *sampler.WindowEpoch {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.last {
		if e := &w.last[i]; e.WindowEpoch != nil && e.n == n {
			return e.WindowEpoch
		}
	}
	e := w.Epoch(w.seed, n)
	w.last[1] = w.last[0]
	w.last[0].n, w.last[0].WindowEpoch = n, e
	return e
}

// bytes returns the memory for the chunks that are in use at a time.
func (w *window) bytes() int64 { return int64(w.inUse) * (w.largest + perChunk) }

// share divides the memory, with space for the chunks of the window.
func (p *Pipeline) share(r *budget.Request) (*budget.Plan, error) {
	w := p.order.window
	if w == nil {
		return budget.Make(r)
	}
	if err := p.shrink(r); err != nil {
		return nil, err
	}
	w = p.order.window
	r.Window = w.bytes()
	plan, err := budget.Make(r)
	if err == nil {
		return plan, nil
	}
	without := *r
	without.Window = 0
	if _, none := budget.Make(&without); none != nil {
		return nil, none // it is not the window
	}
	// The largest one that fits.
	fits := 0
	for n := w.Window() / 2; n > 0 && fits == 0; n /= 2 {
		some, err := sampler.NewWindows(w.starts, n)
		if err != nil {
			return nil, err
		}
		without.Window = int64(some.InUse(p.cfg.WorldSize)) * (w.largest + perChunk)
		if _, err := budget.Make(&without); err == nil {
			fits = n
		}
	}
	hint := "set memory to that or more"
	if fits > 0 {
		hint = fmt.Sprintf("window:%d fits; or %s", fits, hint)
	}
	return nil, fmt.Errorf("a window of %d chunks, %d of them of this rank, takes %d MiB: %w; %s",
		w.Window(), w.inUse, units.MiB(r.Window), err, hint)
}

// ordered describes the order.
func (p *Pipeline) ordered() OrderInfo {
	switch w := p.order.window; {
	case p.cfg.Order == OrderClient:
		return OrderInfo{Mode: OrderClient}
	case w != nil:
		return OrderInfo{Mode: OrderWindows, Window: w.Window(), Chunks: w.Chunks(), InUse: w.inUse, WindowBytes: w.bytes(), Why: p.order.why}
	case p.cfg.Shuffle:
		return OrderInfo{Mode: OrderFull, Why: p.order.why}
	}
	return OrderInfo{Mode: OrderSource}
}

// reading returns how the records of a planner are grouped in chunks.
func (w *window) reading(p *Pipeline, pl *planner) *fetch.Chunks {
	c := &fetch.Chunks{
		Of: w.Chunk, Records: w.Records, Group: p.memory.groupRows, Held: 2*w.inUse + 8, Next: pl.coming,
		Last: func(epoch int64, chunk int) int64 { return w.epoch(epoch).Last(chunk) },
	}
	if p.records.variants > 1 {
		c.Number, c.Plain = p.inEpoch, p.number
	}
	if w.own != nil && p.mostIsWanted() {
		c.Extent = func(chunk int) (driver.Extent, bool) { return w.own.Chunk(chunk), true }
	}
	return c
}

// mostIsWanted reports whether a chunk should be read as a whole. That is so if at least half of its bytes belong to
// the selected fields, as far as that is known. One variant of a field is counted.
func (p *Pipeline) mostIsWanted() bool {
	var all, wanted int64
	want := p.arrays.set.Fields()
	for i := range p.src.Info().Fields {
		s := p.src.Info().Fields[i].Stats
		if s == nil {
			return want == nil
		}
		all += s.Bytes
		if want == nil || want[i] {
			if driver.Varies(p.src, i) {
				wanted += s.Bytes / int64(p.records.variants)
			} else {
				wanted += s.Bytes
			}
		}
	}
	return wanted >= all/2
}

// coming returns the next group to the reader by chunks.
func (pl *planner) coming(ids []int64) (n int, at fetch.Place, step int64, awaited bool) {
	pl.cur.settle(pl.p)
	c := &pl.cur
	n = min(pl.groupAt(), len(ids))
	c.fill(ids[:n], c.k, pl.p)
	step = max(c.part.Stride, 1)
	at = fetch.Place{Epoch: c.epoch, Pos: c.part.Lo + int64(c.k)*step}
	c.k += n
	pl.p.caches.disk.reading(pl.p, at)
	return n, at, step, pl.awaited()
}
