// Package jsonread reads JSON files of any size in order, within little memory:
// values come one after the other, and what nobody wants is passed over without
// being kept. Errors name the file and the byte.
package jsonread

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/stokerdata/stoker/store"
)

const (
	// bufferBytes is read at once.
	bufferBytes = 1 << 20
	// MaxString is the longest string or number that is kept, in bytes.
	MaxString = 1 << 20
	// maxDepth is how deeply values may lie in each other.
	maxDepth = 512
)

// Reader reads one file. It belongs to one goroutine.
type Reader struct {
	ctx  context.Context
	obj  store.Object
	path string
	size int64

	buf   []byte
	pos   int
	at    int64 // offset in the file of what lies behind buf
	err   error
	text  []byte // of the last string or number
	depth int
}

// New reads an open object, which path names in messages.
func New(ctx context.Context, obj store.Object, path string) *Reader {
	return &Reader{ctx: ctx, obj: obj, path: path, size: obj.Size()}
}

// Offset is the place in the file of the byte that comes next.
func (r *Reader) Offset() int64 { return r.at - int64(len(r.buf)-r.pos) }

// Errorf is an error at the present place.
func (r *Reader) Errorf(format string, a ...any) error {
	return fmt.Errorf("%s, byte %d: %s", r.path, r.Offset(), fmt.Sprintf(format, a...))
}

// fill reads on; it is false at the end or after an error.
func (r *Reader) fill() bool {
	if r.err != nil || r.at >= r.size {
		return false
	}
	if r.buf == nil {
		r.buf = make([]byte, 0, min(r.size, bufferBytes))
	}
	n := min(r.size-r.at, bufferBytes)
	r.buf, r.pos = r.buf[:n], 0
	if r.err = r.obj.ReadAt(r.ctx, r.buf, r.at); r.err != nil {
		r.buf = r.buf[:0]
		return false
	}
	r.at += n
	return true
}

// ended is the error of a file that ends too early, or of reading it.
func (r *Reader) ended() error {
	if r.err != nil {
		return r.err
	}
	return r.Errorf("the file ends in the middle of its JSON: it is cut off")
}

// peek returns the next byte that is no space.
func (r *Reader) peek() (byte, error) {
	for {
		for r.pos < len(r.buf) {
			switch c := r.buf[r.pos]; c {
			case ' ', '\t', '\n', '\r':
				r.pos++
			default:
				return c, nil
			}
		}
		if !r.fill() {
			return 0, r.ended()
		}
	}
}

// next takes one byte, which may be a space.
func (r *Reader) next() (byte, error) {
	if r.pos == len(r.buf) && !r.fill() {
		return 0, r.ended()
	}
	c := r.buf[r.pos]
	r.pos++
	return c, nil
}

func (r *Reader) expect(want byte) error {
	c, err := r.peek()
	if err != nil {
		return err
	}
	if c != want {
		return r.Errorf("there is %q, where %q should be", rune(c), rune(want))
	}
	r.pos++
	return nil
}

// Kind is the first byte of the value that comes next: one of { [ " t f n or that
// of a number.
func (r *Reader) Kind() (byte, error) { return r.peek() }

// BOM passes over a byte order mark at the beginning.
func (r *Reader) BOM() {
	if len(r.buf) > 0 || r.fill() {
		if r.pos == 0 && len(r.buf) >= 3 && string(r.buf[:3]) == "\xEF\xBB\xBF" {
			r.pos = 3
		}
	}
}

// End checks that nothing follows.
func (r *Reader) End() error {
	c, err := r.peek()
	if err == nil {
		return r.Errorf("%q follows the end of the JSON", rune(c))
	}
	return r.err
}

// enter begins a list or an object.
func (r *Reader) enter(open byte) error {
	if err := r.expect(open); err != nil {
		return err
	}
	if r.depth++; r.depth > maxDepth {
		return r.Errorf("values lie more than %d deep in each other", maxDepth)
	}
	return nil
}

// more says whether another element follows, behind a comma unless it is the first
// one; otherwise it takes the end.
func (r *Reader) more(first bool, end byte) (bool, error) {
	c, err := r.peek()
	switch {
	case err != nil:
		return false, err
	case c == end:
		r.pos++
		r.depth--
		return false, nil
	case first:
		return true, nil
	}
	return true, r.expect(',')
}

// Object reads an object: f is called for each member and has to read its value.
// The key is valid until f reads.
func (r *Reader) Object(f func(key []byte) error) error {
	if err := r.enter('{'); err != nil {
		return err
	}
	for first := true; ; first = false {
		more, err := r.more(first, '}')
		if err != nil || !more {
			return err
		}
		key, err := r.String()
		if err != nil {
			return err
		}
		if err := r.expect(':'); err != nil {
			return err
		}
		if err := f(key); err != nil {
			return err
		}
	}
}

// Array reads a list: f is called for each element and has to read it.
func (r *Reader) Array(f func() error) error {
	if err := r.enter('['); err != nil {
		return err
	}
	for first := true; ; first = false {
		more, err := r.more(first, ']')
		if err != nil || !more {
			return err
		}
		if err := f(); err != nil {
			return err
		}
	}
}

// String reads a string. It is valid until the next one or the next number is
// read.
func (r *Reader) String() ([]byte, error) {
	if err := r.expect('"'); err != nil {
		return nil, err
	}
	r.text = r.text[:0]
	for {
		if r.pos == len(r.buf) && !r.fill() {
			return nil, r.ended()
		}
		run := r.buf[r.pos:]
		n := 0
		for n < len(run) && run[n] != '"' && run[n] != '\\' && run[n] >= ' ' {
			n++
		}
		r.text = append(r.text, run[:n]...)
		r.pos += n
		if len(r.text) > MaxString {
			return nil, r.Errorf("a string has more than %d bytes", MaxString)
		}
		if n == len(run) {
			continue
		}
		r.pos++
		switch run[n] {
		case '"':
			return r.text, nil
		case '\\':
			if err := r.escape(); err != nil {
				return nil, err
			}
		default:
			return nil, r.Errorf("a control character in a string")
		}
	}
}

func (r *Reader) escape() error {
	c, err := r.next()
	if err != nil {
		return err
	}
	switch c {
	case '"', '\\', '/':
		r.text = append(r.text, c)
	case 'b':
		r.text = append(r.text, '\b')
	case 'f':
		r.text = append(r.text, '\f')
	case 'n':
		r.text = append(r.text, '\n')
	case 'r':
		r.text = append(r.text, '\r')
	case 't':
		r.text = append(r.text, '\t')
	case 'u':
		return r.unicode()
	default:
		return r.Errorf("the escape \\%c", rune(c))
	}
	return nil
}

func (r *Reader) unicode() error {
	a, err := r.hex4()
	if err != nil {
		return err
	}
	for utf16.IsSurrogate(a) {
		// Its other half, or something else, which then comes behind a mark.
		if c, err := r.next(); err != nil {
			return err
		} else if c != '\\' {
			r.pos--
			a = utf8.RuneError
			break
		}
		if c, err := r.next(); err != nil {
			return err
		} else if c != 'u' {
			r.text = utf8.AppendRune(r.text, utf8.RuneError)
			r.pos--
			return r.escape()
		}
		b, err := r.hex4()
		if err != nil {
			return err
		}
		if both := utf16.DecodeRune(a, b); both != utf8.RuneError {
			a = both
			break
		}
		r.text = utf8.AppendRune(r.text, utf8.RuneError)
		a = b
	}
	r.text = utf8.AppendRune(r.text, a)
	return nil
}

func (r *Reader) hex4() (rune, error) {
	n := rune(0)
	for range 4 {
		c, err := r.next()
		if err != nil {
			return 0, err
		}
		switch {
		case c >= '0' && c <= '9':
			n = n<<4 | rune(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			n = n<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, r.Errorf("a \\u without four digits")
		}
	}
	return n, nil
}

// number takes the text of a number.
func (r *Reader) number() ([]byte, error) {
	if _, err := r.peek(); err != nil {
		return nil, err
	}
	r.text = r.text[:0]
	for {
		run := r.buf[r.pos:]
		n := 0
		for n < len(run) && (run[n] >= '0' && run[n] <= '9' || run[n] == '-' || run[n] == '+' || run[n] == '.' || run[n]|0x20 == 'e') {
			n++
		}
		r.text = append(r.text, run[:n]...)
		r.pos += n
		if len(r.text) > MaxString {
			return nil, r.Errorf("a number has more than %d digits", MaxString)
		}
		if n < len(run) || !r.fill() {
			break
		}
	}
	if r.err != nil {
		return nil, r.err
	}
	if len(r.text) == 0 {
		c, err := r.peek()
		if err != nil {
			return nil, err
		}
		return nil, r.Errorf("there is %q, where a number should be", rune(c))
	}
	return r.text, nil
}

// Float reads a number, which is finite.
func (r *Reader) Float() (float64, error) {
	b, err := r.number()
	if err != nil {
		return 0, err
	}
	if v, ok := short(b); ok {
		return v, nil
	}
	v, err := strconv.ParseFloat(string(b), 64)
	if err != nil || math.IsInf(v, 0) {
		return 0, r.Errorf("%q is no number", clip(b))
	}
	return v, nil
}

// tens are powers that are exact.
var tens = [...]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15}

// short reads numbers with few digits and no exponent: both halves of the division
// are exact, so that the result is the nearest one there is.
func short(b []byte) (float64, bool) {
	neg := b[0] == '-'
	if neg {
		b = b[1:]
	}
	n, digits, point := uint64(0), 0, -1
	for i, c := range b {
		switch {
		case c >= '0' && c <= '9':
			n = n*10 + uint64(c-'0')
			digits++
		case c == '.' && point < 0 && i > 0 && i < len(b)-1:
			point = digits
		default:
			return 0, false
		}
	}
	if digits == 0 || digits > 15 {
		return 0, false
	}
	v := float64(n)
	if point >= 0 {
		v /= tens[digits-point]
	}
	if neg {
		v = -v
	}
	return v, true
}

// Int reads a whole number; one that is written as 3.0 will do.
func (r *Reader) Int() (int64, error) {
	b, err := r.number()
	if err != nil {
		return 0, err
	}
	if n, err := strconv.ParseInt(string(b), 10, 64); err == nil {
		return n, nil
	}
	v, err := strconv.ParseFloat(string(b), 64)
	if err != nil || v != math.Trunc(v) || math.Abs(v) > 1<<53 {
		return 0, r.Errorf("%q is no whole number", clip(b))
	}
	return int64(v), nil
}

// Bool reads true, false or a number, which is true unless it is 0.
func (r *Reader) Bool() (bool, error) {
	c, err := r.peek()
	if err != nil {
		return false, err
	}
	switch c {
	case 't':
		return true, r.word("true")
	case 'f':
		return false, r.word("false")
	}
	v, err := r.Float()
	return v != 0, err
}

// Null takes null, when that comes next.
func (r *Reader) Null() (bool, error) {
	c, err := r.peek()
	if err != nil || c != 'n' {
		return false, err
	}
	return true, r.word("null")
}

func (r *Reader) word(w string) error {
	for i := range len(w) {
		c, err := r.next()
		if err != nil {
			return err
		}
		if c != w[i] {
			return r.Errorf("it is no JSON: there should be %s", w)
		}
	}
	return nil
}

// Skip passes over the next value and says where it lies in the file.
func (r *Reader) Skip() (from, to int64, err error) {
	c, err := r.peek()
	if err != nil {
		return 0, 0, err
	}
	from = r.Offset()
	switch c {
	case '"':
		r.pos++
		err = r.skipString()
	case '{', '[':
		err = r.skipNested()
	case 't':
		err = r.word("true")
	case 'f':
		err = r.word("false")
	case 'n':
		err = r.word("null")
	default:
		_, err = r.number()
	}
	return from, r.Offset(), err
}

// skipString passes over the rest of a string.
func (r *Reader) skipString() error {
	for {
		c, err := r.next()
		switch {
		case err != nil:
			return err
		case c == '"':
			return nil
		case c == '\\':
			if _, err := r.next(); err != nil {
				return err
			}
		}
	}
}

// bracket says what skipNested has to look at.
var bracket = [256]int8{'[': 1, '{': 1, ']': -1, '}': -1, '"': 2}

// skipNested passes over a list or an object by its brackets alone.
func (r *Reader) skipNested() error {
	for depth := 0; ; {
		run := r.buf[r.pos:]
		for i, c := range run {
			b := bracket[c]
			if b == 0 {
				continue
			}
			if b == 2 {
				r.pos += i + 1
				if err := r.skipString(); err != nil {
					return err
				}
				run = nil
				break
			}
			if depth += int(b); depth == 0 {
				r.pos += i + 1
				return nil
			}
			if depth > maxDepth {
				return r.Errorf("values lie more than %d deep in each other", maxDepth)
			}
		}
		if run != nil {
			r.pos += len(run)
		}
		if r.pos == len(r.buf) && !r.fill() {
			return r.ended()
		}
	}
}

func clip(b []byte) string {
	if len(b) > 40 {
		return string(b[:40]) + "..."
	}
	return string(b)
}
