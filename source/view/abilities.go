package view

import (
	"context"
	"fmt"

	"github.com/stokerdata/stoker/source/driver"
)

// The abilities of a view are those of its source.

// Cuts implements driver.Cutter, for sources that are one.
func (v *view) Cuts(field int) bool {
	c, ok := v.src.(driver.Cutter)
	return ok && !v.changed(field) && c.Cuts(v.from[field])
}

// Sides implements driver.Cutter.
func (v *view) Sides(id int64, field int) [3]int {
	return v.src.(driver.Cutter).Sides(v.id(id), v.from[field])
}

// Origin implements driver.Deriver.
func (v *view) Origin(id int64, field int) (driver.Source, int64, int) {
	return v.src, v.id(id), v.from[field]
}

// Name implements driver.Source.
func (v *view) Name(id int64) string {
	in := v.id(id)
	if in < 0 {
		return fmt.Sprintf("%s, record %d", v.info.URL, id)
	}
	return v.src.Name(in)
}

// Find implements driver.Finder.
func (v *view) Find(ctx context.Context, id int64) string {
	if f, ok := v.src.(driver.Finder); ok && v.id(id) >= 0 {
		return f.Find(ctx, v.id(id))
	}
	return v.Name(id)
}

// Variants implements driver.Varied.
func (v *view) Variants() int { return driver.VariantsOf(v.src) }

// Varies implements driver.Varied. What is made of several fields varies where one of
// them does.
func (v *view) Varies(field int) bool {
	if t := v.made[field]; t != nil {
		for i := range t.parts {
			if driver.Varies(v.src, t.parts[i].source) {
				return true
			}
		}
		return false
	}
	return driver.Varies(v.src, v.from[field])
}

// InEpochs says that records are others in each epoch (driver.EpochsOf).
func (v *view) InEpochs() bool { return driver.EpochsOf(v.src) }

// Seed implements driver.Seeded.
func (v *view) Seed(seed uint64) { driver.SeedOf(v.src, seed) }

// Held implements driver.Holder.
func (v *view) Held() int64 {
	n := driver.Held(v.src)
	if v.keep != nil {
		n += int64(8*len(v.keep.words) + 8*len(v.keep.ranks))
	}
	return n
}

// Useful implements driver.Cacher.
func (v *view) Useful() int64 { return driver.Useful(v.src) }

// Keep implements driver.Cacher.
func (v *view) Keep(n int64) { driver.Keep(v.src, n) }

// Skipped implements driver.Skipper.
func (v *view) Skipped() []driver.Skipped {
	if s, ok := v.src.(driver.Skipper); ok {
		return s.Skipped()
	}
	return nil
}

// sizesOf, shapesOf and pathsOf are abilities that only some sources have.
type (
	sizesOf  struct{ v *view }
	shapesOf struct{ v *view }
	pathsOf  struct{ v *view }
)

// Sizes implements driver.Sizer.
func (s sizesOf) Sizes(field int, ids, sizes []int64) bool {
	v := s.v
	if v.changed(field) {
		return false
	}
	w := v.spare.Get().(*work)
	defer v.spare.Put(w)
	return v.sizer.Sizes(v.from[field], w.translate(ids), sizes)
}

// Shapes implements driver.Shaper.
func (s shapesOf) Shapes(field int, ids []int64, shapes []driver.Shape) bool {
	v := s.v
	if v.changed(field) {
		return false
	}
	w := v.spare.Get().(*work)
	defer v.spare.Put(w)
	return v.shaper.Shapes(v.from[field], w.translate(ids), shapes)
}

// Path implements driver.Pather.
func (s pathsOf) Path(id int64, field int) string {
	return s.v.paths.Path(s.v.id(id), s.v.from[field])
}

// withAbilities is the view with those abilities that its source has: whether there
// are some is asked of sources by their type.
func (v *view) withAbilities() driver.Source {
	sizes, shapes, paths := sizesOf{v}, shapesOf{v}, pathsOf{v}
	if v.info.Sequential {
		if v.paths != nil {
			return struct {
				inOrder
				pathsOf
			}{inOrder{v}, paths}
		}
		return inOrder{v}
	}
	switch {
	case v.sizer != nil && v.shaper != nil && v.paths != nil:
		return struct {
			*view
			sizesOf
			shapesOf
			pathsOf
		}{v, sizes, shapes, paths}
	case v.sizer != nil && v.shaper != nil:
		return struct {
			*view
			sizesOf
			shapesOf
		}{v, sizes, shapes}
	case v.sizer != nil && v.paths != nil:
		return struct {
			*view
			sizesOf
			pathsOf
		}{v, sizes, paths}
	case v.sizer != nil:
		return struct {
			*view
			sizesOf
		}{v, sizes}
	case v.shaper != nil && v.paths != nil:
		return struct {
			*view
			shapesOf
			pathsOf
		}{v, shapes, paths}
	case v.shaper != nil:
		return struct {
			*view
			shapesOf
		}{v, shapes}
	case v.paths != nil:
		return struct {
			*view
			pathsOf
		}{v, paths}
	}
	return v
}

// inOrder is a view of a source that cannot locate its records.
type inOrder struct{ *view }

// Locate finds nothing.
func (s inOrder) Locate(g *driver.Group) { driver.InOrderOnly{}.Locate(g) }

// Parse has nothing to do.
func (s inOrder) Parse(*driver.Group) error { return nil }

func (s inOrder) seq() driver.Sequential { return s.src.(driver.Sequential) }

// Token implements driver.Sequential.
func (s inOrder) Token(id int64) string {
	if id >= s.info.Len {
		return s.seq().Token(s.in.Len)
	}
	return s.seq().Token(s.id(id))
}

// Memory implements driver.Sequential.
func (s inOrder) Memory() int64 { return s.seq().Memory() }

// Records implements driver.Sequential.
func (s inOrder) Records(ctx context.Context, token string, in *driver.InOrder) error {
	v := s.view
	if v.info.Len == 0 {
		return nil
	}
	rec := driver.Record{Values: make([]driver.Value, len(v.from))}
	// from is the number in the view of a record of the source that is at id or
	// behind it, and what that is.
	from := func(id int64) int64 {
		if v.keep == nil {
			return id
		}
		return v.keep.rank(id)
	}
	back := func(n int64) int64 {
		if n >= v.info.Len {
			return v.in.Len
		}
		return v.id(n)
	}
	if token == "" {
		token = s.Token(0)
	}
	return s.seq().Records(ctx, token, &driver.InOrder{
		Read: in.Read,
		Alloc: func(id int64, field int, n int64) ([]byte, error) {
			to := v.place[field]
			if to < 0 || v.keep != nil && (id >= v.in.Len || !v.keep.has(id)) {
				return make([]byte, n+64)[:n], nil // for nobody
			}
			return in.Alloc(from(id), to, n)
		},
		Record: func(r *driver.Record) (int64, error) {
			n := from(r.ID)
			if v.keep != nil && !v.keep.has(r.ID) {
				return back(n), nil
			}
			rec.ID, rec.Err = n, r.Err
			for to, f := range v.from {
				if t := v.made[to]; t != nil {
					if rec.Err == nil {
						rec.Values[to], rec.Err = v.madeInOrder(in, n, to, r.Values)
					}
					continue
				}
				rec.Values[to] = r.Values[f]
				if c := v.converts[to]; c != nil && rec.Err == nil {
					if err := c(&rec.Values[to]); err != nil {
						rec.Err = fmt.Errorf("field %q: %w", v.info.Fields[to].Name, err)
					}
				}
			}
			next, err := in.Record(&rec)
			return back(next), err
		},
	})
}

// madeInOrder makes the tensor that is a field of record id.
func (v *view) madeInOrder(in *driver.InOrder, id int64, field int, values []driver.Value) (driver.Value, error) {
	out, err := in.Alloc(id, field, v.made[field].size)
	if err == nil {
		err = v.made[field].make(values, out)
	}
	if err != nil {
		return driver.Value{}, fmt.Errorf("tensor %q: %w", v.made[field].field.Name, err)
	}
	return driver.Value{Bytes: out}, nil
}
