package kind

import (
	"fmt"
	"maps"
	"runtime/debug"
	"slices"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/collate"
	"github.com/stokerdata/stoker/internal/decode"
	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/internal/transform"
	"github.com/stokerdata/stoker/source/driver"
)

// Set has the arrays of a batch that come from fields, and their makers.
type Set struct {
	p       *Planner
	makers  []Maker
	columns []Column
	// places are the arrays, by field, into which sources may put values: -1 for
	// none.
	places []int
	wants  []Want
	// labels has the number of classes by label array.
	labels map[string]int
	// sized are the arrays whose rows have sizes that the source may know.
	sized []sized
	sizer driver.Sizer
	// unplaced is the size of the largest value that is cut before it goes into a batch.
	unplaced int64
}

type sized struct{ array, field int }

// Request describes the content of a batch.
type Request struct {
	// Kinds are the available kinds; nil means All.
	Kinds []Kind
	// Outputs are the named arrays. The fields in Fields are added to them. If Fields is empty, all fields whose kind
	// is not Decoded are added, or all fields if there are no Outputs either.
	Outputs []transform.Output
	Fields  []string
	// Pads describes, by array name, how rows of different lengths are padded.
	Pads map[string]collate.Pad
	// Layout is the pixel layout of outputs without one.
	Layout string
}

// Open plans the arrays: first the outputs, then other fields in the order of the
// source, numbers last.
func Open(p *Planner, r *Request) (*Set, error) {
	kinds := r.Kinds
	if kinds == nil {
		kinds = All()
	}
	wants, err := wanted(p.Info, r, kinds)
	if err != nil {
		return nil, err
	}
	p.Wants = wants
	s := &Set{p: p, wants: wants, labels: map[string]int{}, columns: make([]Column, len(wants)), places: make([]int, len(p.Info.Fields))}
	s.sizer, _ = driver.As[driver.Sizer](p.Source)
	for i := range kinds {
		var mine []Want
		for _, w := range wants {
			if plannedAs(w.F) == kinds[i].Name {
				mine = append(mine, w)
			}
		}
		if len(mine) == 0 {
			continue
		}
		makers, err := kinds[i].Plan(p, mine)
		if err != nil {
			return nil, err
		}
		for _, m := range makers {
			for _, c := range m.Columns() {
				s.columns[c.Array] = c
			}
		}
		s.makers = append(s.makers, makers...)
		for k := range mine {
			if kinds[i].Labels {
				s.labels[mine[k].Out.Name] = len(mine[k].F.Classes)
			}
		}
	}
	if err := s.pad(r.Pads); err != nil {
		return nil, err
	}
	for i := range wants {
		s.columns[i].Boxes = boxesOf(wants, &wants[i])
	}
	for i := range s.places {
		s.places[i] = slices.IndexFunc(wants, func(w Want) bool { return w.Field == i && s.columns[w.Array].Stored })
	}
	for _, w := range wants {
		if c := &s.columns[w.Array]; c.Ragged && c.Stored && s.sizer != nil {
			s.sized = append(s.sized, sized{w.Array, w.Field})
		}
	}
	return s, nil
}

// pad has columns filled up.
func (s *Set) pad(pads map[string]collate.Pad) error {
	for _, name := range slices.Sorted(maps.Keys(pads)) {
		var names []string
		i := -1
		for k := range s.columns {
			if s.columns[k].Name == name {
				i = k
			}
			if s.columns[k].Ragged {
				names = append(names, s.columns[k].Name)
			}
		}
		if i < 0 || !s.columns[i].Ragged {
			if len(names) == 0 {
				return fmt.Errorf("pad: %q is not an array of rows of different lengths, and the batch has none", name)
			}
			return fmt.Errorf("pad: %q is not an array of rows of different lengths%s", name, transform.DidYouMean(name, names))
		}
		c, p := &s.columns[i], pads[name]
		if err := p.Check(); err != nil {
			return fmt.Errorf("pad: %q: %w", name, err)
		}
		element := int64(c.DType.Size())
		for _, n := range c.Shape {
			element *= int64(n)
		}
		if p.Truncate {
			// Bytes that are cut off have no place in the batch.
			s.unplaced = max(s.unplaced, c.MaxRow)
		}
		c.Pad, c.MaxRow = &p, p.MaxRow(c.MaxRow, element)
		c.Capacity = min(c.Capacity, c.MaxRow*int64(s.p.BatchSize))
	}
	return nil
}

// wanted returns the arrays in their order.
func wanted(info *driver.Info, r *Request, kinds []Kind) ([]Want, error) {
	names := make([]string, len(info.Fields))
	for i := range info.Fields {
		names[i] = info.Fields[i].Name
	}
	find := func(name string) (*Kind, int, error) {
		i := slices.Index(names, name)
		if i < 0 {
			return nil, 0, fmt.Errorf("%s has no field %q%s", info.URL, name, transform.DidYouMean(name, names))
		}
		k := kindOf(kinds, &info.Fields[i])
		if k == nil {
			return nil, 0, fmt.Errorf("field %q of %s is of kind %q, which this engine does not know", name, info.URL, info.Fields[i].Kind)
		}
		return k, i, nil
	}
	var wants []Want
	add := func(field int, out transform.Output, k *Kind) {
		if k.Decoded && out.Layout == "" {
			out.Layout = r.Layout
		}
		wants = append(wants, Want{Array: len(wants), Field: field, F: &info.Fields[field], Out: out})
	}
	taken := make([]bool, len(info.Fields))
	for _, out := range r.Outputs {
		if out.Field == "" {
			out.Field = out.Name
		}
		k, i, err := find(out.Field)
		if err != nil {
			return nil, fmt.Errorf("output %q: %w", out.Name, err)
		}
		add(i, out, k)
		taken[i] = true
	}
	listed := make([]bool, len(info.Fields))
	for _, name := range r.Fields {
		_, i, err := find(name)
		if err != nil {
			return nil, err
		}
		listed[i] = true
	}
	for _, first := range []func(k *Kind) bool{
		func(k *Kind) bool { return k.Decoded },
		func(k *Kind) bool { return !k.Decoded && !k.Number },
		func(k *Kind) bool { return k.Number },
	} {
		for i := range info.Fields {
			k := kindOf(kinds, &info.Fields[i])
			if k == nil || !first(k) || taken[i] || len(r.Fields) > 0 && !listed[i] || k.Decoded && len(r.Outputs) > 0 {
				continue
			}
			add(i, transform.Output{Name: names[i], Field: names[i]}, k)
		}
	}
	return wants, nil
}

func kindOf(kinds []Kind, f *driver.Field) *Kind {
	i := slices.IndexFunc(kinds, func(k Kind) bool { return k.Name == f.Kind })
	if i < 0 {
		return nil
	}
	return &kinds[i]
}

// Columns are the arrays, by Want.Array.
func (s *Set) Columns() []collate.Column {
	cols := make([]collate.Column, len(s.columns))
	for i := range cols {
		cols[i] = s.columns[i].Column
	}
	return cols
}

// Classes returns the class names by array, for arrays that have some.
func (s *Set) Classes() map[string][]string {
	var m map[string][]string
	for i := range s.wants {
		if w := &s.wants[i]; len(w.F.Classes) > 0 {
			if m == nil {
				m = map[string][]string{}
			}
			m[w.Out.Name] = w.F.Classes
		}
	}
	return m
}

// Rates are the samples per second by array, of sound that was decoded.
func (s *Set) Rates() map[string]int {
	rates := map[string]int{}
	for _, m := range s.makers {
		if m, ok := m.(*sounds); ok {
			m.Rates(rates)
		}
	}
	return rates
}

// Fields reports for each field of the source whether arrays are built from it.
func (s *Set) Fields() []bool {
	out := make([]bool, len(s.places))
	for _, w := range s.wants {
		out[w.Field] = true
	}
	return out
}

// Labels are the numbers of classes, 0 when not known, by array of labels.
func (s *Set) Labels() map[string]int { return s.labels }

// Cost returns the cost of building the arrays.
func (s *Set) Cost() (c Cost) {
	c.UnplacedBytes = s.unplaced
	for _, m := range s.makers {
		one := m.Cost()
		c.Images = append(c.Images, one.Images...)
		c.ValueBytes += one.ValueBytes
		c.UnplacedBytes = max(c.UnplacedBytes, one.UnplacedBytes)
		c.Together = max(c.Together, one.Together)
	}
	return c
}

// Begin prepares b for the records ids, in slot.
func (s *Set) Begin(b *collate.Batch, slot []byte, ids []int64) (err error) {
	b.Begin(slot, len(ids))
	if len(s.sized) == 0 || len(ids) == 0 {
		return nil
	}
	defer func() {
		if r := recover(); r != nil {
			err = fault("asking for the sizes of values", r)
		}
	}()
	for _, c := range s.sized {
		err := b.Sizes(c.array, func(sizes []int64) bool { return s.sizer.Sizes(c.field, ids, sizes) })
		if err != nil {
			return err
		}
	}
	return nil
}

// Place returns the position in the slot of b for the value of n bytes of a row's field, and false if it has no place
// of that size.
func (s *Set) Place(b *collate.Batch, row, field int, n int64) (at int64, ok bool) {
	array := s.places[field]
	if array < 0 {
		return 0, false
	}
	return b.Place(array, row, n)
}

// fault describes a bug that was caught, with its position in the code.
func fault(what string, r any) error {
	if err := recordread.Unreadable(r); err != nil {
		return err
	}
	return fmt.Errorf("internal error while %s: %v\n%s", what, r, debug.Stack())
}

// NewRows returns Rows that fill rows in one goroutine, for groups of up to groupRows records, with scratch from
// budget. Decoding an image may take up to decodeMemory; larger images use large.
func (s *Set) NewRows(groupRows int, budget *arena.Budget, decodeMemory int64, large *Large) (*Rows, error) {
	r := &Rows{Without: -1, large: large, errs: make([]error, groupRows)}
	r.tools = Tools{GroupRows: groupRows, options: decode.Options{ApplyOrientation: s.p.ApplyOrientation}, budget: budget, decodeMemory: decodeMemory}
	for _, m := range s.makers {
		w, err := m.NewWorker(&r.tools)
		if err != nil {
			r.Close()
			return nil, err
		}
		r.workers = append(r.workers, w)
	}
	return r, nil
}

// NoHeader reports whether a record has an image with an unreadable header. Such a record fails for every part of the
// image.
func (s *Set) NoHeader(rec *driver.Record) bool {
	for i := range rec.Values {
		v, f := &rec.Values[i], &s.p.Info.Fields[i]
		if f.Kind != driver.KindImage && f.Kind != driver.KindMask || v.Codec >= driver.CodecRaw {
			continue
		}
		if _, err := imagefile.Probe(v.Bytes); err != nil {
			return true
		}
	}
	return false
}
