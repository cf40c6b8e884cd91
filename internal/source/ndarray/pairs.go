package ndarray

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/source/driver"
)

// Rows of any length are often stored as two arrays: the values of all records, one behind
// the other, and beside it where each record begins, with the end of the last one behind
// them (offsets, indptr, row_splits), or how many values each of them has (lengths). Such
// a pair is one Set. It is found by the names of both, where the numbers agree with the
// values; or it is named, as values@offsets.

// at stands between the paths of a pair.
const at = "@"

// The names of arrays that say which rows are a record, alone or behind the name of the
// array with the values, such as tokens_offsets.
var (
	offsetNames = []string{"offsets", "offset", "indptr", "ptr", "row_splits", "splits", "row_ptr", "rowptr", "cu_seqlens"}
	lengthNames = []string{"lengths", "length", "lens", "len", "row_lengths", "sizes", "counts"}
	valueNames  = []string{"", "_values", "_data", "_flat"}
)

// pairs are those of a file.
type pairs struct {
	// named are those that columns name, by Column.From.
	named map[string]*Set
	// found are those that were found, by the array of the values; offsets are the paths of
	// these, by the other array.
	found   map[*Set]*Set
	offsets map[*Set][]string
}

// byName is the set that a column names: what it names itself, or a pair that was found.
// With an @ and nothing behind it a set is taken without its offsets.
func (p *pairs) byName(sets []*Set, split, name string) *Set {
	if s := p.named[name]; s != nil {
		return s
	}
	s := byName(sets, split, name)
	if s == nil {
		if plain, ok := strings.CutSuffix(name, at); ok {
			return byName(sets, split, plain)
		}
	}
	if pair := p.found[s]; pair != nil {
		return pair
	}
	return s
}

func byName(sets []*Set, split, name string) *Set {
	name = strings.Trim(name, "/")
	for _, full := range []string{path.Join(split, name), name} {
		if i := slices.IndexFunc(sets, func(s *Set) bool { return s.Path == full }); i >= 0 {
			return sets[i]
		}
	}
	return nil
}

// inSplit are the sets in a group, "" for all.
func inSplit(sets []*Set, split string) []*Set {
	if split == "" {
		return sets
	}
	var in []*Set
	for _, s := range sets {
		if strings.HasPrefix(s.Path, split+"/") {
			in = append(in, s)
		}
	}
	return in
}

// cutLast cuts a text at the last place where sep is.
func cutLast(text, sep string) (before, after string, ok bool) {
	if i := strings.LastIndex(text, sep); i >= 0 {
		return text[:i], text[i+len(sep):], true
	}
	return text, "", false
}

// findPairs finds the pairs of a file, and makes those that columns name.
func findPairs(ctx context.Context, f *File, split string, columns []column.Want, read Reader) (*pairs, error) {
	p := &pairs{named: map[string]*Set{}, found: map[*Set]*Set{}, offsets: map[*Set][]string{}}
	sets := inSplit(f.Sets, split)
	for _, c := range columns {
		v, o, ok := cutLast(c.From, at)
		if !ok || o == "" || byName(sets, split, c.From) != nil {
			continue
		}
		values, offsets := byName(sets, split, v), byName(sets, split, o)
		if values == nil || offsets == nil {
			continue // which is said of what the column names
		}
		s, err := namedPair(ctx, values, offsets, read)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Path, err)
		}
		p.named[c.From] = s
	}
	groups := map[string][]*Set{}
	for _, s := range sets {
		groups[path.Dir(s.Path)] = append(groups[path.Dir(s.Path)], s)
	}
	for _, s := range sets {
		if err := p.look(ctx, groups[path.Dir(s.Path)], s, read); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", f.Path, s.Path, err)
		}
	}
	return p, nil
}

// indexName says whether an array may say by its name which rows are a record: those of
// the arrays called of, or of all beside it.
func indexName(name string) (of string, lengths, ok bool) {
	name = strings.ToLower(path.Base(name))
	for i, names := range [][]string{offsetNames, lengthNames} {
		if slices.Contains(names, name) {
			return "", i == 1, true
		}
	}
	for i, names := range [][]string{offsetNames, lengthNames} {
		for _, end := range names {
			for _, sep := range []string{"_", "-", "."} {
				if of, ok := strings.CutSuffix(name, sep+end); ok && of != "" {
					return of, i == 1, true
				}
			}
		}
	}
	return "", false, false
}

// look finds the arrays whose rows o says, by its name and by what is in it.
func (p *pairs) look(ctx context.Context, beside []*Set, o *Set, read Reader) error {
	of, lengths, ok := indexName(o.Path)
	if !ok || isIndex(o) != nil {
		return nil
	}
	var values []*Set
	for _, v := range beside {
		name := strings.ToLower(path.Base(v.Path))
		_, _, index := indexName(v.Path)
		switch {
		case index || v == o || p.found[v] != nil || isValues(v) != nil || v.Dims[0] == 0:
		case of == "", slices.ContainsFunc(valueNames, func(end string) bool { return name == of+end }):
			values = append(values, v)
		}
	}
	if len(values) == 0 {
		return nil
	}
	numbers, err := o.elements(ctx, read)
	if errors.Is(err, errUnwritten) {
		return nil
	}
	if err != nil {
		return err
	}
	if !lengths && (numbers[0] != 0 || len(numbers) < 2) {
		return nil
	}
	n := numbers[len(numbers)-1]
	if lengths {
		n = 0
		for _, one := range numbers {
			if one < 0 || one > math.MaxInt64-n {
				return nil
			}
			n += one
		}
		if n == int64(len(numbers)) { // each has one: they are rows like any
			return nil
		}
	}
	for _, v := range values {
		if v.Dims[0] != n {
			continue
		}
		s, err := pair(v, o, lengths)
		if err == nil {
			_, err = s.spans(n, numbers)
		}
		if err != nil { // with the first and the last one it is no accident
			return err
		}
		p.found[v] = s
		p.offsets[o] = append(p.offsets[o], v.Path)
	}
	return nil
}

// namedPair makes a pair that somebody has named: what it says decides between offsets and
// lengths, and where both are possible, its name.
func namedPair(ctx context.Context, v, o *Set, read Reader) (*Set, error) {
	if _, err := pair(v, o, true); err != nil {
		return nil, err
	}
	numbers, err := o.elements(ctx, read)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", o.Path, err)
	}
	_, lengths, known := indexName(o.Path)
	if !known {
		all, err := (&Set{of: v, offsets: o, lengths: true}).spans(v.Dims[0], numbers)
		lengths = err == nil && all[len(all)-1] == v.Dims[0]
		if _, err := (&Set{of: v, offsets: o}).spans(v.Dims[0], numbers); err == nil && numbers[0] == 0 {
			lengths = false
		}
	}
	s, err := pair(v, o, lengths)
	if err != nil {
		return nil, err
	}
	if _, err := s.spans(v.Dims[0], numbers); err != nil {
		return nil, fmt.Errorf("%q: %w", v.Path, err)
	}
	return s, nil
}

// isValues says why the rows of a set cannot be parts of records.
func isValues(v *Set) error {
	switch {
	case v.Why != "":
		return fmt.Errorf("%q %s", v.Path, v.Why)
	case len(v.Dims) == 0:
		return fmt.Errorf("%q is a single value and has no rows", v.Path)
	case v.Type.Class != Number:
		return fmt.Errorf("%q has %s: what offsets cut into records are numbers", v.Path, &v.Type)
	}
	return nil
}

// isIndex says why a set cannot say which rows are a record.
func isIndex(o *Set) error {
	switch {
	case o.Why != "":
		return fmt.Errorf("%q %s", o.Path, o.Why)
	case o.Type.Class != Number || o.Type.DType == driver.Bool || o.Type.DType.Type().Floating() || len(o.Dims) != 1 || len(o.Type.Dims) > 0:
		return fmt.Errorf("%q is %s of shape %v: offsets and lengths are whole numbers of one axis", o.Path, &o.Type, o.Dims)
	case o.Dims[0] == 0:
		return fmt.Errorf("%q has no elements: there are no records", o.Path)
	}
	return nil
}

// pair makes a set of lists of one with values and one with offsets or lengths.
func pair(v, o *Set, lengths bool) (*Set, error) {
	if err := isValues(v); err != nil {
		return nil, err
	}
	if err := isIndex(o); err != nil {
		return nil, err
	}
	s := *v
	s.of, s.offsets, s.lengths, s.numbers = v, o, lengths, nil
	s.Type.Class, s.Type.Rows = VarList, true
	n := o.Dims[0]
	if !lengths {
		n--
	}
	s.Dims = append([]int64{n}, v.Dims[1:]...)
	return &s, nil
}

// elements reads all elements of a set of whole numbers, once. One that was never written,
// or is larger than any number of rows, is an error.
func (o *Set) elements(ctx context.Context, read Reader) ([]int64, error) {
	if o.numbers != nil {
		return o.numbers, nil
	}
	a, err := o.Load(ctx)
	if err != nil {
		return nil, err
	}
	if err := a.init(); err != nil {
		return nil, err
	}
	// What was never written has any size without taking room in the file.
	if a.Dims[0] > maxUnwritten {
		if err := a.written(); err != nil {
			return nil, err
		}
	}
	t := &o.Type
	number := t.DType.Type()
	var one [8]byte
	var out []int64
	err = a.each(ctx, read, 0, a.Dims[0], func(row int64, b []byte) error {
		e := one[:copy(one[:], b[t.At:t.At+t.Size])]
		if t.Big {
			slices.Reverse(e)
		}
		if t.DType == driver.Uint64 && number.Bits(e) > math.MaxInt64 {
			return fmt.Errorf("element %d is %d, which is more than any number of rows", row, number.Bits(e))
		}
		out = append(out, number.Int(e))
		return nil
	})
	if err != nil {
		return nil, err
	}
	o.numbers = out
	return out, nil
}

// maxUnwritten is how many offsets there may be of which some were never written.
const maxUnwritten = 1 << 22

var errUnwritten = errors.New("it was never written as a whole")

// written says that there is nothing of an array that was never written.
func (a *Array) written() error {
	if a.Held != nil || a.Chunk == nil && a.Whole.Size > 0 {
		return nil
	}
	if a.Chunk == nil {
		return errUnwritten
	}
	for n := range a.grid[0] * a.parts {
		if _, ok := a.Find(n); !ok {
			return fmt.Errorf("%w: element %d", errUnwritten, n*a.Chunk[0])
		}
	}
	return nil
}

// spans makes of the numbers of a pair where the records of n rows of values begin and end.
func (s *Set) spans(n int64, numbers []int64) ([]int64, error) {
	fail := func(i int, what string, a ...any) ([]int64, error) {
		return nil, fmt.Errorf("its records follow from %q, whose element %d is %d, %s: it is damaged, or is of other data", s.offsets.Path, i, numbers[i], fmt.Sprintf(what, a...))
	}
	if !s.lengths {
		for i, at := range numbers {
			switch {
			case at < 0:
				return fail(i, "below 0")
			case i > 0 && at < numbers[i-1]:
				return fail(i, "less than the one before it, %d", numbers[i-1])
			case at > n:
				return fail(i, "beyond the %d rows", n)
			}
		}
		return numbers, nil
	}
	out := make([]int64, 1, len(numbers)+1)
	for i, length := range numbers {
		if length < 0 {
			return fail(i, "below 0")
		}
		if length > n-out[i] {
			return fail(i, "and %d rows come before, of %d", out[i], n)
		}
		out = append(out, out[i]+length)
	}
	return out, nil
}

// spanned has an array of values say which of its rows are a record.
func (s *Set) spanned(ctx context.Context, a *Array, read Reader) error {
	numbers, err := s.offsets.elements(ctx, read)
	if err != nil {
		return fmt.Errorf("its records follow from %q: %w", s.offsets.Path, err)
	}
	if a.spans, err = s.spans(a.Dims[0], numbers); err != nil {
		return err
	}
	for r := range a.records() {
		if n := a.valueBytes(r, &s.Type); n > driver.MaxArrayBytes {
			return fmt.Errorf("record %d has %d bytes, more than the limit of %d", r, n, int64(driver.MaxArrayBytes))
		}
	}
	return nil
}

// valueBytes is the size of the value of a record, of those that have any length.
func (a *Array) valueBytes(r int64, t *Type) int64 {
	if a.values != nil {
		_, _, size := a.values.at(r)
		return size
	}
	lo, hi := a.span(r)
	return (hi - lo) * (a.row / a.Elem) * t.Size
}

// head reads the first n bytes of such a value.
func (a *Array) head(ctx context.Context, read Reader, r, n int64) ([]byte, error) {
	if a.values != nil {
		object, offset, _ := a.values.at(r)
		b := make([]byte, n)
		return b, read(ctx, object, b, offset)
	}
	lo, hi := a.span(r)
	var out []byte
	err := a.each(ctx, read, lo, min(hi, lo+(n+a.row-1)/a.row), func(_ int64, b []byte) error {
		out = append(out, b...)
		return nil
	})
	return out[:min(n, int64(len(out)))], err
}
