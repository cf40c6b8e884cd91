package pipeline

import (
	"fmt"
	"time"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/budget"
	"github.com/stokerdata/stoker/internal/decode"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/transform"
	"github.com/stokerdata/stoker/source/driver"
)

// requests are calls of the decoder that are made together.
type requests struct {
	reqs []decode.Request
	of   []rowOutput // what each is for
}

// rowOutput says what a request gives.
type rowOutput struct {
	k   int // row in the group
	out int
	// run is nil for pixels that several outputs share.
	run *transform.Run
}

func (r *requests) init(n int) {
	r.reqs, r.of = make([]decode.Request, 0, n), make([]rowOutput, 0, n)
}

func (r *requests) add(req decode.Request, of rowOutput) {
	r.reqs, r.of = append(r.reqs, req), append(r.of, of)
}

func (r *requests) clear() {
	clear(r.reqs) // keeps no record's bytes alive
	r.reqs, r.of = r.reqs[:0], r.of[:0]
}

// pixelBytes is how much memory a worker takes for the decoded images of a
// group before it works on them in parts.
const pixelBytes = 3 << 20

// decodeRows makes the rows of recs. What went wrong is in errs afterwards.
func (w *worker) decodeRows(b *batch, first int, recs []driver.Record) {
	p := w.p
	w.b, w.slot, w.first = b, p.ring.Slot(b.slot), first
	w.forget()
	for k := range recs {
		r := &recs[k]
		if r.Err != nil {
			w.errs[k] = r.Err
			continue
		}
		for _, c := range p.columns {
			p.layout.PutInt(w.slot, c.array, first+k, r.Values[c.field].Int)
		}
		p.layout.PutInt(w.slot, p.indexArray, first+k, r.ID)
	}
	if len(p.arrays) > 0 || len(p.ragged) > 0 {
		w.putValues(recs)
	}
	left := 0
	for o := range p.outputs {
		w.gathered[o] = w.gather(o, recs)
		if !w.gathered[o] {
			left++
		}
	}
	if left == 0 {
		return
	}
	for k := range recs {
		if w.errs[k] == nil {
			w.errs[k] = w.prepare(k, &recs[k])
		}
	}
	w.flush()
}

// forget drops what was prepared.
func (w *worker) forget() {
	w.now.clear()
	w.later.clear()
	w.nruns, w.used = 0, 0
}

// gather copies the rows of an output that are stored just as the batch wants
// them, in one call. It returns false when a row is not.
func (w *worker) gather(o int, recs []driver.Record) bool {
	out := &w.p.outputs[o]
	if !out.gather {
		return false
	}
	rowBytes := w.p.layout.Arrays[out.array].RowBytes
	w.srcs = w.srcs[:0]
	for k := range recs {
		if w.errs[k] != nil {
			return false
		}
		v := &recs[k].Values[out.field]
		if v.Codec != driver.CodecRaw || int(v.Width) != out.prog.W || int(v.Height) != out.prog.H ||
			int(v.Channels) != out.prog.C || int64(len(v.Bytes)) != rowBytes {
			return false
		}
		w.srcs = append(w.srcs, v.Bytes)
	}
	start := time.Now()
	w.p.gather(w.p.layout.Span(w.slot, out.array, w.first, w.first+len(recs)), w.srcs, int(rowBytes))
	w.timer.decode += time.Since(start)
	return true
}

// row is the place of output o of row k of the group.
func (w *worker) row(o, k int) []byte {
	return w.p.layout.Row(w.slot, w.p.outputs[o].array, w.first+k)
}

// prepare turns a record into requests: one for each output, or, where several
// outputs look at the same part of an image, one that decodes that part and
// more that cut it up.
func (w *worker) prepare(k int, rec *driver.Record) error {
	p := w.p
	mine := w.nruns // the record's runs begin here
	need := 0
	for o := range p.outputs {
		if w.gathered[o] {
			continue
		}
		out := &p.outputs[o]
		info, err := w.dec.Info(rec.Values[out.field])
		if err != nil {
			return err
		}
		run := &w.runs[mine+o]
		if err := run.Begin(out.prog, p.cfg.Seed, w.b.epoch, rec.ID, int(info.Width), int(info.Height)); err != nil {
			return err
		}
		if !run.Direct() {
			need += align(run.PixelBytes())
		}
	}
	for i := range p.shared {
		sh := &p.shared[i]
		sh.decide(w, mine, rec)
		if w.box[i].W > 0 {
			need += align(int(w.box[i].W) * int(w.box[i].H) * sh.pixels.Size())
		}
	}
	if w.used+need > max(w.pixels.Cap()-arena.Tail, 0) {
		w.flush()
		copy(w.runs, w.runs[mine:mine+len(p.outputs)])
		mine = 0
		if err := w.grow(need); err != nil {
			return err
		}
	}
	w.nruns = mine + len(p.outputs)
	var union [maxOutputs][]byte
	for i := range p.shared {
		box := w.box[i]
		if box.W == 0 {
			continue
		}
		sh := &p.shared[i]
		union[i] = w.take(int(box.W) * int(box.H) * sh.pixels.Size())
		whole := item.Rect{W: box.W, H: box.H}
		w.now.add(decode.Request{
			Value: rec.Values[sh.field], Pixels: sh.pixels, Mask: sh.mask,
			Geom:  item.Geometry{Box: box, ResizeW: box.W, ResizeH: box.H, Window: whole, Filter: item.Bilinear},
			Store: sh.pixels.Plain(), Dst: union[i],
		}, rowOutput{k: k})
	}
	for o := range p.outputs {
		if w.gathered[o] {
			continue
		}
		out, run := &p.outputs[o], &w.runs[mine+o]
		v := rec.Values[out.field]
		if v.Codec == driver.CodecRaw && int(v.Channels) == out.prog.C && run.CopyRaw(w.row(o, k), v.Bytes) {
			continue
		}
		if run.Empty() {
			if err := run.Finish(w.scratch, nil, w.row(o, k)); err != nil {
				return err
			}
			continue
		}
		req := decode.Request{
			Value: v, Pixels: out.prog.In, Mask: out.prog.Mask, Geom: run.Geometry(), Store: out.prog.Store, Dst: w.row(o, k),
		}
		if !run.Direct() {
			req.Store = out.prog.In.Plain()
			req.Dst = w.take(run.PixelBytes())
		}
		if i := out.shared; i >= 0 && union[i] != nil {
			box := w.box[i]
			req.Value = driver.Value{Bytes: union[i], Codec: driver.CodecRaw, Width: box.W, Height: box.H, Channels: out.prog.In.Channels}
			req.Raw = out.prog.In.DType
			req.Geom.Box.X -= box.X
			req.Geom.Box.Y -= box.Y
			w.later.add(req, rowOutput{k, o, run})
			continue
		}
		w.now.add(req, rowOutput{k, o, run})
	}
	return nil
}

func align(n int) int { return (n + 63) &^ 63 }

// grow makes room for n bytes of pixels when nothing of it is in use.
func (w *worker) grow(n int) error {
	if _, err := w.pixels.Bytes(max(n, pixelBytes)); err == nil {
		return nil
	}
	if _, err := w.pixels.Bytes(n); err != nil {
		return fmt.Errorf("the image needs %d MiB of scratch: %w; raise memory", budget.MiB(int64(n)), err)
	}
	return nil
}

// take returns n bytes of pixels that live until the next flush. There is room.
func (w *worker) take(n int) []byte {
	all, _ := w.pixels.Bytes(w.pixels.Cap() - arena.Tail)
	at := w.used
	w.used += align(n)
	return all[at : at+n : at+n]
}

// flush runs the requests and finishes their rows.
func (w *worker) flush() {
	w.run(&w.now)
	later := &w.later
	n := 0
	for i := range later.reqs { // leave out those whose pixels are bad
		if w.errs[later.of[i].k] == nil {
			later.reqs[n], later.of[n] = later.reqs[i], later.of[i]
			n++
		}
	}
	later.reqs, later.of = later.reqs[:n], later.of[:n]
	w.run(later)
	w.forget()
}

func (w *worker) run(r *requests) {
	if len(r.reqs) == 0 {
		return
	}
	start := time.Now()
	w.dec.Run(r.reqs)
	decoded := time.Now()
	w.timer.decode += decoded.Sub(start)
	for i := range r.reqs {
		req, ro := &r.reqs[i], &r.of[i]
		err := req.Err
		if err == nil && w.errs[ro.k] == nil && ro.run != nil {
			if ro.run.Direct() {
				err = ro.run.FinishStored(req.Dst)
			} else {
				err = ro.run.Finish(w.scratch, req.Dst, w.row(ro.out, ro.k))
			}
		}
		if err != nil && w.errs[ro.k] == nil {
			w.errs[ro.k] = err
		}
	}
	w.timer.transform += time.Since(decoded)
}

// shared is a stored field that several outputs are made from.
type shared struct {
	field   int
	outputs []int
	pixels  item.PixelType
	mask    bool
	index   int
}

// decide sets the box that is worth decoding once for all outputs of a record,
// or an empty one when they are better decoded one by one. Boxes are exact, so
// this changes no pixel.
func (sh *shared) decide(w *worker, mine int, rec *driver.Record) {
	w.box[sh.index] = item.Rect{}
	v := &rec.Values[sh.field]
	if v.Codec == driver.CodecRaw {
		return
	}
	dct := v.Codec == driver.CodecDCT
	var all item.Rect
	apart := 0.0
	width := 0
	for _, o := range sh.outputs {
		run := &w.runs[mine+o]
		if w.gathered[o] || run.Empty() {
			return
		}
		g := run.Geometry()
		width, _ = run.SourceSize()
		apart += boxCost(g.Box, width, dct)
		all = unite(all, g.Box)
	}
	if boxCost(all, width, dct) < 0.9*apart {
		w.box[sh.index] = all
	}
}

// boxCost is about what decoding a box costs, in pixels. Without an index
// the entropy code of a JPEG must be read down to the last row of the box.
func boxCost(b item.Rect, width int, dct bool) float64 {
	area := float64(b.W) * float64(b.H)
	if dct {
		return area
	}
	return 0.35*area + 0.65*float64(width)*float64(b.Y+b.H)
}

func unite(a, b item.Rect) item.Rect {
	if a.W == 0 {
		return b
	}
	x, y := min(a.X, b.X), min(a.Y, b.Y)
	return item.Rect{X: x, Y: y, W: max(a.X+a.W, b.X+b.W) - x, H: max(a.Y+a.H, b.Y+b.H) - y}
}

// planShared finds the fields that several outputs are made from.
func (p *Pipeline) planShared() {
	for o := range p.outputs {
		p.outputs[o].shared = -1
	}
	for o := range p.outputs {
		first := &p.outputs[o]
		if first.shared >= 0 {
			continue
		}
		sh := shared{field: first.field, pixels: first.prog.In, mask: first.prog.Mask, index: len(p.shared)}
		for other := o; other < len(p.outputs); other++ {
			if out := &p.outputs[other]; out.field == sh.field && out.prog.In == sh.pixels && out.prog.Mask == sh.mask {
				sh.outputs = append(sh.outputs, other)
			}
		}
		if len(sh.outputs) < 2 {
			continue
		}
		for _, other := range sh.outputs {
			p.outputs[other].shared = sh.index
		}
		p.shared = append(p.shared, sh)
	}
}
