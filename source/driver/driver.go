// Package driver is the interface between the engine and data sources. Users of Stoker call package
// source. Authors of formats implement Source here and pass the tests in source/drivertest.
package driver

import (
	"context"
	"fmt"

	"github.com/stokerdata/stoker/internal/dtype"
)

// Kind is the meaning of a field.
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
	// KindArray is an array. All records have the same element type, Field.DType, and shape,
	// Field.Shape.
	KindArray Kind = "array"
	// KindBytes is a string of bytes of any length.
	KindBytes Kind = "bytes"
	// KindMask is an image of class numbers (Field.Classes). Field.DType is uint8 or uint16. It is
	// stored without loss, and values are never interpolated.
	KindMask Kind = "mask"
	// KindMultiLabel is any number of class numbers (Field.Classes): int64 elements, ragged.
	KindMultiLabel Kind = "multilabel"
	// KindFloat is a plain float64.
	KindFloat Kind = "float"
	// KindJSON is JSON as UTF-8 text of any length.
	KindJSON Kind = "json"
	// KindRagged is an array whose first axis differs per record. Its type is Field.DType.
	// Field.Shape has the other axes.
	KindRagged Kind = "ragged"
	// KindAudio is the contents of an audio file (WAV, FLAC, ...).
	KindAudio Kind = "audio"
	// KindFrames is a clip of video frames: the bytes needed to decode them, in the layout of
	// package internal/video. Field.Shape is the number of frames. Width, Height, MaxWidth and
	// MaxHeight are the sizes of frames when shown.
	KindFrames Kind = "frames"
	// KindTokens is a document as token numbers: one ragged axis of uint16 or uint32 (Field.DType).
	KindTokens Kind = "tokens"
	// KindBoxes is any number of boxes in the pixels of an image: float32 elements of shape [n, 4],
	// ragged, in the format of Field.Format. They are transformed together with their image.
	KindBoxes Kind = "boxes"
	// KindKeyPoints is any number of groups of k points in the pixels of an image: float32 elements
	// (x, y) of shape [n, k, 2], ragged. Field.Shape is [k, 2]. They are transformed together with
	// their image.
	KindKeyPoints Kind = "keypoints"
	// KindMasks is any number of uint8 masks of one image, with values 0 and 1, one for each row of
	// Field.Boxes. They are stored as a stack (package internal/mask). Field.Most has one number,
	// the most masks of a record. They are transformed together with their image.
	KindMasks Kind = "masks"
	// KindVolume is a volume of numbers of type Field.DType. The last three axes are z, y and x.
	// Axes before them are channels or times. Field.Shape is the shape if all records have the
	// same. Otherwise it is nil, and Field.Least and Field.Most are the limits. Field.Mask reports
	// that the numbers are class numbers, which are moved but never interpolated or changed.
	KindVolume Kind = "volume"
)

// BoxFormat is the meaning of the four numbers of a box.
type BoxFormat string

// The formats of boxes, with the names of torchvision.
const (
	// XYXY is the left, upper, right and lower side.
	XYXY BoxFormat = "XYXY"
	// XYWH is the left and upper side, width and height.
	XYWH BoxFormat = "XYWH"
	// CXCYWH is the centre, width and height.
	CXCYWH BoxFormat = "CXCYWH"
)

// BoxFormats lists the formats of boxes.
var BoxFormats = []BoxFormat{XYXY, XYWH, CXCYWH}

// DType is the type of array elements, named as in NumPy.
type DType string

// The element types. Values are little-endian. Values of Bool are the bytes 0 and 1.
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

// Size returns the size of an element in bytes, 0 for an unknown type.
func (t DType) Size() int {
	d, ok := dtype.Parse(string(t))
	if !ok || d == dtype.BF16 { // no format stores bfloat16
		return 0
	}
	return d.Size()
}

// Type returns the corresponding type of package dtype, 0 for an unknown one.
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

// ArrayBytes returns the size of an array in bytes. It fails if the type is unknown, a side is
// below 1 or a limit is exceeded.
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

// Codec is the encoding of the bytes of an image.
type Codec uint8

// The codecs of images. The numbers are part of the pack format
// (docs/reference/pack-format.md) and never change.
const (
	// CodecUnknown means that the bytes must be examined.
	CodecUnknown Codec = 0
	CodecJPEG    Codec = 1
	CodecPNG     Codec = 2
	CodecBMP     Codec = 3
	CodecGIF     Codec = 4
	CodecWebP    Codec = 5
	CodecTIFF    Codec = 6
	// CodecPNM is PBM, PGM, PPM or PAM. CodecPFM is a portable float map. CodecFlo is optical flow
	// in the format of Middlebury.
	CodecPNM Codec = 7
	CodecPFM Codec = 8
	CodecFlo Codec = 9
	// CodecJXL is JPEG XL, CodecAVIF AVIF. The libraries that decode them may be missing.
	CodecJXL  Codec = 10
	CodecAVIF Codec = 11
	// CodecRaw is Height x Width x Channels bytes, rows without padding.
	CodecRaw Codec = 16
	// CodecDCT is a JPEG without its entropy code (docs/reference/pack-format.md).
	CodecDCT Codec = 17
	// CodecRuns is a mask as runs of equal class numbers (docs/reference/pack-format.md).
	CodecRuns Codec = 18
)

// Field describes a field. Every record of a source has it.
type Field struct {
	Name string
	Kind Kind
	// Classes are the class names of a KindLabel field. The label is the index. Classes may be nil.
	Classes []string
	// MaxBytes is the size of the largest stored value in bytes, 0 if not known. A batch can
	// contain a KindBytes field only if MaxBytes is known. If all values are empty it is 0, and
	// then the source must be a Sizer.
	MaxBytes int64
	// DType and Shape describe a KindArray field. An empty Shape is a single number. A KindImage
	// with DType Uint16 or Float32 is a map of numbers (depth, disparity, flow) and not a picture.
	// Its Shape is the shape of a pixel.
	DType DType
	Shape []int
	// Mask reports that the numbers of a KindVolume field are class numbers. Least and Most are the
	// smallest and largest sides if there is no Shape.
	Mask        bool
	Least, Most []int
	// Format is the format of a KindBoxes field.
	Format BoxFormat
	// Boxes is the name of the KindBoxes field that this field belongs to: row i belongs to box i.
	// It is "" if there is none. Fields of KindMultiLabel, KindRagged or KindKeyPoints may have it.
	// If a box is dropped, its row is dropped.
	Boxes string
	// Stored reports that the positions or pixels of a KindBoxes, KindKeyPoints, KindMasks or KindMask field are those of
	// the image as it is stored: whoever turns the image by its EXIF orientation turns them, too.
	Stored bool
	// Columns are the table columns that a KindArray with one axis was made of, nil for all other
	// arrays.
	Columns []Column
	// Width, Height and Channels are set if all images of a KindImage field share them, else 0.
	Width, Height, Channels int32
	// MaxWidth and MaxHeight are the largest sides of a KindImage field (not necessarily of one
	// image), 0 if not known.
	MaxWidth, MaxHeight int32
	// Stats are statistics of all values that the source has without reading them, nil if it has
	// none.
	Stats *FieldStats
}

// MaxBad is the limit of bad files listed in Info.Bad.
const MaxBad = 10

// Info describes a source. It does not change while the source is open.
type Info struct {
	// URL is the URL that the source was opened with, for messages.
	URL string
	// Format is a short word: "pack", "folder".
	Format string
	// Len is the number of records, 0 <= Len <= 1<<40.
	Len int64
	// Fields are in the order of Record.Values.
	Fields []Field
	// Objects is the number of objects that records are stored in, 0 for a source with its values
	// in memory.
	Objects int64
	// BadFiles is the number of files that could not be listed, opened or understood when the
	// source was opened. Their records are bad records: Locate sets their Err. A source fails to
	// open only if all of its files are bad, or for an error that is not the fault of a file
	// (store.IsObjectError). Bad lists the first MaxBad of them.
	BadFiles int
	Bad      []Skipped
	// Sequential reports that records cannot be located: the source is a Sequential.
	Sequential bool
	// Fingerprint identifies the content as far as the source can tell cheaply. Equal fingerprints
	// promise equal records in equal order. It has at most 32 characters. Saved training states
	// contain it.
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
	// Bytes is the value of every kind that is not a number. Elements of arrays are in C order and
	// little-endian. Bytes is read-only.
	Bytes []byte
	// Int is the value of KindLabel and KindInt, Float the value of KindFloat.
	Int   int64
	Float float64
	// Codec, Width, Height and Channels describe a KindImage as far as the source knows without
	// examining Bytes. Zero means unknown.
	Codec         Codec
	Width, Height int32
	Channels      int32
	// Orientation is the EXIF orientation of a KindImage, 1 to 8, if the source knows it. 0 means
	// that Bytes must be examined. It is applied only on request.
	Orientation int32
	// Depth belongs to a KindVolume without a Shape: Depth x Height x Width voxels.
	Depth int32
}

// Record is a record that was read.
type Record struct {
	ID     int64
	Values []Value
	// Err is the reason why this record cannot be read. The caller must not use Values then. Other
	// records of the group are not affected.
	Err error
}

// Sizer is implemented by sources that know the sizes of values of any length without reading them.
// The engine can then place the values of a batch in order from the start.
type Sizer interface {
	// Sizes writes the sizes in bytes of a field into sizes. The field is an index of Info.Fields.
	// The records are ids, each in [0, Len). It returns false if the source would have to read to
	// find them.
	Sizes(field int, ids, sizes []int64) bool
}

// Shape is the size of an image, 0 if not known. Orientation is its EXIF orientation, 1 to 8.
type Shape struct{ Width, Height, Channels, Orientation int32 }

// Shaper is implemented by sources that know the sizes of images without reading them.
type Shaper interface {
	// Shapes writes the shapes of the images of a field into shapes. The field is an index of
	// Info.Fields. The records are ids, each in [0, Len). It returns false if the source would have
	// to read to find them.
	Shapes(field int, ids []int64, shapes []Shape) bool
}

// Pather is implemented by sources whose records have paths, such as files. Packs store the paths.
type Pather interface {
	// Path returns the path of a field of a record, with slashes, relative to the source. The field
	// is an index of Info.Fields.
	Path(id int64, field int) string
}

// Leaver is implemented by sources whose files have more content than the fields, for example
// arrays of another length or of unsupported types.
type Leaver interface {
	// Left lists this content with the reason why it is not a field. It returns nil if there is
	// none.
	Left() []Skipped
}

// Finder is implemented by sources that can describe a record in more detail than Name if they may
// read. For example, a pack knows the file that a record was made from.
type Finder interface {
	// Find returns the location and origin of a record, for messages. It returns Name if it cannot
	// read.
	Find(ctx context.Context, id int64) string
}

// Holder is implemented by sources that hold records in memory while they are open, since their
// files are compressed.
type Holder interface {
	// Held returns the number of bytes held.
	Held() int64
}

// Held returns how many bytes of records a source holds in memory.
func Held(s Source) int64 {
	if h, ok := As[Holder](s); ok {
		return h.Held()
	}
	return 0
}

// Cacher is implemented by sources that decompress many records at a time and can cache the rest
// for later. The cache counts as held memory (Holder).
type Cacher interface {
	// Useful returns about how many bytes there are to cache.
	Useful() int64
	// Keep sets the size limit of the cache in bytes, from now on.
	Keep(n int64)
}

// Useful returns how many decompressed bytes a source could cache.
func Useful(s Source) int64 {
	if c, ok := As[Cacher](s); ok {
		return c.Useful()
	}
	return 0
}

// Keep sets how many decompressed bytes a source may cache.
func Keep(s Source, n int64) {
	if c, ok := As[Cacher](s); ok {
		c.Keep(min(n, c.Useful()))
	}
}

// Deriver is implemented by sources whose records come from another source, such as views.
type Deriver interface {
	// Origin returns the source, record and field that a value comes from.
	Origin(id int64, field int) (src Source, record int64, place int)
}

// Source is an open data source. Several goroutines may call its methods at the same time, except
// Close, which is called once and last.
type Source interface {
	// Info describes the source. The result is shared: the caller must not change it.
	Info() *Info
	// Object returns object n, 0 <= n < Info.Objects, without I/O.
	Object(n int64) Object
	// Locate finds where the records g.IDs are stored. For each record, in order, it appends
	// extents and calls g.Next. It does no I/O. If it needs a part of the index first, it adds that
	// part to g.Missing. A record that cannot be read, or whose Err is already set, has no extents;
	// Err is the reason. A source with its values in memory has no extents.
	Locate(g *Group)
	// Parse makes the values of the records of g from g.Bytes. It does no I/O and does not wait. An
	// error of one record is set as its Err, with the file and, if there are any, the row and the
	// offset. Parse itself fails only if it cannot get memory. Values may point to g.Bytes, to
	// memory from g.Take, or to memory that lives as long as the source.
	Parse(g *Group) error
	// Name returns the location of a record for messages: a path, or a shard and row. It does no
	// I/O.
	Name(id int64) string
	// Close releases everything.
	Close() error
}

// ImageExtensions are the file extensions, lower case, that folder readers treat as images. The
// codec is detected from the content.
var ImageExtensions = []string{".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".dib", ".gif", ".webp", ".jxl", ".avif", ".tif", ".tiff",
	".ppm", ".pgm", ".pbm", ".pnm", ".pam"}
