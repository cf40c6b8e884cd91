package cifarsource

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The Python format of CIFAR uses pickles, which are programs: a normal unpickler runs any code in them. This one
// knows the opcodes that these files need, and builds lists, dictionaries, strings, numbers and NumPy arrays. It
// calls nothing and refuses everything else, with the opcode and its offset. Long strings, such as the pixels of
// all images, are not read: only their position is noted.

// Limits of a pickle.
const (
	// inlineBytes is the length limit of strings that are read.
	inlineBytes = 16 << 10
	// maxText limits the total length of strings that are read, maxOps the number of opcodes.
	maxText = 64 << 20
	maxOps  = 1 << 20
	// window is the read size.
	window = 64 << 10
)

// The values in a pickle: nil, bool, int64, float64, string (Python's bytes and str), and the following types.
type (
	list  struct{ items []any }
	dict  struct{ keys, values []any }
	tuple []any
	// global is the name of an object in a Python module.
	global string
	dtype  struct{ name, order string }
	array  struct {
		shape []int64
		dtype dtype
		data  blob
	}
	// blob is the position of a string that is not read: size bytes at an offset of the file, encoded as form. A
	// short string that is the data of an array is also a blob.
	blob struct {
		at, size int64
		form     form
		short    []byte // the string itself, if form is raw
	}
	mark struct{}
)

// form is the encoding of a string.
type form int

const (
	raw        form = iota // unchanged bytes
	utf8Text               // UTF-8 whose characters are bytes (Latin-1)
	quoted                 // Python's repr, with backslashes
	rawUnicode             // Python's raw-unicode-escape, with \u
)

// get returns the value of a key.
func (d *dict) get(key string) (any, bool) {
	for i, k := range d.keys {
		if k == key {
			return d.values[i], true
		}
	}
	return nil, false
}

// keyNames lists the keys, for messages.
func (d *dict) keyNames() string {
	var names []string
	for _, k := range d.keys[:min(len(d.keys), 10)] {
		names = append(names, fmt.Sprintf("%.40q", fmt.Sprint(k)))
	}
	return strings.Join(names, ", ")
}

// unpickler parses one pickle.
type unpickler struct {
	r    io.ReaderAt
	size int64
	at   int64 // offset of the next byte
	buf  []byte
	from int64 // offset of buf
	op   int64 // offset of the current opcode

	stack []any
	memo  map[int64]any
	text  int64
}

// errPickle is wrapped by the errors for unsupported pickles.
var errPickle = errors.New("not a supported pickle")

func (u *unpickler) bad(format string, a ...any) error {
	return fmt.Errorf("byte %d: %w: %s", u.op, errPickle, fmt.Sprintf(format, a...))
}

// unpickle returns the value of the pickle in r.
func unpickle(r io.ReaderAt, size int64) (any, error) {
	u := &unpickler{r: r, size: size, memo: map[int64]any{}}
	for range maxOps {
		u.op = u.at
		b, err := u.next(1)
		if err != nil {
			return nil, err
		}
		if b[0] == '.' {
			return u.pop()
		}
		if err := u.do(b[0]); err != nil {
			return nil, err
		}
	}
	return nil, u.bad("it has more than %d opcodes", maxOps)
}

// next reads n bytes. n is at most inlineBytes.
func (u *unpickler) next(n int64) ([]byte, error) {
	if n > u.size-u.at {
		return nil, u.bad("the file is cut off: it ends at byte %d", u.size)
	}
	if u.at < u.from || u.at+n > u.from+int64(len(u.buf)) {
		if u.buf == nil {
			u.buf = make([]byte, 0, window)
		}
		u.buf, u.from = u.buf[:min(max(n, window), u.size-u.at)], u.at
		if _, err := u.r.ReadAt(u.buf, u.at); err != nil {
			u.buf = u.buf[:0]
			return nil, err
		}
	}
	b := u.buf[u.at-u.from:][:n]
	u.at += n
	return b, nil
}

// line reads to the end of a line. For a long line it returns only the position.
func (u *unpickler) line() (string, blob, error) {
	from := u.at
	var long []byte
	for {
		n := min(u.size-u.at, 4<<10)
		b, err := u.next(n)
		if err != nil {
			return "", blob{}, err
		}
		if n == 0 {
			return "", blob{}, u.bad("the file is cut off: a line does not end")
		}
		i := bytes.IndexByte(b, '\n')
		if i >= 0 {
			u.at -= n - int64(i) - 1
			b = b[:i]
		}
		if int64(len(long)) <= inlineBytes {
			long = append(long, b...)
		}
		if i < 0 {
			continue
		}
		size := u.at - 1 - from
		if size > inlineBytes {
			return "", blob{at: from, size: size}, nil
		}
		return string(long), blob{at: from, size: size}, u.count(size)
	}
}

// count limits the total length of strings.
func (u *unpickler) count(n int64) error {
	if u.text += n; u.text > maxText {
		return u.bad("its strings have more than %d bytes", int64(maxText))
	}
	return nil
}

// str pushes a string of n bytes.
func (u *unpickler) str(n int64, f form) error {
	if n < 0 || n > u.size-u.at {
		return u.bad("a string of %d bytes, the file ends %d bytes later: it is cut off", n, u.size-u.at)
	}
	if n > inlineBytes {
		u.push(blob{at: u.at, size: n, form: f})
		u.at += n
		return nil
	}
	if err := u.count(n); err != nil {
		return err
	}
	b, err := u.next(n)
	if err != nil {
		return err
	}
	u.push(string(b))
	return nil
}

func (u *unpickler) push(v any) { u.stack = append(u.stack, v) }

func (u *unpickler) pop() (any, error) {
	n := len(u.stack)
	if n == 0 {
		return nil, u.bad("the stack is empty")
	}
	v := u.stack[n-1]
	u.stack = u.stack[:n-1]
	if _, ok := v.(mark); ok {
		return nil, u.bad("the stack is empty")
	}
	return v, nil
}

// popMark pops all values down to the last mark. They are valid until the next push.
func (u *unpickler) popMark() ([]any, error) {
	for i := len(u.stack) - 1; i >= 0; i-- {
		if _, ok := u.stack[i].(mark); ok {
			items := u.stack[i+1:]
			u.stack = u.stack[:i]
			return items, nil
		}
	}
	return nil, u.bad("the stack has no mark")
}

func (u *unpickler) popN(n int) ([]any, error) {
	out := make([]any, n)
	for i := n - 1; i >= 0; i-- {
		v, err := u.pop()
		if err != nil {
			return nil, err
		}
		out[i] = v
	}
	return out, nil
}

// popItems pops n values, or with several all values down to the last mark.
func (u *unpickler) popItems(several bool, n int) ([]any, error) {
	if several {
		return u.popMark()
	}
	return u.popN(n)
}

// number reads a little-endian number.
func (u *unpickler) number(bytes int64) (int64, error) {
	b, err := u.next(bytes)
	if err != nil {
		return 0, err
	}
	v := uint64(0)
	for i := range b {
		v |= uint64(b[i]) << (8 * i)
	}
	return int64(v), nil
}

func (u *unpickler) do(op byte) error {
	switch op {
	case 0x80: // PROTO
		n, err := u.number(1)
		if err == nil && n > 3 {
			err = u.bad("protocol %d is not supported (supported: 0 to 3): write it again with pickle.dump(..., protocol=2)", n)
		}
		return err
	case '(':
		u.push(mark{})
	case '0':
		_, err := u.pop()
		return err
	case '1':
		_, err := u.popMark()
		return err
	case '2':
		v, err := u.pop()
		if err == nil {
			u.push(v)
			u.push(v)
		}
		return err
	case 'N':
		u.push(nil)
	case 0x88, 0x89:
		u.push(op == 0x88)
	case 'K', 'M', 'J', 0x8A, 'I', 'L':
		return u.pushNumber(op)
	case 'S', 'V', 'U', 'C', 'T', 'B', 'X':
		return u.pushString(op)
	case ']', 'l', '}', 'd', ')', 't', 0x85, 0x86, 0x87:
		return u.pushItems(op)
	case 'a', 'e':
		return u.append(op == 'e')
	case 's', 'u':
		return u.setItems(op == 'u')
	case 'c':
		return u.pushGlobal()
	case 'R':
		return u.call()
	case 'b':
		return u.build()
	case 'p', 'q', 'r', 'g', 'h', 'j':
		return u.remember(op)
	default:
		return u.bad("unsupported opcode 0x%02x (%q)", op, rune(op))
	}
	return nil
}

// pushNumber pushes a number: in 1, 2 or 4 bytes, in a given number of bytes, or in a line of text.
func (u *unpickler) pushNumber(op byte) error {
	switch op {
	case 'K', 'M', 'J':
		size := map[byte]int64{'K': 1, 'M': 2, 'J': 4}[op]
		n, err := u.number(size)
		if op == 'J' {
			n = int64(int32(n))
		}
		u.push(n)
		return err
	case 0x8A: // LONG1
		size, err := u.number(1)
		if err == nil && size > 8 {
			err = u.bad("a number of %d bytes", size)
		}
		if err != nil {
			return err
		}
		n, err := u.number(size)
		if err == nil && size > 0 && size < 8 {
			n = n << (64 - 8*size) >> (64 - 8*size)
		}
		u.push(n)
		return err
	case 'I', 'L':
		text, _, err := u.line()
		if err != nil {
			return err
		}
		if op == 'I' && (text == "00" || text == "01") {
			u.push(text == "01")
			return nil
		}
		n, err := strconv.ParseInt(strings.TrimSuffix(text, "L"), 10, 64)
		if err != nil {
			return u.bad("expected a number, got %.20q", text)
		}
		u.push(n)
	}
	return nil
}

// pushString pushes a string: in a line of text, or after its length in 1 or 4 bytes.
func (u *unpickler) pushString(op byte) error {
	switch op {
	case 'S', 'V':
		text, long, err := u.line()
		if err != nil {
			return err
		}
		long.form = quoted
		if op == 'V' {
			long.form = rawUnicode
		}
		if long.size > inlineBytes {
			u.push(long)
			return nil
		}
		out := make([]byte, len(text))
		n, err := long.form.decode(out, strings.NewReader(text))
		if err != nil {
			return u.bad("%v", err)
		}
		if op == 'V' {
			u.push(latin1(out[:n]))
		} else {
			u.push(string(out[:n]))
		}
	default:
		size, f := int64(4), raw
		switch op {
		case 'U', 'C':
			size = 1
		case 'X':
			f = utf8Text
		}
		n, err := u.number(size)
		if err != nil {
			return err
		}
		return u.str(n, f)
	}
	return nil
}

// pushItems pushes a list, a dictionary or a tuple.
func (u *unpickler) pushItems(op byte) error {
	switch op {
	case ']', 'l':
		l := &list{}
		if op == 'l' {
			items, err := u.popMark()
			if err != nil {
				return err
			}
			l.items = append(l.items, items...)
		}
		u.push(l)
	case ')':
		u.push(tuple(nil))
	case 't':
		items, err := u.popMark()
		if err != nil {
			return err
		}
		u.push(append(tuple(nil), items...))
	case 0x85, 0x86, 0x87:
		items, err := u.popN(int(op - 0x84))
		if err != nil {
			return err
		}
		u.push(tuple(items))
	case '}', 'd':
		d := &dict{}
		if op == 'd' {
			items, err := u.popMark()
			if err == nil {
				err = u.set(d, items)
			}
			if err != nil {
				return err
			}
		}
		u.push(d)
	}
	return nil
}

// setItems sets one item of a dictionary, or all items above the mark.
func (u *unpickler) setItems(several bool) error {
	items, err := u.popItems(several, 2)
	if err != nil {
		return err
	}
	d, ok := u.top().(*dict)
	if !ok {
		return u.bad("it sets items of a value that is not a dictionary")
	}
	return u.set(d, items)
}

// pushGlobal pushes one of the objects of modules that are supported.
func (u *unpickler) pushGlobal() error {
	module, _, err := u.line()
	if err != nil {
		return err
	}
	name, _, err := u.line()
	if err != nil {
		return err
	}
	g := module + "." + name
	switch strings.Replace(g, "numpy._core.", "numpy.core.", 1) {
	case "numpy.core.multiarray._reconstruct":
		u.push(global("reconstruct"))
	case "numpy.ndarray", "numpy.dtype", "_codecs.encode":
		u.push(global(g))
	default:
		return u.bad("it needs %.100q, but only NumPy arrays are supported: code in a pickle is never run", g)
	}
	return nil
}

// latin1 converts bytes to text with one character per byte.
func latin1(b []byte) string {
	var s strings.Builder
	for _, c := range b {
		s.WriteRune(rune(c))
	}
	return s.String()
}

// top returns the top of the stack without popping it.
func (u *unpickler) top() any {
	if len(u.stack) == 0 {
		return nil
	}
	return u.stack[len(u.stack)-1]
}

func (u *unpickler) append(several bool) error {
	items, err := u.popItems(several, 1)
	if err != nil {
		return err
	}
	l, ok := u.top().(*list)
	if !ok {
		return u.bad("it appends to a value that is not a list")
	}
	l.items = append(l.items, items...)
	return nil
}

func (u *unpickler) set(d *dict, items []any) error {
	if len(items)%2 != 0 {
		return u.bad("a key without a value")
	}
	// These files have few keys, so get searches linearly.
	if len(d.keys)+len(items)/2 > 1000 {
		return u.bad("a dictionary of more than 1000 keys")
	}
	for i := 0; i < len(items); i += 2 {
		d.keys, d.values = append(d.keys, items[i]), append(d.values, items[i+1])
	}
	return nil
}

// remember stores the top of the stack in the memo, or pushes a value from the memo.
func (u *unpickler) remember(op byte) error {
	var key int64
	var err error
	switch op {
	case 'p', 'g':
		var text string
		if text, _, err = u.line(); err == nil {
			if key, err = strconv.ParseInt(text, 10, 64); err != nil {
				return u.bad("invalid memo key %.20q", text)
			}
		}
	case 'q', 'h':
		key, err = u.number(1)
	default:
		key, err = u.number(4)
	}
	if err != nil {
		return err
	}
	if op == 'p' || op == 'q' || op == 'r' {
		if len(u.stack) == 0 {
			return u.bad("the stack is empty")
		}
		if _, ok := u.top().(mark); ok {
			return u.bad("the stack is empty")
		}
		u.memo[key] = u.top()
		return nil
	}
	v, ok := u.memo[key]
	if !ok {
		return u.bad("memo key %d does not exist", key)
	}
	u.push(v)
	return nil
}

// call pushes the result of the few supported calls.
func (u *unpickler) call() error {
	v, err := u.popN(2)
	if err != nil {
		return err
	}
	f, _ := v[0].(global)
	args, ok := v[1].(tuple)
	if !ok {
		return u.bad("a call without arguments")
	}
	switch {
	case f == "reconstruct" && len(args) == 3 && args[0] == any(global("numpy.ndarray")):
		u.push(&array{})
	case f == "numpy.dtype" && len(args) > 0:
		if name, ok := args[0].(string); ok {
			u.push(&dtype{name: name})
			return nil
		}
		return u.bad("an element type without a name")
	case f == "_codecs.encode" && len(args) == 2 && (args[1] == any("latin1") || args[1] == any("latin-1")):
		switch s := args[0].(type) {
		case blob:
			if s.form != utf8Text && s.form != rawUnicode {
				return u.bad("it encodes a value that is not text")
			}
			u.push(s)
		case string:
			out := make([]byte, len(s))
			n, err := utf8Text.decode(out, strings.NewReader(s))
			if err != nil {
				return u.bad("%v", err)
			}
			u.push(string(out[:n]))
		default:
			return u.bad("it encodes a value that is not text")
		}
	default:
		return u.bad("unsupported call: code in a pickle is never run")
	}
	return nil
}

// build sets the state of an array or an element type.
func (u *unpickler) build() error {
	v, err := u.popN(1)
	if err != nil {
		return err
	}
	state, ok := v[0].(tuple)
	if !ok {
		return u.bad("a state is not a tuple")
	}
	switch of := u.top().(type) {
	case *dtype:
		order, ok := "", false
		if len(state) >= 2 {
			order, ok = state[1].(string)
		}
		if !ok {
			return u.bad("an element type without a byte order")
		}
		of.order = order
	case *array:
		if len(state) != 5 {
			return u.bad("unsupported state of an array")
		}
		shape, ok1 := state[1].(tuple)
		t, ok2 := state[2].(*dtype)
		fortran, ok3 := state[3].(bool)
		if !ok3 {
			var n int64
			n, ok3 = state[3].(int64)
			fortran = n != 0
		}
		if !ok1 || !ok2 || !ok3 || len(shape) > 32 {
			return u.bad("unsupported state of an array")
		}
		of.shape = nil
		for _, side := range shape {
			n, ok := side.(int64)
			if !ok || n < 0 {
				return u.bad("an array has an invalid shape")
			}
			of.shape = append(of.shape, n)
		}
		if fortran && len(shape) > 1 {
			return u.bad("an array of shape %v has Fortran order, expected C order", of.shape)
		}
		of.dtype = *t
		switch data := state[4].(type) {
		case string:
			of.data = blob{short: []byte(data), size: int64(len(data))}
		case blob:
			of.data = data
		default:
			return u.bad("an array of objects")
		}
	default:
		return u.bad("it sets the state of a value that is not an array")
	}
	return nil
}

// decode decodes a string from r into dst and returns its size. It fails if the string is larger than dst.
func (f form) decode(dst []byte, r io.Reader) (int, error) {
	in := &runes{r: r}
	n := 0
	put := func(c int) error {
		if n == len(dst) {
			return fmt.Errorf("a string has more than %d bytes", len(dst))
		}
		if c > 255 {
			return fmt.Errorf("character U+%04X is not a byte", c)
		}
		dst[n] = byte(c)
		n++
		return nil
	}
	quote := -1
	for {
		c, err := in.next()
		if err == io.EOF {
			if f == quoted {
				return n, errors.New("a string has no end")
			}
			return n, nil
		}
		if err != nil {
			return n, err
		}
		switch {
		case f == utf8Text && c >= utf8.RuneSelf:
			// Latin-1 has two bytes in UTF-8: 110000xx 10xxxxxx.
			low, err := in.next()
			if err != nil || c&^3 != 0xC0 || low&0xC0 != 0x80 {
				return n, errors.New("a character is not a byte")
			}
			c = c&3<<6 | low&0x3F
		case f == quoted && quote < 0:
			if c != '\'' && c != '"' {
				return n, errors.New("a string has no quotes")
			}
			quote = c
			continue
		case f == quoted && c == quote:
			if _, err := in.next(); err != io.EOF {
				return n, errors.New("unexpected bytes after a string")
			}
			return n, nil
		case f == quoted && c == '\\':
			if c, err = in.escaped(); err != nil {
				return n, err
			}
		case f == rawUnicode && c == '\\':
			at, err := in.next()
			if err == nil && at != 'u' {
				// A backslash that does not start an escape.
				if err := put('\\'); err != nil {
					return n, err
				}
				in.unread()
				continue
			}
			if c, err = in.hex(4); err != nil {
				return n, err
			}
		}
		if err := put(c); err != nil {
			return n, err
		}
	}
}

// runes reads single bytes.
type runes struct {
	r    io.Reader
	buf  [16 << 10]byte
	n, i int
}

func (in *runes) next() (int, error) {
	if in.i == in.n {
		last := in.buf[max(in.n-1, 0)]
		n, err := io.ReadFull(in.r, in.buf[1:])
		if n == 0 {
			if err == io.ErrUnexpectedEOF {
				err = io.EOF
			}
			return 0, err
		}
		in.buf[0] = last // so that unread works
		in.i, in.n = 1, n+1
	}
	in.i++
	return int(in.buf[in.i-1]), nil
}

// unread puts the last byte back.
func (in *runes) unread() { in.i-- }

func (in *runes) hex(digits int) (int, error) {
	v := 0
	for range digits {
		c, err := in.next()
		if err != nil {
			return 0, errors.New("an escape has no end")
		}
		d, err := strconv.ParseUint(string(rune(c)), 16, 8)
		if err != nil {
			return 0, errors.New("invalid escape")
		}
		v = v<<4 | int(d)
	}
	return v, nil
}

// escaped decodes the rest of an escape in Python's repr.
func (in *runes) escaped() (int, error) {
	c, err := in.next()
	if err != nil {
		return 0, errors.New("an escape has no end")
	}
	switch c {
	case 'x':
		return in.hex(2)
	case 'n':
		return '\n', nil
	case 't':
		return '\t', nil
	case 'r':
		return '\r', nil
	case '\\', '\'', '"':
		return c, nil
	}
	return 0, fmt.Errorf("unsupported escape \\%c", c)
}
