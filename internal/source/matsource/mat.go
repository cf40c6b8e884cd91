package matsource

import (
	"bufio"
	"compress/zlib"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/stokerdata/stoker/internal/source/fixedrecords"
	"github.com/stokerdata/stoker/store"
)

// A MAT file of version 5 ("level 5") has a header of 128 bytes, and elements: a tag of 8 bytes (type and size) and
// data, padded to 8 bytes. A variable is an element of type 14, whose data are elements: flags, dimensions, name,
// values. An element of type 15 is such a variable compressed with zlib.

const (
	headerBytes  = 128
	typeMatrix   = 14
	typeDeflated = 15
	// Limits of a variable.
	maxName = 1 << 10
	maxAxes = 8
	// maxVariables is the maximum number of variables in a file.
	maxVariables = 1000
)

// classes are the numeric classes of variables, by number.
var classes = map[byte]string{6: "double", 7: "single", 8: "int8", 9: "uint8", 10: "int16", 11: "uint16", 12: "int32", 13: "uint32", 14: "int64", 15: "uint64"}

// sizes are the sizes of numbers, by element type.
var sizes = map[uint32]int64{1: 1, 2: 1, 3: 2, 4: 2, 5: 4, 6: 4, 7: 4, 9: 8, 12: 8, 13: 8}

// ErrFormat is wrapped by the errors for files that are not MAT files of version 5.
var ErrFormat = errors.New("not a supported MAT file")

// checkHeader checks the header of a file.
func checkHeader(b []byte) error {
	switch {
	case len(b) >= 10 && string(b[:10]) == "MATLAB 7.3":
		return fmt.Errorf("%w: it has version 7.3, which is HDF5: write it again with save(..., '-v7') or scipy.io.savemat", ErrFormat)
	case len(b) < headerBytes:
		return fmt.Errorf("%w: %d bytes are too few for its header", ErrFormat, len(b))
	case b[126] == 'M' && b[127] == 'I':
		return fmt.Errorf("%w: it is big-endian: write it again with scipy.io.savemat", ErrFormat)
	case b[126] != 'I' || b[127] != 'M' || b[125] != 1:
		return fmt.Errorf("%w: byte 124 is not the magic number of version 5", ErrFormat)
	}
	return nil
}

// variable is a variable of a file, without its values.
type variable struct {
	name  string
	class string // "" if it is not numeric
	shape []int64
	typ   uint32 // stored type of the numbers
	bytes int64  // size of the values
	// from and size are the range of the element's data in the file. at is the offset of the values in the file or,
	// if deflated, in the decompressed data.
	from, size int64
	at         int64
	deflated   bool
	r          *elements // at the start of the values
}

// numbers returns the number of values.
func (v *variable) numbers() int64 {
	n := int64(1)
	for _, side := range v.shape {
		n *= side // checked by look
	}
	return n
}

// walk calls f for each variable of a file, in order.
func walk(ctx context.Context, o store.Object, f func(v *variable) error) error {
	size := o.Size()
	b := make([]byte, min(size, headerBytes))
	if err := o.ReadAt(ctx, b, 0); err != nil {
		return err
	}
	if err := checkHeader(b); err != nil {
		return err
	}
	at := int64(headerBytes)
	for n := 0; at < size; n++ {
		if n == maxVariables {
			return fmt.Errorf("byte %d: %w: it has more than %d variables", at, ErrFormat, maxVariables)
		}
		var tag [8]byte
		if size-at < 8 {
			return fmt.Errorf("byte %d: %w: it is cut off", at, ErrFormat)
		}
		if err := o.ReadAt(ctx, tag[:], at); err != nil {
			return err
		}
		typ, length := binary.LittleEndian.Uint32(tag[:]), int64(binary.LittleEndian.Uint32(tag[4:]))
		if length > size-at-8 {
			return fmt.Errorf("byte %d: %w: a variable of %d bytes, the file ends %d bytes later: it is cut off", at, ErrFormat, length, size-at-8)
		}
		if typ == typeMatrix || typ == typeDeflated {
			v := &variable{from: at + 8, size: length, deflated: typ == typeDeflated}
			if err := v.look(ctx, o); err != nil {
				return fmt.Errorf("byte %d: the variable that begins here: %w", at, err)
			}
			if err := f(v); err != nil {
				return fmt.Errorf("byte %d: variable %q: %w", at, v.name, err)
			}
		}
		at += 8 + length
		if typ != typeDeflated { // these are not padded
			at += -length & 7
		}
	}
	return nil
}

// elements reads elements in order.
type elements struct {
	file *fixedrecords.Reader
	r    io.Reader
	at   int64
}

func (e *elements) read(b []byte) error {
	n, err := io.ReadFull(e.r, b)
	e.at += int64(n)
	if err != nil {
		return e.file.Cause(err)
	}
	return nil
}

// tag reads the tag of an element. Data of up to 4 bytes may be in the tag itself.
func (e *elements) tag() (typ uint32, size int64, small []byte, err error) {
	var b [8]byte
	if err := e.read(b[:]); err != nil {
		return 0, 0, nil, err
	}
	typ = binary.LittleEndian.Uint32(b[:])
	if n := typ >> 16; n != 0 {
		if n > 4 {
			return 0, 0, nil, fmt.Errorf("%w: %d bytes in a tag of 8", ErrFormat, n)
		}
		return typ & 0xFFFF, int64(n), b[4 : 4+n : 4+n], nil
	}
	return typ, int64(binary.LittleEndian.Uint32(b[4:])), nil, nil
}

// element reads an element of at most limit bytes.
func (e *elements) element(what string, limit int64) (typ uint32, data []byte, err error) {
	typ, size, small, err := e.tag()
	if err != nil || small != nil {
		return typ, small, err
	}
	if size > limit {
		return 0, nil, fmt.Errorf("%w: %s of %d bytes, the limit is %d", ErrFormat, what, size, limit)
	}
	data = make([]byte, (size+7)&^7)
	if err := e.read(data); err != nil {
		return 0, nil, err
	}
	return typ, data[:size], nil
}

// look reads everything before the values.
func (v *variable) look(ctx context.Context, o store.Object) error {
	file := fixedrecords.NewReader(ctx, o, v.from, v.size)
	e := &elements{file: file, at: v.from}
	limit := v.size
	if v.deflated {
		z, err := zlib.NewReader(bufio.NewReaderSize(file, 256<<10))
		if err != nil {
			return fmt.Errorf("cannot decompress it: %w", file.Cause(err))
		}
		e.r, e.at = z, 0
		typ, size, _, err := e.tag()
		if err != nil {
			return fmt.Errorf("cannot decompress it: %w", err)
		}
		if typ != typeMatrix {
			return nil // it has no name
		}
		limit = 8 + size
		// Deflate expands by at most 1032, so a larger size is invalid and must not be allocated.
		if size > 1032*v.size {
			return fmt.Errorf("%w: %d bytes decompressed, more than %d compressed bytes can contain", ErrFormat, size, v.size)
		}
	} else {
		e.r = bufio.NewReaderSize(file, 4<<10)
	}
	v.r = e
	_, flags, err := e.element("flags", 16)
	if err != nil {
		return err
	}
	if len(flags) != 8 {
		return fmt.Errorf("%w: flags of %d bytes", ErrFormat, len(flags))
	}
	typ, dims, err := e.element("dimensions", 4*64)
	if err != nil {
		return err
	}
	if typ != 5 || len(dims)%4 != 0 || len(dims) < 8 {
		return fmt.Errorf("%w: dimensions of %d bytes", ErrFormat, len(dims))
	}
	_, name, err := e.element("a name", maxName)
	if err != nil {
		return err
	}
	v.name = strings.ToValidUTF8(string(name), "\uFFFD")
	if complex := flags[1]&8 != 0; classes[flags[0]] == "" || complex || len(dims) > 4*maxAxes {
		return nil // not numeric: an error only if the variable is needed
	}
	v.class = classes[flags[0]]
	n := int64(1)
	for i := 0; i < len(dims); i += 4 {
		side := int64(int32(binary.LittleEndian.Uint32(dims[i:])))
		if side < 0 || side > 0 && n > math.MaxInt64/8/side {
			return fmt.Errorf("%w: a dimension of %d", ErrFormat, side)
		}
		n *= side
		v.shape = append(v.shape, side)
	}
	var small []byte
	if v.typ, v.bytes, small, err = e.tag(); err != nil {
		return err
	}
	v.at = e.at
	if small != nil {
		v.at -= 4
		e.r = io.MultiReader(strings.NewReader(string(small)), e.r)
	}
	size, ok := sizes[v.typ]
	if !ok {
		return fmt.Errorf("%w: numbers of type %d", ErrFormat, v.typ)
	}
	if v.bytes != n*size {
		return fmt.Errorf("%w: an array of shape %v needs %d bytes, but has %d", ErrFormat, v.shape, n*size, v.bytes)
	}
	end := v.from + limit
	if v.deflated {
		end = limit
	}
	if v.bytes > end-v.at {
		return fmt.Errorf("%w: %d bytes of values, but the variable has only %d", ErrFormat, v.bytes, end-v.at)
	}
	return nil
}

// values reads all values into b.
func (v *variable) values(b []byte) error {
	if err := v.r.read(b); err != nil {
		return fmt.Errorf("value at byte %d%s: %w", v.r.at, v.where(), err)
	}
	if !v.deflated {
		return nil
	}
	// Read to the end to verify the checksum.
	if _, err := io.Copy(io.Discard, io.LimitReader(v.r.r, 1<<20)); err != nil {
		return v.r.file.Cause(err)
	}
	return nil
}

func (v *variable) where() string {
	if v.deflated {
		return " decompressed"
	}
	return ""
}

// number returns the number at the start of b. ok is false if it is not an integer.
func number(b []byte, typ uint32) (int64, bool) {
	switch typ {
	case 1:
		return int64(int8(b[0])), true
	case 2:
		return int64(b[0]), true
	case 3:
		return int64(int16(binary.LittleEndian.Uint16(b))), true
	case 4:
		return int64(binary.LittleEndian.Uint16(b)), true
	case 5:
		return int64(int32(binary.LittleEndian.Uint32(b))), true
	case 6:
		return int64(binary.LittleEndian.Uint32(b)), true
	case 7:
		f := float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
		return int64(f), f == math.Trunc(f) && math.Abs(f) < 1<<53
	case 9:
		f := math.Float64frombits(binary.LittleEndian.Uint64(b))
		return int64(f), f == math.Trunc(f) && math.Abs(f) < 1<<53
	}
	return int64(binary.LittleEndian.Uint64(b)), true
}
