package view

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/internal/scan"
	"github.com/stokerdata/stoker/source/driver"
)

// finder finds the records of a view.
type finder struct {
	v   *view
	src driver.Source // with the converted kinds
	opt *Options

	held *set // the records for which the expression holds, if they are known
}

// records finds the records of the view.
func (f *finder) records(ctx context.Context) error {
	v, s := f.v, &f.v.spec
	v.matched = v.in.Len
	var within *set // nil for all
	if s.Where != "" {
		var err error
		if within, err = f.within(ctx); err != nil {
			return err
		}
		v.matched = within.len()
	}
	records := v.matched // the number of records before the split
	if len(s.Dedupe) > 0 {
		once, err := f.dedupe(ctx, within)
		if err != nil {
			return err
		}
		within, records = once, once.len()
		v.repeated = v.matched - records
	}
	if s.Similar != "" {
		once, err := f.similar(ctx, within)
		if err != nil {
			return err
		}
		v.alike = records - once.len()
		within, records = once, once.len()
	}
	v.keep = within
	if s.Split == "" {
		return nil
	}
	shares, err := ParseSplit(s.Split)
	if err != nil {
		return err
	}
	var names []string
	part := -1
	for i, share := range shares {
		names = append(names, share.Name)
		if share.Name == s.Part {
			part = i
		}
	}
	n, err := sizes(shares, records)
	if err != nil {
		return fmt.Errorf("split %q of %s: %w", s.Split, v.in.URL, err)
	}
	for i := range shares {
		v.parts = append(v.parts, Part{names[i], n[i]})
	}
	switch {
	case s.Part == "":
		return fmt.Errorf("split %q: set part to one of %s", s.Split, strings.Join(names, ", "))
	case part < 0:
		return fmt.Errorf("split %q: there is no part %q%s; the parts are %s", s.Split, s.Part, didYouMean(s.Part, names), strings.Join(names, ", "))
	}
	var of []*set
	switch by := s.Stratify + s.Group; {
	case by == "":
		of = []*set{random(records, n, part, s.Seed)}
	default:
		of, err = f.by(ctx, by, within, n, part)
	}
	if err != nil {
		return err
	}
	mine := of[0]
	mine.index()
	if len(of) > 1 { // group sizes are not exact
		for i := range v.parts {
			of[i+1].index()
			v.parts[i].Records = of[i+1].len()
		}
	}
	v.keep = inner(within, mine, v.in.Len)
	return nil
}

// inner returns the set of records mine, which are positions in the set within, as records of the
// source.
func inner(within, mine *set, n int64) *set {
	if within == nil {
		return mine
	}
	out := newSet(n)
	k := int64(0)
	for i, w := range within.words {
		for ; w != 0; w &= w - 1 {
			if mine.has(k) {
				out.words[i] |= w & -w
			}
			k++
		}
	}
	out.index()
	return out
}

// where returns the records for which the expression holds.
func (f *finder) where(ctx context.Context) (*set, error) {
	s := &f.v.spec
	fail := func(err error) error { return fmt.Errorf("where: %w", err) }
	e, err := parse(s.Where)
	if err != nil {
		return nil, fail(err)
	}
	c := newColumns(f.src)
	holds, err := c.bind(s.Where, e)
	if err != nil {
		return nil, fail(err)
	}
	key := f.key(c, "where", e.String())
	if b, ok := load(f.opt, key); ok {
		if out, ok := setOf(f.v.in.Len, b); ok {
			return out, nil
		}
	}
	out := newSet(f.v.in.Len)
	err = f.scan(ctx, "where", c, func(rows *scan.Rows) error {
		r := row{rows: rows}
		w := uint64(0)
		for r.k = range rows.N {
			r.id = rows.First + int64(r.k)
			if holds(&r) {
				w |= 1 << r.k
			}
		}
		out.words[rows.First/64] = w
		return nil
	})
	if err != nil {
		return nil, fail(err)
	}
	out.index()
	save(f.opt, key, out.bytes())
	return out, nil
}

// scan reads what the columns need.
func (f *finder) scan(ctx context.Context, what string, c *columns, each func(*scan.Rows) error) error {
	req := c.req
	req.Threads = f.opt.Threads
	if f.opt.Progress != nil && c.reads() {
		req.Progress = func(done, total int64) { f.opt.Progress(what, done, total) }
	}
	return scan.Run(ctx, f.src, &req, each)
}

// key returns the cache key of a result: the content of the source, the kinds of its fields and the
// query.
func (f *finder) key(c *columns, parts ...string) string {
	kinds := ""
	for _, name := range slices.Sorted(maps.Keys(f.v.spec.Kinds)) {
		kinds += name + "\x00" + f.v.spec.Kinds[name] + "\x00"
	}
	if f.v.in.Fingerprint == "" || !c.reads() {
		return "" // nothing says when it changes, or it is known anyway
	}
	return strings.Join(append([]string{f.v.in.Fingerprint, fmt.Sprint(f.v.in.Len), kinds}, parts...), "\x01")
}

// by splits by the values of a field. It returns the part itself and, for groups, all parts after
// it.
func (f *finder) by(ctx context.Context, name string, within *set, n []int64, part int) ([]*set, error) {
	s := &f.v.spec
	what := "stratify"
	if s.Group != "" {
		what = "group"
	}
	fail := func(err error) ([]*set, error) { return nil, fmt.Errorf("%s %q: %w", what, name, err) }
	c := newColumns(f.src)
	o, err := c.operand(name)
	if err != nil {
		return fail(err)
	}
	key := f.key(c, what, name)
	values := make([]uint64, f.v.in.Len)
	known := false
	if b, ok := load(f.opt, key); ok && len(b) == 8*len(values) {
		known = true
		for i := range values {
			values[i] = le64(b[8*i:])
		}
	}
	if !known {
		of := o.key()
		err = f.scan(ctx, what, c, func(rows *scan.Rows) error {
			r := row{rows: rows}
			for r.k = range rows.N {
				r.id = rows.First + int64(r.k)
				values[r.id] = of(&r)
			}
			return nil
		})
		if err != nil {
			return fail(err)
		}
		save(f.opt, key, bytes64(values))
	}
	if within != nil {
		k := 0
		for id := range values {
			if within.has(int64(id)) {
				values[k] = values[id]
				k++
			}
		}
		values = values[:k]
	}
	numbers, count, err := (&keys{values}).number()
	if err != nil {
		return fail(err)
	}
	if what == "stratify" {
		return []*set{stratified(numbers, count, n, part, s.Seed)}, nil
	}
	all := []*set{grouped(numbers, count, n, part, s.Seed)}
	for i := range f.v.parts {
		all = append(all, grouped(numbers, count, n, i, s.Seed))
	}
	return all, nil
}
