package tablesource

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/stokerdata/stoker/internal/source/column"
)

// jsonReader reads rows of JSON objects, one per line.
type jsonReader struct {
	// columns maps keys to indexes of columns.
	columns map[string]int
}

func (r *jsonReader) next(b []byte, last bool) int {
	if i := bytes.IndexByte(b, '\n'); i >= 0 {
		return i + 1
	}
	if last {
		return len(b)
	}
	return -1
}

func (r *jsonReader) blank(row []byte) bool { return len(bytes.TrimSpace(row)) == 0 }

var errRowEnds = errors.New("the row ends inside its object: write each record on one line")

// cells reads the members of the object. It scans lists and objects only to find where they end.
func (r *jsonReader) cells(row []byte, out []cell, found func(name []byte, c cell)) error {
	if end := r.next(row, true); end < len(row) && len(bytes.TrimSpace(row[end:])) == 0 {
		row = row[:end] // blank lines follow
	}
	at := space(row, 0)
	if at >= len(row) || row[at] != '{' {
		return fmt.Errorf("expected an object, got %s", cell{b: row[min(at, len(row)):min(at+10, len(row))]}.short())
	}
	at = space(row, at+1)
	if at < len(row) && row[at] == '}' {
		return onlySpace(row, at+1)
	}
	for {
		if at >= len(row) {
			return errRowEnds
		}
		if row[at] != '"' {
			return fmt.Errorf("expected a name at byte %d of the row", at)
		}
		key, end, err := readString(row, at)
		if err != nil {
			return err
		}
		if key.form == escaped {
			key.b = unescape(nil, key.b)
		}
		if at = space(row, end); at >= len(row) {
			return errRowEnds
		}
		if row[at] != ':' {
			return fmt.Errorf("expected a colon at byte %d of the row", at)
		}
		c, end, err := readValue(row, space(row, at+1))
		if err != nil {
			return err
		}
		if i, ok := r.columns[string(key.b)]; ok && i < len(out) {
			out[i] = c
		} else if found != nil {
			found(key.b, c)
		}
		if at = space(row, end); at >= len(row) {
			return errRowEnds
		}
		switch row[at] {
		case ',':
			at = space(row, at+1)
		case '}':
			return onlySpace(row, at+1)
		default:
			return fmt.Errorf("expected a comma or the end of the object at byte %d of the row", at)
		}
	}
}

func onlySpace(row []byte, at int) error {
	if at = space(row, at); at < len(row) {
		return fmt.Errorf("unexpected text after the object, at byte %d of the row", at)
	}
	return nil
}

func space(b []byte, at int) int {
	for at < len(b) && (b[at] == ' ' || b[at] == '\t' || b[at] == '\r' || b[at] == '\n') {
		at++
	}
	return at
}

// readString reads the string that starts at b[at], and returns the index after it.
func readString(b []byte, at int) (cell, int, error) {
	c := cell{form: str}
	for i := at + 1; i < len(b); i++ {
		switch b[i] {
		case '"':
			c.b = b[at+1 : i]
			return c, i + 1, nil
		case '\\':
			c.form = escaped
			i++
			if i >= len(b) {
				return c, 0, errRowEnds
			}
			switch b[i] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			case 'u':
				if _, ok := unit(b[i+1:]); !ok {
					return c, 0, fmt.Errorf("%s is not a valid escape, at byte %d of the row", cell{b: b[i-1 : min(i+5, len(b))]}.short(), i-1)
				}
				i += 4
			default:
				return c, 0, fmt.Errorf("%s is not a valid escape, at byte %d of the row", cell{b: b[i-1 : i+1]}.short(), i-1)
			}
		}
	}
	return c, 0, errRowEnds
}

// readValue reads the value that starts at b[at], and returns the index after it.
func readValue(b []byte, at int) (cell, int, error) {
	if at >= len(b) {
		return cell{}, 0, errRowEnds
	}
	switch b[at] {
	case '"':
		return readString(b, at)
	case '[', '{':
		return readNested(b, at)
	}
	end := at
	for end < len(b) && b[end] != ',' && b[end] != '}' && b[end] != ']' && space(b, end) == end {
		end++
	}
	c := cell{b[at:end], number}
	switch word := c.b; {
	case bytes.Equal(word, column.Null):
		c = cell{}
	case bytes.Equal(word, wordTrue) || bytes.Equal(word, wordFalse):
		c.form = truth
	case isNumber(word):
	default:
		return c, 0, fmt.Errorf("%s is not a JSON value, at byte %d of the row", c.short(), at)
	}
	return c, end, nil
}

var (
	wordTrue  = []byte("true")
	wordFalse = []byte("false")
)

// readNested finds the end of a list or object.
func readNested(b []byte, at int) (cell, int, error) {
	c := cell{form: list}
	if b[at] == '{' {
		c.form = object
	}
	depth := 0
	for i := at; i < len(b); i++ {
		switch b[i] {
		case '[', '{':
			depth++
		case ']', '}':
			if depth--; depth == 0 {
				c.b = b[at : i+1]
				return c, i + 1, nil
			}
		case '"':
			_, end, err := readString(b, i)
			if err != nil {
				return c, 0, err
			}
			i = end - 1
		}
	}
	return c, 0, errRowEnds
}
