package ndarray

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/source/driver"
)

// Set is an array of a file that can become a field.
type Set struct {
	// Path is the path of the array in the file, without a leading slash.
	Path string
	Type Type
	Dims []int64
	// Why is the reason that the array cannot be read, "" if it can.
	Why string
	// Load finds the positions of the elements.
	Load func(ctx context.Context) (*Array, error)
	// Ref returns the location of the value that an element of the class VarText, VarBytes or
	// VarList refers to.
	Ref func(elem []byte) (object, offset, size int64, err error)

	// A set of lists (pair) has its values in the set of. The set offsets has the offsets of the
	// records, or their lengths if lengths is set.
	of, offsets *Set
	lengths     bool
	numbers     []int64 // the elements, once they are read
}

// several reports whether a row has several values of a class other than Number.
func (s *Set) several() bool {
	if s.Type.Class == Number || s.Type.Rows {
		return false
	}
	for _, side := range s.Dims[1:] {
		if side != 1 {
			return true
		}
	}
	return false
}

// File lists the arrays of a file.
type File struct {
	// Path is for messages.
	Path string
	Sets []*Set
	// Left lists other contents of the file, which are not read.
	Left []driver.Skipped
}

// wanted describes a set that becomes a field, in all files.
type wanted struct {
	column column.Want
	path   string
	// offsets is the path of the set with the offsets of the records, or with their lengths if
	// lengths is set. It is "" if each row is a record.
	offsets string
	lengths bool
}

func want(c column.Want, s *Set) wanted {
	w := wanted{column: c, path: s.Path, lengths: s.lengths}
	if s.offsets != nil {
		w.offsets = s.offsets.Path
	}
	return w
}

// choose returns the sets of a file that become fields, and the reasons for skipping the others.
// Fields are the sets that columns name, or those with the most common first axis.
func choose(f *File, split string, columns []column.Want, pairs *pairs) ([]wanted, []driver.Skipped, error) {
	ch := &choice{
		f: f, split: split, pairs: pairs, sets: inSplit(f.Sets, split), left: slices.Clone(f.Left),
		taken: map[*Set]bool{}, names: map[string]bool{}, rows: -1,
	}
	if len(ch.sets) == 0 && split != "" {
		return nil, nil, fmt.Errorf("%s has no group %q with arrays: it has %s", f.Path, split, filelist.Quoted(groups(f.Sets)))
	}
	if len(ch.sets) < len(f.Sets) {
		for _, s := range f.Sets {
			if !slices.Contains(ch.sets, s) {
				ch.skip(s, "not in the split "+split)
			}
		}
	}
	rest := len(columns) == 0
	for _, c := range columns {
		if c.Name == column.Rest {
			rest = true
		} else if err := ch.take(c); err != nil {
			return nil, nil, err
		}
	}
	if !rest {
		for _, s := range ch.sets {
			if !ch.taken[s] {
				ch.skip(s, "not chosen")
			}
		}
		return ch.out, ch.left, nil
	}
	if err := ch.takeRest(ch.usable()); err != nil {
		return nil, nil, err
	}
	if len(ch.out) == 0 {
		return nil, nil, fmt.Errorf("%s has no arrays with rows that can be read%s", f.Path, reasons(ch.left))
	}
	return ch.out, ch.left, nil
}

// choice is the state of choose.
type choice struct {
	f     *File
	split string
	pairs *pairs
	sets  []*Set // of the split
	taken map[*Set]bool
	names map[string]bool // of the fields that columns name
	rows  int64           // of the fields, -1 before the first
	first string          // the last field that a column names
	out   []wanted
	left  []driver.Skipped
}

func (ch *choice) skip(s *Set, reason string) {
	ch.left = append(ch.left, driver.Skipped{Path: s.Path, Reason: reason})
}

// take takes the set that a column names.
func (ch *choice) take(c column.Want) error {
	s := ch.pairs.byName(ch.sets, ch.split, c.From)
	if s == nil {
		return fmt.Errorf("%s has no array %q: it has %s", ch.f.Path, c.From, filelist.Quoted(paths(ch.sets)))
	}
	switch {
	case s.Why != "":
		return fmt.Errorf("%s: %q %s", ch.f.Path, s.Path, s.Why)
	case len(s.Dims) == 0:
		return fmt.Errorf("%s: %q is a single value and has no rows", ch.f.Path, s.Path)
	case ch.rows >= 0 && s.Dims[0] != ch.rows:
		return fmt.Errorf("%s: %q has %d rows and %q has %d: fields of the same records have equally many", ch.f.Path, ch.first, ch.rows, s.Path, s.Dims[0])
	}
	ch.rows, ch.first = s.Dims[0], s.Path
	if c.Name == c.From { // no name stated: use the path of the array
		c.Name = strings.Trim(c.Name, "/")
		if s.offsets != nil || strings.HasSuffix(c.Name, at) && !strings.HasSuffix(s.Path, at) {
			c.Name, _, _ = cutLast(c.Name, at)
		}
	}
	if ch.taken[s] = true; s.offsets != nil {
		ch.taken[s.of], ch.taken[s.offsets] = true, true
	}
	ch.names[c.Name] = true
	ch.out = append(ch.out, want(c, s))
	return nil
}

// usable returns the sets that no column names and that can be fields.
func (ch *choice) usable() (list []*Set) {
	for _, s := range ch.sets {
		of := ch.pairs.offsets[s]
		if p := ch.pairs.found[s]; p != nil && !ch.taken[s] {
			s = p
		}
		switch {
		case ch.taken[s]:
		case of != nil:
			ch.skip(s, fmt.Sprintf("it says which rows of %s are a record", filelist.Quoted(of)))
		case s.Why != "":
			ch.skip(s, s.Why)
		case len(s.Dims) == 0:
			ch.skip(s, "a single value, without rows")
		case s.Dims[0] == 0:
			ch.skip(s, "it has no rows")
		case s.several():
			ch.skip(s, fmt.Sprintf("it has several values of %s in a row, of the shape %v: only one can be read", &s.Type, s.Dims[1:]))
		default:
			list = append(list, s)
		}
	}
	return list
}

// takeRest takes the usable sets with as many rows as the fields so far, or else with the most common number of rows.
func (ch *choice) takeRest(usable []*Set) error {
	if ch.rows < 0 {
		if err := ambiguous(ch.f, ch.split, usable); err != nil {
			return err
		}
		count := map[int64]int{}
		for _, s := range usable {
			count[s.Dims[0]]++
		}
		for n, c := range count {
			if ch.rows < 0 || c > count[ch.rows] || c == count[ch.rows] && n > ch.rows {
				ch.rows = n
			}
		}
	}
	common := prefix(usable, ch.rows)
	var more []string
	var chosen []*Set
	for _, s := range usable {
		if s.Dims[0] != ch.rows {
			ch.skip(s, fmt.Sprintf("its first axis has %d elements, that of the fields %d", s.Dims[0], ch.rows))
			continue
		}
		if len(chosen) == maxFields {
			ch.skip(s, fmt.Sprintf("there are more than %d fields", maxFields))
			continue
		}
		chosen, more = append(chosen, s), append(more, strings.TrimPrefix(s.Path, common))
	}
	for i, name := range column.Named(more) {
		if ch.names[name] {
			return fmt.Errorf("%s: field %q has the name of another array: give it another one", ch.f.Path, name)
		}
		ch.out = append(ch.out, want(column.Want{Name: name, From: chosen[i].Path}, chosen[i]))
	}
	return nil
}

// maxFields limits the fields that no column names.
const maxFields = 256

// ambiguous returns an error if the groups look like splits: several groups with arrays of the same
// names.
func ambiguous(f *File, split string, sets []*Set) error {
	if split != "" {
		return nil
	}
	byGroup := map[string][]string{}
	for _, s := range sets {
		g, name, ok := strings.Cut(s.Path, "/")
		if !ok {
			return nil
		}
		byGroup[g] = append(byGroup[g], name)
	}
	if len(byGroup) < 2 || len(byGroup) > 16 {
		return nil
	}
	var all []string
	var same []string
	for g, names := range byGroup {
		slices.Sort(names)
		if all != nil && !slices.Equal(names, same) {
			return nil
		}
		all, same = append(all, g), names
	}
	slices.Sort(all)
	return fmt.Errorf("%s has the groups %s with the same arrays: say which one is wanted, such as ?split=%s", f.Path, filelist.Quoted(all), all[0])
}

// prefix returns the deepest group that contains all sets with this many rows, with a trailing
// slash.
func prefix(sets []*Set, rows int64) string {
	out, some := "", false
	for _, s := range sets {
		if s.Dims[0] != rows {
			continue
		}
		dir := s.Path[:strings.LastIndexByte(s.Path, '/')+1]
		if !some {
			out, some = dir, true
		}
		for !strings.HasPrefix(dir, out) {
			out = out[:strings.LastIndexByte(strings.TrimSuffix(out, "/"), '/')+1]
		}
	}
	return out
}

// groups returns the first names of the top-level groups that have arrays.
func groups(sets []*Set) []string {
	var out []string
	for _, s := range sets {
		if g, _, ok := strings.Cut(s.Path, "/"); ok && !slices.Contains(out, g) && len(out) < 32 {
			out = append(out, g)
		}
	}
	return out
}

func paths(sets []*Set) []string {
	var out []string
	for _, s := range sets[:min(len(sets), 32)] {
		out = append(out, s.Path)
	}
	return out
}

// reasons returns the first reason for skipping an array, for messages.
func reasons(left []driver.Skipped) string {
	if len(left) == 0 {
		return ""
	}
	return fmt.Sprintf(": %.100q %s", left[0].Path, left[0].Reason)
}
