// Package driver is what a data source implements. Users of Stoker call
// package source; authors of formats implement Source here and pass
// source/drivertest.
package driver

import (
	"context"
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
)

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
	// CodecRaw is Height x Width x Channels bytes, rows without padding.
	CodecRaw Codec = 16
	// CodecDCT is a JPEG without its entropy code (docs/FORMAT.md).
	CodecDCT Codec = 17
)

// Field describes one field that every record of a source has.
type Field struct {
	Name string
	Kind Kind
	// Classes are the class names of a KindLabel field; the label is the
	// index. It may be nil.
	Classes []string
	// MaxBytes is the largest stored value in bytes, 0 when not known.
	MaxBytes int64
	// Width, Height and Channels are set when all images of a KindImage field
	// share them, else 0.
	Width, Height, Channels int32
	// MaxWidth and MaxHeight are the largest sides of a KindImage field (not
	// necessarily of one image), 0 when not known.
	MaxWidth, MaxHeight int32
}

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
	// Fingerprint identifies the content as far as the source can tell
	// cheaply: equal fingerprints promise equal records in equal order. It
	// is at most 32 characters. Saved training states carry it.
	Fingerprint string
}

// Value is one field of one record, as stored.
type Value struct {
	// Bytes is the value of KindImage and KindText. It lies in memory from
	// Buffer.Alloc or in memory that lives as long as the source, and is
	// read-only.
	Bytes []byte
	// Int is the value of KindLabel and KindInt.
	Int int64
	// Codec, Width, Height and Channels describe a KindImage as far as the
	// source knows without looking into Bytes; zero means unknown.
	Codec         Codec
	Width, Height int32
	Channels      int32
	// Orientation is the EXIF orientation of a KindImage, 1 to 8, where the
	// source knows it; 0 means: look into Bytes. It is applied only on request.
	Orientation int32
}

// Record is one record as it was read.
type Record struct {
	ID     int64
	Values []Value
	// Err says why this one record could not be read; its Values are then
	// not to be used. Other records of the same read are not affected.
	Err error
}

// Buffer receives what one Read returns. It belongs to the caller and is used
// again for later reads; a source keeps nothing of it after Read returned.
type Buffer struct {
	// Records has one element per requested id, in the order of the ids. The
	// caller sizes it, with len(Values) == len(Info.Fields), and zeroes it.
	Records []Record
	// Alloc returns n bytes, not zeroed, 64-byte aligned, valid until the
	// caller uses the Buffer again, with at least 64 readable bytes behind
	// them. It fails when the read would pass the memory budget.
	Alloc func(n int) ([]byte, error)
}

// Source is an open data source. Its methods may be called from several
// goroutines at once, except Close, which is called once and last.
type Source interface {
	// Info describes the source. The result is shared: do not change it.
	Info() *Info
	// Read reads the records ids (each in [0, Len)) into buf. A failure that
	// concerns one record goes into its Record.Err; Read itself fails when
	// nothing could be read or ctx is done. Errors of records name the file
	// and, where there is one, the row and the offset.
	Read(ctx context.Context, ids []int64, buf *Buffer) error
	// Name says where a record lies, for messages: a path, or a shard and row.
	Name(id int64) string
	// Close releases everything. Memory returned by Read that was not from
	// Buffer.Alloc is invalid afterwards.
	Close() error
}

// ImageExtensions are the file extensions, lower case, that folder readers
// take for images. The content decides what they really are.
var ImageExtensions = []string{".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".dib", ".gif", ".webp", ".tif", ".tiff"}
