// Package arrowipc writes and reads the part of the Arrow IPC file format that
// packs use: columns of numbers, text, bytes, lists and structs, no nulls, no
// compression, no dictionaries.
//
// The messages' tables are generated from Arrow's definitions (flatbuf); the
// rest is here and not arrow-go's for three reasons: buffers begin at multiples
// of 64 bytes in the file, those that are a chunk's index lie together in front
// of its bulk, and the reader checks everything before use, because packs may
// come from anywhere. Tests compare with arrow-go.
package arrowipc

//go:generate flatc --go --gen-onefile --go-namespace flatbuf -o flatbuf flatbuf/arrow.fbs
//go:generate gofmt -w flatbuf/arrow_generated.go

import (
	"errors"
	"fmt"
)

const (
	// align is the alignment of messages and buffers in the file.
	align = 64

	continuation = 0xFFFFFFFF
)

// Magic begins and ends every Arrow IPC file.
const Magic = "ARROW1"

// Block says where a record batch message lies in the file.
type Block struct {
	Offset    int64
	MetaBytes int32 // of the message without its body
	BodyBytes int64
}

// Span is a range of bytes, counted from the beginning of a message.
type Span struct{ Off, Len int64 }

// ErrFormat is in all errors of the reader: the bytes are not what the format
// says.
var ErrFormat = errors.New("damaged")

func damaged(format string, a ...any) error {
	return fmt.Errorf("%w: %s", ErrFormat, fmt.Sprintf(format, a...))
}

func padded(n int64) int64 { return (n + align - 1) &^ (align - 1) }

var zeros [align]byte
