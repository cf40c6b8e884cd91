package tablesource

import (
	"bytes"
	"errors"
	"fmt"
)

// csvReader reads rows of CSV as in RFC 4180, with any separator. A quoted cell may contain line
// breaks, and doubled quotes stand for one quote. A quote inside an unquoted cell is an ordinary
// character. Lines end with LF or CR LF.
type csvReader struct {
	comma byte
	// columns is the number of cells of a row, 0 for any.
	columns int
}

func (r *csvReader) next(b []byte, last bool) int {
	end := bytes.IndexByte(b, '\n')
	if quote := bytes.IndexByte(b[:max(end, 0)], '"'); end >= 0 && quote < 0 {
		return end + 1
	}
	for at := 0; ; {
		// A cell starts here.
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

// closing returns the index of the quote that ends a quoted cell, or -1.
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

// trimLine removes the line break at the end.
func trimLine(b []byte) []byte {
	b = bytes.TrimSuffix(b, []byte{'\n'})
	return bytes.TrimSuffix(b, []byte{'\r'})
}

func (r *csvReader) cells(row []byte, out []cell, found func(name []byte, c cell)) error {
	end := r.next(row, true)
	if end < 0 {
		return errors.New("a quoted cell has no closing quote")
	}
	row = trimLine(row[:end])
	n := 0
	for at, more := 0, true; more; n++ {
		var c cell
		if at < len(row) && row[at] == '"' {
			size := closing(row[at+1:])
			if size < 0 {
				return errors.New("a quoted cell has no closing quote")
			}
			c = cell{row[at+1 : at+1+size], written}
			if bytes.IndexByte(c.b, '"') >= 0 {
				c.form = doubled
			}
			at += size + 2
			if at < len(row) && row[at] != r.comma {
				return fmt.Errorf("cell %d has text after its closing quote: double the quotes inside a quoted cell", n)
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
		return fmt.Errorf("the row has %d cells, the first row has %d", n, r.columns)
	}
	return nil
}

// maxColumns limits the columns of a table.
const maxColumns = 16 << 10

// header detects from the first row whether a CSV file has a row of names. It returns the names of
// the columns, and whether the first row is a record.
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
			// pandas names columns without names 0, 1, 2, ...
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
