package pointsource

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/stokerdata/stoker/source/driver"
)

// Limits of headers.
const (
	maxHeader   = 64 << 10
	maxElements = 64
	maxCount    = 1 << 32
)

// property is a number of an element of a .ply file, or a list of numbers.
type property struct {
	name  string
	kind  string // the type's name
	count string // for lists the type of their length, otherwise ""
}

// types are the sizes of types, by either name.
var types = map[string]int{
	"char": 1, "int8": 1, "uchar": 1, "uint8": 1, "short": 2, "int16": 2, "ushort": 2, "uint16": 2,
	"int": 4, "int32": 4, "uint": 4, "uint32": 4, "float": 4, "float32": 4, "double": 8, "float64": 8,
}

// colorNames are the properties of a colour, in order.
var colorNames = []string{"red", "green", "blue", "alpha"}

// element is a table of a .ply file, for example vertices or faces.
type element struct {
	name  string
	count int64
	props []property
}

// layout is the header of a .ply file.
type layout struct {
	ascii  bool
	order  binary.ByteOrder
	before []element // elements before the points
	vertex element
	count  int64
	start  int // offset of the data
	// numbers and colors are indexes of the point's properties.
	numbers, colors []int
}

// names returns the numbers of a point, in the order of the file.
func (l *layout) names() []string {
	var out []string
	for _, i := range append(slices.Clone(l.numbers), l.colors...) {
		out = append(out, l.vertex.props[i].name)
	}
	return out
}

// fields returns the fields of a source whose largest file has this size.
func (l *layout) fields(largest int64) []driver.Field {
	// Other files may be binary if this one is ASCII, and the reverse.
	other := *l
	other.ascii = !l.ascii
	points := (largest + 1) / int64(min(l.least(), other.least()))
	out := []driver.Field{{
		Name: "points", Kind: driver.KindRagged, DType: driver.Float32, Shape: []int{len(l.numbers)},
		MaxBytes: min(points*int64(4*len(l.numbers)), driver.MaxArrayBytes),
	}}
	if len(l.colors) > 0 {
		out = append(out, driver.Field{
			Name: "colors", Kind: driver.KindRagged, DType: driver.Uint8, Shape: []int{len(l.colors)},
			MaxBytes: min(points*int64(len(l.colors)), driver.MaxArrayBytes),
		})
	}
	return out
}

// parseHeader parses the header of a .ply file.
func parseHeader(b []byte) (*layout, error) {
	head := b[:min(len(b), maxHeader)]
	if !bytes.HasPrefix(head, []byte("ply\n")) && !bytes.HasPrefix(head, []byte("ply\r")) {
		return nil, errors.New("not a .ply file: it does not begin with ply")
	}
	l := &layout{}
	var elements []element
	at, format := 0, ""
	for number := 1; ; number++ {
		end := bytes.IndexByte(head[at:], '\n')
		if end < 0 {
			return nil, fmt.Errorf("its header does not end within %d bytes", len(head))
		}
		words := strings.Fields(string(head[at : at+end]))
		at += end + 1
		if len(words) == 0 {
			continue
		}
		bad := func(what string) error {
			return fmt.Errorf("line %d of its header: %.60q %s", number, strings.Join(words, " "), what)
		}
		switch words[0] {
		case "ply", "comment", "obj_info":
			continue
		case "format":
			if len(words) < 2 || !slices.Contains([]string{"ascii", "binary_little_endian", "binary_big_endian"}, words[1]) {
				return nil, bad("is not a format, expected ascii, binary_little_endian or binary_big_endian")
			}
			format = words[1]
		case "element":
			if len(words) != 3 || len(elements) == maxElements {
				return nil, bad("is not an element")
			}
			n, err := strconv.ParseInt(words[2], 10, 64)
			if err != nil || n < 0 || n > maxCount {
				return nil, bad(fmt.Sprintf("needs a number from 0 to %d", int64(maxCount)))
			}
			elements = append(elements, element{name: words[1], count: n})
		case "property":
			if len(elements) == 0 {
				return nil, bad("does not belong to an element")
			}
			e := &elements[len(elements)-1]
			p := property{name: words[len(words)-1]}
			switch {
			case len(words) == 3:
				p.kind = words[1]
			case len(words) == 5 && words[1] == "list":
				p.count, p.kind = words[2], words[3]
				if n := types[p.count]; n == 0 || n > 4 || strings.HasPrefix(p.count, "float") {
					return nil, bad("needs an integer type for its length")
				}
			default:
				return nil, bad("is not a property")
			}
			if types[p.kind] == 0 {
				return nil, bad("has an unknown type")
			}
			if len(e.props) == maxNumbers {
				return nil, bad(fmt.Sprintf("exceeds the limit of %d", maxNumbers))
			}
			e.props = append(e.props, p)
		case "end_header":
			l.start, l.ascii = at, format == "ascii"
			if format == "" {
				return nil, errors.New("its header has no format")
			}
			l.order = binary.LittleEndian
			if format == "binary_big_endian" {
				l.order = binary.BigEndian
			}
			return l, l.take(elements)
		default:
			return nil, bad("is not a valid header line")
		}
	}
}

// take finds the points among the elements.
func (l *layout) take(elements []element) error {
	i := slices.IndexFunc(elements, func(e element) bool { return e.name == "vertex" })
	if i < 0 {
		return errors.New("its header has no element vertex: it has no points")
	}
	l.before, l.vertex = elements[:i], elements[i]
	l.count = l.vertex.count
	for _, color := range colorNames {
		for k, p := range l.vertex.props {
			if p.name == color && types[p.kind] == 1 && p.count == "" {
				l.colors = append(l.colors, k)
			}
		}
	}
	if len(l.colors) < 3 {
		l.colors = nil
	}
	for k, p := range l.vertex.props {
		if p.count != "" {
			return fmt.Errorf("its points have a list, %q: numbers are expected", p.name)
		}
		if !slices.Contains(l.colors, k) {
			l.numbers = append(l.numbers, k)
		}
	}
	if len(l.numbers) == 0 {
		return errors.New("its points have no numbers")
	}
	return nil
}

// least returns the minimum size of a point: in ASCII a digit and a blank per number.
func (l *layout) least() int {
	least := 0
	for _, p := range l.vertex.props {
		if l.ascii {
			least += 2
		} else {
			least += types[p.kind]
		}
	}
	return least
}

// fits returns an error if the points do not fit in a file with these bytes.
func (l *layout) fits(b []byte) error {
	least := l.least()
	// The last line may have no line end.
	if have := int64(len(b)-l.start) + 1; l.count > have/int64(least) {
		return fmt.Errorf("its header has %d points of at least %d bytes, but only %d bytes follow: the file is cut off", l.count, least, have-1)
	}
	return nil
}

// read decodes the points of a whole file to float32 and uint8 numbers.
func (l *layout) read(b, points, colors []byte) error {
	if l.ascii {
		return l.readASCII(b[l.start:], points, colors)
	}
	at := int64(l.start)
	for i := range l.before {
		n, err := l.skip(b[at:], &l.before[i])
		if err != nil {
			return fmt.Errorf("byte %d: element %q: %w", at, l.before[i].name, err)
		}
		at += n
	}
	offset := make([]int, len(l.vertex.props))
	size := 0
	for k, p := range l.vertex.props {
		offset[k] = size
		size += types[p.kind]
	}
	if have := int64(len(b)) - at; have/int64(size) < l.count {
		return fmt.Errorf("byte %d: its header has %d points of %d bytes, but only %d bytes are left: the file is cut off", at, l.count, size, have)
	}
	rows := b[at : at+l.count*int64(size)]
	plain := l.order == binary.LittleEndian && len(l.numbers)*4 == size
	for _, k := range l.numbers {
		plain = plain && (l.vertex.props[k].kind == "float" || l.vertex.props[k].kind == "float32")
	}
	if plain {
		copy(points, rows)
		return nil
	}
	p, c := 0, 0
	for ; len(rows) > 0; rows = rows[size:] {
		for _, k := range l.numbers {
			binary.LittleEndian.PutUint32(points[p:], math.Float32bits(l.number(rows[offset[k]:], l.vertex.props[k].kind)))
			p += 4
		}
		for _, k := range l.colors {
			colors[c] = rows[offset[k]]
			c++
		}
	}
	return nil
}

// number converts a binary number to float32.
func (l *layout) number(b []byte, kind string) float32 {
	switch kind {
	case "char", "int8":
		return float32(int8(b[0]))
	case "uchar", "uint8":
		return float32(b[0])
	case "short", "int16":
		return float32(int16(l.order.Uint16(b)))
	case "ushort", "uint16":
		return float32(l.order.Uint16(b))
	case "int", "int32":
		return float32(int32(l.order.Uint32(b)))
	case "uint", "uint32":
		return float32(l.order.Uint32(b))
	case "double", "float64":
		return float32(math.Float64frombits(l.order.Uint64(b)))
	}
	return math.Float32frombits(l.order.Uint32(b))
}

// skip returns the size of an element.
func (l *layout) skip(b []byte, e *element) (int64, error) {
	at := int64(0)
	for range e.count {
		for _, p := range e.props {
			n := int64(1)
			if p.count != "" {
				if int64(len(b))-at < int64(types[p.count]) {
					return 0, errors.New("the file is cut off")
				}
				n = int64(l.number(b[at:], p.count))
				at += int64(types[p.count])
			}
			if at += n * int64(types[p.kind]); n < 0 || at > int64(len(b)) {
				return 0, errors.New("the file is cut off")
			}
		}
		if len(e.props) == 0 {
			break
		}
	}
	return at, nil
}

// readASCII parses points that are lines of numbers.
func (l *layout) readASCII(b, points, colors []byte) error {
	line := 0
	next := func() ([]byte, bool) {
		for len(b) > 0 {
			end := bytes.IndexByte(b, '\n')
			if end < 0 {
				end = len(b) - 1
			}
			one := bytes.TrimSpace(b[:end+1])
			b = b[end+1:]
			line++
			if len(one) > 0 {
				return one, true
			}
		}
		return nil, false
	}
	for _, e := range l.before {
		for range e.count {
			if _, ok := next(); !ok {
				return fmt.Errorf("the file is cut off in its element %q", e.name)
			}
		}
	}
	p, c := 0, 0
	values := make([]float64, len(l.vertex.props))
	for i := range l.count {
		text, ok := next()
		if !ok {
			return fmt.Errorf("its header has %d points, but only %d follow: the file is cut off", l.count, i)
		}
		words := bytes.Fields(text)
		if len(words) != len(values) {
			return fmt.Errorf("line %d after its header has %d numbers, expected %d", line, len(words), len(values))
		}
		for k, w := range words {
			v, err := strconv.ParseFloat(string(w), 64)
			if err != nil && !math.IsInf(v, 0) {
				return fmt.Errorf("line %d after its header: expected a number, got %.40q", line, w)
			}
			values[k] = v
		}
		for _, k := range l.numbers {
			binary.LittleEndian.PutUint32(points[p:], math.Float32bits(float32(values[k])))
			p += 4
		}
		for _, k := range l.colors {
			if values[k] != math.Trunc(values[k]) || values[k] < 0 || values[k] > 255 {
				return fmt.Errorf("line %d after its header: the colour %v is not from 0 to 255", line, values[k])
			}
			colors[c] = byte(values[k])
			c++
		}
	}
	return nil
}
