// Package jsonread parses JSON files of any size as a stream, with little memory. Values that the caller does not
// need are skipped. Errors name the file and the offset.
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
	// bufferBytes is the size of a read.
	bufferBytes = 1 << 20
	// MaxString is the maximum length of a string or number in bytes.
	MaxString = 1 << 20
	// maxDepth is the maximum depth of nested values.
	maxDepth = 512
)

// Reader parses one file. It is not safe for concurrent use.
type Reader struct {
	ctx  context.Context
	obj  store.Object
	path string
	size int64

	buf   []byte
	pos   int
	at    int64 // offset in the file of the end of buf
	err   error
	text  []byte // the last string or number
	depth int
}

// New returns a Reader of an open object. path is its name in messages.
func New(ctx context.Context, obj store.Object, path string) *Reader {
	return &Reader{ctx: ctx, obj: obj, path: path, size: obj.Size()}
}

// Offset returns the offset of the next byte in the file.
func (r *Reader) Offset() int64 { return r.at - int64(len(r.buf)-r.pos) }

// Errorf returns an error at the current offset.
func (r *Reader) Errorf(format string, a ...any) error {
	return fmt.Errorf("%s, byte %d: %s", r.path, r.Offset(), fmt.Sprintf(format, a...))
}

// fill reads the next bytes. It returns false at the end or after an error.
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

// ended returns the read error, or the error for an incomplete file.
func (r *Reader) ended() error {
	if r.err != nil {
		return r.err
	}
	return r.Errorf("the file ends in the middle of its JSON: it is cut off")
}

// peek returns the next byte that is not a space.
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

// next consumes one byte, which may be a space.
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
		return r.Errorf("expected %[2]q, got %[1]q", rune(c), rune(want))
	}
	r.pos++
	return nil
}

// Kind returns the first byte of the next value: { [ " t f n or the first byte of a number.
func (r *Reader) Kind() (byte, error) { return r.peek() }

// BOM skips a byte order mark at the start.
func (r *Reader) BOM() {
	if len(r.buf) > 0 || r.fill() {
		if r.pos == 0 && len(r.buf) >= 3 && string(r.buf[:3]) == "\xEF\xBB\xBF" {
			r.pos = 3
		}
	}
}

// End returns an error if anything follows.
func (r *Reader) End() error {
	c, err := r.peek()
	if err == nil {
		return r.Errorf("%q follows the end of the JSON", rune(c))
	}
	return r.err
}

// enter starts an array or an object.
func (r *Reader) enter(open byte) error {
	if err := r.expect(open); err != nil {
		return err
	}
	if r.depth++; r.depth > maxDepth {
		return r.Errorf("values are nested more than %d deep", maxDepth)
	}
	return nil
}

// more reports whether another element follows. It consumes the comma before it, or the end.
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

// Object parses an object. It calls f for each member, which must read the value. The key is valid until f reads.
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

// Array parses an array. It calls f for each element, which must read it.
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

// String parses a string. It is valid until the next string or number.
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
			return nil, r.Errorf("a string contains a control character")
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
		return r.Errorf("invalid escape \\%c", rune(c))
	}
	return nil
}

func (r *Reader) unicode() error {
	a, err := r.hex4()
	if err != nil {
		return err
	}
	for utf16.IsSurrogate(a) {
		// The second half of a pair follows, or else the first half becomes a replacement character.
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
			return 0, r.Errorf("\\u needs four hexadecimal digits")
		}
	}
	return n, nil
}

// number consumes the text of a number.
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
		return nil, r.Errorf("expected a number, got %q", rune(c))
	}
	return r.text, nil
}

// Float parses a finite number.
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
		return 0, r.Errorf("expected a number, got %q", clip(b))
	}
	return v, nil
}

// Number is Float for values that need not be numbers. It skips others, and returns NaN for them and for the literals
// NaN and Infinity, which Python writes.
func (r *Reader) Number() (float64, error) {
	c, err := r.peek()
	if err != nil {
		return 0, err
	}
	if c >= '0' && c <= '9' || c == '-' && r.pos+1 < len(r.buf) && r.buf[r.pos+1] != 'I' {
		return r.Float()
	}
	_, _, err = r.Skip()
	return math.NaN(), err
}

// tens are the powers of ten that are exact.
var tens = [...]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15}

// short parses numbers with few digits and no exponent. Both operands of the division are exact, so the result is
// correctly rounded.
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

// Int parses an integer. It accepts 3.0.
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
		return 0, r.Errorf("expected an integer, got %q", clip(b))
	}
	return int64(v), nil
}

// Bool parses true, false or a number. A number is true unless it is 0.
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

// Null consumes null, if it is the next value, and reports whether it was.
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
			return r.Errorf("invalid JSON: expected %s", w)
		}
	}
	return nil
}

// Skip skips the next value and returns its range in the file.
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
	case 'N':
		err = r.word("NaN")
	case 'I':
		err = r.word("Infinity")
	default:
		var b []byte
		if b, err = r.number(); err == nil && string(b) == "-" {
			err = r.word("Infinity")
		}
	}
	return from, r.Offset(), err
}

// skipString skips the rest of a string.
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

// bracket classifies the bytes that skipNested must handle.
var bracket = [256]int8{'[': 1, '{': 1, ']': -1, '}': -1, '"': 2}

// skipNested skips an array or an object by counting brackets.
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
				return r.Errorf("values are nested more than %d deep", maxDepth)
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
