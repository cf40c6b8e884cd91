package view

import (
	"fmt"

	"github.com/stokerdata/stoker/source/driver"
)

// Records of a view are read as records of its source, without the fields that are not needed.

// id returns the number in the source of a record of the view. A number out of range stays out of
// range.
func (v *view) id(id int64) int64 {
	epoch := int64(0)
	if v.varied {
		epoch, id = driver.OfEpoch(id)
	}
	if id < 0 || id >= v.info.Len {
		return -1
	}
	if v.keep != nil {
		id = v.keep.at(id)
	}
	if epoch != 0 {
		return driver.InEpoch(epoch, id)
	}
	return id
}

// work is the state of a group while the source processes it.
type work struct {
	v     *view
	ids   []int64
	want  []bool
	inner driver.Group
	outer *driver.Group
	where func(k, field int, n int64) []byte
	box   func(k, field int) (driver.Box, bool)
}

// wants marks the fields of the source that the wanted fields of the view need.
func (v *view) wants(want []bool, wanted func(field int) bool) {
	for k, i := range v.from {
		switch {
		case !wanted(k):
		case v.made[k] != nil:
			for p := range v.made[k].parts {
				want[v.made[k].parts[p].source] = true
			}
		default:
			want[i] = true
		}
	}
}

// changed reports whether the view converts or makes a field.
func (v *view) changed(field int) bool { return v.converts[field] != nil || v.made[field] != nil }

// begin returns the group with the records and fields of the source.
func (w *work) begin(g *driver.Group) *driver.Group {
	v := w.v
	w.ids = w.ids[:0]
	for _, id := range g.IDs {
		w.ids = append(w.ids, v.id(id))
	}
	in := &w.inner
	if w.want == nil {
		w.want = make([]bool, len(v.in.Fields))
	}
	clear(w.want)
	v.wants(w.want, g.Wants)
	in.Want, in.Box = w.want, nil
	if g.Box != nil {
		in.Box = w.box
	}
	in.BeginIn(g, w.ids, len(v.in.Fields))
	for k := range g.Records {
		if w.ids[k] < 0 {
			if g.Records[k].Err == nil {
				in.Records[k].Err = fmt.Errorf("record %d is out of range: there are %d records in %s", g.IDs[k], v.info.Len, v.info.URL)
			}
		}
	}
	w.outer = g
	return in
}

// end makes w ready for another group.
func (w *work) end() {
	w.outer = nil
	w.inner.Release()
	w.v.spare.Put(w)
}

// placed is Group.Place for the fields of the source.
func (w *work) placed(k, field int, n int64) []byte {
	to := w.v.place[field]
	if to < 0 || w.v.converts[to] != nil {
		return nil
	}
	return w.outer.Place(k, to, n)
}

// boxOf is Group.Box for the fields of the source.
func (w *work) boxOf(k, field int) (driver.Box, bool) {
	if to := w.v.place[field]; to >= 0 && w.v.converts[to] == nil {
		return w.outer.Box(k, to)
	}
	return driver.Box{}, false
}

// Locate implements driver.Source.
func (v *view) Locate(g *driver.Group) {
	w := v.spare.Get().(*work)
	in := w.begin(g)
	v.Base.Locate(in)
	g.Hand(in, v.extent)
	w.end()
}

// extent changes an extent of the source to one of the view.
func (v *view) extent(e *driver.Extent) {
	e.Tail = e.Tail || v.tail
	if e.Field < 0 {
		return
	}
	if e.Field = int32(v.place[e.Field]); e.Field >= 0 && v.converts[e.Field] != nil {
		e.Field = -1
	}
}

// inner changes an extent of the view back to one of the source.
func (v *view) inner(e *driver.Extent) {
	if e.Field >= 0 {
		e.Field = int32(v.from[e.Field])
	}
}

// Parse implements driver.Source.
func (v *view) Parse(g *driver.Group) error {
	w := v.spare.Get().(*work)
	in := w.begin(g)
	in.HandBytes(g, v.inner)
	if g.Place != nil {
		in.Place = w.where
	}
	err := v.Base.Parse(in)
	if err == nil {
		for k := range g.Records {
			rec := &in.Records[k]
			if g.Records[k].Err = rec.Err; rec.Err != nil {
				continue
			}
			for to, from := range v.from {
				if t := v.made[to]; t != nil {
					if err := w.make(g, k, to, rec.Values); err != nil {
						w.end()
						return err
					}
					continue
				}
				val := rec.Values[from]
				if c := v.converts[to]; c != nil && g.Wants(to) {
					if err := c(&val); err != nil {
						g.Records[k].Err = fmt.Errorf("field %q: %w", v.info.Fields[to].Name, err)
					}
				}
				g.Records[k].Values[to] = val
			}
		}
	}
	w.end()
	return err
}

// make makes the tensor that is a field of record k. An error of the record is set as its Err.
func (w *work) make(g *driver.Group, k, field int, values []driver.Value) error {
	if !g.Wants(field) || g.Records[k].Err != nil {
		return nil
	}
	t := w.v.made[field]
	out, err := g.Take(k, field, t.size)
	if err != nil {
		return fmt.Errorf("no memory for %s of %s: %w", t.field.Name, w.v.Name(g.IDs[k]), err)
	}
	if err := t.make(values, out); err != nil {
		g.Records[k].Err = fmt.Errorf("%s, tensor %q: %w", w.v.Name(g.IDs[k]), t.field.Name, err)
		return nil
	}
	g.Records[k].Values[field] = driver.Value{Bytes: out}
	return nil
}
