package betonsource

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/stokerdata/stoker/internal/dtype"
	"github.com/stokerdata/stoker/source/driver"
)

// A file is a header, a description of each field, a row of numbers for each sample
// (the metadata), pages of data, and a table that says how many bytes were put at which
// place. All numbers are little-endian.

const (
	headerBytes = 24
	version     = 2
	// Of the description of a field: its type, its name, filled up with zeros, and
	// arguments.
	nameBytes = 16
	argBytes  = 1024
	descBytes = 1 + nameBytes + argBytes
	// tableBytes is the size of an entry of the table: sample, place and size.
	tableBytes = 24
	// maxFields bounds the fields of a file.
	maxFields = 1 << 10
	// shapeAxes is how many axes an array has room for.
	shapeAxes = 32
)

// typeID is the type of a field.
type typeID uint8

// The types. What users make themselves is 255.
const (
	floatType  typeID = 0
	intType    typeID = 1
	imageType  typeID = 2
	bytesType  typeID = 3
	arrayType  typeID = 4
	jsonType   typeID = 5
	tensorType typeID = 6
)

// metadata is, by type, how many bytes the numbers of a sample have, and to which
// multiple they are aligned: NumPy's rules for structures.
var metadata = map[typeID]struct{ size, align int }{
	floatType: {8, 8}, intType: {8, 8}, imageType: {13, 1}, bytesType: {16, 1}, arrayType: {8, 8}, jsonType: {16, 1}, tensorType: {8, 8},
}

// modeRaw is the mode of an image that is stored as pixels; 0 is a JPEG.
const modeRaw = 1

// header is what a file begins with.
type header struct {
	fields  int
	samples int64
	table   int64 // where it begins
}

func parseHeader(b []byte, size int64) (header, error) {
	var h header
	if len(b) < headerBytes {
		return h, fmt.Errorf("%d bytes, less than the header of a .beton file", len(b))
	}
	le := binary.LittleEndian
	if v := le.Uint16(b); v != version {
		return h, fmt.Errorf("it is no .beton file of FFCV 1.0: its version is %d instead of %d", v, version)
	}
	h.fields = int(le.Uint16(b[2:]))
	samples, table := le.Uint64(b[8:]), le.Uint64(b[16:])
	switch {
	case h.fields < 1 || h.fields > maxFields:
		return h, fmt.Errorf("its header says %d fields", h.fields)
	case table < headerBytes || table > uint64(size):
		return h, fmt.Errorf("its table of places begins at byte %d of %d: the file is cut off, or its writer did not finish", table, size)
	case samples > uint64(size):
		return h, fmt.Errorf("its header says %d samples in a file of %d bytes", samples, size)
	}
	h.samples, h.table = int64(samples), int64(table)
	return h, nil
}

// column is a field of a file.
type column struct {
	name string
	typ  typeID
	// at is where its numbers begin in those of a sample.
	at int
	// bytes is the size of an array, dtype and shape are its own.
	bytes int64
	dtype driver.DType
	shape []int
}

// data says that a column has bytes somewhere in the file.
func (c *column) data() bool { return c.typ != floatType && c.typ != intType }

// parseColumns reads the descriptions of all fields, and the size of the numbers of a
// sample.
func parseColumns(b []byte) (cols []column, row int, err error) {
	align := 1
	seen := map[string]bool{}
	for i := 0; i < len(b); i += descBytes {
		name, _, _ := bytes.Cut(b[i+1:i+1+nameBytes], []byte{0})
		c := column{name: string(name), typ: typeID(b[i])}
		m, ok := metadata[c.typ]
		switch {
		case c.name == "" || bytes.ContainsFunc(name, func(r rune) bool { return r < ' ' || r > '~' }):
			return nil, 0, fmt.Errorf("field %d has the name %q", i/descBytes, name)
		case seen[c.name]:
			return nil, 0, fmt.Errorf("two fields are called %q (FFCV keeps %d letters of a name)", c.name, nameBytes)
		case !ok:
			return nil, 0, fmt.Errorf("field %q is of the type %d, which FFCV itself does not know: what a sample looks like cannot be told", c.name, c.typ)
		}
		seen[c.name] = true
		if c.typ == arrayType || c.typ == tensorType {
			if err := c.array(b[i+1+nameBytes : i+descBytes]); err != nil {
				return nil, 0, fmt.Errorf("field %q: %w", c.name, err)
			}
		}
		row = (row + m.align - 1) / m.align * m.align
		c.at = row
		row += m.size
		align = max(align, m.align)
		cols = append(cols, c)
	}
	return cols, (row + align - 1) / align * align, nil
}

// array reads the arguments of an array: its shape, 0 behind the last axis, and its
// type as NumPy describes it, in JSON.
func (c *column) array(args []byte) error {
	le := binary.LittleEndian
	axes := shapeAxes
	for axes > 0 && le.Uint64(args[8*(axes-1):]) == 0 {
		axes--
	}
	c.shape = []int{}
	for i := range axes {
		n := le.Uint64(args[8*i:])
		if n < 1 || n > math.MaxInt32 {
			return fmt.Errorf("an array with a side of %d", n)
		}
		c.shape = append(c.shape, int(n))
	}
	text := args[8*shapeAxes:]
	n := le.Uint64(text)
	if n > uint64(len(text)-8) {
		return fmt.Errorf("%d bytes that describe its type", n)
	}
	var descr [][]json.RawMessage
	var kind string
	if json.Unmarshal(text[8:8+n], &descr) != nil || len(descr) != 1 || len(descr[0]) != 2 || json.Unmarshal(descr[0][1], &kind) != nil {
		return errors.New("its type is no simple one")
	}
	if len(kind) < 2 {
		return fmt.Errorf("elements of type %q", kind)
	}
	t, ok := dtype.ParseNumPy(kind[1:])
	if !ok || kind[0] == '>' && t.Size() > 1 {
		return fmt.Errorf("elements of type %.20q are not read", kind)
	}
	c.dtype = driver.DType(t.String())
	var err error
	c.bytes, err = driver.ArrayBytes(c.dtype, c.shape)
	return err
}
