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
	"slices"
	"strings"
	"sync"

	"github.com/zeebo/xxh3"

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
	// Similar leaves out, of what is left, records whose image looks like one before:
	// "image:6" those that are up to 6 of 64 bits apart (package similar).
	Similar string `json:"similar,omitempty"`
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
	// Tensors are arrays that are made of columns, by name; behind the name may stand a
	// type, as in x:float64. Their columns are left out unless Select names them.
	// TensorsOf is a source, in the place of Tensors, whose own are made in the same way:
	// with its vocabularies, means and deviations.
	Tensors   map[string]Tensor `json:"tensors,omitempty"`
	TensorsOf string            `json:"tensors_of,omitempty"`
	// Resolution is that of images, of packs that have them at several: "192", or
	// "256x192". AtResolution takes it.
	Resolution string `json:"resolution,omitempty"`
}

// Keys are the names of a Spec's parts in JSON.
func Keys() []string {
	return []string{"kinds", "where", "split", "part", "split_seed", "stratify", "group", "select", "drop", "rename", "resolution", "dedupe", "similar", "tensors", "tensors_of"}
}

// Empty says that the view is the source.
func (s *Spec) Empty() bool {
	return s == nil || len(s.Kinds) == 0 && s.Where == "" && s.Split == "" && s.Part == "" && s.Stratify == "" && s.Group == "" &&
		len(s.Select) == 0 && len(s.Drop) == 0 && len(s.Rename) == 0 && s.Resolution == "" && len(s.Dedupe) == 0 && s.Similar == "" &&
		len(s.Tensors) == 0 && s.TensorsOf == ""
}

// Options are how the records are looked for. Nil means the defaults.
type Options struct {
	// Threads bounds what is read at once, 0 for a choice.
	Threads int
	// Progress is told now and then how many records were looked at, of what.
	Progress func(what string, done, total int64)
	// NoCache neither uses what was found before nor keeps it.
	NoCache bool
	// OpenSource opens Spec.TensorsOf; without it there can be none.
	OpenSource func(ctx context.Context, url string) (driver.Source, error)
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
	// Repeated is how many records were left out since they are as one before, Alike how
	// many since their image looks like one before.
	Repeated() int64
	Alike() int64
}

// Open makes a view of src, which it then owns. When it fails, src is left open.
func Open(ctx context.Context, src driver.Source, spec *Spec, opt *Options) (driver.Source, error) {
	if spec.Empty() {
		return src, nil
	}
	if opt == nil {
		opt = &Options{}
	}
	v := &view{in: src.Info(), spec: *spec}
	v.Base = src
	if err := v.check(); err != nil {
		return nil, err
	}
	// What is asked is asked of fields as Kinds make them.
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

// view is a source that has some records and fields of another one.
type view struct {
	driver.Mapped
	in   *driver.Info
	spec Spec
	info driver.Info
	keep *set // nil for all records
	// from is the place of each field in the source, convert what makes another
	// kind of it, nil for nothing.
	from     []int
	converts []func(v *driver.Value) error
	// tensors are arrays that are made of several fields, made those of them that are a
	// field here, nil for one that is not.
	tensors []*tensor
	made    []*tensor
	// place is the place of each field of the source here, -1 for none.
	place []int
	all   []driver.Field // those of the source, as Kinds make them
	kinds []func(v *driver.Value) error
	// tail says that something that is no image becomes one, which is decoded.
	tail bool
	// varied says that numbers of records have that of an epoch or a variant above them
	// (driver.Epochs, driver.Varied).
	varied  bool
	matched int64
	// repeated is how many of those that matched are as one before.
	repeated int64
	alike    int64
	parts    []Part
	spare    sync.Pool
	// chunks are what Chunks returns, chunkOf the source's number of each, nil where it
	// is the same.
	chunksOnce sync.Once
	chunker    driver.Chunker
	chunks     []int64
	chunkOf    []int
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
	for i := range slices.Backward(v.all) { // a tensor may be called like one of its columns
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

// choose works out the fields.
func (v *view) choose() error {
	s := &v.spec
	var chosen []int
	used := v.usedByTensors()
	for _, t := range v.tensors { // they stand behind the fields of the source
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
			return fmt.Errorf("select: the field %q is there twice", name)
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
	info.BadFiles, info.Bad = v.in.BadFiles, v.in.Bad
	info.Len = v.in.Len
	if v.keep != nil {
		info.Len = v.keep.len()
	}
	info.Fingerprint = fingerprint(v.in.Fingerprint, &v.spec, v.sameTensors())
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

// fingerprint is that of a view: another one for other records, fields or kinds.
func fingerprint(of string, spec *Spec, more string) string {
	text := of + "\x00" + canonical(spec)
	if more != "" {
		text += "\x00" + more
	}
	h := xxh3.HashString128(text)
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
