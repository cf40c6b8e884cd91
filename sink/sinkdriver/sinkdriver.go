// Package sinkdriver is what a format that Stoker writes implements. Users call
// package sink; authors of formats implement Sink here and pass sink/sinktest.
package sinkdriver

import (
	"context"
	"fmt"

	"github.com/stokerdata/stoker/source/driver"
)

// Field is a field that is written.
type Field struct {
	// Field describes it, under the name that it is written with.
	driver.Field
	// Pixels says that its values are raw pixels of one size, Height x Width x
	// Channels, for a format that asks for them (Format.Pixels).
	Pixels bool
	// Masks says that it has the pixels of masks, all that belong to an image: of uint8,
	// one behind the other. How many there are of which size is in the field behind it.
	Masks bool
}

// Picture says whether a value is the file of an image or a mask.
func (f *Field) Picture() bool { return f.Kind == driver.KindImage || f.Kind == driver.KindMask }

// Elements are the type and the shape of what is an array: without the first axis
// where that differs from record to record (ragged). ok is false for what is none.
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

// Number says whether a value is one number: an int64, or a float64.
func (f *Field) Number() bool {
	return f.Kind == driver.KindLabel || f.Kind == driver.KindInt || f.Kind == driver.KindFloat
}

// Value is a field of a record.
type Value struct {
	// Value is as the source has it, but that the bytes of an image or a mask are
	// those of a file, unless Field.Pixels says that they are pixels.
	driver.Value
	// Ext is the usual extension of what is a file: ".jpg".
	Ext string
	// Path is where it came from, "" where that is not known. It is not to be
	// trusted: it may be anything.
	Path string
}

// Record is a record that is written.
type Record struct {
	// ID is its number in the source.
	ID int64
	// Values are those of the fields that are written, in their order.
	Values []Value
	// Encoded is what Encode of an Encoder has made of it.
	Encoded []byte
}

// Sink writes records. Its methods are called by one goroutine, except those of
// Encoder and Unordered.
type Sink interface {
	// Write takes the next records, in their order. They are valid until it
	// returns.
	Write(ctx context.Context, recs []Record) error
	// Finish writes what is left and closes everything. It is called once, last,
	// and not after a failure.
	Finish(ctx context.Context) error
	// Abort closes everything after a failure. The files are removed by who has
	// made their folder.
	Abort()
}

// Encoder is a Sink that makes bytes of each record by itself. That is done by
// several goroutines at once; Write then finds them in Record.Encoded.
type Encoder interface {
	// Encode appends a record to b. An error is about this record, which is then
	// left out.
	Encode(b []byte, rec *Record) ([]byte, error)
}

// Unordered is a Sink whose Write may be called by several goroutines at once, and
// in any order.
type Unordered interface {
	// Unordered does nothing.
	Unordered()
}

// Out is where and how records are written.
type Out struct {
	// Dir is a new, empty folder. It gets its name when all is finished.
	Dir string
	// File is the name of the one file in Dir that is wanted, "" for a folder with
	// names of the format's own choice.
	File string
	// Fields are what is written.
	Fields []Field
	// Len is the number of records, which may become fewer: those that cannot be
	// read are left out.
	Len int64
	// ShardBytes is the size of files to aim at where there are several of them.
	ShardBytes int64
	// Compress is the compression that is asked for, one of Format.Compress, or "".
	Compress string
	// Threads is how many goroutines a sink may use by itself.
	Threads int
}

// Format is a format that can be written.
type Format struct {
	// Name stands in front of a path: tar:out/.
	Name string
	// About says in a few words what it is, for help.
	About string
	// Ext are the extensions by which a path is known, with their dots.
	Ext []string
	// File says that a path with such an extension is one file; otherwise it is a
	// folder. Folder says that a folder can be written.
	File, Folder bool
	// Sharded says that a folder has files of about Out.ShardBytes; ShardBytes is
	// the default.
	Sharded    bool
	ShardBytes int64
	// Compress are the compressions that can be chosen, the default first.
	Compress []string
	// Paths says that the sink uses Value.Path.
	Paths bool
	// Pixels says that raw images of one size are wanted as pixels.
	Pixels bool
	// Open begins. It fails for fields that the format has no place for (Cannot).
	Open func(ctx context.Context, out *Out) (Sink, error)
}

// Cannot is the error of a field that a format has no place for; why ends the
// sentence and may say what to do.
func Cannot(format string, f *Field, why string, a ...any) error {
	return &FieldError{Field: f.Name, msg: fmt.Sprintf("%s cannot hold field %q (%s): %s", format, f.Name, f.Kind, fmt.Sprintf(why, a...))}
}

// FieldError is the error of a field that a format has no place for.
type FieldError struct{ Field, msg string }

func (e *FieldError) Error() string { return e.msg }
