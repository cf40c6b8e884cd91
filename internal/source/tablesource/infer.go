package tablesource

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/source/driver"
)

// seen is what was seen of a column: counts of what its cells are, and of how
// large they are. Those of several goroutines are put together.
type seen struct {
	name  string
	first int64 // row in which it was seen first, and its place there, for the order of columns
	nth   int

	seen     int64 // rows that have it
	missing  int64 // without a value, or with a word for that
	words    int64 // the part of missing that has a word: text, where there is text
	truths   int64
	whole    int64
	floats   int64
	large    int64 // of whole, beyond what a float64 has
	texts    int64
	objects  int64
	lists    int64 // of numbers
	others   int64 // lists of something else
	size     sizes // as text
	json     sizes // as JSON
	example  []string
	examples int64 // place of the first of them

	// Of lists of numbers.
	shape            []int
	uneven           bool // they differ in more than their length
	wholes           bool
	minRows, maxRows int
	min, max         int64
	elements         sizes

	// classes are the different values, where they are wanted.
	classes map[string]struct{}
	names   sizes // of lists of them, as class numbers
	bytes   int
	err     error
}

// sizes counts values by their size.
type sizes struct {
	count, bytes, min, max int64
	by                     map[int64]int64
}

func (s *sizes) add(n int64) {
	if s.by == nil {
		s.by = map[int64]int64{}
		s.min = n
	}
	s.count++
	s.bytes += n
	s.min, s.max = min(s.min, n), max(s.max, n)
	s.by[driver.SizeBound(n)]++
}

func (s *sizes) merge(o *sizes) {
	if o.count == 0 {
		return
	}
	if s.by == nil {
		s.by = map[int64]int64{}
		s.min = o.min
	}
	s.count += o.count
	s.bytes += o.bytes
	s.min, s.max = min(s.min, o.min), max(s.max, o.max)
	for k, n := range o.by {
		s.by[k] += n
	}
}

// stats are the sizes of the values of a field with this many records, those that
// have none taken for empty.
func (s *sizes) stats(records int64) *driver.FieldStats {
	for s.count < records && s.count < 1 {
		s.add(0)
	}
	out := &driver.FieldStats{Count: records, Bytes: s.bytes, MinBytes: s.min, MaxBytes: s.max, Sizes: s.by}
	if n := records - s.count; n > 0 {
		out.MinBytes = 0
		out.Sizes[0] += n
	}
	return out
}

// Limits of classes.
const (
	maxClasses    = 64 << 10
	maxClassBytes = 16 << 20
)

// examples is how many values are kept to look whether they are paths.
const examples = 8

// inference is what one goroutine has seen.
type inference struct {
	csv     bool
	columns []*seen
	byName  map[string]*seen
	// wanted are the columns whose different values are classes.
	wanted map[string]bool
	good   int64 // rows
	bad    error // of the first row that is none
	badAt  int64
	cells  []cell
	extra  []cell
	more   []*seen
	nums   numbers
	buf    []byte
	err    error
}

// row looks at a row, which stands at a place in the order of rows.
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
			col = &seen{name: string(name), first: at, nth: len(in.extra)}
			in.byName[col.name] = col
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

// cell looks at a cell.
func (in *inference) cell(c *seen, v cell, at int64) {
	if v.form == absent {
		return
	}
	c.seen++
	b := v.b
	if !v.direct() {
		in.buf = v.appendText(in.buf[:0])
		b = in.buf
	}
	c.size.add(int64(len(b)))
	switch v.form {
	case str, escaped:
		c.json.add(int64(len(v.b) + 2))
	default:
		c.json.add(max(int64(len(b)), int64(len(wordNull))))
	}
	if in.wanted[c.name] {
		c.class(v, b)
	}
	switch v.form {
	case number:
		c.number(b)
	case truth:
		c.truths++
	case object:
		c.objects++
		if !json.Valid(b) {
			c.texts++ // not JSON, then
		}
	case list:
		in.list(c, b)
	case str, escaped:
		c.text(b, at)
	default:
		in.written(c, b, at)
	}
}

// written looks at a cell of CSV, which says nothing of its type.
func (in *inference) written(c *seen, b []byte, at int64) {
	switch {
	case isMissing(b):
		c.missing++
		if len(b) > 0 {
			c.words++
		}
	case isNumber(b):
		c.number(b)
	case b[0] == '[':
		in.list(c, b)
	case b[0] == '{' && json.Valid(b):
		c.objects++
	default:
		if _, ok := isTruth(b); ok {
			c.truths++
		} else {
			c.text(b, at)
		}
	}
}

func (c *seen) number(b []byte) {
	if !isWhole(b) {
		c.floats++
		return
	}
	v, err := parseInt(b)
	switch {
	case err != nil:
		c.texts++ // a code: as a number it would be another one
	case v > 1<<53 || v < -1<<53:
		c.large++
		fallthrough
	default:
		c.whole++
	}
}

func (c *seen) text(b []byte, at int64) {
	if c.texts++; len(c.example) < examples && len(b) > 0 && len(b) < 4096 {
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
			c.others++
		} else {
			c.texts++
		}
		return
	}
	size := int64(8 * len(n.text))
	c.elements.add(size)
	if c.lists == 0 {
		c.wholes, c.minRows, c.maxRows, c.min, c.max = true, n.rows, n.rows, n.min, n.max
	}
	c.lists++
	c.wholes = c.wholes && n.whole
	c.minRows, c.maxRows = min(c.minRows, n.rows), max(c.maxRows, n.rows)
	c.min, c.max = min(c.min, n.min), max(c.max, n.max)
	if n.rows == 0 {
		return // its elements could have any shape
	}
	if c.shape == nil {
		c.shape = append([]int{}, n.shape...)
	} else if !slices.Equal(c.shape, n.shape) {
		c.uneven = true
	}
}

// class notes the classes of a cell.
func (c *seen) class(v cell, b []byte) {
	add := func(name []byte) {
		if _, ok := c.classes[string(name)]; ok || len(name) == 0 || c.err != nil {
			return
		}
		if c.classes == nil {
			c.classes = map[string]struct{}{}
		}
		c.classes[string(name)] = struct{}{}
		if c.bytes += len(name); len(c.classes) > maxClasses || c.bytes > maxClassBytes {
			c.err = fmt.Errorf("column %q has more than %d different values, which are no classes", c.name, maxClasses)
		}
	}
	if v.form == list || v.form == written && len(b) > 0 && b[0] == '[' {
		n := 0
		_ = texts(b, func(name []byte) { add(name); n++ })
		c.names.add(int64(8 * n))
		return
	}
	add(b)
}

// merge adds what another goroutine has seen.
func (in *inference) merge(o *inference) {
	in.good += o.good
	if in.err == nil {
		in.err = o.err
	}
	if o.bad != nil && (in.bad == nil || o.badAt < in.badAt) {
		in.bad, in.badAt = o.bad, o.badAt
	}
	for i, c := range o.columns {
		mine := in.byName[c.name]
		if in.csv {
			mine = in.columns[i]
		}
		if mine == nil {
			in.columns = append(in.columns, c)
			in.byName[c.name] = c
			continue
		}
		mine.merge(c)
	}
}

func (c *seen) merge(o *seen) {
	if len(o.example) > 0 && (len(c.example) == 0 || o.examples < c.examples) {
		c.example, c.examples = o.example, o.examples
	}
	if o.first < c.first {
		c.first, c.nth = o.first, o.nth
	}
	c.seen += o.seen
	c.missing += o.missing
	c.words += o.words
	c.truths += o.truths
	c.whole += o.whole
	c.floats += o.floats
	c.large += o.large
	c.texts += o.texts
	c.objects += o.objects
	c.others += o.others
	c.size.merge(&o.size)
	c.json.merge(&o.json)
	c.names.merge(&o.names)
	if o.lists > 0 {
		if c.lists == 0 {
			c.wholes, c.minRows, c.maxRows, c.min, c.max = true, o.minRows, o.maxRows, o.min, o.max
		}
		c.lists += o.lists
		c.uneven = c.uneven || o.uneven || c.shape != nil && o.shape != nil && !slices.Equal(c.shape, o.shape)
		if c.shape == nil {
			c.shape = o.shape
		}
		c.wholes = c.wholes && o.wholes
		c.minRows, c.maxRows = min(c.minRows, o.minRows), max(c.maxRows, o.maxRows)
		c.min, c.max = min(c.min, o.min), max(c.max, o.max)
		c.elements.merge(&o.elements)
	}
	if c.err == nil {
		c.err = o.err
	}
	for name := range o.classes {
		if _, ok := c.classes[name]; !ok {
			if c.classes == nil {
				c.classes = map[string]struct{}{}
			}
			c.classes[name] = struct{}{}
			c.bytes += len(name)
		}
	}
	if c.err == nil && (len(c.classes) > maxClasses || c.bytes > maxClassBytes) {
		c.err = fmt.Errorf("column %q has more than %d different values, which are no classes", c.name, maxClasses)
	}
}

// field says what a column is when nobody says it.
func (c *seen) field(csv bool, records int64) driver.Field {
	f := driver.Field{Name: c.name, Kind: driver.KindText}
	numbers, lists, nested := c.whole+c.floats, c.lists, c.objects+c.others
	lacking := records - c.seen + c.missing
	rest := func(n int64) bool { return n > 0 && n == c.seen-c.missing }
	switch {
	case c.seen == c.missing && csv, c.texts > 0 && csv, rest(c.texts):
	case rest(c.truths):
		f.Kind, f.DType = driver.KindArray, driver.Bool
	case rest(numbers) && (c.floats > 0 || lacking > 0 && c.large == 0):
		f.Kind = driver.KindFloat
	case rest(numbers):
		f.Kind = driver.KindInt
	case rest(lists) && !c.uneven && c.shape != nil && lacking == 0 && c.minRows == c.maxRows:
		f.Kind, f.Shape = driver.KindArray, append([]int{c.maxRows}, c.shape...)
	case rest(lists) && !c.uneven:
		f.Kind, f.Shape = driver.KindRagged, append([]int{}, c.shape...)
	case rest(lists+nested) || !csv:
		f.Kind = driver.KindJSON
	}
	if lists > 0 && (f.Kind == driver.KindArray || f.Kind == driver.KindRagged) {
		f.DType = c.listType()
	}
	c.finish(&f, records)
	return f
}

func (c *seen) listType() driver.DType {
	if c.wholes {
		return driver.Int64
	}
	return driver.Float64
}

// finish says how large the values of a field are.
func (c *seen) finish(f *driver.Field, records int64) {
	switch f.Kind {
	case driver.KindText:
		f.Stats = c.size.stats(records)
		f.MaxBytes = c.size.max
	case driver.KindJSON:
		for n := c.json.count; n < records; n++ {
			c.json.add(int64(len(wordNull)))
		}
		f.Stats = c.json.stats(records)
		f.MaxBytes = c.json.max
	case driver.KindRagged, driver.KindMultiLabel, driver.KindTokens:
		f.Stats = c.elements.stats(records)
		f.MaxBytes = c.elements.max
	}
}

// as says what a column is when somebody says its kind, and why it cannot be that.
func (c *seen) as(kind driver.Kind, csv bool, records int64) (driver.Field, error) {
	f := driver.Field{Name: c.name, Kind: kind}
	fail := func(what string) (driver.Field, error) {
		inferred := c.field(csv, records)
		return f, fmt.Errorf("column %q cannot be %s: %s; it looks like %s", c.name, kind, what, inferred.Kind)
	}
	switch kind {
	case driver.KindLabel, driver.KindMultiLabel:
		if c.err != nil {
			return f, c.err
		}
		if kind == driver.KindLabel && c.texts+c.truths+c.floats == 0 && c.whole > 0 {
			return f, nil // class numbers
		}
		if kind == driver.KindMultiLabel && c.others == 0 && c.lists > 0 && c.wholes && !c.uneven && len(c.shape) == 0 {
			break
		}
		if len(c.classes) == 0 {
			return fail("it has no classes")
		}
		for name := range c.classes {
			f.Classes = append(f.Classes, strings.Clone(name))
		}
		slices.Sort(f.Classes)
	case driver.KindRagged, driver.KindArray:
		if c.lists == 0 && !(kind == driver.KindRagged && c.seen == 0) || c.uneven || c.shape == nil && kind == driver.KindArray {
			return fail("it has no lists of numbers of one shape")
		}
		f.DType, f.Shape = c.listType(), append([]int{}, c.shape...)
		if kind == driver.KindArray {
			if c.minRows != c.maxRows {
				return fail(fmt.Sprintf("its lists have %d to %d elements", c.minRows, c.maxRows))
			}
			f.Shape = append([]int{c.maxRows}, f.Shape...)
		}
	case driver.KindTokens:
		if c.lists == 0 || c.uneven || !c.wholes || len(c.shape) > 0 || c.min < 0 && c.maxRows > 0 || c.max > 1<<32-1 {
			return fail("it has no lists of whole numbers from 0 on")
		}
		f.DType = driver.Uint16
		size := int64(2)
		if c.max > 1<<16-1 {
			f.DType, size = driver.Uint32, 4
		}
		c.finish(&f, records)
		f.MaxBytes = f.MaxBytes / 8 * size
		f.Stats = nil
		return f, nil
	}
	c.finish(&f, records)
	if kind == driver.KindMultiLabel && f.Classes != nil {
		f.Stats, f.MaxBytes = c.names.stats(records), c.names.max
	}
	return f, nil
}
