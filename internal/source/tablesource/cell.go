package tablesource

import (
	"bytes"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// form is the syntax of a cell.
type form uint8

const (
	// absent is a cell that a row does not have, or JSON's null.
	absent form = iota
	// written is a plain cell of CSV. doubled is a quoted cell that contains doubled quotes.
	written
	doubled
	// The other forms are JSON: a string without escapes (its quotes removed), a string with
	// escapes, and any other value.
	str
	escaped
	number
	truth
	list
	object
)

// cell is one value of a row, not decoded yet.
type cell struct {
	b    []byte
	form form
}

// reader splits a format into rows and cells.
type reader interface {
	// next returns the end of the row that starts at b[0]: the index after its last byte, or -1 if
	// b ends first. last reports that nothing follows b.
	next(b []byte, last bool) int
	// blank reports whether a row is empty.
	blank(row []byte) bool
	// cells writes the cells of a row to out. For a column that it does not know it calls found,
	// which may be nil.
	cells(row []byte, out []cell, found func(name []byte, c cell)) error
}

var twoQuotes = []byte(`""`)

// direct reports whether the bytes of a cell are its text.
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

// short returns a cell, shortened for a message.
func (c cell) short() string {
	const most = 40
	b := c.b
	if len(b) > most {
		b = append(bytes.Clone(b[:most]), "..."...)
	}
	return strconv.QuoteToGraphic(string(b))
}

// unescape appends the text of a JSON string. The scanner has checked that its escapes are
// complete. Halves of surrogate pairs become U+FFFD.
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

// unit parses four hexadecimal digits.
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
