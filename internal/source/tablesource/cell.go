package tablesource

import (
	"bytes"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// form is how a cell is written.
type form uint8

const (
	// absent is a cell that a row does not have, and JSON's null.
	absent form = iota
	// written is a cell of CSV as it stands; doubled has quotes that are doubled.
	written
	doubled
	// The rest is JSON: a string without escapes, without its quotes; one with
	// escapes; and everything else as it stands.
	str
	escaped
	number
	truth
	list
	object
)

// cell is one value of a row, as it is written there.
type cell struct {
	b    []byte
	form form
}

// reader takes a row apart.
type reader interface {
	// next returns where the row ends that begins at b[0], the first byte behind
	// it, or -1 when b ends before that; last says that nothing follows b.
	next(b []byte, last bool) int
	// blank says that a row has nothing.
	blank(row []byte) bool
	// cells writes the cells of a row into out, those of columns that it does not
	// know by calling found, which may be nil.
	cells(row []byte, out []cell, found func(name []byte, c cell)) error
}

var twoQuotes = []byte(`""`)

// direct says that a cell's text is what stands there.
func (c cell) direct() bool { return c.form != doubled && c.form != escaped }

// appendText appends a cell as text.
func (c cell) appendText(to []byte) []byte {
	switch c.form {
	case doubled:
		rest := c.b
		for {
			i := bytes.Index(rest, twoQuotes)
			if i < 0 {
				return append(to, rest...)
			}
			to = append(to, rest[:i+1]...)
			rest = rest[i+2:]
		}
	case escaped:
		return unescape(to, c.b)
	}
	return append(to, c.b...)
}

// short is what stands in a cell for a message.
func (c cell) short() string {
	const most = 40
	b := c.b
	if len(b) > most {
		b = append(bytes.Clone(b[:most]), "..."...)
	}
	return strconv.QuoteToGraphic(string(b))
}

// unescape appends the text of a JSON string whose escapes are whole, as the
// scanner makes sure. Halves of surrogate pairs become U+FFFD.
func unescape(to, b []byte) []byte {
	for {
		i := bytes.IndexByte(b, '\\')
		if i < 0 || i+1 >= len(b) {
			return append(to, b...)
		}
		to = append(to, b[:i]...)
		c := b[i+1]
		b = b[i+2:]
		switch c {
		case 'b':
			to = append(to, '\b')
		case 'f':
			to = append(to, '\f')
		case 'n':
			to = append(to, '\n')
		case 'r':
			to = append(to, '\r')
		case 't':
			to = append(to, '\t')
		case 'u':
			r, ok := unit(b)
			if !ok {
				return to
			}
			b = b[4:]
			if utf16.IsSurrogate(r) {
				second, ok := rune(0), false
				if len(b) >= 6 && b[0] == '\\' && b[1] == 'u' {
					second, ok = unit(b[2:])
				}
				if r = utf16.DecodeRune(r, second); ok && r != utf8.RuneError {
					b = b[6:]
				}
			}
			to = utf8.AppendRune(to, r)
		default: // a quote, a slash or a backslash
			to = append(to, c)
		}
	}
}

// unit reads four hexadecimal digits.
func unit(b []byte) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	r := rune(0)
	for _, c := range b[:4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}
