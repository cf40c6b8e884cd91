// Package parquet reads the Parquet format: footers, page headers, page indexes, and
// what pages hold. It does no I/O: the source parquetsource says which bytes.
//
// It is not arrow-go's reader, which makes the program three times as large, and
// gives whole columns where a row is wanted. Everything is checked before it is used:
// files may come from anywhere. Tests compare with what pyarrow has written.
package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Magic begins and ends every Parquet file, MagicEncrypted one whose footer cannot be
// read.
const (
	Magic          = "PAR1"
	MagicEncrypted = "PARE"
)

// TailBytes is how much the size of the footer and the magic behind it take.
const TailBytes = 8

// Limits of what is read.
const (
	MaxFooterBytes = 1 << 28
	MaxHeaderBytes = 1 << 24 // of a page; it may hold the smallest and the largest value
	maxNodes       = 1 << 14 // columns, and columns within them
	maxDepth       = 40
	maxName        = 4 << 10
	maxRows        = 1 << 40
	// MaxUnit is the largest page, decompressed, and the most numbers of one, in bytes.
	MaxUnit = 1 << 30
	// A page that claims to hold more than ratio times its bytes, and more than
	// ratioFrom, is made to fill memory, not to hold data.
	ratio     = 4000
	ratioFrom = 16 << 20
)

// ErrFormat is in all errors of what is not as the format says.
var ErrFormat = errors.New("damaged")

func damaged(format string, a ...any) error {
	return fmt.Errorf("%w: %s", ErrFormat, fmt.Sprintf(format, a...))
}

// FooterSize reads the last bytes of a file.
func FooterSize(tail []byte, file int64) (int64, error) {
	if len(tail) < TailBytes || file < 3*4+TailBytes-4 {
		return 0, damaged("a file of %d bytes", file)
	}
	tail = tail[len(tail)-TailBytes:]
	switch string(tail[4:]) {
	case Magic:
	case MagicEncrypted:
		return 0, errors.New("it is encrypted, which is not read")
	default:
		return 0, damaged("no Parquet footer at the end: the file is cut off")
	}
	n := int64(binary.LittleEndian.Uint32(tail))
	if n == 0 || n > file-TailBytes-4 || n > MaxFooterBytes {
		return 0, damaged("a footer of %d bytes in a file of %d, the limit is %d", n, file, MaxFooterBytes)
	}
	return n, nil
}
