package tablesource

import (
	"encoding/json"
	"fmt"

	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/source/driver"
)

// seen is what inference learns about a column.
type seen struct {
	column.Seen
	first int64 // the row in which the column was seen first, and its position there, for the order of columns
	nth   int

	example  []string // the first texts, which may be paths
	examples int64    // the row of the first of them
}

// examples is the number of values kept to detect paths.
const examples = 8

// inference is the result of one goroutine.
type inference struct {
	csv     bool
	columns []*seen
	byName  map[string]*seen
	wanted  []column.Want
	good    int64 // rows
	bad     error // error of the first invalid row
	badAt   int64
	cells   []cell
	extra   []cell
	more    []*seen
	nums    numbers
	buf     []byte
	err     error
}

// newSeen returns the empty result for a new column.
func (in *inference) newSeen(name string, first int64) *seen {
	c := &seen{Seen: *column.New(name, in.wanted), first: first}
	if c.Written = driver.KindJSON; in.csv {
		c.Written = driver.KindText
	}
	return c
}

// row adds a row; at is its position in the order of all rows.
func (in *inference) row(r reader, row []byte, at int64, where func() string) {
	clear(in.cells)
	in.extra, in.more = in.extra[:0], in.more[:0]
	err := r.cells(row, in.cells, func(name []byte, c cell) {
		if in.csv {
			return // too many cells
		}
		col := in.byName[string(name)]
		if col == nil {
			if len(in.byName) >= maxColumns {
				in.err = fmt.Errorf("%s: there are more than %d columns", where(), maxColumns)
				return
			}
			col = in.newSeen(string(name), at)
			col.nth = len(in.extra)
			in.byName[col.Name] = col
			in.columns = append(in.columns, col)
		}
		in.extra, in.more = append(in.extra, c), append(in.more, col)
	})
	if err != nil {
		if in.bad == nil || at < in.badAt {
			in.bad, in.badAt = fmt.Errorf("%s: %w", where(), err), at
		}
		return
	}
	in.good++
	for i := range in.cells {
		in.cell(in.columns[i], in.cells[i], at)
	}
	for i, c := range in.extra {
		in.cell(in.more[i], c, at)
	}
}

// cell adds a cell.
func (in *inference) cell(c *seen, v cell, at int64) {
	if v.form == absent {
		return
	}
	b := v.b
	if !v.direct() {
		in.buf = v.appendText(in.buf[:0])
		b = in.buf
	}
	c.Size.Add(int64(len(b)))
	switch v.form {
	case str, escaped:
		c.AsJSON.Add(int64(len(v.b) + 2))
	default:
		c.AsJSON.Add(max(int64(len(b)), int64(len(column.Null))))
	}
	if c.Names {
		c.class(v, b)
	}
	switch v.form {
	case number:
		c.number(b)
	case truth:
		c.Number(driver.Bool, 0)
	case object:
		if json.Valid(b) {
			c.Count[column.JSON]++
		} else {
			c.Count[column.Text]++
		}
	case list:
		in.list(c, b)
	case str, escaped:
		c.text(b, at)
	default:
		in.written(c, b, at)
	}
}

// written adds a cell of CSV, which has no declared type.
func (in *inference) written(c *seen, b []byte, at int64) {
	switch {
	case isMissing(b):
	case isNumber(b):
		c.number(b)
	case b[0] == '[':
		in.list(c, b)
	case b[0] == '{' && json.Valid(b):
		c.Count[column.JSON]++
	default:
		if _, ok := isTruth(b); ok {
			c.Number(driver.Bool, 0)
		} else {
			c.text(b, at)
		}
	}
}

func (c *seen) number(b []byte) {
	if !isWhole(b) {
		c.Number(driver.Float64, 0)
	} else if v, err := parseInt(b); err == nil {
		c.Number(driver.Int64, v)
	} else {
		c.Count[column.Text]++ // a code such as 007: a number would lose its zeros
	}
}

func (c *seen) text(b []byte, at int64) {
	if c.Count[column.Text]++; len(c.example) < examples && len(b) > 0 && len(b) < 4096 {
		if len(c.example) == 0 {
			c.examples = at
		}
		c.example = append(c.example, string(b))
	}
}

func (in *inference) list(c *seen, b []byte) {
	n := &in.nums
	if err := n.read(b); err != nil {
		if json.Valid(b) {
			c.Count[column.JSON]++
		} else {
			c.Count[column.Text]++
		}
		return
	}
	t := driver.Float64
	if n.whole {
		if t = driver.Int64; n.rows > 0 {
			c.Bounds(n.min, n.max)
		}
	}
	c.List(column.List, t, n.rows, n.shape, n.rows > 0, int64(8*len(n.text)))
}

// class adds the classes of a cell.
func (c *seen) class(v cell, b []byte) {
	if v.form == list || v.form == written && len(b) > 0 && b[0] == '[' {
		n := 0
		_ = texts(b, func(name []byte) { c.ClassName(name); n++ })
		c.Numbered.Add(int64(8 * n))
		return
	}
	c.ClassName(b)
}

// merge adds the results of another goroutine.
func (in *inference) merge(o *inference) {
	in.good += o.good
	if in.err == nil {
		in.err = o.err
	}
	if o.bad != nil && (in.bad == nil || o.badAt < in.badAt) {
		in.bad, in.badAt = o.bad, o.badAt
	}
	for i, c := range o.columns {
		mine := in.byName[c.Name]
		if in.csv {
			mine = in.columns[i]
		}
		if mine == nil {
			in.columns = append(in.columns, c)
			in.byName[c.Name] = c
			continue
		}
		if len(c.example) > 0 && (len(mine.example) == 0 || c.examples < mine.examples) {
			mine.example, mine.examples = c.example, c.examples
		}
		if c.first < mine.first {
			mine.first, mine.nth = c.first, c.nth
		}
		mine.Merge(&c.Seen)
	}
}
