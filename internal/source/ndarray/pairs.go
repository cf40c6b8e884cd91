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

// Rows of any length are often stored as two arrays. One has the values of all records. The other
// has the offset of each record and the end of the last one (offsets, indptr, row_splits), or the
// number of values of each record (lengths). Such a pair is one Set. A pair is detected if the
// names match and the numbers agree with the values. A column can also name it: values@offsets.

// at separates the paths of a pair.
const at = "@"

// Names of arrays with offsets or lengths. The name of the array with the values can come first:
// tokens_offsets.
var (
	offsetNames = []string{"offsets", "offset", "indptr", "ptr", "row_splits", "splits", "row_ptr", "rowptr", "cu_seqlens"}
	lengthNames = []string{"lengths", "length", "lens", "len", "row_lengths", "sizes", "counts"}
	valueNames  = []string{"", "_values", "_data", "_flat"}
)

// pairs are the pairs of a file.
type pairs struct {
	// named are the pairs that columns name, by Want.From.
	named map[string]*Set
	// found are the detected pairs, by the set with the values. offsets has the paths of the
	// values, by the set with the offsets or lengths.
	found   map[*Set]*Set
	offsets map[*Set][]string
}

// byName returns the set that a column names, or the detected pair of that set. A trailing @
// selects the set without its offsets.
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

// inSplit returns the sets in a group, or all sets if split is "".
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

// cutLast is strings.Cut at the last sep.
func cutLast(text, sep string) (before, after string, ok bool) {
	if i := strings.LastIndex(text, sep); i >= 0 {
		return text[:i], text[i+len(sep):], true
	}
	return text, "", false
}

// findPairs detects the pairs of a file, and makes the pairs that columns name.
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
			continue // choose returns the error
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

// indexName reports whether name is a name of offsets or lengths. of is the name of the arrays with
// the values, "" for all arrays in the same group.
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

// look detects the pairs of o with the arrays in the same group.
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
		if n == int64(len(numbers)) { // one row per record: plain rows
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
		if err != nil { // the first and last numbers fit, so o is damaged
			return err
		}
		p.found[v] = s
		p.offsets[o] = append(p.offsets[o], v.Path)
	}
	return nil
}

// namedPair makes a pair that a column names. The name of o decides between offsets and lengths. If
// the name is unknown, the numbers decide. If both fit, they are offsets.
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

// isValues returns an error if the rows of a set cannot be parts of records.
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

// isIndex returns an error if a set cannot have offsets or lengths.
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

// pair makes a set of lists from a set of values and a set of offsets or lengths.
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

// elements returns all elements of a set of whole numbers. It reads them only once. A large array
// that was not written entirely is an error, and so is an element above any number of rows.
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
	// An unwritten array can declare any size without using space in the file.
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

// maxUnwritten is the largest number of offsets of which some may be unwritten.
const maxUnwritten = 1 << 22

var errUnwritten = errors.New("it was never written as a whole")

// written returns an error if a part of the array was never written.
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

// spans returns where the records begin and end in n rows of values, from the numbers of a pair.
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

// spanned sets a.spans from the offsets or lengths of the pair.
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

// valueBytes returns the size in bytes of the value of record r. Values of t have any length.
func (a *Array) valueBytes(r int64, t *Type) int64 {
	if a.values != nil {
		_, _, size := a.values.at(r)
		return size
	}
	lo, hi := a.span(r)
	return (hi - lo) * (a.row / a.Elem) * t.Size
}

// head reads the first n bytes of the value of record r, as stored.
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
