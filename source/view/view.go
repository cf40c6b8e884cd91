// Package view makes of a source another one that has some of its records and
// fields, under other names or of another kind, without a copy: a part of a split,
// the records for which an expression holds, some fields.
//
// Which records those are is found out once, by reading no more than the fields that
// the question is about, and kept in the user's cache folder. In memory it is a bit
// per record of the source.
package view

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/zeebo/xxh3"

	"github.com/stokerdata/stoker/internal/scan"
	"github.com/stokerdata/stoker/source/driver"
)

// Spec says what a view has. The zero value is everything, as it is. Names of fields
// are those of the source, but for what is said behind Rename.
type Spec struct {
	// Kinds are the kinds that fields are to have instead of theirs, by name.
	Kinds map[string]string `json:"kinds,omitempty"`
	// Where is an expression; records for which it does not hold are left out.
	Where string `json:"where,omitempty"`
	// Dedupe are fields, or AllFields: of the records that are left, those in which they
	// are as in one before are left out.
	Dedupe []string `json:"dedupe,omitempty"`
	// Split cuts what is left into parts, such as "train:0.9,val:0.1", of which Part
	// is the one that is wanted. Seed decides which records go where.
	Split string `json:"split,omitempty"`
	Part  string `json:"part,omitempty"`
	Seed  uint64 `json:"split_seed,omitempty"`
	// Stratify is a field of which each value is in all parts alike, Group one of
	// which all records with the same value are in one part. Both may also be what
	// expressions know beside fields: folder, image.width.
	Stratify string `json:"stratify,omitempty"`
	Group    string `json:"group,omitempty"`
	// Select are the fields that are kept, in that order; nil means all. Drop are
	// those that are not. Rename gives fields other names: from old to new.
	Select []string          `json:"select,omitempty"`
	Drop   []string          `json:"drop,omitempty"`
	Rename map[string]string `json:"rename,omitempty"`
	// Resolution is that of images, of packs that have them at several: "192", or
	// "256x192". AtResolution takes it.
	Resolution string `json:"resolution,omitempty"`
}

// Keys are the names of a Spec's parts in JSON.
func Keys() []string {
	return []string{"kinds", "where", "split", "part", "split_seed", "stratify", "group", "select", "drop", "rename", "resolution", "dedupe"}
}

// Empty says that the view is the source.
func (s *Spec) Empty() bool {
	return s == nil || len(s.Kinds) == 0 && s.Where == "" && s.Split == "" && s.Part == "" && s.Stratify == "" && s.Group == "" &&
		len(s.Select) == 0 && len(s.Drop) == 0 && len(s.Rename) == 0 && s.Resolution == "" && len(s.Dedupe) == 0
}

// Options are how the records are looked for. Nil means the defaults.
type Options struct {
	// Threads bounds what is read at once, 0 for a choice.
	Threads int
	// Progress is told now and then how many records were looked at, of what.
	Progress func(what string, done, total int64)
	// NoCache neither uses what was found before nor keeps it.
	NoCache bool
}

// Part is a part of a split.
type Part struct {
	Name    string `json:"name"`
	Records int64  `json:"records"`
}

// Viewer is a source that is a view.
type Viewer interface {
	driver.Source
	// Spec is what the view has.
	Spec() Spec
	// Of is the number of records of the source, Matched how many of them the
	// expression holds for, and Parts are the parts of the split.
	Of() int64
	Matched() int64
	Parts() []Part
	// Repeated is how many records were left out since they are as one before.
	Repeated() int64
}

// Open makes a view of src, which it then owns. When it fails, src is left open.
func Open(ctx context.Context, src driver.Source, spec *Spec, opt *Options) (driver.Source, error) {
	if spec.Empty() {
		return src, nil
	}
	if opt == nil {
		opt = &Options{}
	}
	v := &view{src: src, in: src.Info(), spec: *spec}
	if err := v.check(); err != nil {
		return nil, err
	}
	// What is asked is asked of fields as Kinds make them.
	typed, err := v.convert(ctx, opt)
	if err != nil {
		return nil, err
	}
	if err := v.choose(); err != nil {
		return nil, err
	}
	f := &finder{v: v, src: typed, opt: opt}
	if err := f.records(ctx); err != nil {
		return nil, err
	}
	v.describe()
	return v.withAbilities(), nil
}

// view is a source that has some records and fields of another one.
type view struct {
	src  driver.Source
	in   *driver.Info
	spec Spec
	info driver.Info
	keep *set // nil for all records
	// from is the place of each field in the source, convert what makes another
	// kind of it, nil for nothing.
	from     []int
	converts []func(v *driver.Value) error
	// place is the place of each field of the source here, -1 for none.
	place []int
	all   []driver.Field // those of the source, as Kinds make them
	kinds []func(v *driver.Value) error
	// tail says that something that is no image becomes one, which is decoded.
	tail    bool
	matched int64
	// repeated is how many of those that matched are as one before.
	repeated int64
	parts    []Part
	spare    sync.Pool
	sizer    driver.Sizer
	shaper   driver.Shaper
	paths    driver.Pather
}

// check refuses what makes no sense, whatever the source.
func (v *view) check() error {
	s := &v.spec
	switch {
	case s.Split == "" && s.Part != "":
		return fmt.Errorf("part is %q and there is no split; write it like split=\"train:0.9,val:0.1\"", s.Part)
	case s.Split == "" && (s.Stratify != "" || s.Group != ""):
		return fmt.Errorf("stratify and group say how split cuts, and there is no split; write it like split=\"train:0.9,val:0.1\"")
	case s.Stratify != "" && s.Group != "":
		return fmt.Errorf("stratify is %q and group is %q: only one of them can be had", s.Stratify, s.Group)
	}
	return nil
}

// field is the place of a field of the source.
func (v *view) field(what, name string) (int, error) {
	var names []string
	for i := range v.in.Fields {
		if v.in.Fields[i].Name == name {
			return i, nil
		}
		names = append(names, v.in.Fields[i].Name)
	}
	hint := didYouMean(name, names)
	if hint == "" {
		hint = "; the fields are " + strings.Join(names, ", ")
	}
	return 0, fmt.Errorf("%s: %s has no field %q%s", what, v.in.URL, name, hint)
}

// choose works out the fields.
func (v *view) choose() error {
	s := &v.spec
	var chosen []int
	for _, name := range s.Select {
		i, err := v.field("select", name)
		if err != nil {
			return err
		}
		if slices.Contains(chosen, i) {
			return fmt.Errorf("select: the field %q is there twice", name)
		}
		chosen = append(chosen, i)
	}
	if len(s.Select) == 0 {
		for i := range v.in.Fields {
			chosen = append(chosen, i)
		}
	}
	for _, name := range s.Drop {
		i, err := v.field("drop", name)
		if err != nil {
			return err
		}
		chosen = slices.DeleteFunc(chosen, func(c int) bool { return c == i })
	}
	if len(chosen) == 0 {
		return fmt.Errorf("select and drop leave no field of %s", v.in.URL)
	}
	names := map[string]bool{}
	v.place = slices.Repeat([]int{-1}, len(v.in.Fields))
	for old, name := range s.Rename {
		i, err := v.field("rename", old)
		switch {
		case err != nil:
			return err
		case !slices.Contains(chosen, i):
			return fmt.Errorf("rename: the field %q is left out", old)
		case name == "" || name == "index" || len(name) > 255:
			return fmt.Errorf("rename: a field cannot be called %q", name)
		}
	}
	for k, i := range chosen {
		f := v.all[i]
		if name, ok := s.Rename[f.Name]; ok {
			f.Name = name
		}
		if names[f.Name] {
			return fmt.Errorf("two fields of the view are called %q; rename or drop one of them", f.Name)
		}
		names[f.Name] = true
		v.place[i] = k
		v.tail = v.tail || v.kinds[i] != nil && (f.Kind == driver.KindImage || f.Kind == driver.KindMask)
		v.from, v.converts = append(v.from, i), append(v.converts, v.kinds[i])
		v.info.Fields = append(v.info.Fields, f)
	}
	v.belong()
	return nil
}

// belong has rows belong to boxes under their new name, or to none where those are
// left out.
func (v *view) belong() {
	for k := range v.info.Fields {
		f := &v.info.Fields[k]
		if f.Boxes == "" {
			continue
		}
		i := slices.IndexFunc(v.in.Fields, func(o driver.Field) bool { return o.Name == f.Boxes })
		f.Boxes = ""
		if i >= 0 && v.place[i] >= 0 && v.info.Fields[v.place[i]].Kind == driver.KindBoxes {
			f.Boxes = v.info.Fields[v.place[i]].Name
		}
	}
}

// describe fills in the description, when the records are known.
func (v *view) describe() {
	info := &v.info
	info.URL, info.Format, info.Objects, info.Sequential = v.in.URL+Fragment(&v.spec), v.in.Format, v.in.Objects, v.in.Sequential
	info.Len = v.in.Len
	if v.keep != nil {
		info.Len = v.keep.len()
	}
	info.Fingerprint = fingerprint(v.in.Fingerprint, &v.spec)
	if v.keep != nil {
		// Statistics are of all records: what they bound still holds, what they
		// count does not.
		for i := range info.Fields {
			if f := &info.Fields[i]; f.Stats != nil && f.MaxBytes == 0 {
				f.MaxBytes = max(f.Stats.MaxBytes, 1)
			}
			info.Fields[i].Stats = nil
		}
	}
	v.able()
}

// able notes what the source can, and makes the view ready to be read.
func (v *view) able() {
	v.sizer, _ = v.src.(driver.Sizer)
	v.shaper, _ = v.src.(driver.Shaper)
	v.paths, _ = v.src.(driver.Pather)
	v.spare.New = func() any {
		w := &work{v: v}
		w.where, w.box = w.placed, w.boxOf
		return w
	}
}

// fingerprint is that of a view: another one for other records, fields or kinds.
func fingerprint(of string, spec *Spec) string {
	h := xxh3.HashString128(of + "\x00" + canonical(spec))
	b := h.Bytes()
	return hex.EncodeToString(b[:])
}

// canonical is one text for all ways to write a view.
func canonical(spec *Spec) string {
	s := *spec
	if e, err := parse(s.Where); err == nil {
		s.Where = e.String()
	}
	b, err := json.Marshal(&s) // maps are sorted
	if err != nil {
		return fmt.Sprintf("%#v", s)
	}
	return string(b)
}

// id is the number in the source of a record of the view; one that is outside of the
// view is outside of the source.
func (v *view) id(id int64) int64 {
	switch {
	case id < 0 || id >= v.info.Len:
		return -1
	case v.keep == nil:
		return id
	}
	return v.keep.at(id)
}

// work is what a group takes on its way through the source.
type work struct {
	v     *view
	ids   []int64
	want  []bool
	inner driver.Group
	outer *driver.Group
	where func(k, field int, n int64) []byte
	box   func(k, field int) (driver.Box, bool)
}

// begin makes the group of the source's records and fields.
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
	for k, i := range v.from {
		w.want[i] = g.Wants(k)
	}
	in.Want, in.Box = w.want, nil
	if g.Box != nil {
		in.Box = w.box
	}
	in.Begin(w.ids, len(v.in.Fields))
	for k := range g.Records {
		in.Records[k].Err = g.Records[k].Err
		if v.info.Len <= g.IDs[k] || g.IDs[k] < 0 {
			if g.Records[k].Err == nil {
				in.Records[k].Err = fmt.Errorf("record %d is outside of the %d records of %s", g.IDs[k], v.info.Len, v.info.URL)
			}
		}
	}
	w.outer = g
	return in
}

// end takes over what the source says of records.
func (w *work) end() {
	w.outer = nil
	in := &w.inner
	in.Alloc, in.Place, in.Box = nil, nil, nil
	clear(in.Bytes)
	for k := range in.Records {
		clear(in.Records[k].Values)
		in.Records[k].Err = nil
	}
	w.v.spare.Put(w)
}

// placed is Group.Place of the source's fields.
func (w *work) placed(k, field int, n int64) []byte {
	to := w.v.place[field]
	if to < 0 || w.v.converts[to] != nil {
		return nil
	}
	return w.outer.Place(k, to, n)
}

// boxOf is Group.Box of the source's fields.
func (w *work) boxOf(k, field int) (driver.Box, bool) {
	if to := w.v.place[field]; to >= 0 && w.v.converts[to] == nil {
		return w.outer.Box(k, to)
	}
	return driver.Box{}, false
}

// Cuts implements driver.Cutter, for sources that are one.
func (v *view) Cuts(field int) bool {
	c, ok := v.src.(driver.Cutter)
	return ok && v.converts[field] == nil && c.Cuts(v.from[field])
}

// Sides implements driver.Cutter.
func (v *view) Sides(id int64, field int) [3]int {
	return v.src.(driver.Cutter).Sides(v.id(id), v.from[field])
}

// Info implements driver.Source.
func (v *view) Info() *driver.Info { return &v.info }

// Object implements driver.Source.
func (v *view) Object(n int64) driver.Object { return v.src.Object(n) }

// Locate implements driver.Source.
func (v *view) Locate(g *driver.Group) {
	w := v.spare.Get().(*work)
	in := w.begin(g)
	v.src.Locate(in)
	at := 0
	for k := range g.IDs {
		for ; at < int(in.First[k+1]); at++ {
			e := in.Extents[at]
			e.Field, e.Tail = v.outer(e.Field), e.Tail || v.tail
			g.Extents = append(g.Extents, e)
		}
		g.Records[k].Err = in.Records[k].Err
		g.Next()
	}
	g.Missing = append(g.Missing, in.Missing...)
	w.end()
}

// outer is the place here of a field of the source that an extent is the value of:
// -1 where it is none, or is made into something else.
func (v *view) outer(field int32) int32 {
	if field < 0 || v.place[field] < 0 || v.converts[v.place[field]] != nil {
		return -1
	}
	return int32(v.place[field])
}

// Parse implements driver.Source.
func (v *view) Parse(g *driver.Group) error {
	w := v.spare.Get().(*work)
	in := w.begin(g)
	in.First = append(in.First[:0], g.First...)
	for _, e := range g.Extents {
		if e.Field >= 0 {
			e.Field = int32(v.from[e.Field])
		}
		in.Extents = append(in.Extents, e)
	}
	in.Bytes = append(in.Bytes[:0], g.Bytes...)
	in.Alloc = g.Alloc
	if g.Place != nil {
		in.Place = w.where
	}
	err := v.src.Parse(in)
	if err == nil {
		for k := range g.Records {
			rec := &in.Records[k]
			if g.Records[k].Err = rec.Err; rec.Err != nil {
				continue
			}
			for to, from := range v.from {
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

// Origin implements driver.Deriver.
func (v *view) Origin(id int64, field int) (driver.Source, int64, int) {
	return v.src, v.id(id), v.from[field]
}

// Name implements driver.Source.
func (v *view) Name(id int64) string {
	if id < 0 || id >= v.info.Len {
		return fmt.Sprintf("%s, record %d", v.info.URL, id)
	}
	return v.src.Name(v.id(id))
}

// Close implements driver.Source.
func (v *view) Close() error { return v.src.Close() }

// Learn implements driver.Indexer.
func (v *view) Learn(e driver.Extent, b []byte) error {
	x, ok := v.src.(driver.Indexer)
	if !ok {
		return fmt.Errorf("internal error: %s has an index and does not read it", v.in.Format)
	}
	return x.Learn(e, b)
}

// Find implements driver.Finder.
func (v *view) Find(ctx context.Context, id int64) string {
	if f, ok := v.src.(driver.Finder); ok && id >= 0 && id < v.info.Len {
		return f.Find(ctx, v.id(id))
	}
	return v.Name(id)
}

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

// Spec implements Viewer.
func (v *view) Spec() Spec { return v.spec }

// Of implements Viewer.
func (v *view) Of() int64 { return v.in.Len }

// Repeated implements Viewer.
func (v *view) Repeated() int64 { return v.repeated }

// Matched implements Viewer.
func (v *view) Matched() int64 { return v.matched }

// Parts implements Viewer.
func (v *view) Parts() []Part { return v.parts }

// sizesOf, shapesOf and pathsOf are abilities that only some sources have.
type (
	sizesOf  struct{ v *view }
	shapesOf struct{ v *view }
	pathsOf  struct{ v *view }
)

// Sizes implements driver.Sizer.
func (s sizesOf) Sizes(field int, ids, sizes []int64) bool {
	v := s.v
	if v.converts[field] != nil {
		return false
	}
	w := v.spare.Get().(*work)
	defer v.spare.Put(w)
	return v.sizer.Sizes(v.from[field], w.translate(ids), sizes)
}

func (w *work) translate(ids []int64) []int64 {
	w.ids = w.ids[:0]
	for _, id := range ids {
		w.ids = append(w.ids, w.v.id(id))
	}
	return w.ids
}

// Shapes implements driver.Shaper.
func (s shapesOf) Shapes(field int, ids []int64, shapes []driver.Shape) bool {
	v := s.v
	if v.converts[field] != nil {
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

// finder finds the records of a view.
type finder struct {
	v   *view
	src driver.Source // with the kinds that are asked about
	opt *Options
}

// records finds them.
func (f *finder) records(ctx context.Context) error {
	v, s := f.v, &f.v.spec
	v.matched = v.in.Len
	var within *set // nil for all
	if s.Where != "" {
		var err error
		if within, err = f.where(ctx); err != nil {
			return err
		}
		v.matched = within.len()
	}
	records := v.matched // that a split cuts
	if len(s.Dedupe) > 0 {
		once, err := f.dedupe(ctx, within)
		if err != nil {
			return err
		}
		within, records = once, once.len()
		v.repeated = v.matched - records
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
		return fmt.Errorf("split %q: part says which one is wanted: %s", s.Split, strings.Join(names, ", "))
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
	if len(of) > 1 { // groups are as large as they are
		for i := range v.parts {
			of[i+1].index()
			v.parts[i].Records = of[i+1].len()
		}
	}
	v.keep = inner(within, mine, v.in.Len)
	return nil
}

// inner is a set of records of a set, as records of the source.
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

// where finds the records for which the expression holds.
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

// key is what a question is kept under: the content of the source, the kinds of its
// fields and the question.
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

// by finds a part by the values of a field: the part itself and, of groups, all
// parts behind it.
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
