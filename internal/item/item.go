// Package item holds the small types that the stages of the pipeline pass on. They define the part of an image to cut
// out, the way to store it, and its position in a batch. It imports no more of the project than the list of element
// types.
package item

import (
	"fmt"

	"github.com/stokerdata/stoker/internal/dtype"
)

// DType is the type of an element in a batch.
type DType = dtype.Type

// The element types of batch arrays.
const (
	U8   = dtype.U8
	F16  = dtype.F16
	BF16 = dtype.BF16
	F32  = dtype.F32
	I64  = dtype.I64
	I8   = dtype.I8
	U16  = dtype.U16
	I16  = dtype.I16
	U32  = dtype.U32
	I32  = dtype.I32
	U64  = dtype.U64
	F64  = dtype.F64
	Bool = dtype.Bool
)

// Filter is the interpolation of a resize.
type Filter uint8

// The filters. Bilinear and Bicubic widen with the scale when they shrink
// (antialias), as Pillow defines them; Bicubic has a = -0.5.
const (
	Bilinear Filter = 1
	Bicubic  Filter = 2
	Nearest  Filter = 3
)

// Rect is a box in pixels: x in [X, X+W), y in [Y, Y+H).
type Rect struct{ X, Y, W, H int32 }

// Geometry defines the pixels of an image that become the output, as one step that decoders can run on a part of the
// image. The steps are: cut Box out of the image, resize it to ResizeW x ResizeH, keep Window of the result, then flip.
// The filter reads only pixels inside Box, as if the box were an image of its own.
type Geometry struct {
	Box              Rect
	ResizeW, ResizeH int32
	Window           Rect
	FlipH, FlipV     bool
	Filter           Filter
}

// OutW and OutH are the size of the output in pixels.
func (g *Geometry) OutW() int32 { return g.Window.W }

// OutH is the height of the output in pixels.
func (g *Geometry) OutH() int32 { return g.Window.H }

// Layout is the order of the axes of an image in a batch.
type Layout uint8

// The layouts. NHWC is the default.
const (
	NHWC Layout = 1
	NCHW Layout = 2
)

// MaxChannels is the largest number of channels of an image.
const MaxChannels = 4

// PixelType is the type of pixels between the steps. It is the type of their elements (U8, U16 or, for arrays, F32) and
// the number of their interleaved channels, 1 to MaxChannels. The zero value stands for RGB of u8.
type PixelType struct {
	DType    DType
	Channels int32
}

// RGB is the default type of decoded images.
var RGB = PixelType{DType: U8, Channels: 3}

// OrRGB returns t, or RGB for the zero value.
func (t PixelType) OrRGB() PixelType {
	if t == (PixelType{}) {
		return RGB
	}
	return t
}

// Size returns the size of a pixel in bytes.
func (t PixelType) Size() int { return t.DType.Size() * int(t.Channels) }

// String describes the type for messages: "uint16 with 2 channels".
func (t PixelType) String() string {
	if t.Channels == 1 {
		return t.DType.String() + " with 1 channel"
	}
	return fmt.Sprintf("%s with %d channels", t.DType, t.Channels)
}

// Plain is the Store that writes pixels of this type unmodified, interleaved.
func (t PixelType) Plain() Store {
	return Store{DType: t.DType, Layout: NHWC, Channels: t.Channels, Scale: [MaxChannels]float32{1, 1, 1, 1}}
}

// Store defines how the finished pixels of an output are written into the batch: value = pixel*Scale[c] + Bias[c],
// converted to DType. Integers are rounded to nearest even and clamped to their range. If DType is the type of the
// pixels, Scale 1 and Bias 0, they are copied.
type Store struct {
	DType  DType
	Layout Layout
	// Channels are those of the pixels, or 1 for the luma of RGB.
	Channels int32
	Scale    [MaxChannels]float32
	Bias     [MaxChannels]float32
}

// Array is one named array of a batch: rows x Shape of DType, contiguous, at
// Offset in the slot. Offsets are multiples of 64.
type Array struct {
	Name string
	// Kind is the kind of the field that the array is made from, such as "image". It is "" for arrays that the engine
	// adds: record numbers, soft labels.
	Kind string
	// Format is the meaning of the numbers of a box, for example "XYXY". It is "" for arrays that are not boxes.
	Format string
	// Boxes is the array of the boxes that the elements of each row belong to, one each, "" for none.
	Boxes string
	DType DType
	// Shape is the shape of one row. In a ragged array a row has one more axis, the first one, whose length differs
	// from row to row.
	Shape  []int
	Offset int64
	// RowBytes is the size of one row; rows follow each other without gap. It is
	// 0 in ragged arrays.
	RowBytes int64
	// A Ragged array has the concatenated elements of the first axis of all rows at Offset, Capacity bytes at most. At
	// Offsets are int64 bounds, one more than rows: row i is between bounds i and i+1. They count elements of the first
	// axis, and the first bound is 0.
	Ragged   bool
	Offsets  int64
	Capacity int64
	// A Padded array has one additional axis before Shape. Its length differs from batch to batch and is at LengthAt,
	// an int64. Padded arrays are not Ragged, though rows had any length before they were padded. Capacity bounds them.
	// Of is the array that this one describes: the original lengths of its rows, or a mask of their own elements.
	Padded   bool
	LengthAt int64
	Of       string
}

// ElementBytes is the size of an element of the first axis of a ragged array, and
// of a whole row of another one.
func (a *Array) ElementBytes() int64 {
	n := int64(a.DType.Size())
	for _, side := range a.Shape {
		n *= int64(side)
	}
	return n
}

// Position is a position in the stream of batches.
type Position struct {
	Epoch int64
	// Row counts the records before it in the epoch's global order.
	Row int64
}
