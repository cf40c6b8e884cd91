// Package pairsource reads records of several files each, for example an image and its mask, or
// a recording and its transcript. Each field has a pattern of paths. Files belong to the same
// record if the stars of their patterns match the same text.
//
//	pairs:data/?image=images/*.jpg&mask=masks/*.png
package pairsource

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/source/selection"
	"github.com/stokerdata/stoker/internal/store/stores"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// MaxFileBytes is the size limit of a file.
const MaxFileBytes = 1 << 30

// Field describes the files of a field.
type Field struct {
	Name string
	// Kind is the kind of the values. If it is "", the field's name and the extension decide:
	// images, or masks if "mask" or "segm" is part of the field's name, audio, text, JSON, or
	// else bytes.
	Kind driver.Kind
	// Bits is the type of images with one number per pixel, such as depth: Uint16 or Float32.
	// The kinds image16 and image32 set it.
	Bits driver.DType
	// Pattern is the path of the files below the folder: * matches any part of a name, ** any
	// number of folders.
	Pattern string
}

// kinds are the possible kinds of a file.
var kinds = []driver.Kind{driver.KindImage, driver.KindMask, driver.KindAudio, driver.KindText, driver.KindJSON, driver.KindBytes}

// maps are the kinds of maps of numbers.
var maps = map[driver.Kind]driver.DType{"image16": driver.Uint16, "image32": driver.Float32}

// ParseField parses "image=images/*.jpg", or "target:mask=masks/*.png" with a kind.
func ParseField(text string) (Field, error) {
	name, pattern, ok := strings.Cut(text, "=")
	f := Field{Name: name, Pattern: pattern}
	if i := strings.LastIndexByte(name, ':'); i >= 0 {
		f.Name, f.Kind = name[:i], driver.Kind(name[i+1:])
	}
	if b, is := maps[f.Kind]; is {
		f.Kind, f.Bits = driver.KindImage, b
	}
	if !ok || f.Name == "" {
		return f, fmt.Errorf("%q is not a field: write its name and the pattern of its files, such as image=images/*.jpg", text)
	}
	if f.Kind != "" && !slices.Contains(kinds, f.Kind) {
		return f, fmt.Errorf("the field %q is of the kind %q, which files cannot be; they are one of %v", f.Name, f.Kind, kinds)
	}
	_, err := parsePattern(pattern)
	if err != nil {
		return f, fmt.Errorf("field %q: %w", f.Name, err)
	}
	return f, nil
}

// ParseQuery parses the fields of a URL: the text after its question mark.
func ParseQuery(query string) ([]Field, error) {
	var fields []Field
	for part := range strings.SplitSeq(query, "&") {
		text, err := url.PathUnescape(part)
		if err != nil {
			return nil, fmt.Errorf("%q is not a part of a URL: %w", part, err)
		}
		f, err := ParseField(text)
		if err != nil {
			return nil, err
		}
		fields = append(fields, f)
	}
	return fields, nil
}

// URL returns the URL of the dataset in the folder dir with the given fields.
func URL(dir string, fields []Field) string {
	var query []string
	for _, f := range fields {
		name := f.Name
		switch kind := f.Kind; {
		case f.Bits == driver.Uint16:
			name += ":image16"
		case f.Bits != "":
			name += ":image32"
		case kind != "":
			name += ":" + string(kind)
		}
		query = append(query, escape.Replace(name+"="+f.Pattern))
	}
	return stores.Ask("pairs:"+dir, strings.Join(query, "&"))
}

// escape encodes the characters with a meaning in a query.
var escape = strings.NewReplacer("%", "%25", "&", "%26")

type source struct {
	info    driver.Info
	lists   []filelist.List // by field, then by record
	skipped []driver.Skipped
}

// Open returns a source of the files of st. It lists the files once. Files that appear later
// are not seen. Files that change later fail with an error that names them.
func Open(ctx context.Context, rawURL string, st store.Store, fields []Field) (driver.Source, error) {
	s := &source{info: driver.Info{URL: rawURL, Format: "pairs"}}
	found := make([][]file, len(fields))
	for i := range fields {
		f := &fields[i]
		if slices.ContainsFunc(fields[:i], func(o Field) bool { return o.Name == f.Name }) {
			return nil, fmt.Errorf("%s: field %q is there twice", rawURL, f.Name)
		}
		files, skipped, err := list(ctx, st, f)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.info.URL, err)
		}
		s.skipped = append(s.skipped, skipped...)
		found[i] = s.once(files)
	}
	s.match(st, fields, found)
	if s.info.Len == 0 {
		return nil, fmt.Errorf("%s: no file of one field has a partner of the same name in the others, such as %s", rawURL, example(fields, found))
	}
	s.info.Objects = s.info.Len * int64(len(fields))
	for i := range fields {
		f, err := s.field(ctx, &fields[i], &s.lists[i])
		if err != nil {
			return nil, err
		}
		s.info.Fields = append(s.info.Fields, f)
	}
	var bad filelist.Bad // by record
	for i := range s.lists {
		bad.Append(0, &s.lists[i].Bad)
	}
	if err := bad.Check(int(s.info.Len), func(_ int, err error) error { return err }); err != nil {
		return nil, err
	}
	for i := range s.lists {
		s.lists[i].Bad.Report(&s.info, s.lists[i].RelPath)
	}
	s.info.Fingerprint = s.fingerprint()
	return s, nil
}

// file is a file that matches a pattern. err is the reason why it cannot be read, nil for a
// good file.
type file struct {
	key   string
	entry store.Entry
	err   error
}

func (f *file) addTo(l *filelist.List) {
	if f.err == nil {
		l.Add(f.entry)
	} else {
		_ = l.AddBad(f.entry, f.err)
	}
}

// list returns the files of a field, sorted by key, and the folders that cannot be read.
func list(ctx context.Context, st store.Store, f *Field) (files []file, skipped []driver.Skipped, err error) {
	p, err := parsePattern(f.Pattern)
	if err != nil {
		return nil, nil, fmt.Errorf("field %q: %w", f.Name, err)
	}
	err = st.List(ctx, p.dir(), &store.ListOptions{
		Keep: func(name string) bool { _, ok := p.key(name); return ok && selection.Litter(name) == "" },
		Bad: func(e store.Entry, err error) error {
			switch {
			case !store.IsObjectError(err):
				return err
			case e.Dir:
				skipped = append(skipped, driver.Skipped{Path: e.Name + "/", Reason: store.Cause(err).Error()})
			default:
				key, _ := p.key(e.Name)
				files = append(files, file{key, e, err})
			}
			return nil
		},
	}, func(e store.Entry) error {
		key, _ := p.key(e.Name)
		files = append(files, file{key, e, nil})
		return nil
	})
	if err != nil && !errors.Is(err, store.ErrNotExist) {
		return nil, nil, err
	}
	if len(files) == 0 {
		return nil, nil, fmt.Errorf("field %q: no file is called %s", f.Name, st.Path(f.Pattern))
	}
	slices.SortStableFunc(files, func(a, b file) int { return strings.Compare(a.key, b.key) })
	return files, skipped, nil
}

// List lists the files of a field for sources that parse the files themselves. Files with equal
// keys belong together. Folders that cannot be read are in skipped.
func List(ctx context.Context, st store.Store, f *Field) (l *filelist.List, keys []string, skipped []driver.Skipped, err error) {
	files, skipped, err := list(ctx, st, f)
	if err != nil {
		return nil, nil, nil, err
	}
	l = &filelist.List{Store: st}
	for _, f := range files {
		f.addTo(l)
		keys = append(keys, f.key)
	}
	return l, keys, skipped, nil
}

// Key returns the text that the stars of a pattern match in a path, false if the path does not
// match.
func Key(text, name string) (string, bool) {
	p, err := parsePattern(text)
	if err != nil {
		return "", false
	}
	return p.key(name)
}

// once returns the first file of each key and reports the others as skipped.
func (s *source) once(files []file) []file {
	one := files[:1]
	for i := 1; i < len(files); i++ {
		if last := &one[len(one)-1]; last.key == files[i].key {
			s.skipped = append(s.skipped, driver.Skipped{Path: files[i].entry.Name, Reason: fmt.Sprintf("has the name of %s", last.entry.Name)})
			continue
		}
		one = append(one, files[i])
	}
	return one
}

// match puts files with the same key into records. It reports files without partners as
// skipped.
func (s *source) match(st store.Store, fields []Field, found [][]file) {
	s.lists = make([]filelist.List, len(fields))
	for i := range s.lists {
		s.lists[i].Store = st
	}
	at := make([]int, len(found))
	for {
		// Find the smallest remaining key.
		key, some := "", false
		for i := range found {
			if at[i] < len(found[i]) && (!some || found[i][at[i]].key < key) {
				key, some = found[i][at[i]].key, true
			}
		}
		if !some {
			break
		}
		lacks := -1
		for i := range found {
			if at[i] == len(found[i]) || found[i][at[i]].key != key {
				lacks = i
				break
			}
		}
		for i := range found {
			if at[i] == len(found[i]) || found[i][at[i]].key != key {
				continue
			}
			if f := &found[i][at[i]]; lacks >= 0 {
				s.skipped = append(s.skipped, driver.Skipped{Path: f.entry.Name, Reason: fmt.Sprintf("has no partner in %s", fields[lacks].Pattern)})
			} else {
				f.addTo(&s.lists[i])
			}
			at[i]++
		}
	}
	s.info.Len = int64(s.lists[0].Len())
	slices.SortStableFunc(s.skipped, func(a, b driver.Skipped) int { return strings.Compare(a.Path, b.Path) })
}

// example names a file of each field.
func example(fields []Field, found [][]file) string {
	var parts []string
	for i := range fields {
		parts = append(parts, fmt.Sprintf("%s for %s", found[i][0].entry.Name, fields[i].Pattern))
	}
	return strings.Join(parts, ", ")
}

// field returns the description of a field.
func (s *source) field(ctx context.Context, f *Field, l *filelist.List) (driver.Field, error) {
	_, largest := l.Bytes()
	out := driver.Field{Name: f.Name, Kind: f.Kind, MaxBytes: largest}
	if out.Kind == "" {
		out.Kind = filelist.KindOf(f.Name, l.Name(0))
	}
	var err error
	switch bits := f.Bits; {
	case out.Kind == driver.KindImage && bits != "":
		out.DType, out.Shape = bits, []int{}
		return out, nil
	case out.Kind == driver.KindImage:
		return out, l.MapType(ctx, &out)
	case out.Kind != driver.KindMask:
		return out, nil
	}
	out.DType, err = l.MaskType(ctx, nil)
	return out, err
}

func (s *source) fingerprint() string {
	var of []string
	for i := range s.lists {
		f := &s.info.Fields[i]
		of = append(of, f.Name, string(f.Kind), string(f.DType), s.lists[i].Fingerprint())
	}
	return s.lists[0].Fingerprint(of...)
}

func (s *source) Info() *driver.Info { return &s.info }

func (s *source) Object(n int64) driver.Object {
	return s.lists[n/s.info.Len].Object(n%s.info.Len, false)
}

// Name returns the path of the record's first file.
func (s *source) Name(id int64) string {
	if id < 0 || id >= s.info.Len {
		return fmt.Sprintf("%s, record %d", s.info.URL, id)
	}
	return s.lists[0].Path(int(id))
}

// Path implements driver.Pather.
func (s *source) Path(id int64, field int) string { return s.lists[field].RelPath(int(id)) }

// Skipped implements driver.Skipper.
func (s *source) Skipped() []driver.Skipped { return s.skipped }

func (s *source) Locate(g *driver.Group) {
	filelist.Locate(g, &s.info, func(k int, id int64) {
		begin := len(g.Extents)
		for i := range s.lists {
			if !g.Wants(i) {
				continue
			}
			size, err := s.lists[i].Size(int(id)), s.lists[i].Bad.Of(int(id))
			if size > MaxFileBytes {
				err = fmt.Errorf("%d bytes are more than the limit of %d", size, int64(MaxFileBytes))
			}
			if err != nil {
				g.Records[k].Err = filelist.Located(s.lists[i].Path(int(id)), err)
				g.Extents = g.Extents[:begin]
				return
			}
			e := driver.Extent{Object: int64(i)*s.info.Len + id, Size: size, Field: int32(i)}
			if k := s.info.Fields[i].Kind; k == driver.KindImage || k == driver.KindMask || k == driver.KindAudio {
				e.Field, e.Tail = -1, true
			}
			g.Extents = append(g.Extents, e)
		}
	})
}

func (s *source) Parse(g *driver.Group) error {
	for k := range g.IDs {
		rec := &g.Records[k]
		if rec.Err != nil {
			continue
		}
		next := int(g.First[k])
		for i := range s.lists {
			if g.Wants(i) {
				rec.Values[i].Bytes = g.Bytes[next]
				next++
			}
		}
	}
	return nil
}

func (s *source) Close() error { return nil }
