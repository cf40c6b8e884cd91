// Package sinkdriver is the interface between package sink and the formats that it writes. Users
// call package sink. Authors of formats implement Sink here and add a row to sink/formats_table_test.go.
package sinkdriver

import (
	"context"
	"fmt"

	"github.com/stokerdata/stoker/source/driver"
)

// Field is a field that is written.
type Field struct {
	// Field is its description. The name is the one in the output.
	driver.Field
	// Pixels reports that all values are raw pixels of one size, Height x Width x Channels. Only
	// formats with Format.Pixels get them.
	Pixels bool
	// Masks reports that a value holds the pixels of all masks of an image, as uint8, one mask
	// after the other. The next field has their shape.
	Masks bool
}

// Picture reports whether a value is an image or mask file.
func (f *Field) Picture() bool { return f.Kind == driver.KindImage || f.Kind == driver.KindMask }

// Elements returns the type and shape of an array field. If the first axis differs per record,
// ragged is true and shape does not include it. If the field does not hold arrays, ok is false.
func (f *Field) Elements() (t driver.DType, shape []int, ragged, ok bool) {
	switch f.Kind {
	case driver.KindArray:
		return f.DType, f.Shape, false, true
	case driver.KindRagged, driver.KindBoxes, driver.KindKeyPoints:
		return f.DType, f.Shape, true, true
	case driver.KindTokens:
		return f.DType, nil, true, true
	case driver.KindMultiLabel:
		return driver.Int64, nil, true, true
	case driver.KindImage:
		if f.Pixels {
			return driver.Uint8, []int{int(f.Height), int(f.Width), int(f.Channels)}, false, true
		}
	}
	return "", nil, false, false
}

// Number reports whether a value is a single number: an int64 or a float64.
func (f *Field) Number() bool {
	return f.Kind == driver.KindLabel || f.Kind == driver.KindInt || f.Kind == driver.KindFloat
}

// Value is one value of a record.
type Value struct {
	// Value is the value from the source. The bytes of an image or a mask are a complete file,
	// unless Field.Pixels is set.
	driver.Value
	// Ext is the usual extension of a value that is a file: ".jpg".
	Ext string
	// Path is the path that the value was read from, "" if not known. It can be any string: do not
	// trust it.
	Path string
}

// Record is a record that is written.
type Record struct {
	// ID is the number of the record in the source.
	ID int64
	// Values has one value per field of Out.Fields.
	Values []Value
	// Encoded is the result of Encoder.Encode.
	Encoded []byte
}

// Sink writes records. One goroutine calls its methods, except for sinks that implement Encoder or
// Unordered.
type Sink interface {
	// Write takes the next records, in order. They are valid until Write returns.
	Write(ctx context.Context, recs []Record) error
	// Finish writes the rest and closes everything. It is the last call, and is not called after a
	// failure.
	Finish(ctx context.Context) error
	// Abort closes everything after a failure. The caller removes the files.
	Abort()
}

// Encoder is a Sink that can encode each record independently. Several goroutines call Encode at
// the same time. Write gets the result in Record.Encoded.
type Encoder interface {
	// Encode appends a record to b. An error means that this record is skipped.
	Encode(b []byte, rec *Record) ([]byte, error)
}

// Unordered is a Sink whose Write may be called in any order and by several goroutines at the same
// time.
type Unordered interface {
	// Unordered does nothing. It marks the type.
	Unordered()
}

// Out is the destination and the settings of a Sink.
type Out struct {
	// Dir is a new, empty folder. It is renamed when everything is finished.
	Dir string
	// File is the name of the one file to write in Dir. If it is "", the sink writes a folder and
	// chooses the names.
	File string
	// Fields are the fields to write.
	Fields []Field
	// Len is the number of records. Fewer may arrive, since records that cannot be read are
	// skipped.
	Len int64
	// ShardBytes is the target size of shards.
	ShardBytes int64
	// Compress is the requested compression, one of Format.Compress, or "".
	Compress string
	// Threads is the number of goroutines that the sink may start.
	Threads int
}

// Format is a format that can be written.
type Format struct {
	// Name is the prefix that selects the format: "tar" in tar:out/.
	Name string
	// About is a short description for help texts.
	About string
	// Ext are the extensions that select the format, with their dots.
	Ext []string
	// File reports that a path with such an extension is a single file. Folder reports that the
	// format can write a folder.
	File, Folder bool
	// Sharded reports that a folder has shards of about Out.ShardBytes. ShardBytes is the default.
	Sharded    bool
	ShardBytes int64
	// Compress are the available compressions, the default first.
	Compress []string
	// Paths reports that the sink uses Value.Path.
	Paths bool
	// Pixels reports that the sink takes raw images of one size as pixels.
	Pixels bool
	// Open returns a new sink. It fails for fields that the format cannot hold (see Cannot).
	Open func(ctx context.Context, out *Out) (Sink, error)
}

// Cannot returns the error for a field that a format cannot hold. The text in why is the reason,
// and may end with a hint.
func Cannot(format string, f *Field, why string, a ...any) error {
	return &FieldError{Field: f.Name, msg: fmt.Sprintf("%s cannot hold field %q (%s): %s", format, f.Name, f.Kind, fmt.Sprintf(why, a...))}
}

// FieldError is the error for a field that a format cannot hold.
type FieldError struct{ Field, msg string }

func (e *FieldError) Error() string { return e.msg }
