// Package parquet parses the Parquet format: footers, page headers, page indexes and pages. It does no I/O. Package
// parquetsource decides which bytes to read.
//
// arrow-go's reader is not used because it triples the size of the program and decodes whole columns when one row
// is needed. All input is checked, as files may come from anywhere. Tests compare with files of pyarrow.
package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Magic begins and ends every Parquet file, MagicEncrypted a file with an encrypted footer.
const (
	Magic          = "PAR1"
	MagicEncrypted = "PARE"
)

// TailBytes is the length of the footer size and the magic after it.
const TailBytes = 8

// Limits of metadata.
const (
	MaxFooterBytes = 1 << 28
	MaxHeaderBytes = 1 << 24 // of a page header, which may contain the minimum and maximum
	maxNodes       = 1 << 14 // columns, including nested ones
	maxDepth       = 40
	maxName        = 4 << 10
	maxRows        = 1 << 40
	// MaxUnit is the size limit of a decompressed page, and of its numbers.
	MaxUnit = 1 << 30
	// A page that claims to contain more than ratio times its bytes, and more than ratioFrom, is an attack on
	// memory, not data.
	ratio     = 4000
	ratioFrom = 16 << 20
)

// ErrFormat is wrapped by all errors about damaged files.
var ErrFormat = errors.New("damaged")

// ErrUnsupported is wrapped by all errors about columns that are intact and use a feature that is not read.
var ErrUnsupported = errors.New("not read")

// unsupportedError has the feature in its message.
type unsupportedError struct{ error }

func (e unsupportedError) Is(target error) bool { return target == ErrUnsupported }

func unsupported(format string, a ...any) error { return unsupportedError{fmt.Errorf(format, a...)} }

func damaged(format string, a ...any) error {
	return fmt.Errorf("%w: %s", ErrFormat, fmt.Sprintf(format, a...))
}

// FooterSize returns the size of the footer from the last bytes of a file.
func FooterSize(tail []byte, file int64) (int64, error) {
	if len(tail) < TailBytes || file < 3*4+TailBytes-4 {
		return 0, damaged("a file of %d bytes", file)
	}
	tail = tail[len(tail)-TailBytes:]
	switch string(tail[4:]) {
	case Magic:
	case MagicEncrypted:
		return 0, errEncrypted
	default:
		return 0, damaged("it has no Parquet footer at its end: the file is cut off")
	}
	n := int64(binary.LittleEndian.Uint32(tail))
	if n == 0 || n > file-TailBytes-4 || n > MaxFooterBytes {
		return 0, damaged("a footer of %d bytes in a file of %d, the limit is %d", n, file, MaxFooterBytes)
	}
	return n, nil
}
