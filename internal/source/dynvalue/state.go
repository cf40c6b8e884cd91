package dynvalue

import (
	"errors"
	"maps"
	"slices"

	"github.com/stokerdata/stoker/source/driver"
)

// What was seen of the values of a file can be written down, so that it need not be looked
// at again.

// State is what Columns have seen.
type State struct {
	Records int64
	Columns []ColumnState
	// Unwanted are the names of columns that nobody wants.
	Unwanted []string
}

// ColumnState is what was seen of a column.
type ColumnState struct {
	Name                      string
	Want                      driver.Kind
	Forms, Contents           []int64
	Sizes, JSON               SizesState
	DType                     driver.DType
	Types, Seen, Uneven, Wide bool
	Rest                      []int
	Least, Most               int
	Min, Max                  int64
	Sides                     [2][3]int32
	Classes                   []string
	Why                       string
}

// SizesState are the counts of Sizes.
type SizesState struct {
	Count, Bytes, Least, Most int64
	By                        map[int64]int64
}

func (s *Sizes) state() SizesState {
	s.flush()
	return SizesState{s.count, s.bytes, s.least, s.most, maps.Clone(s.by)}
}

func (s *SizesState) sizes() Sizes {
	return Sizes{count: s.Count, bytes: s.Bytes, least: s.Least, most: s.Most, by: s.By}
}

// State is what was seen, nil where that is a failure, which is to be seen again.
func (c *Columns) State() *State {
	if c.err != nil {
		return nil
	}
	s := &State{Records: c.Records}
	for _, name := range slices.Sorted(maps.Keys(c.all)) {
		col := c.all[name]
		if col == nil {
			s.Unwanted = append(s.Unwanted, name)
			continue
		}
		s.Columns = append(s.Columns, ColumnState{
			Name: col.Name, Want: col.Want, Forms: col.forms[:], Contents: col.contents[:], Sizes: col.sizes.state(), JSON: col.json.state(),
			DType: col.dtype, Types: col.types, Seen: col.seen, Uneven: col.uneven, Wide: col.wide, Rest: col.rest, Least: col.least, Most: col.most,
			Min: col.min, Max: col.max, Sides: col.sides, Classes: slices.Sorted(maps.Keys(col.classes)), Why: col.why,
		})
	}
	return s
}

var errState = errors.New("what was written down of columns makes no sense")

// Restore adds what was seen before, by Columns that wanted the same.
func (c *Columns) Restore(s *State) error {
	o := &Columns{all: map[string]*Column{}, Records: s.Records}
	for _, name := range s.Unwanted {
		o.all[name] = nil
	}
	for i := range s.Columns {
		st := &s.Columns[i]
		col := &Column{
			Name: st.Name, Want: st.Want, sizes: st.Sizes.sizes(), json: st.JSON.sizes(), dtype: st.DType, types: st.Types, seen: st.Seen, uneven: st.Uneven,
			wide: st.Wide, rest: st.Rest, least: st.Least, most: st.Most, min: st.Min, max: st.Max, sides: st.Sides, why: st.Why,
		}
		if len(st.Forms) != len(col.forms) || len(st.Contents) != len(col.contents) || len(o.all) >= maxColumns || s.Records < 0 {
			return errState
		}
		copy(col.forms[:], st.Forms)
		copy(col.contents[:], st.Contents)
		for _, name := range st.Classes {
			col.class([]byte(name))
		}
		o.all[st.Name] = col
	}
	c.Merge(o)
	return nil
}
