// Package item holds the small types that the stages of the pipeline hand to
// each other: what to cut out of an image, how to store it, and where in a
// batch it goes. It imports nothing of the project.
package item

import "fmt"

// DType is the type of an element in a batch.
type DType uint8

// The element types of batch arrays. The numbers are part of docs/LAYOUT.md.
const (
	U8   DType = 1
	F16  DType = 2
	BF16 DType = 3
	F32  DType = 4
	I64  DType = 5
	I8   DType = 6
	U16  DType = 7
	I16  DType = 8
	U32  DType = 9
	I32  DType = 10
	U64  DType = 11
	F64  DType = 12
	Bool DType = 13
)

// dtypes are the sizes and the NumPy-like names of the element types.
var dtypes = [...]struct {
	size int
	name string
}{
	U8: {1, "uint8"}, F16: {2, "float16"}, BF16: {2, "bfloat16"}, F32: {4, "float32"}, I64: {8, "int64"},
	I8: {1, "int8"}, U16: {2, "uint16"}, I16: {2, "int16"}, U32: {4, "uint32"}, I32: {4, "int32"},
	U64: {8, "uint64"}, F64: {8, "float64"}, Bool: {1, "bool"},
}

// DTypes lists the element types.
func DTypes() []DType {
	var all []DType
	for t := range dtypes {
		if t > 0 {
			all = append(all, DType(t))
		}
	}
	return all
}

// Size returns the size of an element in bytes.
func (t DType) Size() int {
	if int(t) < len(dtypes) {
		return dtypes[t].size
	}
	return 0
}

// String returns the NumPy-like name.
func (t DType) String() string {
	if int(t) < len(dtypes) && t != 0 {
		return dtypes[t].name
	}
	return fmt.Sprintf("dtype(%d)", uint8(t))
}

// ParseDType is the reverse of String.
func ParseDType(name string) (DType, bool) {
	for t := range dtypes {
		if t > 0 && dtypes[t].name == name {
			return DType(t), true
		}
	}
	return 0, false
}

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

// Geometry says which pixels of an image become the output, as one step that
// decoders can run without touching the rest of the image: cut Box out of the
// image, resize it to ResizeW x ResizeH, keep Window of the result, then flip.
// The filter reads only pixels inside Box, as if the box were an image of its
// own.
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

// PixelType says what pixels are while they are worked on: the type of their
// elements (U8, U16 or, for arrays, F32) and the number of their interleaved
// channels, 1 to MaxChannels. The zero value stands for RGB of u8.
type PixelType struct {
	DType    DType
	Channels int32
}

// RGB is what images are decoded to unless something else is asked for.
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

// Plain is the Store that writes pixels of this type as they are, interleaved.
func (t PixelType) Plain() Store {
	return Store{DType: t.DType, Layout: NHWC, Channels: t.Channels, Scale: [MaxChannels]float32{1, 1, 1, 1}}
}

// Store says how the finished pixels of an output are written into the batch:
// value = pixel*Scale[c] + Bias[c], converted to DType (integers: rounded to
// nearest even and cut off at their range). Where DType is that of the pixels,
// Scale 1 and Bias 0, they are copied.
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
	// Kind is the kind of the field that the array is made from, such as "image",
	// "" for what the engine adds: record numbers, soft labels.
	Kind  string
	DType DType
	// Shape is that of one row. In a ragged array a row has one axis more, the
	// first one, whose length differs from row to row.
	Shape  []int
	Offset int64
	// RowBytes is the size of one row; rows follow each other without gap. It is
	// 0 in ragged arrays.
	RowBytes int64
	// Ragged arrays have the elements of the first axis of all rows one behind the
	// other at Offset, Capacity bytes at most, and at Offsets as many int64 as rows
	// and one more, between which those of a row lie, counted in elements of the
	// first axis, the first one 0.
	Ragged   bool
	Offsets  int64
	Capacity int64
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

// Position says where in the stream of batches something stands.
type Position struct {
	Epoch int64
	// Row counts records of the epoch's global order that lie before.
	Row int64
}
