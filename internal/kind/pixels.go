package kind

import (
	"fmt"
	"time"

	"github.com/stokerdata/stoker/internal/budget"
	"github.com/stokerdata/stoker/internal/decode"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/transform"
	"github.com/stokerdata/stoker/source/driver"
)

// pixels builds rows of images: it decodes the parts that their operations need and applies the operations.
type pixels struct {
	p       *Planner
	outputs []output
	shared  []shared
}

// output is an array that is made from images.
type output struct {
	Column
	prog  *transform.Program
	field int
	// raw is the element type of values that are pixels without a header; 0 means u8.
	raw item.DType
	// all describes every value except its bytes, if bytes is more than 0. Each value then has that many bytes: arrays.
	all   driver.Value
	bytes int
	// gather reports that rows may be copied from raw records without changes.
	gather bool
	// guide are the boxes that the operations use, nil for none.
	guide *guide
	// partner is the image that a mask belongs to.
	partner partner
	// shared is the index in pixels.shared of the part that this output shares with others, or -1.
	shared int
}

// planPixels plans arrays from images. The function input returns the operations' input for images of one size, or of
// any size if that is 0.
func planPixels(p *Planner, wants []Want, input func(w *Want, width, height int) (transform.Input, error)) (*pixels, error) {
	m := &pixels{p: p}
	for i := range wants {
		w := &wants[i]
		width, height := p.imageSize(w.F)
		if err := p.checkFollow(w); err != nil {
			return nil, err
		}
		in, err := input(w, width, height)
		if err != nil {
			return nil, err
		}
		prog, err := p.compile(w.Out, in, w.Field)
		if err != nil {
			return nil, err
		}
		follows := w.Out.Name
		if w.Out.Follow != "" {
			follows = w.Out.Follow
		}
		around, err := p.guide(prog, follows)
		if err != nil {
			return nil, err
		}
		m.outputs = append(m.outputs, output{
			Column: w.Column(prog.Store.DType, prog.Shape()), prog: prog, field: w.Field, guide: around, partner: p.partner(w),
			gather: prog.Identity() && !p.ApplyOrientation, shared: -1,
		})
	}
	return m, nil
}

// compile compiles the operations on the images of a field.
func (p *Planner) compile(out transform.Output, in transform.Input, field int) (*transform.Program, error) {
	if p.First == nil {
		return transform.Compile(out, in)
	}
	return transform.CompileLike(out, in, func() (transform.First, error) { return p.First(field) })
}

// imageSize is the size of all images of a field, 0 when it is not known.
func (p *Planner) imageSize(f *driver.Field) (width, height int) {
	if p.ApplyOrientation && f.Width != f.Height {
		return 0, 0 // some may be turned on their side
	}
	return int(f.Width), int(f.Height)
}

// checkFollow finds the output that another one follows.
func (p *Planner) checkFollow(w *Want) error {
	var names []string
	for i := range p.Wants {
		if name := p.Wants[i].Out.Name; name == w.Out.Follow {
			return nil
		} else if name != w.Out.Name {
			names = append(names, name)
		}
	}
	if w.Out.Follow == "" {
		return nil
	}
	return fmt.Errorf("output %q: follow is %q, and there is no such output%s", w.Out.Name, w.Out.Follow, transform.DidYouMean(w.Out.Follow, names))
}

// value is the value of a record.
func (o *output) value(rec *driver.Record) (v driver.Value, err error) {
	v = rec.Values[o.field]
	if o.bytes > 0 {
		if len(v.Bytes) != o.bytes {
			return v, fmt.Errorf("field %q has %d bytes and not %d", o.Name, len(v.Bytes), o.bytes)
		}
		b := v.Bytes
		v = o.all
		v.Bytes = b
	}
	v.Channels = o.channels(&v)
	return v, nil
}

// channels returns the channels of a value, as far as they are known. A mask has one.
func (o *output) channels(v *driver.Value) int32 {
	if o.prog.Mask && v.Channels == 0 {
		return 1
	}
	return v.Channels
}

// Columns implements Maker.
func (m *pixels) Columns() []Column {
	cols := make([]Column, len(m.outputs))
	for i := range m.outputs {
		cols[i] = m.outputs[i].Column
	}
	return cols
}

// Cost implements Maker.
func (m *pixels) Cost() (c Cost) {
	for _, o := range m.outputs {
		f := &m.p.Info.Fields[o.field]
		im := budget.Image{
			MaxBytes: f.MaxBytes, Width: int64(f.Width), Height: int64(f.Height), MaxWidth: int64(f.MaxWidth), MaxHeight: int64(f.MaxHeight),
			PixelBytes: int64(o.prog.In.Size()), Kept: o.prog.NeedsScratch() || o.shared >= 0,
			RowWidth: int64(o.prog.W), RowHeight: int64(o.prog.H),
		}
		if o.bytes > 0 {
			im.MaxBytes, im.Width, im.Height = int64(o.bytes), int64(o.all.Width), int64(o.all.Height)
		}
		c.Images = append(c.Images, im)
	}
	return c
}

// pixelWorker builds rows of images in one goroutine.
type pixelWorker struct {
	m   *pixels
	t   *Tools
	dec *decode.Decoder
	g   *RowGroup // that is being made

	gathered []bool // by output
	runs     []transform.Run
	nruns    int
	now      requests // to decode
	later    requests // based on the images that are decoded now
	srcs     [][]byte
	box      []item.Rect // by shared field
	union    [][]byte    // by shared field
}

// NewWorker implements Maker.
func (m *pixels) NewWorker(t *Tools) (Worker, error) {
	dec, err := t.Decoder()
	if err != nil {
		return nil, err
	}
	n := t.GroupRows * max(len(m.outputs), 1)
	w := &pixelWorker{
		m: m, t: t, dec: dec, gathered: make([]bool, len(m.outputs)), runs: make([]transform.Run, n),
		srcs: make([][]byte, 0, t.GroupRows), box: make([]item.Rect, len(m.shared)), union: make([][]byte, len(m.shared)),
	}
	w.now.init(n + t.GroupRows*len(m.shared))
	w.later.init(n)
	return w, nil
}

// Close implements Worker. The worker's memory belongs to its tools.
func (w *pixelWorker) Close() {}

// Make implements Worker.
func (w *pixelWorker) Make(g *RowGroup) {
	w.g = g
	w.forget()
	left := 0
	for o := range w.m.outputs {
		if w.m.outputs[o].field == g.without { // its rows are zeros
			for k := range g.Records {
				clear(w.row(o, k))
			}
			w.gathered[o] = true
			continue
		}
		w.gathered[o] = w.gather(o)
		if !w.gathered[o] {
			left++
		}
	}
	if left == 0 {
		return
	}
	for k := range g.Records {
		if g.Errs[k] == nil {
			g.Errs[k] = w.prepare(k, &g.Records[k])
		}
	}
	w.flush()
}

// forget drops the prepared requests.
func (w *pixelWorker) forget() {
	w.now.clear()
	w.later.clear()
	w.nruns, w.t.scratch.used = 0, 0
}

// gather copies the rows of an output whose stored form equals that in the batch, in one call. It returns false if a
// row differs.
func (w *pixelWorker) gather(o int) bool {
	out, recs := &w.m.outputs[o], w.g.Records
	if !out.gather {
		return false
	}
	rowBytes := w.g.Batch.Array(out.Array).RowBytes
	w.srcs = w.srcs[:0]
	for k := range recs {
		if w.g.Errs[k] != nil {
			return false
		}
		v := &recs[k].Values[out.field]
		if v.Codec != driver.CodecRaw || int(v.Width) != out.prog.W || int(v.Height) != out.prog.H ||
			int(out.channels(v)) != out.prog.C || int64(len(v.Bytes)) != rowBytes {
			return false
		}
		w.srcs = append(w.srcs, v.Bytes)
	}
	start := time.Now()
	w.g.Batch.Gather(out.Array, w.g.First, w.srcs)
	w.g.DecodeTime += time.Since(start)
	return true
}

// row returns the memory for output o of row k of the group.
func (w *pixelWorker) row(o, k int) []byte {
	return w.g.Batch.Row(w.m.outputs[o].Array, w.g.First+k)
}

// prepare turns a record into requests: one for each output. If several outputs use the same part of an image, one
// request decodes that part and others cut it up.
func (w *pixelWorker) prepare(k int, rec *driver.Record) error {
	mine := w.nruns // the record's runs begin here
	need, err := w.beginRuns(mine, k, rec)
	if err != nil {
		return err
	}
	if mine, err = w.makeSpace(mine, need, rec); err != nil {
		return err
	}
	w.nruns = mine + len(w.m.outputs)
	w.addShared(k, rec)
	return w.addOutputs(mine, k, rec)
}

// beginRuns draws the random numbers of each output. It returns the scratch memory that the outputs need.
func (w *pixelWorker) beginRuns(mine, k int, rec *driver.Record) (need int, err error) {
	m := w.m
	for o := range m.outputs {
		if w.gathered[o] {
			continue
		}
		out := &m.outputs[o]
		if err := out.partner.check(m.p, w.dec, rec); err != nil {
			return 0, err
		}
		v, err := out.value(rec)
		if err != nil {
			return 0, err
		}
		info, err := w.dec.Info(v)
		if err != nil {
			return 0, err
		}
		run := &w.runs[mine+o]
		if out.guide != nil {
			boxes, err := out.guide.boxes(rec, info)
			if err != nil {
				return 0, err
			}
			err = run.BeginAround(out.prog, m.p.Seed, w.g.Epoch, w.g.Draw(k), int(info.Width), int(info.Height), boxes)
			if err != nil {
				return 0, err
			}
		} else if err := run.Begin(out.prog, m.p.Seed, w.g.Epoch, w.g.Draw(k), int(info.Width), int(info.Height)); err != nil {
			return 0, err
		}
		if !run.Direct() {
			need += align(run.PixelBytes())
		}
	}
	return need, nil
}

// makeSpace decides which pixels the outputs share, and ensures that there is scratch memory for them and for need more
// bytes. It returns the first run of the record, which differs if the decoder had to finish earlier records.
func (w *pixelWorker) makeSpace(mine, need int, rec *driver.Record) (int, error) {
	m := w.m
	for i := range m.shared {
		sh := &m.shared[i]
		sh.decide(w, mine, rec)
		if w.box[i].W > 0 {
			need += align(int(w.box[i].W) * int(w.box[i].H) * sh.pixels.Size())
		}
	}
	if !w.t.scratch.fits(need) {
		w.flush()
		copy(w.runs, w.runs[mine:mine+len(m.outputs)])
		mine = 0
		if err := w.t.scratch.grow(need); err != nil {
			return 0, err
		}
	}
	return mine, nil
}

// addShared requests the pixels that several outputs are made of.
func (w *pixelWorker) addShared(k int, rec *driver.Record) {
	m, union := w.m, w.union
	clear(union)
	for i := range m.shared {
		box := w.box[i]
		if box.W == 0 {
			continue
		}
		sh := &m.shared[i]
		union[i] = w.t.scratch.take(int(box.W) * int(box.H) * sh.pixels.Size())
		whole := item.Rect{W: box.W, H: box.H}
		w.now.add(decode.Request{
			Value: rec.Values[sh.field], Pixels: sh.pixels, Mask: sh.mask,
			Geom:  item.Geometry{Box: box, ResizeW: box.W, ResizeH: box.H, Window: whole, Filter: item.Bilinear},
			Store: sh.pixels.Plain(), Dst: union[i],
		}, rowOutput{k: k})
	}
}

// addOutputs requests the pixels of each output, or finishes it if it needs none.
func (w *pixelWorker) addOutputs(mine, k int, rec *driver.Record) error {
	m, union := w.m, w.union
	for o := range m.outputs {
		if w.gathered[o] {
			continue
		}
		out, run := &m.outputs[o], &w.runs[mine+o]
		v, err := out.value(rec)
		if err != nil {
			return err
		}
		if v.Codec == driver.CodecRaw && int(v.Channels) == out.prog.C && run.CopyRaw(w.row(o, k), v.Bytes) {
			continue
		}
		if run.Empty() {
			if err := run.Finish(w.t.scratch.Scratch, nil, w.row(o, k)); err != nil {
				return err
			}
			continue
		}
		req := decode.Request{
			Value: v, Pixels: out.prog.In, Raw: out.raw, Mask: out.prog.Mask, Geom: run.Geometry(), Store: out.prog.Store, Dst: w.row(o, k),
		}
		if !run.Direct() {
			req.Store = out.prog.In.Plain()
			req.Dst = w.t.scratch.take(run.PixelBytes())
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

// flush runs the requests and finishes their rows.
func (w *pixelWorker) flush() {
	w.run(&w.now)
	later := &w.later
	n := 0
	for i := range later.reqs { // leave out those whose pixels are bad
		if w.g.Errs[later.of[i].k] == nil {
			later.reqs[n], later.of[n] = later.reqs[i], later.of[i]
			n++
		}
	}
	later.reqs, later.of = later.reqs[:n], later.of[:n]
	w.run(later)
	w.forget()
}

func (w *pixelWorker) run(r *requests) {
	if len(r.reqs) == 0 {
		return
	}
	start := time.Now()
	w.dec.Run(r.reqs)
	decoded := time.Now()
	w.g.DecodeTime += decoded.Sub(start)
	for i := range r.reqs {
		req, ro := &r.reqs[i], &r.of[i]
		err := req.Err
		if err == nil && w.g.Errs[ro.k] == nil && ro.run != nil {
			if ro.run.Direct() {
				err = ro.run.FinishStored(req.Dst)
			} else {
				err = ro.run.Finish(w.t.scratch.Scratch, req.Dst, w.row(ro.out, ro.k))
			}
		}
		if err != nil && w.g.Errs[ro.k] == nil {
			w.g.Errs[ro.k] = err
		}
	}
	w.g.TransformTime += time.Since(decoded)
}
