// Package transform compiles the declared list of operations of an output into steps of the decoder and the kernels for
// each record. The names, parameters and distributions are those of torchvision.transforms.v2.
//
// A list compiles into a Program. For each record the program draws the parameters of its operations. It fuses the
// geometric ones (crops, resizes, flips) into a single item.Geometry. So the decoder touches only the needed pixels,
// and its last kernel writes the row of the batch. For an operation on pixels (a PixelOp, such as ColorJitter), the
// pixels so far are made in scratch memory. The operation changes them there, and the operations after it are fused
// again. A list may mix both kinds freely. ToDtype and Normalize fold into the item.Store of the last kernel.
//
// Boxes and key points follow an image without its pixels: see Places.
//
// To add an operation: write a Spec for it, list it in specs() and implement
// one of GeometryOp, PixelOp, StoredOp or BoxOp.
package transform

import (
	"github.com/stokerdata/stoker/internal/item"
)

// Op is an operation on one image: a GeometryOp, a PixelOp, a StoredOp, a BoxOp
// or one of the store operations of this package.
type Op interface{}

// GeometryOp is an operation that moves pixels and can be fused.
type GeometryOp interface {
	// Draw draws the parameters for an image of w x h pixels.
	Draw(r *Rand, w, h int) Step
	// OutSize returns the size that Draw's step gives for an input of w x h. 0 means that a size is not known or
	// differs per record.
	OutSize(w, h int) (int, int)
}

// PixelOp is an operation on pixels. All workers share one value, so Apply changes nothing in it. Random numbers come
// from r alone. They are drawn in the same order for any pixels, because a mask that follows an image draws the same
// ones.
type PixelOp interface {
	Apply(r *Rand, img *Pixels) error
}

// Sizer is implemented by a PixelOp whose output has another size than its input. Zero means not known. Without Sizer
// the size does not change.
type Sizer interface {
	OutSize(w, h int) (int, int)
}

// Retyper is implemented by a PixelOp whose output has pixels of another type than its input: Grayscale, ToDtype
// between integers. It sets the type of its Pixels.
type Retyper interface {
	OutPixels(t item.PixelType) item.PixelType
}

// MaskOp is implemented by a PixelOp that also moves masks (RandomAffine, RandomPerspective). ApplyMask moves a mask
// like Apply moves its image, with nearest interpolation and the same random numbers. A PixelOp without it does not
// change masks.
type MaskOp interface {
	ApplyMask(r *Rand, img *Pixels) error
}

// StoredOp is an operation on the finished row of an output, in its dtype and layout: an operation after Normalize in a
// list, such as RandomErasing.
type StoredOp interface {
	ApplyStored(r *Rand, row *Stored) error
}

// Stored is the row of an output as the trainer will see it.
type Stored struct {
	// Bytes has H*W*C elements of DType, little-endian, in Layout.
	Bytes   []byte
	DType   item.DType
	Layout  item.Layout
	W, H, C int
}

// Fill is a colour in units of pixel values: 0 to 255 for u8.
type Fill = [item.MaxChannels]float32

// Step is the effect of a GeometryOp on one image, in this order: crop, resize, pad, flip.
type Step struct {
	// HasCrop: cut the box out. It may reach outside the image. The part outside is Fill.
	HasCrop    bool
	X, Y, W, H int
	Fill       Fill
	// HasResize: scale to RW x RH.
	HasResize bool
	RW, RH    int
	Filter    item.Filter
	// Scale, if it is more than 0, is the factor for boxes, instead of RW and RH, which are rounded.
	Scale float64
	// HasPad: put the image at (PadX, PadY) of PadW x PadH pixels, on Fill.
	HasPad                 bool
	PadX, PadY, PadW, PadH int
	// FlipH mirrors left and right, FlipV top and bottom.
	FlipH, FlipV bool
	// Err is the reason why the operation cannot run on this image.
	Err error
}

// Pixels is a whole image in scratch memory that belongs to a worker: H rows of
// W pixels of Type, no padding, little-endian. A PixelOp changes Pix in place,
// or writes a new image into Next and calls Swap.
type Pixels struct {
	Pix  []byte
	W, H int
	Type item.PixelType
	// Pillow makes operations compute as Pillow does with an image, not as
	// torchvision does with a tensor.
	Pillow bool

	scratch *Scratch
}

// bytes is the size of an image of w x h pixels.
func (p *Pixels) bytes(w, h int) int { return w * h * p.Type.Size() }

// Next returns room for an image of w x h pixels of the type of p, not zeroed. It stays valid until the next call of Next or Swap and never overlaps
// Pix.
func (p *Pixels) Next(w, h int) ([]byte, error) {
	return p.scratch.next(p.bytes(w, h))
}

// Swap makes the image that was written into Next the current one. The old
// Pix may be overwritten by the next Next.
func (p *Pixels) Swap(w, h int) {
	p.Pix = p.scratch.swap(p.bytes(w, h))
	p.W, p.H = w, h
}

// Temp returns n bytes for tables and intermediate rows, 64-byte aligned, not
// zeroed, valid until the operation returns or calls Temp again.
func (p *Pixels) Temp(n int) ([]byte, error) { return p.scratch.tempBytes(n) }

// Transform does a geometric step on the pixels.
func (p *Pixels) Transform(s *Step) error {
	v := newView(p.W, p.H)
	v.apply(s)
	return p.scratch.materialise(p, &v)
}

// Kernel is the program's interface to the C library. It cuts, resizes and flips an image of w x h interleaved pixels
// of type t per g. It writes the result to dst per st.
type Kernel interface {
	Resample(dst, src []byte, w, h int, t item.PixelType, g *item.Geometry, st *item.Store) error
}
