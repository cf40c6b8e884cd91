package kind

import (
	"fmt"
	"slices"
	"time"

	"github.com/stokerdata/stoker/internal/budget"
	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/decode"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/transform"
	"github.com/stokerdata/stoker/internal/video"
	"github.com/stokerdata/stoker/source/driver"
)

// Frames is clips of video frames: rows of shape [T, H, W, C]. The operations treat each frame the same, with the same
// random numbers. Frames that several clips of a group need are decoded once.
var Frames = Kind{Name: driver.KindFrames, Decoded: true, Plan: planFrames}

const (
	// maxClipBytes is the largest row.
	maxClipBytes = 1 << 30
	// clipsTogether is the number of clips that are at least processed together, so that clips of one video are decoded
	// once.
	clipsTogether = 128
)

// frames builds rows of clips.
type frames struct {
	p    *Planner
	outs []framesOutput
	// fields are the source fields of the outputs.
	fields []int
}

type framesOutput struct {
	Column
	prog  *transform.Program
	field int
	t     int
	// crop selects frames of the stored clip, nil for all.
	crop *transform.ClipCrop
	// as reports that rows are the decoded frames without changes.
	as bool
}

func planFrames(p *Planner, wants []Want) ([]Maker, error) {
	m := &frames{p: p}
	for i := range wants {
		w := &wants[i]
		if len(w.F.Shape) != 1 || w.F.Shape[0] < 1 || w.F.Shape[0] > video.MaxClipFrames {
			return nil, fmt.Errorf("field %q: clips of %v frames", w.F.Name, w.F.Shape)
		}
		if err := p.checkFollow(w); err != nil {
			return nil, err
		}
		if w.Out.Mask {
			return nil, fmt.Errorf("output %q: field %q is %s, which are not masks", w.Out.Name, w.F.Name, w.F.Kind)
		}
		crop, err := transform.CutClip(&w.Out)
		if err != nil {
			return nil, err
		}
		in, err := w.Out.Image(int(w.F.Width), int(w.F.Height))
		if err != nil {
			return nil, err
		}
		prog, err := transform.Compile(w.Out, in)
		if err != nil {
			return nil, err
		}
		if prog.Guided() {
			return nil, fmt.Errorf("output %q: RandomIoUCrop is for images with boxes, and not for clips", w.Out.Name)
		}
		t := w.F.Shape[0]
		if crop != nil {
			t = crop.Frames
		}
		if n := prog.RowBytes() * int64(t); n > maxClipBytes {
			return nil, fmt.Errorf("output %q: %d frames of %dx%d have %d bytes, the limit of a clip is %d; make them smaller by Resize or RandomResizedCrop",
				w.Out.Name, t, prog.W, prog.H, n, int64(maxClipBytes))
		}
		m.outs = append(m.outs, framesOutput{
			Column: w.Column(prog.Store.DType, append([]int{t}, prog.Shape()...)), prog: prog, field: w.Field, t: t, crop: crop,
			as: prog.Identity() && prog.In == item.RGB,
		})
		if !slices.Contains(m.fields, w.Field) {
			m.fields = append(m.fields, w.Field)
		}
	}
	return []Maker{m}, nil
}

// Columns implements Maker.
func (m *frames) Columns() []Column {
	cols := make([]Column, len(m.outs))
	for i := range m.outs {
		cols[i] = m.outs[i].Column
	}
	return cols
}

// Cost implements Maker.
func (m *frames) Cost() Cost {
	c := Cost{Together: clipsTogether}
	for i := range m.outs {
		o := &m.outs[i]
		f := &m.p.Info.Fields[o.field]
		c.Images = append(c.Images, budget.Image{
			MaxBytes: f.MaxBytes, MaxWidth: int64(max(f.Width, f.MaxWidth)), MaxHeight: int64(max(f.Height, f.MaxHeight)),
			PixelBytes: int64(max(o.prog.In.Size(), item.RGB.Size())), Kept: true, Frames: true,
		})
	}
	return c
}

// NewWorker implements Maker.
func (m *frames) NewWorker(t *Tools) (Worker, error) {
	dec, err := t.Decoder()
	if err != nil {
		return nil, err
	}
	return &framesWorker{m: m, t: t, dec: dec, clips: make([]video.Clip, t.GroupRows), starts: make([][]int, t.GroupRows)}, nil
}

// framesWorker builds rows of clips in one goroutine.
type framesWorker struct {
	m     *frames
	t     *Tools
	dec   *decode.Decoder
	codec codecs
	clips []video.Clip // by record of the group
	parts []clipPart
	plan  []clipFrame
	// starts are the first frames that outputs take from each record. wanted marks the frames of a clip that any output
	// takes.
	starts [][]int
	wanted []bool
	run    transform.Run
	req    [1]decode.Request
	jpeg   []byte
	g      *RowGroup
	field  int
}

// clipPart is the part of a clip from frame at on: packets First to Last, in the order of decoding.
type clipPart struct {
	video       uint64
	first, last int32
	k, at       int
}

// clipFrame is frame j of a clip, which is in packet n.
type clipFrame struct {
	video uint64
	n     int32
	k, j  int
}

// Close implements Worker.
func (w *framesWorker) Close() { w.codec.close() }

// Make implements Worker.
func (w *framesWorker) Make(g *RowGroup) {
	start, before := time.Now(), g.TransformTime
	w.g = g
	for _, w.field = range w.m.fields {
		w.learn()
		w.decode()
		for k := range g.Records {
			w.clips[k].Forget() // so that no record's bytes stay alive
		}
	}
	g.DecodeTime += time.Since(start) - (g.TransformTime - before)
}

// learn reads the clips of the group and lists the frames to decode.
func (w *framesWorker) learn() {
	w.parts, w.plan = w.parts[:0], w.plan[:0]
	for k := range w.g.Records {
		if w.g.Errs[k] != nil {
			continue
		}
		c := &w.clips[k]
		if err := c.Parse(w.g.Records[k].Values[w.field].Bytes); err != nil {
			w.fail(k, err)
			continue
		}
		if t := w.m.p.Info.Fields[w.field].Shape[0]; len(c.Frames) != t {
			w.fail(k, fmt.Errorf("a clip of %d frames, expected %d", len(c.Frames), t))
			continue
		}
		for i := 0; i < len(c.Packets); {
			n := i + 1
			for n < len(c.Packets) && c.Packets[n].N == c.Packets[n-1].N+1 {
				n++
			}
			w.parts = append(w.parts, clipPart{c.Video, c.Packets[i].N, c.Packets[n-1].N, k, i})
			i = n
		}
		w.choose(k)
		for j, at := range c.Frames {
			if w.wanted[j] {
				w.plan = append(w.plan, clipFrame{c.Video, c.Packets[at].N, k, j})
			}
		}
	}
	slices.SortFunc(w.parts, func(a, b clipPart) int { return order(a.video, b.video, a.first, b.first) })
	slices.SortFunc(w.plan, func(a, b clipFrame) int { return order(a.video, b.video, a.n, b.n) })
}

// choose marks the needed frames in the clip of record k.
func (w *framesWorker) choose(k int) {
	n := len(w.clips[k].Frames)
	w.wanted = append(w.wanted[:0], make([]bool, n)...)
	w.starts[k] = w.starts[k][:0]
	for i := range w.m.outs {
		o := &w.m.outs[i]
		start := 0
		if o.field == w.field && o.crop != nil {
			start = o.crop.Start(n, w.m.p.Seed, w.g.Epoch, w.g.Records[k].ID)
		}
		w.starts[k] = append(w.starts[k], start)
		for pos := 0; o.field == w.field && pos < o.t; pos++ {
			w.wanted[o.frame(start, pos, n)] = true
		}
	}
}

// frame returns the frame in a clip of n frames for row pos of an output, which takes frames from start on.
func (o *framesOutput) frame(start, pos, n int) int {
	if o.crop == nil {
		return pos
	}
	return min(start+pos*o.crop.Stride, n-1)
}

func order(av, bv uint64, an, bn int32) int {
	switch {
	case av < bv:
		return -1
	case av > bv:
		return 1
	}
	return int(an) - int(bn)
}

func (w *framesWorker) fail(k int, err error) {
	if w.g.Errs[k] == nil {
		w.g.Errs[k] = fmt.Errorf("field %q: %w", w.m.p.Info.Fields[w.field].Name, err)
	}
}

// decode processes the parts. Parts that overlap or follow each other are decoded as one.
func (w *framesWorker) decode() {
	plan := w.plan
	for from := 0; from < len(w.parts); {
		to, last := from+1, w.parts[from].last
		for to < len(w.parts) && w.parts[to].video == w.parts[from].video && w.parts[to].first <= last+1 {
			last = max(last, w.parts[to].last)
			to++
		}
		n := 0
		for n < len(plan) && plan[n].video == w.parts[from].video && plan[n].n <= last {
			n++
		}
		w.span(w.parts[from:to], last, plan[:n])
		plan, from = plan[n:], to
	}
}

// span decodes the packets of some parts and builds the frames of the plan, which is in the order of their packets.
func (w *framesWorker) span(parts []clipPart, last int32, plan []clipFrame) {
	s := &w.clips[parts[0].k].Stream
	if s.Stills() {
		for _, f := range plan {
			w.still(f)
		}
		return
	}
	d, err := w.codec.open(s)
	if err != nil {
		w.failAll(plan, err)
		return
	}
	defer d.Flush()
	left := len(plan)
	take := func() error {
		for {
			f, ok, err := d.Receive()
			if err != nil || !ok {
				return err
			}
			i, _ := slices.BinarySearchFunc(plan, f.PTS, func(c clipFrame, n int64) int { return int(int64(c.n) - n) })
			for ; i < len(plan) && int64(plan[i].n) == f.PTS; i++ {
				left--
				if c := plan[i]; w.g.Errs[c.k] == nil {
					if err := w.frame(c, s, &f); err != nil {
						w.fail(c.k, err)
					}
				}
			}
		}
	}
	part, next := 0, 0 // of plan
	for n := parts[0].first; n <= last && left > 0; n++ {
		for parts[part].last < n {
			part++
		}
		for next < len(plan) && plan[next].n < n {
			next++
		}
		wanted := next < len(plan) && plan[next].n == n
		p := &parts[part]
		err := d.Send(w.clips[p.k].Packets[p.at+int(n-p.first)].Data, int64(n), !wanted)
		if err == nil {
			err = take()
		}
		if err != nil {
			w.failAll(plan, fmt.Errorf("packet %d of the video: %w", n, err))
			return
		}
	}
	if err = d.End(); err == nil {
		err = take()
	}
	switch {
	case err != nil:
		w.failAll(plan, err)
	case left > 0:
		w.failAll(plan, fmt.Errorf("%d frames did not come out of the decoder: the video is damaged", left))
	}
}

func (w *framesWorker) failAll(plan []clipFrame, err error) {
	for _, c := range plan {
		w.fail(c.k, err)
	}
}

// row returns the memory for frame pos of an output.
func (w *framesWorker) row(o *framesOutput, k, pos int) []byte {
	row := w.g.Batch.Row(o.Array, w.g.First+k)
	n := len(row) / o.t
	return row[pos*n : (pos+1)*n]
}

// still builds a frame of a video whose frames are separate images.
func (w *framesWorker) still(c clipFrame) {
	if w.g.Errs[c.k] != nil {
		return
	}
	clip := &w.clips[c.k]
	if clip.Turned() {
		w.fail(c.k, video.ErrTurned)
		return
	}
	v := driver.Value{Bytes: clip.Packets[clip.Frames[c.j]].Data, Orientation: 1}
	switch clip.Codec {
	case video.Raw:
		v.Codec, v.Width, v.Height, v.Channels = driver.CodecRaw, int32(clip.Width), int32(clip.Height), 3
	case video.DCT:
		d, err := cdec.DCTInfo(v.Bytes)
		if err != nil {
			w.fail(c.k, err)
			return
		}
		v.Codec, v.Width, v.Height, v.Channels = driver.CodecDCT, int32(d.Width), int32(d.Height), int32(d.Components)
	default:
		v.Bytes, v.Codec = video.JPEG(&w.jpeg, v.Bytes), driver.CodecJPEG
	}
	info, err := w.dec.Info(v)
	if err != nil {
		w.fail(c.k, err)
		return
	}
	v.Width, v.Height = info.Width, info.Height
	err = w.finish(c, int(info.Width), int(info.Height), nil, func(item.Geometry) (driver.Value, item.Rect) {
		return v, item.Rect{W: info.Width, H: info.Height}
	})
	if err != nil {
		w.fail(c.k, err)
	}
}

// finish writes frame c to all outputs. The function part returns pixels of at least the box of a geometry, and their
// position in the frame. The function direct, if not nil, fills a row with the whole frame unchanged.
func (w *framesWorker) finish(c clipFrame, width, height int, direct func(row []byte), part func(g item.Geometry) (driver.Value, item.Rect)) error {
	for i := range w.m.outs {
		o := &w.m.outs[i]
		if o.field != w.field {
			continue
		}
		n := len(w.clips[c.k].Frames)
		for pos := range o.t {
			if o.frame(w.starts[c.k][i], pos, n) == c.j {
				if err := w.make(o, c, pos, width, height, direct, part); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// make builds frame pos of the row of an output.
func (w *framesWorker) make(o *framesOutput, c clipFrame, pos, width, height int, direct func(row []byte), part func(g item.Geometry) (driver.Value, item.Rect)) error {
	// The same random numbers for each frame, from the record.
	if err := w.run.Begin(o.prog, w.m.p.Seed, w.g.Epoch, w.g.Records[c.k].ID, width, height); err != nil {
		return err
	}
	row := w.row(o, c.k, pos)
	if o.as && direct != nil {
		direct(row)
		return nil
	}
	if w.run.Empty() {
		if err := w.run.Finish(w.t.scratch.Scratch, nil, row); err != nil {
			return err
		}
		return nil
	}
	w.t.scratch.used = 0
	g := w.run.Geometry()
	need := align(int(g.Box.W)*int(g.Box.H)*item.RGB.Size()) + align(w.run.PixelBytes())
	if !w.t.scratch.fits(need) {
		if err := w.t.scratch.grow(need); err != nil {
			return err
		}
	}
	v, box := part(g)
	g.Box.X -= box.X
	g.Box.Y -= box.Y
	w.req[0] = decode.Request{Value: v, Pixels: o.prog.In, Raw: item.U8, Geom: g, Store: o.prog.Store, Dst: row}
	if !w.run.Direct() {
		w.req[0].Store = o.prog.In.Plain()
		w.req[0].Dst = w.t.scratch.take(w.run.PixelBytes())
	}
	w.dec.Run(w.req[:])
	dst, err := w.req[0].Dst, w.req[0].Err
	w.req[0] = decode.Request{}
	if err != nil {
		return err
	}
	start := time.Now()
	if w.run.Direct() {
		err = w.run.FinishStored(dst)
	} else {
		err = w.run.Finish(w.t.scratch.Scratch, dst, row)
	}
	w.g.TransformTime += time.Since(start)
	if err != nil {
		return err
	}
	return nil
}
