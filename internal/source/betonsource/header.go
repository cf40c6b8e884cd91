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

// A file has a header, a description of each field, the metadata of each sample (a row of numbers), pages of data,
// and an allocation table with the offset and size of each value. All numbers are little-endian.

const (
	headerBytes = 24
	version     = 2
	// The description of a field: its type, its name padded with zeros, and arguments.
	nameBytes = 16
	argBytes  = 1024
	descBytes = 1 + nameBytes + argBytes
	// tableBytes is the size of an entry of the allocation table: sample, offset and size.
	tableBytes = 24
	// maxFields is the maximum number of fields.
	maxFields = 1 << 10
	// shapeAxes is the number of axes in the arguments of an array.
	shapeAxes = 32
)

// typeID is the type of a field.
type typeID uint8

// The types. A user-defined type is 255.
const (
	floatType  typeID = 0
	intType    typeID = 1
	imageType  typeID = 2
	bytesType  typeID = 3
	arrayType  typeID = 4
	jsonType   typeID = 5
	tensorType typeID = 6
)

// metadata has, by type, the size and the alignment of a sample's metadata. NumPy's rules for structures apply.
var metadata = map[typeID]struct{ size, align int }{
	floatType: {8, 8}, intType: {8, 8}, imageType: {13, 1}, bytesType: {16, 1}, arrayType: {8, 8}, jsonType: {16, 1}, tensorType: {8, 8},
}

// modeRaw is the mode of an image stored as pixels. 0 is a JPEG.
const modeRaw = 1

// header is the header of a file.
type header struct {
	fields  int
	samples int64
	table   int64 // offset of the allocation table
}

func parseHeader(b []byte, size int64) (header, error) {
	var h header
	if len(b) < headerBytes {
		return h, fmt.Errorf("%d bytes are too few for the header of a .beton file", len(b))
	}
	le := binary.LittleEndian
	if v := le.Uint16(b); v != version {
		return h, fmt.Errorf("not a .beton file of FFCV 1.0: its version is %d, expected %d", v, version)
	}
	h.fields = int(le.Uint16(b[2:]))
	samples, table := le.Uint64(b[8:]), le.Uint64(b[16:])
	switch {
	case h.fields < 1 || h.fields > maxFields:
		return h, fmt.Errorf("its header has %d fields", h.fields)
	case table < headerBytes || table > uint64(size):
		return h, fmt.Errorf("its allocation table begins at byte %d of %d: the file is cut off, or its writer did not finish", table, size)
	case samples > uint64(size):
		return h, fmt.Errorf("its header has %d samples in a file of %d bytes", samples, size)
	}
	h.samples, h.table = int64(samples), int64(table)
	return h, nil
}

// column is a field of a file.
type column struct {
	name string
	typ  typeID
	// at is the offset of its numbers in the metadata of a sample.
	at int
	// bytes is the size of an array, dtype and shape describe it.
	bytes int64
	dtype driver.DType
	shape []int
}

// data reports whether the values of a column are bytes in the file.
func (c *column) data() bool { return c.typ != floatType && c.typ != intType }

// parseColumns parses the descriptions of all fields. row is the size of a sample's metadata.
func parseColumns(b []byte) (cols []column, row int, err error) {
	align := 1
	seen := map[string]bool{}
	for i := 0; i < len(b); i += descBytes {
		name, _, _ := bytes.Cut(b[i+1:i+1+nameBytes], []byte{0})
		c := column{name: string(name), typ: typeID(b[i])}
		m, ok := metadata[c.typ]
		switch {
		case c.name == "" || bytes.ContainsFunc(name, func(r rune) bool { return r < ' ' || r > '~' }):
			return nil, 0, fmt.Errorf("field %d has the invalid name %q", i/descBytes, name)
		case seen[c.name]:
			return nil, 0, fmt.Errorf("two fields have the name %q (FFCV stores only %d letters of a name)", c.name, nameBytes)
		case !ok:
			return nil, 0, fmt.Errorf("field %q has the user-defined type %d, which is not supported", c.name, c.typ)
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

// array parses the arguments of an array: its shape, padded with 0, and its type in JSON as NumPy describes it.
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
		return fmt.Errorf("its type has a description of %d bytes", n)
	}
	var descr [][]json.RawMessage
	var kind string
	if json.Unmarshal(text[8:8+n], &descr) != nil || len(descr) != 1 || len(descr[0]) != 2 || json.Unmarshal(descr[0][1], &kind) != nil {
		return errors.New("its type is structured, which is not supported")
	}
	if len(kind) < 2 {
		return fmt.Errorf("elements of type %q", kind)
	}
	t, ok := dtype.ParseNumPy(kind[1:])
	if !ok || kind[0] == '>' && t.Size() > 1 {
		return fmt.Errorf("elements of type %.20q are not supported", kind)
	}
	c.dtype = driver.DType(t.String())
	var err error
	c.bytes, err = driver.ArrayBytes(c.dtype, c.shape)
	return err
}
