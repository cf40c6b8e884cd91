package tablesource

import (
	"bytes"
	"errors"
	"fmt"
)

// csvReader reads rows of CSV as RFC 4180 has them, with any separator: a cell
// that begins with a quote ends with one, two quotes in it stand for one, and lines
// may end in it. A quote elsewhere is a quote. Lines end with LF or CR LF.
type csvReader struct {
	comma byte
	// columns is how many cells a row has, 0 for any number.
	columns int
}

func (r *csvReader) next(b []byte, last bool) int {
	end := bytes.IndexByte(b, '\n')
	if quote := bytes.IndexByte(b[:max(end, 0)], '"'); end >= 0 && quote < 0 {
		return end + 1
	}
	for at := 0; ; {
		// A cell begins here.
		if at < len(b) && b[at] == '"' {
			n := closing(b[at+1:])
			if n < 0 {
				return -1
			}
			at += n + 2
		}
		for at < len(b) && b[at] != r.comma && b[at] != '\n' {
			at++
		}
		switch {
		case at >= len(b) && last:
			return len(b)
		case at >= len(b):
			return -1
		case b[at] == '\n':
			return at + 1
		}
		at++
	}
}

// closing returns where the quote stands that ends a quoted cell, -1 when there
// is none.
func closing(b []byte) int {
	for at := 0; ; {
		i := bytes.IndexByte(b[at:], '"')
		if i < 0 {
			return -1
		}
		at += i
		if at+1 >= len(b) || b[at+1] != '"' {
			return at
		}
		at += 2
	}
}

func (r *csvReader) blank(row []byte) bool { return len(trimLine(row)) == 0 }

// trimLine cuts the end of line off.
func trimLine(b []byte) []byte {
	b = bytes.TrimSuffix(b, []byte{'\n'})
	return bytes.TrimSuffix(b, []byte{'\r'})
}

func (r *csvReader) cells(row []byte, out []cell, found func(name []byte, c cell)) error {
	end := r.next(row, true)
	if end < 0 {
		return errors.New("a quoted cell has no end")
	}
	row = trimLine(row[:end])
	n := 0
	for at, more := 0, true; more; n++ {
		var c cell
		if at < len(row) && row[at] == '"' {
			size := closing(row[at+1:])
			if size < 0 {
				return errors.New("a quoted cell has no end")
			}
			c = cell{row[at+1 : at+1+size], written}
			if bytes.IndexByte(c.b, '"') >= 0 {
				c.form = doubled
			}
			at += size + 2
			if at < len(row) && row[at] != r.comma {
				return fmt.Errorf("cell %d goes on behind the quote that ends it: quotes in a quoted cell are doubled", n)
			}
		} else {
			size := bytes.IndexByte(row[at:], r.comma)
			if size < 0 {
				size = len(row) - at
			}
			c = cell{row[at : at+size], written}
			at += size
		}
		more = at < len(row)
		at++
		if n < len(out) {
			out[n] = c
		} else if found != nil {
			found(nil, c)
		}
	}
	if r.columns > 0 && n != r.columns {
		return fmt.Errorf("%d cells where the first row has %d", n, r.columns)
	}
	return nil
}

// maxColumns bounds the columns of a table.
const maxColumns = 16 << 10

// header finds out from its first row how a CSV file is written. It returns the
// names of the columns, and whether the row is the first record already.
func (r *csvReader) header(row []byte, known bool) (names []string, record bool, err error) {
	if !known {
		r.comma = ','
		if line := trimLine(row); bytes.IndexByte(line, ',') < 0 {
			for _, c := range []byte{';', '\t'} {
				if bytes.IndexByte(line, c) >= 0 {
					r.comma = c
					break
				}
			}
		}
	}
	numbers, counted := false, true
	count := 0
	err = r.cells(row, nil, func(_ []byte, c cell) {
		name := string(c.appendText(nil))
		if isNumber([]byte(name)) {
			// The names that pandas gives columns without names are 0, 1, 2, ...
			counted = counted && name == fmt.Sprint(count)
			numbers = true
			count++
		}
		if len(names) <= maxColumns {
			names = append(names, name)
		}
	})
	if err == nil && len(names) > maxColumns {
		err = fmt.Errorf("it has more than %d columns", maxColumns)
	}
	if err != nil {
		return nil, false, err
	}
	if numbers && !counted {
		record = true
		for i := range names {
			names[i] = ""
		}
	}
	r.columns = len(names)
	return names, record, nil
}
