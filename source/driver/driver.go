// Package driver is what a data source implements. Users of Stoker call
// package source; authors of formats implement Source here and pass
// source/drivertest.
package driver

import (
	"context"
	"fmt"

	"github.com/stokerdata/stoker/internal/dtype"
)

// Kind says what a field means.
type Kind string

// The kinds of fields.
const (
	// KindImage is an encoded or raw image, stored under one of the Codecs.
	KindImage Kind = "image"
	// KindLabel is a class number (int64) with names in Field.Classes.
	KindLabel Kind = "label"
	// KindInt is a plain int64.
	KindInt Kind = "int"
	// KindText is UTF-8 text of any length.
	KindText Kind = "text"
	// KindArray is an array whose element type and shape all records share:
	// Field.DType and Field.Shape.
	KindArray Kind = "array"
	// KindBytes is a string of bytes of any length.
	KindBytes Kind = "bytes"
	// KindMask is an image of class numbers (Field.Classes), uint8 or uint16 as
	// Field.DType says, stored without loss: values are never interpolated.
	KindMask Kind = "mask"
	// KindMultiLabel is any number of class numbers (Field.Classes): int64
	// elements, ragged.
	KindMultiLabel Kind = "multilabel"
	// KindFloat is a plain float64.
	KindFloat Kind = "float"
	// KindJSON is JSON as UTF-8 text of any length.
	KindJSON Kind = "json"
	// KindRagged is an array whose first axis differs from record to record:
	// Field.DType, and Field.Shape without that axis.
	KindRagged Kind = "ragged"
	// KindAudio is encoded sound (WAV, FLAC, ...) as a file holds it.
	KindAudio Kind = "audio"
	// KindFrames is a clip of frames of a video: what has to be decoded for them, as
	// package internal/video puts it together. Field.Shape is how many frames a clip
	// has; Width, Height, MaxWidth and MaxHeight are those of the frames as they are
	// shown.
	KindFrames Kind = "frames"
	// KindTokens is a document as numbers of tokens: one ragged axis of uint16 or
	// uint32, as Field.DType says.
	KindTokens Kind = "tokens"
	// KindBoxes is any number of boxes in the pixels of an image: float32 elements
	// of shape [n, 4], ragged, as Field.Format says. They follow what is done to
	// their image.
	KindBoxes Kind = "boxes"
	// KindKeyPoints is any number of groups of as many points each, in the pixels of
	// an image: float32 elements (x, y) of shape [n, k, 2], ragged; Field.Shape is
	// [k, 2]. They follow what is done to their image.
	KindKeyPoints Kind = "keypoints"
	// KindMasks is any number of masks of one image, each of uint8, 0 and 1, one for each
	// row of Field.Boxes: a stack, as package internal/mask has it. Field.Most has one
	// number, the most that a record has. They follow what is done to their image.
	KindMasks Kind = "masks"
	// KindVolume is a volume of numbers, Field.DType: the last three axes are z, y and x,
	// what comes before them are channels or times. Field.Shape is the shape where all
	// records share it, else nil: Field.Least and Field.Most then bound it. Field.Mask says that
	// the numbers are those of classes: they are moved, and never mixed or changed.
	KindVolume Kind = "volume"
)

// BoxFormat says what the four numbers of a box are.
type BoxFormat string

// The formats of boxes, by torchvision's names.
const (
	// XYXY is the left, upper, right and lower side.
	XYXY BoxFormat = "XYXY"
	// XYWH is the left and upper side, width and height.
	XYWH BoxFormat = "XYWH"
	// CXCYWH is the centre, width and height.
	CXCYWH BoxFormat = "CXCYWH"
)

// BoxFormats lists them.
var BoxFormats = []BoxFormat{XYXY, XYWH, CXCYWH}

// DType is the type of the elements of a KindArray field, under NumPy's name.
type DType string

// The element types. Values are little-endian; those of Bool are bytes 0 and 1.
const (
	Bool    DType = "bool"
	Uint8   DType = "uint8"
	Int8    DType = "int8"
	Uint16  DType = "uint16"
	Int16   DType = "int16"
	Uint32  DType = "uint32"
	Int32   DType = "int32"
	Uint64  DType = "uint64"
	Int64   DType = "int64"
	Float16 DType = "float16"
	Float32 DType = "float32"
	Float64 DType = "float64"
)

// DTypes lists all element types.
var DTypes = []DType{Bool, Uint8, Int8, Uint16, Int16, Uint32, Int32, Uint64, Int64, Float16, Float32, Float64}

// Size is the size of an element in bytes, 0 for an unknown type.
func (t DType) Size() int {
	d, ok := dtype.Parse(string(t))
	if !ok || d == dtype.BF16 { // which nothing stores
		return 0
	}
	return d.Size()
}

// Type is the same type in the list of all that there are, 0 for an unknown one.
func (t DType) Type() dtype.Type {
	d, _ := dtype.Parse(string(t))
	return d
}

// Limits of KindArray fields.
const (
	// MaxArrayBytes is the largest value.
	MaxArrayBytes = 1 << 30
	// MaxAxes is the largest number of axes.
	MaxAxes = 32
)

// ArrayBytes is the size of an array in bytes. It fails when the type is
// unknown, a side is below 1, or one of the limits is passed.
func ArrayBytes(t DType, shape []int) (int64, error) {
	n := int64(t.Size())
	if n == 0 {
		return 0, fmt.Errorf("unknown element type %q", string(t))
	}
	if len(shape) > MaxAxes {
		return 0, fmt.Errorf("%d axes are more than the limit of %d", len(shape), MaxAxes)
	}
	for _, side := range shape {
		if side < 1 || int64(side) > MaxArrayBytes/n {
			return 0, fmt.Errorf("a %s array of shape %v is out of range: it must have 1 to %d bytes", string(t), shape, MaxArrayBytes)
		}
		n *= int64(side)
	}
	return n, nil
}

// Codec says how the bytes of an image are encoded.
type Codec uint8

// The codecs of images. The numbers are part of the pack format
// (docs/FORMAT.md) and never change.
const (
	// CodecUnknown means: look at the bytes.
	CodecUnknown Codec = 0
	CodecJPEG    Codec = 1
	CodecPNG     Codec = 2
	CodecBMP     Codec = 3
	CodecGIF     Codec = 4
	CodecWebP    Codec = 5
	CodecTIFF    Codec = 6
	// CodecPNM is PBM, PGM, PPM or PAM, CodecPFM a portable float map, CodecFlo
	// optical flow as Middlebury has it.
	CodecPNM Codec = 7
	CodecPFM Codec = 8
	CodecFlo Codec = 9
	// CodecJXL is JPEG XL, CodecAVIF AVIF: both are decoded by libraries that may be
	// missing.
	CodecJXL  Codec = 10
	CodecAVIF Codec = 11
	// CodecRaw is Height x Width x Channels bytes, rows without padding.
	CodecRaw Codec = 16
	// CodecDCT is a JPEG without its entropy code (docs/FORMAT.md).
	CodecDCT Codec = 17
	// CodecRuns is a mask as runs of equal class numbers (docs/FORMAT.md).
	CodecRuns Codec = 18
)

// Field describes one field that every record of a source has.
type Field struct {
	Name string
	Kind Kind
	// Classes are the class names of a KindLabel field; the label is the
	// index. It may be nil.
	Classes []string
	// MaxBytes is the largest stored value in bytes, 0 when not known. A
	// KindBytes field can only become part of a batch when it is known, or
	// when it is 0 because all values are empty and the source is a Sizer.
	MaxBytes int64
	// DType and Shape describe a KindArray field. An empty Shape is a single
	// number. A KindImage with a DType, Uint16 or Float32, is a map of numbers and no
	// picture: depth, disparity, flow. Its Shape is that of a pixel.
	DType DType
	Shape []int
	// Mask says that the numbers of a KindVolume field are those of classes. Least and
	// Most are the smallest and largest sides of one without a Shape.
	Mask        bool
	Least, Most []int
	// Format is that of a KindBoxes.
	Format BoxFormat
	// Boxes is the name of the KindBoxes field whose boxes the rows of this one
	// belong to, row i to box i; "" when there is none. A field of KindMultiLabel,
	// KindRagged or KindKeyPoints may have it. Where boxes are dropped, so are its
	// rows.
	Boxes string
	// Columns are those of a table that a KindArray of one axis was made of, nil for all
	// other arrays.
	Columns []Column
	// Width, Height and Channels are set when all images of a KindImage field
	// share them, else 0.
	Width, Height, Channels int32
	// MaxWidth and MaxHeight are the largest sides of a KindImage field (not
	// necessarily of one image), 0 when not known.
	MaxWidth, MaxHeight int32
	// Stats are what the source knows of all values without reading them, nil
	// when it knows nothing.
	Stats *FieldStats
}

// MaxBad is the number of bad files that Info.Bad names at most.
const MaxBad = 10

// Info describes a source. It does not change while the source is open.
type Info struct {
	// URL is what the source was opened from, for messages.
	URL string
	// Format is a short word: "pack", "folder".
	Format string
	// Len is the number of records, 0 <= Len <= 1<<40.
	Len int64
	// Fields are in the order of Record.Values.
	Fields []Field
	// Objects is the number of objects that records lie in, 0 for a source whose
	// values are in memory.
	Objects int64
	// BadFiles is the number of files that could not be listed, opened or understood when
	// the source was opened: their records are bad records, whose Err Locate sets. A source
	// fails to open only if all of its files are bad, or for an error that is not the fault
	// of a file (store.IsObjectError). Bad are the first MaxBad of them.
	BadFiles int
	Bad      []Skipped
	// Sequential says that records cannot be located: the source is a Sequential.
	Sequential bool
	// Fingerprint identifies the content as far as the source can tell
	// cheaply: equal fingerprints promise equal records in equal order. It
	// is at most 32 characters. Saved training states carry it.
	Fingerprint string
}

// BadTexts has a line for each of i.Bad: the path and the reason.
func (i *Info) BadTexts() (all []string) {
	for _, s := range i.Bad {
		all = append(all, s.Path+": "+s.Reason)
	}
	return all
}

// Value is one field of one record, as stored.
type Value struct {
	// Bytes is the value of every kind that is not a number; elements of arrays
	// are in C order and little-endian. It is read-only.
	Bytes []byte
	// Int is the value of KindLabel and KindInt, Float that of KindFloat.
	Int   int64
	Float float64
	// Codec, Width, Height and Channels describe a KindImage as far as the
	// source knows without looking into Bytes; zero means unknown.
	Codec         Codec
	Width, Height int32
	Channels      int32
	// Orientation is the EXIF orientation of a KindImage, 1 to 8, where the
	// source knows it; 0 means: look into Bytes. It is applied only on request.
	Orientation int32
	// Depth is that of a KindVolume without a Shape: Depth x Height x Width voxels.
	Depth int32
}

// Record is one record as it was read.
type Record struct {
	ID     int64
	Values []Value
	// Err says why this one record cannot be had; its Values are then not to be
	// used. Other records of the same group are not affected.
	Err error
}

// Sizer is implemented by sources that know the sizes of values of any length
// without reading them. They then lie in a batch in their order from the beginning.
type Sizer interface {
	// Sizes writes the sizes in bytes of a field, given by its place in
	// Info.Fields, of the records ids (each in [0, Len)) into sizes. It returns
	// false when it would have to read for that.
	Sizes(field int, ids, sizes []int64) bool
}

// Shape is how large an image is: 0 for what is not known. Orientation is its EXIF
// orientation, 1 to 8.
type Shape struct{ Width, Height, Channels, Orientation int32 }

// Shaper is implemented by sources that know how large images are without reading
// them.
type Shaper interface {
	// Shapes writes the shapes of the images of a field, given by its place in
	// Info.Fields, of the records ids (each in [0, Len)) into shapes. It returns
	// false when it would have to read for that.
	Shapes(field int, ids []int64, shapes []Shape) bool
}

// Pather is implemented by sources whose records have a path of their own, such
// as files. Packs keep it.
type Pather interface {
	// Path is the path of a record's field, by its place in Info.Fields, below
	// the source's own, with slashes.
	Path(id int64, field int) string
}

// Leaver is implemented by sources in whose files there is more than the fields:
// arrays of another length, or of types that are not read.
type Leaver interface {
	// Left lists it, and says why it is no field. It is nil when there is nothing.
	Left() []Skipped
}

// Finder is implemented by sources that can say more of a record than Name does
// when they may read for it: packs, that know which file a record was made of.
type Finder interface {
	// Find says where a record lies and came from, for messages. It falls back to
	// Name when it cannot read.
	Find(ctx context.Context, id int64) string
}

// Holder is implemented by sources that hold records in memory from when they are
// opened on, since their files are compressed.
type Holder interface {
	// Held is how many bytes that are.
	Held() int64
}

// Held is what a source holds of its records in memory.
func Held(s Source) int64 {
	if h, ok := As[Holder](s); ok {
		return h.Held()
	}
	return 0
}

// Cacher is implemented by sources that unpack many records at a time, and keep what
// they have unpacked for those that are wanted later. What they may keep is a part of
// what they hold (Holder).
type Cacher interface {
	// Useful is about how many bytes are all that there is to keep.
	Useful() int64
	// Keep says how many bytes may be kept from now on.
	Keep(n int64)
}

// Useful is how many bytes a source could keep of what it unpacks.
func Useful(s Source) int64 {
	if c, ok := As[Cacher](s); ok {
		return c.Useful()
	}
	return 0
}

// Keep tells a source how much it may keep of what it unpacks.
func Keep(s Source, n int64) {
	if c, ok := As[Cacher](s); ok {
		c.Keep(min(n, c.Useful()))
	}
}

// Deriver is implemented by sources whose records are those of another one, such as
// views.
type Deriver interface {
	// Origin says which value of the other one, by record and field, a value is.
	Origin(id int64, field int) (src Source, record int64, place int)
}

// Source is an open data source. Its methods may be called from several
// goroutines at once, except Close, which is called once and last.
type Source interface {
	// Info describes the source. The result is shared: do not change it.
	Info() *Info
	// Object describes object n, 0 <= n < Info.Objects, from memory.
	Object(n int64) Object
	// Locate says where the records g.IDs lie: for each, in order, it appends
	// extents and calls g.Next. It works from memory: what it would have to read
	// for that it lists in g.Missing. A record that cannot be had, or whose Err
	// is set already, has no extents; Err then says why. A source whose values
	// lie in memory has no extents at all.
	Locate(g *Group)
	// Parse makes the values of the records of g from g.Bytes, without I/O and
	// without waiting. What concerns one record goes into its Err, with the file
	// and, where there is one, the row and the offset; Parse itself fails when
	// there is no memory. Values may lie in g.Bytes, in memory of g.Take or in
	// memory that lives as long as the source.
	Parse(g *Group) error
	// Name says where a record lies, for messages: a path, or a shard and row.
	// It does no I/O.
	Name(id int64) string
	// Close releases everything.
	Close() error
}

// ImageExtensions are the file extensions, lower case, that folder readers
// take for images. The content decides what they really are.
var ImageExtensions = []string{".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".dib", ".gif", ".webp", ".jxl", ".avif", ".tif", ".tiff",
	".ppm", ".pgm", ".pbm", ".pnm", ".pam"}
