package parquetsink

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/stokerdata/stoker/internal/dtype"
)

// Numbers of the physical types, compressions and repetitions in Parquet.
const (
	physInt32  = 1
	physInt64  = 2
	physFloat  = 4
	physDouble = 5
	physBytes  = 6
	physFixed  = 7

	codecNone   = 0
	codecSnappy = 1
	codecZstd   = 6

	optional = 1
	repeated = 2
)

// logical is the meaning of values beyond their physical type.
type logical uint8

const (
	plain logical = iota
	text
	list
	float16
	integer // of Bits, Signed
)

// node is an element of the schema.
type node struct {
	name       string
	repetition int32 // -1 for the root
	children   int32
	physical   int32
	size       int32 // of physFixed
	logical    logical
	bits       int8
	signed     bool
}

// column collects the values of a leaf of the schema until a row group is full.
type column struct {
	path     []string
	node     node
	codec    int32
	t        dtype.Type // of elements, 0 if not an array
	lists    int        // nesting depth of the lists
	maxDef   int
	shape    []int // sides of the lists; the first one is 0 if it differs per record
	width    int   // bytes of an input value
	stats    bool
	page     page   // current page
	done     []page // full pages of this row group
	rowStart int64  // first row of the current page, in the row group
}

// page is a data page.
type page struct {
	rows, values int64
	rep, def     levels
	data         []byte
	min, max     uint64
	floats, any  bool
	unordered    bool // some values have no order (NaN)

	first int64 // row
	raw   int   // bytes before compression
	head  []byte
	body  []byte
}

// pageBytes is the target size of pages.
const pageBytes = 1 << 20

// levels are small numbers, run-length encoded.
type levels struct {
	b   []byte
	cur byte
	n   uint64
}

func (l *levels) add(v byte, n uint64) {
	if n == 0 {
		return
	}
	if v != l.cur {
		l.flush()
		l.cur = v
	}
	l.n += n
}

func (l *levels) flush() {
	if l.n > 0 {
		l.b = append(binary.AppendUvarint(l.b, l.n<<1), l.cur)
		l.n = 0
	}
}

// append appends the runs, preceded by their size.
func (l *levels) append(b []byte) []byte {
	l.flush()
	return append(binary.LittleEndian.AppendUint32(b, uint32(len(l.b))), l.b...)
}

// bytes adds a byte string.
func (c *column) bytes(v []byte) {
	p := &c.page
	p.data = append(binary.LittleEndian.AppendUint32(p.data, uint32(len(v))), v...)
	c.one(p)
}

// int adds an integer.
func (c *column) int(x int64) {
	p := &c.page
	if !p.any || x < int64(p.min) {
		p.min = uint64(x)
	}
	if !p.any || x > int64(p.max) {
		p.max = uint64(x)
	}
	p.any = true
	p.data = binary.LittleEndian.AppendUint64(p.data, uint64(x))
	c.one(p)
}

func (c *column) float(x float64) {
	p := &c.page
	switch {
	case math.IsNaN(x):
		p.unordered = true
	case !p.any:
		p.min, p.max, p.any = math.Float64bits(x), math.Float64bits(x), true
	default:
		p.min = math.Float64bits(min(x, math.Float64frombits(p.min)))
		p.max = math.Float64bits(max(x, math.Float64frombits(p.max)))
	}
	p.floats = true
	p.data = binary.LittleEndian.AppendUint64(p.data, math.Float64bits(x))
	c.one(p)
}

// one counts a value that is a row.
func (c *column) one(p *page) {
	p.def.add(byte(c.maxDef), 1)
	p.values++
	c.endRow(p)
}

// array adds the elements of a row.
func (c *column) array(v []byte) {
	p := &c.page
	n := int64(len(v) / c.width)
	if n == 0 { // a list that exists and is empty
		p.rep.add(0, 1)
		p.def.add(1, 1)
		p.values++
		c.endRow(p)
		return
	}
	p.def.add(byte(c.maxDef), uint64(n))
	c.repetitions(p, n)
	p.values += n
	c.elements(p, v)
	c.endRow(p)
}

// repetitions adds the repetition level of n elements: the number of enclosing lists that continue.
func (c *column) repetitions(p *page, n int64) {
	d := c.lists
	if d == 1 {
		p.rep.add(0, 1)
		p.rep.add(1, uint64(n-1))
		return
	}
	last := int64(c.shape[d-1])
	for at := int64(0); at < n; at += last {
		level, below := d-1, last
		for k := d - 2; k > 0; k-- {
			if below *= int64(c.shape[k]); at%below != 0 {
				break
			}
			level--
		}
		if at == 0 {
			level = 0
		}
		p.rep.add(byte(level), 1)
		p.rep.add(byte(d), uint64(last-1))
	}
}

// elements appends elements in the PLAIN encoding, in which small integers have 32 bits.
func (c *column) elements(p *page, v []byte) {
	switch c.t {
	case dtype.U16: // a fast path, since there are many tokens
		at := len(p.data)
		p.data = slices.Grow(p.data, 2*len(v))[:at+2*len(v)]
		for out := p.data[at:]; len(v) >= 2 && len(out) >= 4; v, out = v[2:], out[4:] {
			binary.LittleEndian.PutUint32(out, uint32(v[0])|uint32(v[1])<<8)
		}
	case dtype.U8, dtype.I8, dtype.I16:
		for at := 0; at < len(v); at += c.width {
			p.data = binary.LittleEndian.AppendUint32(p.data, uint32(c.t.Int(v[at:])))
		}
	default:
		p.data = append(p.data, v...)
	}
}

// endRow counts a row and starts a new page if this one is full.
func (c *column) endRow(p *page) {
	p.rows++
	if len(p.data) >= pageBytes || p.rows >= 20000 {
		c.cut()
	}
}

func (c *column) cut() {
	if c.page.rows == 0 {
		return
	}
	c.page.first = c.rowStart
	c.rowStart += c.page.rows
	c.done = append(c.done, c.page)
	c.page = page{}
}

// bounds returns the smallest and largest value of pages. ok is false if there are none.
func bounds(pages []page) (low, high []byte, ok bool) {
	var all page
	for i := range pages {
		p := &pages[i]
		if p.unordered || !p.any {
			return nil, nil, false
		}
		less := func(a, b uint64) bool {
			if p.floats {
				return math.Float64frombits(a) < math.Float64frombits(b)
			}
			return int64(a) < int64(b)
		}
		if i == 0 || less(p.min, all.min) {
			all.min = p.min
		}
		if i == 0 || less(all.max, p.max) {
			all.max = p.max
		}
		all.floats = p.floats
	}
	if all.floats { // 0 and -0 are equal
		if math.Float64frombits(all.min) == 0 {
			all.min = math.Float64bits(math.Copysign(0, -1))
		}
		if math.Float64frombits(all.max) == 0 {
			all.max = 0
		}
	}
	return binary.LittleEndian.AppendUint64(nil, all.min), binary.LittleEndian.AppendUint64(nil, all.max), len(pages) > 0
}
