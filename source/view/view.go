// Package view makes a source with some of the records and fields of another source: a part of a
// split, the records for which an expression holds, or some fields. Fields may have other names or
// kinds. Nothing is copied.
//
// The records are found once, by reading only the fields that are needed. The result is cached in
// the user's cache folder. In memory it takes one bit per record of the source.
package view

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/zeebo/xxh3"

	"github.com/stokerdata/stoker/internal/source/wrap/pick"
	"github.com/stokerdata/stoker/source/driver"
)

// Spec describes a view. The zero value is the unchanged source. Names of fields are the names in
// the source, except for what Rename sets.
type Spec struct {
	// Kinds sets other kinds for fields, by name.
	Kinds map[string]string `json:"kinds,omitempty"`
	// Where selects records with an expression. Records for which it is false are left out.
	Where string `json:"where,omitempty"`
	// Dedupe lists fields, or AllFields. A remaining record with the same values in these fields as
	// an earlier record is left out.
	Dedupe []string `json:"dedupe,omitempty"`
	// Similar leaves out remaining records whose image looks like an earlier one. "image:6" means
	// that up to 6 of 64 bits differ (package phash).
	Similar string `json:"similar,omitempty"`
	// Split splits the remaining records into parts, for example "train:0.9,val:0.1". Part selects
	// one. Seed sets the random assignment.
	Split string `json:"split,omitempty"`
	Part  string `json:"part,omitempty"`
	Seed  uint64 `json:"split_seed,omitempty"`
	// Stratify is a field whose values have the same shares in all parts. Group is a field: all
	// records with the same value are in one part. Both may also be other names that expressions
	// know, such as folder or image.width.
	Stratify string `json:"stratify,omitempty"`
	Group    string `json:"group,omitempty"`
	// Select lists the fields of the view, in order; nil means all. Drop lists fields to leave out.
	// Rename maps old names to new ones.
	Select []string          `json:"select,omitempty"`
	Drop   []string          `json:"drop,omitempty"`
	Rename map[string]string `json:"rename,omitempty"`
	// Tensors are arrays made of columns, by name. A name may end with a type: x:float64. Their
	// columns are left out unless Select names them. TensorsOf replaces Tensors: it is a source
	// whose tensors are made in the same way, with its vocabularies, means and deviations.
	Tensors   map[string]Tensor `json:"tensors,omitempty"`
	TensorsOf string            `json:"tensors_of,omitempty"`
	// Resolution selects a resolution of the images, for packs that have several: "192" or
	// "256x192". AtResolution removes it.
	Resolution string `json:"resolution,omitempty"`
	// Rows selects records by their numbers: "0:1000", "0:1000:2", "5,3,8", or "@list.npy"
	// (package pick). A view with Rows has nothing else.
	Rows string `json:"rows,omitempty"`
}

// Key describes a key of a view: in a URL after #, and in the JSON of a Spec.
type Key struct {
	Name string `json:"name"`
	Doc  string `json:"doc"`
	// Example is a fragment of a URL, without the #.
	Example string `json:"example"`
}

// Described lists the keys.
var Described = []Key{
	{"kinds", "Set other kinds for fields, by name.", "kinds=class:label"},
	{"where", "Keep the records for which an expression is true.", "where=label==\"cat\""},
	{"split", "Split the records into parts by their shares.", "split=train:0.9,val:0.1"},
	{"part", "The part of the split to read.", "split=train:0.9,val:0.1&part=train"},
	{"split_seed", "The number that sets the random assignment to parts.", "split=train:0.9,val:0.1&part=val&split_seed=7"},
	{"stratify", "A field whose values have the same shares in all parts.", "split=train:0.9,val:0.1&part=train&stratify=label"},
	{"group", "A field: all records with the same value are in one part.", "split=train:0.9,val:0.1&part=train&group=patient"},
	{"select", "The fields to read, in order.", "select=image,label"},
	{"drop", "Fields to leave out.", "drop=caption"},
	{"rename", "New names of fields.", "rename=jpg:image,cls:label"},
	{"resolution", "A resolution of the images, for packs that have several.", "resolution=256"},
	{"dedupe", "Leave out records whose values in these fields equal those of an earlier record; * is all fields.", "dedupe=image"},
	{"similar", "Leave out records whose image looks like an earlier one: the field, and how many of 64 bits may differ.", "similar=image:6"},
	{"tensors", "Arrays made of columns, as JSON by name.", "tensors={\"x\":[\"age\",\"fare\"]}"},
	{"tensors_of", "A source whose tensors are made in the same way, with its vocabularies, means and deviations.", "tensors_of=train.csv"},
	{"rows", "Records by their numbers.", "rows=0:1000"},
}

// Keys returns the names of the keys.
func Keys() []string {
	var names []string
	for _, k := range Described {
		names = append(names, k.Name)
	}
	return names
}

// Empty reports whether the view is the unchanged source.
func (s *Spec) Empty() bool {
	return s == nil || len(s.Kinds) == 0 && s.Where == "" && s.Split == "" && s.Part == "" && s.Stratify == "" && s.Group == "" &&
		len(s.Select) == 0 && len(s.Drop) == 0 && len(s.Rename) == 0 && s.Resolution == "" && len(s.Dedupe) == 0 && s.Similar == "" &&
		len(s.Tensors) == 0 && s.TensorsOf == "" && s.Rows == ""
}

// Options change how records are found. Nil means the defaults.
type Options struct {
	// Threads limits concurrent reads, 0 for the default.
	Threads int
	// Progress is called from time to time with the number of records read.
	Progress func(what string, done, total int64)
	// NoCache disables the cache of results.
	NoCache bool
	// OpenSource opens Spec.TensorsOf. If it is nil, TensorsOf is an error.
	OpenSource func(ctx context.Context, url string) (driver.Source, error)
}

// Part is a part of a split.
type Part struct {
	Name    string `json:"name"`
	Records int64  `json:"records"`
}

// Viewer is implemented by views.
type Viewer interface {
	driver.Source
	// Spec returns the description of the view.
	Spec() Spec
	// Of returns the number of records of the source. Matched returns the number for which the
	// expression holds. Parts returns the parts of the split.
	Of() int64
	Matched() int64
	Parts() []Part
	// Repeated returns the number of records left out as duplicates. Alike returns the number left
	// out because their image looks like an earlier one.
	Repeated() int64
	Alike() int64
}

// Open makes a view of src and takes ownership of src. If Open fails, src stays open.
func Open(ctx context.Context, src driver.Source, spec *Spec, opt *Options) (driver.Source, error) {
	if spec.Empty() {
		return src, nil
	}
	if opt == nil {
		opt = &Options{}
	}
	if spec.Rows != "" {
		if other := (Spec{Rows: spec.Rows}); canonical(&other) != canonical(spec) {
			return nil, fmt.Errorf("rows=%s: other views come before or after it: write them after a # of their own", spec.Rows)
		}
		return pick.Open(ctx, src, spec.Rows)
	}
	v := &view{in: src.Info(), spec: *spec}
	v.Base = src
	if err := v.check(); err != nil {
		return nil, err
	}
	// Expressions and splits use the fields after Kinds has been applied.
	typed, err := v.convert(ctx, opt)
	if err != nil {
		return nil, err
	}
	f := &finder{v: v, src: typed, opt: opt}
	if err := f.fitTensors(ctx); err != nil {
		return nil, err
	}
	if err := v.choose(); err != nil {
		return nil, err
	}
	if err := f.records(ctx); err != nil {
		return nil, err
	}
	v.describe()
	return v.asSource(), nil
}

// view is a source with some records and fields of another source.
type view struct {
	driver.Mapped
	in   *driver.Info
	spec Spec
	info driver.Info
	keep *set // nil for all records
	// from has the index in the source of each field. convert converts its kind, nil for no
	// conversion.
	from     []int
	converts []func(v *driver.Value) error
	// tensors are arrays made of several fields. made has the tensor of each field of the view, nil
	// for other fields.
	tensors []*tensor
	made    []*tensor
	// place has the index in the view of each field of the source, -1 for none.
	place []int
	all   []driver.Field // fields of the source, after Kinds
	kinds []func(v *driver.Value) error
	// tail reports that a field becomes an image, which must be decoded.
	tail bool
	// varied reports that record numbers include an epoch or a variant (driver.Epochs,
	// driver.Varied).
	varied  bool
	matched int64
	// repeated counts the duplicates among the matched records.
	repeated int64
	alike    int64
	parts    []Part
	spare    sync.Pool
	// chunks is the result of Chunks. chunkOf has the source's number of each chunk, nil if they
	// are the same.
	chunksOnce sync.Once
	chunker    driver.Chunker
	chunks     []int64
	chunkOf    []int
}

// check validates the spec, independent of the source.
func (v *view) check() error {
	s := &v.spec
	switch {
	case s.Split == "" && s.Part != "":
		return fmt.Errorf("part is %q and there is no split; write it like split=\"train:0.9,val:0.1\"", s.Part)
	case s.Split == "" && (s.Stratify != "" || s.Group != ""):
		return fmt.Errorf("stratify and group need split; write it like split=\"train:0.9,val:0.1\"")
	case s.Stratify != "" && s.Group != "":
		return fmt.Errorf("stratify is %q and group is %q: use only one of them", s.Stratify, s.Group)
	}
	return nil
}

// field returns the index of a field of the source.
func (v *view) field(what, name string) (int, error) {
	var names []string
	for i := range slices.Backward(v.all) { // a tensor may have the name of one of its columns
		if v.all[i].Name == name {
			return i, nil
		}
	}
	for i := range v.all {
		names = append(names, v.all[i].Name)
	}
	hint := didYouMean(name, names)
	if hint == "" {
		hint = "; the fields are " + strings.Join(names, ", ")
	}
	return 0, fmt.Errorf("%s: %s has no field %q%s", what, v.in.URL, name, hint)
}

// choose sets the fields.
func (v *view) choose() error {
	s := &v.spec
	var chosen []int
	used := v.usedByTensors()
	for _, t := range v.tensors { // tensors come after the fields of the source
		if i := slices.IndexFunc(v.all, func(f driver.Field) bool { return f.Name == t.field.Name }); i >= 0 && !used[i] {
			return fmt.Errorf("tensors: there is a field %q already: give the tensor another name", t.field.Name)
		}
		v.all = append(v.all, t.field)
	}
	for _, name := range s.Select {
		i, err := v.field("select", name)
		if err != nil {
			return err
		}
		if slices.Contains(chosen, i) {
			return fmt.Errorf("select: field %q is listed twice", name)
		}
		chosen = append(chosen, i)
	}
	if len(s.Select) == 0 {
		for i := range v.all {
			if !used[i] {
				chosen = append(chosen, i)
			}
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
			return fmt.Errorf("rename: field %q is not in the view", old)
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
		if t := i - len(v.in.Fields); t >= 0 {
			v.from, v.converts, v.made = append(v.from, v.tensors[t].parts[0].source), append(v.converts, nil), append(v.made, v.tensors[t])
			v.info.Fields = append(v.info.Fields, f)
			continue
		}
		v.place[i] = k
		v.made = append(v.made, nil)
		v.tail = v.tail || v.kinds[i] != nil && (f.Kind == driver.KindImage || f.Kind == driver.KindMask)
		v.from, v.converts = append(v.from, i), append(v.converts, v.kinds[i])
		v.info.Fields = append(v.info.Fields, f)
	}
	v.belong()
	return nil
}

// belong updates fields that belong to boxes: they get the new name, or none if the boxes are left
// out.
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

// describe fills in the Info, once the records are known.
func (v *view) describe() {
	info := &v.info
	info.URL, info.Format, info.Objects, info.Sequential = v.in.URL+Fragment(&v.spec), v.in.Format, v.in.Objects, v.in.Sequential
	info.BadFiles, info.Bad = v.in.BadFiles, v.in.Bad
	info.Len = v.in.Len
	if v.keep != nil {
		info.Len = v.keep.len()
	}
	info.Fingerprint = fingerprint(v.in.Fingerprint, &v.spec, v.sameTensors())
	if v.keep != nil {
		// Statistics cover all records of the source. Limits still hold, counts do not.
		for i := range info.Fields {
			if f := &info.Fields[i]; f.Stats != nil && f.MaxBytes == 0 {
				f.MaxBytes = max(f.Stats.MaxBytes, 1)
			}
			info.Fields[i].Stats = nil
		}
	}
	v.able()
}

// able records the abilities of the source, and prepares the view for reading.
func (v *view) able() {
	v.Record, v.Field = v.id, func(field int) (int, bool) { return v.from[field], !v.changed(field) }
	if _, ok := driver.As[driver.Chunker](v.Base); !ok {
		v.Without = append(v.Without, (*driver.Chunker)(nil))
	}
	if _, ok := driver.As[driver.Varied](v.Base); !ok {
		v.Without = append(v.Without, (*driver.Varied)(nil))
	}
	v.varied = driver.VariantsOf(v.Base) > 1 || driver.EpochsOf(v.Base)
	v.spare.New = func() any {
		w := &work{v: v}
		w.where, w.box = w.placed, w.boxOf
		return w
	}
}

// fingerprint returns the fingerprint of a view. It differs for other records, fields or kinds.
func fingerprint(of string, spec *Spec, more string) string {
	text := of + "\x00" + canonical(spec)
	if more != "" {
		text += "\x00" + more
	}
	h := xxh3.HashString128(text)
	b := h.Bytes()
	return hex.EncodeToString(b[:])
}

// canonical returns the same text for all equivalent specs.
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

// Info implements driver.Source.
func (v *view) Info() *driver.Info { return &v.info }

// Spec implements Viewer.
func (v *view) Spec() Spec { return v.spec }

// Of implements Viewer.
func (v *view) Of() int64 { return v.in.Len }

// Repeated implements Viewer.
func (v *view) Repeated() int64 { return v.repeated }

// Alike implements Viewer.
func (v *view) Alike() int64 { return v.alike }

// Matched implements Viewer.
func (v *view) Matched() int64 { return v.matched }

// Parts implements Viewer.
func (v *view) Parts() []Part { return v.parts }
