// Package cifarsource reads CIFAR-10 and CIFAR-100, in the binary format (data_batch_1.bin, train.bin) and in the
// Python format (data_batch_1, train). The pickles of the latter are parsed but never executed. A folder has the
// splits train and test, a single file is one batch.
//
// The files store images by planes. Reading converts them to rows of pixels.
package cifarsource

import (
	"bufio"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/source/fixedrecords"
	"github.com/stokerdata/stoker/internal/source/splits"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// Options select a file or a split. Nil means a folder with one split. The splits are train and test.
type Options = fixedrecords.Options

const (
	side   = 32
	pixels = 3 * side * side
	// maxBytes is the size limit of a pickle. CIFAR-100's has 155 MB.
	maxBytes = 1 << 30
)

// binary10 and binary100 are the sizes of records in the binary format: the label, or the coarse and the fine
// label, and the pixels.
const (
	binary10  = 1 + pixels
	binary100 = 2 + pixels
)

// kind is what the name of a file tells.
type kind struct {
	split  string
	binary bool
	fine   bool // CIFAR-100
}

// kindOf parses the name of a file. It returns false for files that are not CIFAR's.
func kindOf(name string) (kind, bool) {
	base, binary := strings.CutSuffix(name, ".bin")
	switch {
	case base == "train" || base == "test":
		return kind{base, binary, true}, true
	case base == "test_batch":
		return kind{"test", binary, false}, true
	case strings.HasPrefix(base, "data_batch_") && len(base) == len("data_batch_")+1 && base[11] >= '1' && base[11] <= '9':
		return kind{"train", binary, false}, true
	}
	return kind{}, false
}

// The files with class names.
const (
	metaPython10  = "batches.meta"
	metaPython100 = "meta"
	metaText10    = "batches.meta.txt"
	metaFine      = "fine_label_names.txt"
	metaCoarse    = "coarse_label_names.txt"
)

// Is reports whether the files of a folder, or the one named file, are CIFAR's. Names such as train.bin are not
// specific, so they only count if the files with class names are also there.
func Is(names []string, file string) bool {
	has := func(name string) bool { return slices.Contains(names, name) }
	is := func(name string) bool {
		k, ok := kindOf(name)
		switch {
		case !ok:
			return false
		case !k.fine:
			return true
		case k.binary:
			return has(metaFine)
		}
		return has(metaPython100)
	}
	if file != "" {
		return is(file)
	}
	return slices.ContainsFunc(names, is)
}

type source struct {
	fixedrecords.Base
	image  driver.Field
	skip   int                 // bytes of labels before the pixels, in the binary format
	labels fixedrecords.Labels // in the Python format, the fine ones for CIFAR-100
	coarse fixedrecords.Labels
	names  [2][]string // class names of labels and coarse labels
}

// Open opens the files of st that the options select.
func Open(ctx context.Context, url string, st store.Store, opt *Options) (driver.Source, error) {
	var o Options
	if opt != nil {
		o = *opt
	}
	files, err := fixedrecords.Files(ctx, st, func(name string) bool {
		_, ok := kindOf(name)
		return ok || slices.Contains([]string{metaPython10, metaPython100, metaText10, metaFine, metaCoarse}, name)
	})
	if err != nil {
		return nil, err
	}
	s := &source{image: fixedrecords.ImageField(side, side, 3)}
	s.Memory.Use(ctx)
	s.List = &filelist.List{Store: st}
	if err := s.open(ctx, url, files, &o); err != nil {
		s.Memory.Free()
		return nil, err
	}
	return s, nil
}

func (s *source) open(ctx context.Context, url string, files []store.Entry, o *Options) error {
	parts, k, err := choose(url, files, o)
	if err != nil {
		return err
	}
	s.Size, s.What, s.Field, s.Value = pixels, "image", -1, s.value
	if k.binary {
		s.skip, s.Size = 1, binary10
		if k.fine {
			s.skip, s.Size = 2, binary100
		}
	} else {
		s.Alone = true
	}
	for _, e := range parts {
		if k.binary {
			err = s.addBinary(e)
		} else {
			err = s.addPython(ctx, e, k.fine)
		}
		if err != nil {
			return fixedrecords.Named(s.List.Store.Path(e.Name), err)
		}
	}
	if err := s.readNames(ctx, files, k); err != nil {
		return err
	}
	label, coarse := s.labels.Field("label", s.names[0]), s.coarse.Field("coarse_label", s.names[1])
	info := driver.Info{URL: url, Format: "cifar", Fields: []driver.Field{s.image, label}}
	if k.fine {
		info.Fields = append(info.Fields, coarse)
	}
	return s.Init(info, append(append([]string{}, s.names[0]...), s.names[1]...)...)
}

// choose returns the selected files, in order.
func choose(url string, files []store.Entry, o *Options) ([]store.Entry, kind, error) {
	if o.File != "" {
		k, ok := kindOf(o.File)
		e, found := fixedrecords.Find(files, o.File)
		if !ok || !found {
			return nil, k, fmt.Errorf("cannot open %s: %s is not a file of CIFAR: expected data_batch_1 to 5, test_batch, train or test, with or without .bin", url, o.File)
		}
		return []store.Entry{e}, k, nil
	}
	// A folder may have both formats, of which the binary one is simpler, and both data sets.
	type set struct{ binary, fine bool }
	var sets []set
	for _, e := range files {
		if k, ok := kindOf(e.Name); ok && !slices.Contains(sets, set{k.binary, k.fine}) {
			sets = append(sets, set{k.binary, k.fine})
		}
	}
	if len(sets) == 0 {
		return nil, kind{}, fmt.Errorf("cannot open %s: it has no file of CIFAR, such as data_batch_1, data_batch_1.bin, train or train.bin", url)
	}
	want := sets[0]
	for _, s := range sets {
		if s.fine != want.fine {
			return nil, kind{}, fmt.Errorf("cannot open %s: it has files of CIFAR-10 and of CIFAR-100: name one", url)
		}
		if s.binary {
			want = s
		}
	}
	var have []string
	for _, e := range files {
		if k, ok := kindOf(e.Name); ok && (set{k.binary, k.fine}) == want && !slices.Contains(have, k.split) {
			have = append(have, k.split)
		}
	}
	split, err := splits.Choose(url, have, o.Split)
	if err != nil {
		return nil, kind{}, err
	}
	var out []store.Entry
	for _, e := range files {
		if k, ok := kindOf(e.Name); ok && (set{k.binary, k.fine}) == want && k.split == split {
			out = append(out, e)
		}
	}
	return out, kind{split, want.binary, want.fine}, nil
}

// addBinary adds a file in the binary format.
func (s *source) addBinary(e store.Entry) error {
	if e.Size == 0 || e.Size%s.Size != 0 {
		return fmt.Errorf("it has %d bytes, which is not a multiple of the record size %d: the file is cut off, or is not CIFAR", e.Size, s.Size)
	}
	s.Parts = append(s.Parts, fixedrecords.Part{File: s.List.Len(), Count: e.Size / s.Size})
	s.List.Add(e)
	return nil
}

// addPython adds a file in the Python format.
func (s *source) addPython(ctx context.Context, e store.Entry, fine bool) error {
	o, err := store.OpenEntry(ctx, s.List.Store, e)
	if err != nil {
		return err
	}
	defer o.Close()
	d, err := readDict(ctx, o)
	if err != nil {
		return err
	}
	v, _ := d.get("data")
	a, ok := v.(*array)
	if !ok {
		return fmt.Errorf("it has no array \"data\", only %s", d.keyNames())
	}
	if t := strings.TrimLeft(a.dtype.name, "|"); t != "u1" && t != "uint8" || len(a.shape) != 2 || a.shape[1] != pixels || a.shape[0] < 1 || a.shape[0] > maxBytes/pixels {
		return fmt.Errorf("its data is an array of %q of shape %v, expected u1 of [N %d]", a.dtype.name, a.shape, pixels)
	}
	n := a.shape[0]
	key := "labels"
	if fine {
		key = "fine_labels"
		if s.coarse, err = appendLabels(s.coarse, d, "coarse_labels", n); err != nil {
			return err
		}
	}
	if s.labels, err = appendLabels(s.labels, d, key, n); err != nil {
		return err
	}
	p := fixedrecords.Part{File: s.List.Len(), Offset: a.data.at, Count: n}
	if err := s.hold(ctx, o, &p, &a.data); err != nil {
		return err
	}
	s.List.Add(e)
	s.Parts = append(s.Parts, p)
	return nil
}

// hold reads the pixels of a part into memory, unless the file has them as raw bytes.
func (s *source) hold(ctx context.Context, o store.Object, p *fixedrecords.Part, b *blob) error {
	size := p.Count * pixels
	if b.form == raw && b.size != size || b.size < size {
		return fmt.Errorf("its data is a string of %d bytes, but %d images need %d", b.size, p.Count, size)
	}
	if b.form == raw && b.short == nil {
		return nil
	}
	var err error
	if p.Held, err = s.Memory.Take(size); err != nil {
		return fmt.Errorf("its pixels are written as text: %w: write it again with pickle.dump(..., protocol=3)", err)
	}
	if b.short != nil {
		copy(p.Held, b.short)
		return nil
	}
	r := fixedrecords.NewReader(ctx, o, b.at, b.size)
	n, err := b.form.decode(p.Held, bufio.NewReaderSize(r, 256<<10))
	if r.Err != nil {
		return r.Err
	}
	if err == nil && int64(n) != size {
		err = fmt.Errorf("a string of %d bytes, but %d images need %d", n, p.Count, size)
	}
	if err != nil {
		return fmt.Errorf("bytes %d to %d: its data: %w", b.at, b.at+b.size, err)
	}
	return nil
}

// readDict parses a pickle that is a dictionary.
func readDict(ctx context.Context, o store.Object) (*dict, error) {
	if o.Size() > maxBytes {
		return nil, fmt.Errorf("it has %d bytes, the limit is %d", o.Size(), int64(maxBytes))
	}
	v, err := unpickle(store.ReaderAt(ctx, o), o.Size())
	if err != nil {
		return nil, err
	}
	d, ok := v.(*dict)
	if !ok {
		return nil, fmt.Errorf("%w: it is not a dictionary", errPickle)
	}
	return d, nil
}

// appendLabels appends the n class numbers in a list of a dictionary.
func appendLabels(to fixedrecords.Labels, d *dict, key string, n int64) (fixedrecords.Labels, error) {
	v, _ := d.get(key)
	l, ok := v.(*list)
	if !ok {
		return nil, fmt.Errorf("it has no list %q, only %s", key, d.keyNames())
	}
	if int64(len(l.items)) != n {
		return nil, fmt.Errorf("it has %d images and %d %s", n, len(l.items), key)
	}
	for i, v := range l.items {
		c, ok := v.(int64)
		if !ok || c < 0 || c > 255 {
			return nil, fmt.Errorf("number %d of its %s is not a class", i, key)
		}
		to = append(to, int32(c))
	}
	return to, nil
}

// readNames reads the class names, if their files exist.
func (s *source) readNames(ctx context.Context, files []store.Entry, k kind) error {
	read := []struct{ file, key string }{{metaPython10, "label_names"}}
	switch {
	case k.binary && k.fine:
		read = []struct{ file, key string }{{metaFine, ""}, {metaCoarse, ""}}
	case k.binary:
		read[0] = struct{ file, key string }{metaText10, ""}
	case k.fine:
		read = []struct{ file, key string }{{metaPython100, "fine_label_names"}, {metaPython100, "coarse_label_names"}}
	}
	for i, r := range read {
		e, ok := fixedrecords.Find(files, r.file)
		if !ok {
			continue
		}
		var err error
		if r.key == "" {
			s.names[i], err = fixedrecords.Lines(ctx, s.List.Store, e)
		} else {
			s.names[i], err = s.pickledNames(ctx, e, r.key)
		}
		if err != nil {
			return fixedrecords.Named(s.List.Store.Path(e.Name), err)
		}
	}
	return nil
}

func (s *source) pickledNames(ctx context.Context, e store.Entry, key string) ([]string, error) {
	o, err := store.OpenEntry(ctx, s.List.Store, e)
	if err != nil {
		return nil, err
	}
	defer o.Close()
	d, err := readDict(ctx, o)
	if err != nil {
		return nil, err
	}
	v, _ := d.get(key)
	l, ok := v.(*list)
	if !ok {
		return nil, fmt.Errorf("it has no list %q, only %s", key, d.keyNames())
	}
	var names []string
	for i, v := range l.items {
		name, ok := v.(string)
		if !ok || i >= 256 {
			return nil, fmt.Errorf("number %d of its %s is not the name of one of up to 256 classes", i, key)
		}
		names = append(names, driver.ValidName(name))
	}
	return names, nil
}

// value sets the values of a record.
func (s *source) value(g *driver.Group, k int, b []byte) error {
	rec := &g.Records[k]
	switch {
	case s.skip == 0:
		rec.Values[1].Int = int64(s.labels[rec.ID])
		if s.coarse != nil {
			rec.Values[2].Int = int64(s.coarse[rec.ID])
		}
	default:
		// The last label is the fine one, the one before it the coarse one.
		for i := range s.skip {
			c := b[s.skip-1-i]
			if n := len(s.names[i]); n > 0 && int(c) >= n {
				rec.Err = fmt.Errorf("%s: class number %d of %d", s.Name(rec.ID), c, n)
				return nil
			}
			rec.Values[1+i].Int = int64(c)
		}
		b = b[s.skip:]
	}
	if !g.Wants(0) {
		return nil
	}
	var err error
	rec.Values[0], err = fixedrecords.Image(g, b, &s.image, false)
	return err
}
