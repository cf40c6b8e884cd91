package parquet

import (
	"errors"
	"fmt"
	"math"
)

// Type is a physical type.
type Type int8

// The physical types.
const (
	Boolean Type = iota
	Int32
	Int64
	Int96
	Float
	Double
	ByteArray
	FixedBytes
)

// The converted types that matter for this package.
const (
	convertedUTF8     = 0
	convertedMap      = 1
	convertedMapKV    = 2
	convertedList     = 3
	convertedEnum     = 4
	convertedDecimal  = 5
	convertedUint8    = 11
	convertedInt64    = 18
	convertedJSON     = 19
	convertedInterval = 21
)

// The logical types, by their field in the Thrift union.
const (
	logicalString   = 1
	logicalMap      = 2
	logicalList     = 3
	logicalEnum     = 4
	logicalDecimal  = 5
	logicalInteger  = 10
	logicalUnknown  = 11
	logicalJSON     = 12
	logicalFloat16  = 15
	repeated        = 2
	requiredElement = 0
)

// element is an element of the schema in the file.
type element struct {
	typ       Type
	hasType   bool
	length    int64
	repeat    int64
	name      string
	children  int64
	converted int64
	logical   int16
	bits      int64 // of an integer
	unsigned  bool
	has       bool // converted
}

// Codec is the compression of pages.
type Codec int8

// The codecs.
const (
	None    Codec = 0
	Snappy  Codec = 1
	Gzip    Codec = 2
	LZO     Codec = 3
	Brotli  Codec = 4
	LZ4     Codec = 5 // in Hadoop's frames, deprecated
	Zstd    Codec = 6
	LZ4Raw  Codec = 7
	unknown Codec = -1
)

// Chunk is the metadata of a column in a row group.
type Chunk struct {
	Type  Type
	Codec Codec
	// Values counts leaf values, including nulls. Nulls is -1 if unknown.
	Values, Nulls int64
	// Dict and Data are the offsets of the dictionary page (0: none) and of the first data page. Bytes is the
	// compressed size of all pages, Plain the decompressed size.
	Dict, Data, Bytes, Plain int64
	// Index is the offset of the page index. IndexBytes is 0 if there is none.
	Index      int64
	IndexBytes int64

	file bool // its data is in another file
	path int  // number of names in its path in the schema
	seal bool
}

// Start returns the offset of the first page.
func (c *Chunk) Start() int64 {
	if c.Dict > 0 && c.Dict < c.Data {
		return c.Dict
	}
	return c.Data
}

// Group is a row group.
type Group struct {
	Rows   int64
	Chunks []Chunk // by leaf
}

// Meta is a footer.
type Meta struct {
	Schema *Schema
	Rows   int64
	Groups []Group
	// Features is the metadata of `datasets` about the columns, "" for none.
	Features string
}

// ParseMeta parses the footer of a file of size bytes.
func ParseMeta(b []byte, size int64) (*Meta, error) {
	r := &reader{b: b}
	m := &Meta{}
	var elements []element
	sealed := false
	r.fields(func(id int16, typ byte) {
		switch id {
		case 2:
			r.each(typ, tStruct, func() {
				if len(elements) > maxNodes {
					r.fail("a schema of more than %d columns", maxNodes)
					return
				}
				elements = append(elements, r.element2())
			})
		case 3:
			m.Rows = r.integer(typ)
		case 4:
			r.each(typ, tStruct, func() { m.Groups = append(m.Groups, r.group()) })
		case 5:
			r.each(typ, tStruct, func() {
				key, value := r.keyValue()
				if key == "huggingface" {
					m.Features = value
				}
			})
		case 8:
			sealed = true
		}
	})
	if r.err != nil {
		return nil, r.err
	}
	if sealed {
		return nil, errEncrypted
	}
	var err error
	if m.Schema, err = makeSchema(elements); err != nil {
		return nil, err
	}
	rows := int64(0)
	for i := range m.Groups {
		g := &m.Groups[i]
		if g.Rows < 0 || g.Rows > math.MaxInt32 {
			return nil, damaged("row group %d has %d rows", i, g.Rows)
		}
		rows += g.Rows
		if len(g.Chunks) != len(m.Schema.Leaves) {
			return nil, damaged("row group %d has %d columns, the schema %d", i, len(g.Chunks), len(m.Schema.Leaves))
		}
		for k := range g.Chunks {
			if err := g.Chunks[k].check(m.Schema.Leaves[k], g, size); err != nil {
				return nil, fmt.Errorf("row group %d, column %q: %w", i, m.Schema.Leaves[k].Path, err)
			}
		}
	}
	if m.Rows == 0 { // the first Rust writers did not count
		m.Rows = rows
	}
	if m.Rows != rows || rows > maxRows {
		return nil, damaged("%d rows, its row groups have %d", m.Rows, rows)
	}
	return m, nil
}

var errEncrypted = unsupported("it is encrypted, which is not read")

func (r *reader) keyValue() (key, value string) {
	r.fields(func(id int16, typ byte) {
		switch id {
		case 1:
			key = string(r.text(typ))
		case 2:
			if b := r.text(typ); key == "huggingface" {
				value = string(b)
			}
		}
	})
	return key, value
}

// element2 parses an element of the schema.
func (r *reader) element2() (e element) {
	r.fields(func(id int16, typ byte) {
		switch id {
		case 1:
			e.typ, e.hasType = Type(r.integer(typ)), true
		case 2:
			e.length = r.integer(typ)
		case 3:
			e.repeat = r.integer(typ)
		case 4:
			if b := r.text(typ); len(b) > maxName {
				r.fail("a column with a name of %d bytes", len(b))
			} else {
				e.name = string(b)
			}
		case 5:
			e.children = r.integer(typ)
		case 6:
			e.converted, e.has = r.integer(typ), true
		case 10:
			r.sub(typ, func(id int16, typ byte) {
				e.logical = id
				if id == logicalInteger {
					r.sub(typ, func(id int16, typ byte) {
						switch id {
						case 1:
							e.bits = r.integer(typ)
						case 2:
							e.unsigned = typ == tFalse
						}
					})
				}
			})
		}
	})
	return e
}

func (r *reader) group() (g Group) {
	r.fields(func(id int16, typ byte) {
		switch id {
		case 1:
			r.each(typ, tStruct, func() { g.Chunks = append(g.Chunks, r.chunk()) })
		case 3:
			g.Rows = r.integer(typ)
		}
	})
	return g
}

func (r *reader) chunk() (c Chunk) {
	c.Nulls, c.Codec, c.Type = -1, unknown, -1
	r.fields(func(id int16, typ byte) {
		switch id {
		case 1:
			c.file = len(r.text(typ)) > 0
		case 3:
			r.sub(typ, func(id int16, typ byte) {
				switch id {
				case 1:
					c.Type = Type(r.integer(typ))
				case 3:
					r.each(typ, tBinary, func() { r.bytes(); c.path++ })
				case 4:
					c.Codec = Codec(r.integer(typ))
				case 5:
					c.Values = r.integer(typ)
				case 6:
					c.Plain = r.integer(typ)
				case 7:
					c.Bytes = r.integer(typ)
				case 9:
					c.Data = r.integer(typ)
				case 11:
					c.Dict = r.integer(typ)
				case 12:
					r.sub(typ, func(id int16, typ byte) {
						if id == 3 && typ == tI64 {
							c.Nulls = r.integer(typ)
						}
					})
				}
			})
		case 4:
			c.Index = r.integer(typ)
		case 5:
			c.IndexBytes = r.integer(typ)
		case 8:
			c.seal = true
		}
	})
	return c
}

// check checks a chunk against the schema and the file.
func (c *Chunk) check(l *Leaf, g *Group, size int64) error {
	start := c.Start()
	switch {
	case c.seal || c.file:
		c.IndexBytes = 0
		return nil // Supported refuses it
	case c.Type != l.Type:
		return damaged("type %d in the row group, %d in the schema", c.Type, l.Type)
	case c.Values < 0 || c.Values > math.MaxInt32*16 || l.MaxRep == 0 && c.Values != g.Rows || c.Values < g.Rows:
		return damaged("%d values in %d rows", c.Values, g.Rows)
	case g.Rows == 0:
		return nil
	case start < int64(len(Magic)) || c.Bytes < 1 || start > size || c.Bytes > size-start || c.Data < start || c.Data-start >= c.Bytes || c.Dict < 0:
		return damaged("its pages are at bytes %d to %d of %d", start, start+c.Bytes, size)
	case c.Plain < 0:
		return damaged("%d bytes, decompressed", c.Plain)
	case c.IndexBytes < 0 || c.IndexBytes > 0 && (c.Index < int64(len(Magic)) || c.Index > size || c.IndexBytes > size-c.Index || c.IndexBytes > MaxFooterBytes):
		return damaged("its page index is at bytes %d to %d of %d", c.Index, c.Index+c.IndexBytes, size)
	}
	if c.Nulls > c.Values {
		c.Nulls = -1
	}
	return nil
}

// Supported returns an error for a chunk that is not read.
func (c *Chunk) Supported() error {
	switch {
	case c.seal:
		return errEncrypted
	case c.file:
		return unsupported("its data is in another file, which is not read")
	}
	return c.Codec.check()
}

// The encodings.
const (
	encPlain       = 0
	encPlainDict   = 2
	encRLE         = 3
	encBitPacked   = 4
	encDelta       = 5
	encDeltaLength = 6
	encDeltaBytes  = 7
	encDict        = 8
	encSplit       = 9
)

var encodings = map[int64]string{encPlain: "PLAIN", encPlainDict: "PLAIN_DICTIONARY", encRLE: "RLE", encBitPacked: "BIT_PACKED", encDelta: "DELTA_BINARY_PACKED",
	encDeltaLength: "DELTA_LENGTH_BYTE_ARRAY", encDeltaBytes: "DELTA_BYTE_ARRAY", encDict: "RLE_DICTIONARY", encSplit: "BYTE_STREAM_SPLIT"}

func encodingName(e int64) string {
	if name, ok := encodings[e]; ok {
		return name
	}
	return fmt.Sprintf("number %d", e)
}

// The types of pages.
const (
	pageData   = 0
	pageIndex  = 1
	pageDict   = 2
	pageDataV2 = 3
)

// Header is the header of a page.
type Header struct {
	// Size is the size of the header, Bytes the size of the page after it, Plain the decompressed size of the page.
	Size, Bytes, Plain int64
	// Values counts leaf values including nulls, or the values of a dictionary. Rows is -1 if unknown.
	Values, Rows int64

	kind       int64
	crc        uint32
	hasCRC     bool
	enc        int64
	repEnc     int64 // encoding of the repetition levels
	defEnc     int64 // encoding of the definition levels
	reps, defs int64 // bytes of levels, in version 2
	stored     bool  // not compressed, in version 2
	known      bool  // the header of its page type is present
}

// IsDict reports whether the page is a dictionary.
func (h *Header) IsDict() bool { return h.kind == pageDict }

// IsData reports whether the page has data.
func (h *Header) IsData() bool { return h.kind == pageData || h.kind == pageDataV2 }

// Encoded reports whether the values are indexes into the dictionary.
func (h *Header) Encoded() bool { return h.IsData() && (h.enc == encDict || h.enc == encPlainDict) }

// IsPlain reports whether the values are stored unencoded.
func (h *Header) IsPlain() bool { return h.enc == encPlain || h.IsDict() }

// ErrShort is the error for a header that is cut off.
var ErrShort = errors.New("a page header is cut off")

// shortError wraps the parse error of a header that may only be cut off.
type shortError struct{ error }

func (e *shortError) Is(target error) bool { return target == ErrShort }
func (e *shortError) Unwrap() error        { return e.error }

// ParseHeader parses the page header at the start of b.
func ParseHeader(b []byte) (*Header, error) {
	h := &Header{Rows: -1, repEnc: encRLE, defEnc: encRLE}
	r := &reader{b: b}
	r.fields(func(id int16, typ byte) {
		switch id {
		case 1:
			h.kind = r.integer(typ)
		case 2:
			h.Plain = r.integer(typ)
		case 3:
			h.Bytes = r.integer(typ)
		case 4:
			h.crc, h.hasCRC = uint32(r.integer(typ)), true
		case 5:
			r.sub(typ, func(id int16, typ byte) {
				h.known = h.known || h.kind == pageData
				switch id {
				case 1:
					h.Values = r.integer(typ)
				case 2:
					h.enc = r.integer(typ)
				case 3:
					h.defEnc = r.integer(typ)
				case 4:
					h.repEnc = r.integer(typ)
				}
			})
		case 7:
			r.sub(typ, func(id int16, typ byte) {
				h.known = h.known || h.kind == pageDict
				switch id {
				case 1:
					h.Values = r.integer(typ)
				case 2:
					h.enc = r.integer(typ)
				}
			})
		case 8:
			r.sub(typ, func(id int16, typ byte) {
				h.known = h.known || h.kind == pageDataV2
				switch id {
				case 1:
					h.Values = r.integer(typ)
				case 3:
					h.Rows = r.integer(typ)
				case 4:
					h.enc = r.integer(typ)
				case 5:
					h.defs = r.integer(typ)
				case 6:
					h.reps = r.integer(typ)
				case 7:
					h.stored = typ == tFalse
				}
			})
		}
	})
	if r.err != nil {
		return nil, &shortError{r.err}
	}
	h.Size = int64(r.pos)
	switch {
	case h.Bytes < 0 || h.Plain < 0 || h.Bytes > math.MaxInt32:
		return nil, damaged("a page of %d bytes, %d when decompressed", h.Bytes, h.Plain)
	case h.Plain > MaxUnit:
		return nil, fmt.Errorf("a page has %d bytes decompressed, the limit is %d: write the file with smaller pages", h.Plain, MaxUnit)
	case h.Plain > ratioFrom && h.Plain > ratio*h.Bytes:
		return nil, damaged("a page of %d bytes decompresses to %d", h.Bytes, h.Plain)
	case !h.IsData() && !h.IsDict():
		return h, nil
	case !h.known || h.Values < 0 || h.Values > math.MaxInt32:
		return nil, damaged("a page of %d values", h.Values)
	case h.Rows > h.Values || h.Rows < -1 || h.kind == pageDataV2 && h.Rows < 0:
		return nil, damaged("a page of %d rows and %d values", h.Rows, h.Values)
	case h.reps < 0 || h.defs < 0 || h.reps > h.Bytes || h.defs > h.Bytes-h.reps || h.reps+h.defs > h.Plain:
		return nil, damaged("levels of %d and %d bytes in a page of %d", h.reps, h.defs, h.Bytes)
	}
	return h, nil
}

// Place is the position of a page from a page index, including the header, and its first row.
type Place struct{ Off, Bytes, Row int64 }

// ParseIndex parses the page index of a chunk with this number of rows.
func ParseIndex(b []byte, c *Chunk, rows int64) ([]Place, error) {
	r := &reader{b: b}
	var out []Place
	r.fields(func(id int16, typ byte) {
		if id != 1 {
			return
		}
		r.each(typ, tStruct, func() {
			var p Place
			r.fields(func(id int16, typ byte) {
				switch id {
				case 1:
					p.Off = r.integer(typ)
				case 2:
					p.Bytes = r.integer(typ)
				case 3:
					p.Row = r.integer(typ)
				}
			})
			out = append(out, p)
		})
	})
	if r.err != nil {
		return nil, r.err
	}
	end, row := c.Start(), int64(0)
	for i, p := range out {
		if p.Off < end || p.Bytes < 1 || p.Bytes > c.Start()+c.Bytes-p.Off || p.Row < row || p.Row >= rows || i == 0 && p.Row != 0 {
			return nil, damaged("its index has page %d at row %d of %d, bytes %d to %d", i, p.Row, rows, p.Off, p.Off+p.Bytes)
		}
		end, row = p.Off+p.Bytes, p.Row
	}
	if len(out) == 0 {
		return nil, damaged("its index has no pages")
	}
	return out, nil
}
