package view

import (
	"context"
	"fmt"

	"github.com/stokerdata/stoker/source/driver"
)

// A view passes on the abilities of its source. The methods below change the answers.

// Name implements driver.Source.
func (v *view) Name(id int64) string {
	in := v.id(id)
	if in < 0 {
		return fmt.Sprintf("%s, record %d", v.info.URL, id)
	}
	return v.Base.Name(in)
}

// Variants implements driver.Varied.
func (v *view) Variants() int { return driver.VariantsOf(v.Base) }

// Varies implements driver.Varied. A tensor varies if one of its fields does.
func (v *view) Varies(field int) bool {
	if t := v.made[field]; t != nil {
		for i := range t.parts {
			if driver.Varies(v.Base, t.parts[i].source) {
				return true
			}
		}
		return false
	}
	return driver.Varies(v.Base, v.from[field])
}

// Held implements driver.Holder.
func (v *view) Held() int64 {
	n := driver.Held(v.Base)
	if v.keep != nil {
		n += int64(8*len(v.keep.words) + 8*len(v.keep.ranks))
	}
	return n
}

// asSource returns the view as the type that reads its source.
func (v *view) asSource() driver.Source {
	if seq, ok := driver.As[driver.Sequential](v.Base); ok {
		return inOrder{v, seq}
	}
	return v
}

// inOrder is a view of a source that cannot locate its records.
type inOrder struct {
	*view
	seq driver.Sequential
}

// Locate sets an error for all records.
func (s inOrder) Locate(g *driver.Group) { driver.InOrderOnly{}.Locate(g) }

// Parse does nothing.
func (s inOrder) Parse(*driver.Group) error { return nil }

// Token implements driver.Sequential.
func (s inOrder) Token(id int64) string {
	if id >= s.info.Len {
		return s.seq.Token(s.in.Len)
	}
	return s.seq.Token(s.id(id))
}

// Memory implements driver.Sequential.
func (s inOrder) Memory() int64 { return s.seq.Memory() }

// Records implements driver.Sequential.
func (s inOrder) Records(ctx context.Context, token string, in *driver.InOrder) error {
	v := s.view
	if v.info.Len == 0 {
		return nil
	}
	rec := driver.Record{Values: make([]driver.Value, len(v.from))}
	// from returns the number in the view of the first record at or after id of the source, and its
	// number in the source.
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
	return s.seq.Records(ctx, token, &driver.InOrder{
		Read: in.Read,
		Alloc: func(id int64, field int, n int64) ([]byte, error) {
			to := v.place[field]
			if to < 0 || v.keep != nil && (id >= v.in.Len || !v.keep.has(id)) {
				return make([]byte, n+64)[:n], nil // not needed by the view
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
