package transform

import (
	"fmt"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/item"
)

// Run is one record on its way through a program. Begin gives the geometry to decode. If Direct, the caller decodes it
// with Program.Store into the row, and only FinishStored remains. Otherwise the caller decodes it with
// Program.In.Plain() into pixels and calls Finish, which makes the row.
type Run struct {
	p    *Program
	base uint64
	next int // operation to look at next
	v    view
	step Step // what is left of a step that did not fit the view
	left bool
	rnd  Rand
	px   Pixels
	// The boxes of a record for Guided operations, in an image of that size.
	around           [][4]float32
	aroundW, aroundH int
	places           Places
}

// Begin starts record id of an image of w x h pixels.
func (r *Run) Begin(p *Program, seed uint64, epoch, id int64, w, h int) error {
	r.p, r.base, r.next, r.left = p, recordKey(seed, epoch, id, p.key), 0, false
	if w < 1 || h < 1 || w > maxSide || h > maxSide {
		return fmt.Errorf("image of %dx%d pixels", w, h)
	}
	if p.like.W > 0 && (w != p.like.W || h != p.like.H) {
		return &SizeError{p.like, w, h}
	}
	r.v = newView(w, h)
	if err := r.advance(); err != nil {
		return err
	}
	if r.Direct() && (r.v.w != p.W || r.v.h != p.H) {
		return r.wrongSize(r.v.w, r.v.h)
	}
	return nil
}

func (r *Run) wrongSize(w, h int) error {
	return fmt.Errorf("output %q: the image became %dx%d, the batch has room for %dx%d", r.p.Name, w, h, r.p.W, r.p.H)
}

// advance adds steps to the view until the end of the list, a step that does
// not fit or an operation on pixels.
func (r *Run) advance() error {
	if r.left && !r.v.apply(&r.step) {
		return nil
	}
	r.left = false
	for ; r.next < len(r.p.ops); r.next++ {
		switch op := r.p.ops[r.next].(type) {
		case nil:
		case GeometryOp:
			r.rnd = opRand(r.base, r.next)
			if g, ok := op.(Guided); ok {
				r.step = r.drawAround(g)
			} else {
				r.step = op.Draw(&r.rnd, r.v.w, r.v.h)
			}
			if r.step.Err != nil {
				return r.step.Err
			}
			if !r.v.apply(&r.step) {
				r.left = true
				r.next++
				return nil
			}
		case PixelOp:
			if r.p.Mask {
				if _, moves := op.(MaskOp); !moves {
					continue
				}
			}
			return nil
		}
	}
	return nil
}

// done reports whether nothing follows the view.
func (r *Run) done() bool { return !r.left && r.next == len(r.p.ops) }

// Direct reports whether the geometry gives the row itself.
func (r *Run) Direct() bool { return r.done() && !r.v.padded }

// Empty reports whether no part of the image is needed: the row is padding.
func (r *Run) Empty() bool { return r.v.empty() }

// Geometry returns the part of the image to decode.
func (r *Run) Geometry() item.Geometry { return r.v.geometry() }

// SourceSize is the size of the image that the geometry refers to.
func (r *Run) SourceSize() (w, h int) { return r.v.srcW, r.v.srcH }

// PixelBytes is the room that the decoded geometry needs when not Direct.
func (r *Run) PixelBytes() int { return r.v.contentW() * r.v.contentH() * r.p.In.Size() }

// placeable reports whether the row is the decoded pixels on a background.
func (r *Run) placeable() bool {
	return r.v.padded && r.done() && r.p.Plain() && len(r.p.stored) == 0 && r.v.w == r.p.W && r.v.h == r.p.H
}

// CopyRaw makes the row from the bytes of a raw image if that takes only copying lines onto a background. Otherwise it
// returns false.
func (r *Run) CopyRaw(row, src []byte) bool {
	if !r.placeable() || r.v.resized || r.v.flipH || r.v.flipV || len(src) != r.v.srcW*r.v.srcH*r.p.In.Size() {
		return false
	}
	px := r.p.In.Size()
	stride := r.v.srcW * px
	r.place(row, src[int(r.v.box.Y)*stride+int(r.v.box.X)*px:], stride)
	return true
}

// place writes lines of content onto the background of the row.
func (r *Run) place(row, content []byte, stride int) {
	fillPixels(row, r.v.fill, r.p.In)
	if r.v.empty() {
		return
	}
	px := r.p.In.Size()
	n, out := r.v.contentW()*px, r.v.w*px
	to := r.v.padY*out + r.v.padX*px
	for range r.v.contentH() {
		copy(row[to:to+n], content)
		to += out
		content = content[min(stride, len(content)):]
	}
}

// Finish does the rest of the operations on the decoded pixels, in scratch,
// and writes the row. pixels may be overwritten.
func (r *Run) Finish(s *Scratch, pixels, row []byte) error {
	if r.placeable() {
		r.place(row, pixels, r.v.contentW()*r.p.In.Size())
		return nil
	}
	r.px = Pixels{Pix: pixels, W: r.v.contentW(), H: r.v.contentH(), Type: r.p.In, scratch: s}
	if r.v.padded {
		v := newView(r.px.W, r.px.H)
		v.padded, v.padX, v.padY, v.fill = true, r.v.padX, r.v.padY, r.v.fill
		v.w, v.h = r.v.w, r.v.h
		if err := s.materialise(&r.px, &v); err != nil {
			return err
		}
	}
	r.v = newView(r.px.W, r.px.H)
	for {
		if err := r.advance(); err != nil {
			return err
		}
		if r.Direct() {
			break
		}
		if err := s.materialise(&r.px, &r.v); err != nil {
			return err
		}
		if !r.left && r.next < len(r.p.ops) {
			r.rnd = opRand(r.base, r.next)
			if err := r.pixelOp(r.p.ops[r.next]); err != nil {
				return err
			}
			r.next++
		}
		r.v = newView(r.px.W, r.px.H)
	}
	if r.v.w != r.p.W || r.v.h != r.p.H {
		return r.wrongSize(r.v.w, r.v.h)
	}
	s.geom = r.v.geometry()
	if err := s.kernel.Resample(row, r.px.Pix, r.px.W, r.px.H, r.px.Type, &s.geom, &r.p.Store); err != nil {
		return err
	}
	return r.FinishStored(row)
}

func (r *Run) pixelOp(op Op) error {
	if r.p.Mask {
		return op.(MaskOp).ApplyMask(&r.rnd, &r.px)
	}
	if p, ok := op.(PixelOp); ok {
		return p.Apply(&r.rnd, &r.px)
	}
	return nil
}

// FinishStored does the operations on a finished row. Finish calls it itself.
func (r *Run) FinishStored(row []byte) error {
	if len(r.p.stored) == 0 {
		return nil
	}
	st := Stored{Bytes: row, DType: r.p.Store.DType, Layout: r.p.Store.Layout, W: r.p.W, H: r.p.H, C: r.p.C}
	for _, e := range r.p.stored {
		r.rnd = opRand(r.base, e.pos)
		if err := e.op.ApplyStored(&r.rnd, &st); err != nil {
			return err
		}
	}
	return nil
}

// Scratch is the memory of one worker for images between two steps.
type Scratch struct {
	kernel Kernel
	buf    [2]*arena.Block
	cur    int // the buffer that Next returns
	temp   *arena.Block
	// Arguments of the kernel, here so that a call allocates nothing.
	geom  item.Geometry
	store item.Store
}

// NewScratch returns scratch for one worker, taken from budget.
func NewScratch(kernel Kernel, budget *arena.Budget) *Scratch {
	s := &Scratch{kernel: kernel, temp: arena.NewBlock(budget, arena.PurposeScratch)}
	for i := range s.buf {
		s.buf[i] = arena.NewBlock(budget, arena.PurposeScratch)
	}
	return s
}

// Bytes returns the memory held.
func (s *Scratch) Bytes() int { return s.buf[0].Cap() + s.buf[1].Cap() + s.temp.Cap() }

// Free gives the memory back.
func (s *Scratch) Free() {
	s.buf[0].Free()
	s.buf[1].Free()
	s.temp.Free()
}

func (s *Scratch) next(n int) ([]byte, error) {
	b, err := s.buf[s.cur].Bytes(n)
	if err != nil {
		return nil, fmt.Errorf("scratch of %d bytes for an image: %w", n, err)
	}
	return b, nil
}

func (s *Scratch) swap(n int) []byte {
	b, _ := s.buf[s.cur].Bytes(n) // it is there: next made it
	s.cur ^= 1
	return b
}

func (s *Scratch) tempBytes(n int) ([]byte, error) {
	b, err := s.temp.Bytes(n)
	if err != nil {
		return nil, fmt.Errorf("scratch of %d bytes: %w", n, err)
	}
	return b, nil
}

// materialise makes the pixels of the view v of px and puts them into px.
func (s *Scratch) materialise(px *Pixels, v *view) error {
	if v.identity() {
		return nil
	}
	dst, err := s.next(px.bytes(v.w, v.h))
	if err != nil {
		return err
	}
	s.store = px.Type.Plain()
	if !v.padded {
		s.geom = v.geometry()
		if err := s.kernel.Resample(dst, px.Pix, px.W, px.H, px.Type, &s.geom, &s.store); err != nil {
			return err
		}
		px.Swap(v.w, v.h)
		return nil
	}
	cw, ch := v.contentW(), v.contentH()
	content := px.Pix
	inner := *v
	inner.padded = false
	if !inner.identity() && !v.empty() {
		if content, err = s.tempBytes(px.bytes(cw, ch)); err != nil {
			return err
		}
		s.geom = v.geometry()
		if err := s.kernel.Resample(content, px.Pix, px.W, px.H, px.Type, &s.geom, &s.store); err != nil {
			return err
		}
	}
	fillPixels(dst, v.fill, px.Type)
	if !v.empty() {
		size := px.Type.Size()
		for y := range ch {
			to := ((y+v.padY)*v.w + v.padX) * size
			copy(dst[to:to+cw*size], content[y*cw*size:])
		}
	}
	px.Swap(v.w, v.h)
	return nil
}

func fillPixels(dst []byte, fill Fill, t item.PixelType) {
	if fill == (Fill{}) {
		clear(dst)
		return
	}
	pixel := encodePixel(fill, t)
	n := copy(dst, pixel[:t.Size()])
	for n < len(dst) {
		n += copy(dst[n:], dst[:n])
	}
}
