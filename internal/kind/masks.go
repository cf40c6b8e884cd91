package kind

import (
	"fmt"

	"github.com/stokerdata/stoker/internal/decode"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/mask"
	"github.com/stokerdata/stoker/internal/orient"
	"github.com/stokerdata/stoker/internal/transform"
	"github.com/stokerdata/stoker/source/driver"
)

// Masks is any number of masks of an image, which follow its operations: rows of shape [n, H, W]. They usually belong
// to boxes, and are planned with these.
var Masks = Kind{Name: driver.KindMasks, Plan: planBoxes}

// stacked describes masks that follow their image.
type stacked struct {
	prog  *transform.Program
	guide *guide
	// most is the largest number of masks of a record.
	most   int
	stored bool // driver.Field.Stored
}

// planStacked plans the masks of w, which follow an image.
func (p *Planner) planStacked(w *Want, image string) (*stacked, error) {
	if image == "" {
		return nil, fmt.Errorf("output %q: field %q is the masks of an image, and the batch has none that they could follow; also name the image in fields", w.Out.Name, w.F.Name)
	}
	if len(w.Out.Ops) > 0 {
		return nil, fmt.Errorf("output %q: the masks of field %q follow the operations of %q by themselves; leave the list empty", w.Out.Name, w.F.Name, image)
	}
	if w.F.DType != driver.Uint8 || len(w.F.Most) != 1 || w.F.Most[0] < 0 {
		return nil, fmt.Errorf("field %q: masks of %q, at most %v: they have uint8, and it is known how many there are", w.F.Name, w.F.DType, w.F.Most)
	}
	for i := range p.Wants {
		o := &p.Wants[i]
		if o.Out.Name != image {
			continue
		}
		width, height := p.imageSize(o.F)
		out := transform.Output{Name: w.Out.Name, Ops: o.Out.Ops, Mask: true, Follow: image}
		prog, err := p.compile(out, transform.Input{DType: item.U8, W: width, H: height, Mask: true, AsIs: true}, o.Field)
		if err != nil {
			return nil, err
		}
		around, err := p.guide(prog, image)
		return &stacked{prog, around, w.F.Most[0], w.F.Stored}, err
	}
	return nil, fmt.Errorf("output %q: there is no output %q", w.Out.Name, image)
}

// rowBytes is the size of a mask in the batch.
func (s *stacked) rowBytes() int { return int(s.prog.RowBytes()) }

// stack appends the kept masks of a record, after the operations of the image that info describes.
func (w *boxWorker) stack(s *stacked, g *RowGroup, k int, value []byte, kept []int32, info decode.Info, out []byte) ([]byte, error) {
	var err error
	var mw, mh int
	if w.masks, mw, mh, err = mask.Stack(value, w.masks); err != nil {
		return out, err
	}
	from := driver.Value{Codec: driver.CodecRuns, Width: int32(mw), Height: int32(mh), Channels: 1, Orientation: 1}
	if s.stored {
		from.Orientation = info.Orientation
	}
	if tw, th := orient.Size(from.Orientation, from.Width, from.Height); len(w.masks) > 0 && (tw != info.Width || th != info.Height) {
		return out, fmt.Errorf("its masks are %d x %d, and the image is %d x %d", tw, th, info.Width, info.Height)
	}
	var around [][4]float32
	if s.guide != nil {
		if around, err = s.guide.boxes(&g.Records[k], info); err != nil {
			return out, err
		}
	}
	scratch := &w.t.scratch
	for _, i := range kept {
		at := len(out)
		for range s.rowBytes() {
			out = append(out, 0)
		}
		from.Bytes = w.masks[i]
		if err := w.one(s, g, k, from, info, around, out[at:]); err != nil {
			return out, err
		}
		scratch.used = 0
	}
	return out, nil
}

// one builds the row of one mask.
func (w *boxWorker) one(s *stacked, g *RowGroup, k int, from driver.Value, info decode.Info, around [][4]float32, row []byte) error {
	run := &w.run
	if err := run.BeginAround(s.prog, w.m.p.Seed, g.Epoch, g.Draw(k), int(info.Width), int(info.Height), around); err != nil {
		return err
	}
	scratch := &w.t.scratch
	if run.Empty() {
		return run.Finish(scratch.Scratch, nil, row)
	}
	w.reqs[0] = decode.Request{
		Value: from, Pixels: s.prog.In, Mask: true, Geom: run.Geometry(), Store: s.prog.Store, Dst: row,
	}
	req := &w.reqs[0]
	if !run.Direct() {
		need := align(run.PixelBytes())
		if scratch.used = 0; !scratch.fits(need) {
			if err := scratch.grow(need); err != nil {
				return err
			}
		}
		req.Store, req.Dst = s.prog.In.Plain(), scratch.take(run.PixelBytes())
	}
	w.dec.Run(w.reqs[:])
	switch {
	case req.Err != nil:
		return req.Err
	case run.Direct():
		return run.FinishStored(row)
	}
	return run.Finish(scratch.Scratch, req.Dst, row)
}
