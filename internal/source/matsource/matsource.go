// Package matsource reads the cropped digits of SVHN, and other images in the same format: MAT files of version 5
// with the variables X, uint8 of height x width x channels x number, and y, a label for each. A folder has the
// splits train, test and extra (train_32x32.mat).
//
// The last axis varies slowest, so each image is contiguous. Uncompressed files are read in place. A compressed X
// is decompressed into memory when the file is opened, up to fixedrecords.MaxHeld bytes.
package matsource

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/source/fixedrecords"
	"github.com/stokerdata/stoker/internal/source/splits"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// Options select a file or a split. Nil means a folder with one split. The splits of SVHN are train, test and
// extra.
type Options = fixedrecords.Options

// maxLabelBytes is the size limit of y, which is held in memory.
const maxLabelBytes = 64 << 20

const suffix = "_32x32.mat"

// IsName reports whether a file has a name of SVHN's files.
func IsName(name string) bool {
	split, ok := strings.CutSuffix(name, suffix)
	return ok && split != ""
}

type source struct {
	fixedrecords.Base
	image  driver.Field
	labels fixedrecords.Labels
}

// Open opens the file of st that the options select.
func Open(ctx context.Context, url string, st store.Store, opt *Options) (driver.Source, error) {
	var o Options
	if opt != nil {
		o = *opt
	}
	files, err := fixedrecords.Files(ctx, st, func(name string) bool { return IsName(name) || name == o.File })
	if err != nil {
		return nil, err
	}
	name := o.File
	if name == "" {
		var have []string
		for _, e := range files {
			have = append(have, strings.TrimSuffix(e.Name, suffix))
		}
		if len(have) == 0 {
			return nil, fmt.Errorf("cannot open %s: it has no file of SVHN's cropped digits: expected train_32x32.mat, test_32x32.mat or extra_32x32.mat", url)
		}
		split, err := splits.Choose(url, have, o.Split)
		if err != nil {
			return nil, err
		}
		name = split + suffix
	}
	e, ok := fixedrecords.Find(files, name)
	if !ok {
		return nil, fmt.Errorf("%s does not exist", st.Path(name))
	}
	s := &source{}
	s.List = &filelist.List{Store: st}
	s.Memory.Use(ctx)
	s.List.Add(e)
	if err := s.open(ctx, url, e); err != nil {
		s.Memory.Free()
		return nil, fixedrecords.Named(st.Path(name), err)
	}
	return s, nil
}

func (s *source) open(ctx context.Context, url string, e store.Entry) error {
	o, err := store.OpenEntry(ctx, s.List.Store, e)
	if err != nil {
		return err
	}
	defer o.Close()
	var names []string
	err = walk(ctx, o, func(v *variable) error {
		names = append(names, v.name)
		switch {
		case v.name == "X" && s.Parts == nil:
			return s.pictures(v)
		case v.name == "y" && s.labels == nil:
			return s.readLabels(v)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if s.Parts == nil || s.labels == nil {
		return fmt.Errorf("expected variables X and y as in SVHN's cropped digits, got %.100q", names)
	}
	if n := s.Parts[0].Count; int64(len(s.labels)) != n {
		return fmt.Errorf("X has %d pictures and y has %d labels", n, len(s.labels))
	}
	s.What, s.Field, s.Alone, s.Value = "image", -1, true, s.value
	label := s.labels.Field("label", s.digits())
	return s.Init(driver.Info{URL: url, Format: "mat", Fields: []driver.Field{s.image, label}})
}

// pictures adds X.
func (s *source) pictures(v *variable) error {
	shape := v.shape
	if len(shape) == 3 { // MATLAB omits a last axis of 1
		shape = append(slices.Clone(shape), 1)
	}
	if v.class != "uint8" || v.typ != 2 || len(shape) != 4 || shape[2] != 1 && shape[2] != 3 {
		return fmt.Errorf("expected uint8 of height x width x 1 or 3 x number, got %s of shape %v", or(v.class, "a non-numeric type"), v.shape)
	}
	if v.bytes == 0 {
		return fmt.Errorf("it is empty: its shape is %v", v.shape)
	}
	if size, err := driver.ArrayBytes(driver.Uint8, []int{int(shape[0]), int(shape[1]), int(shape[2])}); err != nil {
		return err
	} else {
		s.Size = size
	}
	s.image = fixedrecords.ImageField(int(shape[1]), int(shape[0]), int(shape[2]))
	p := fixedrecords.Part{Offset: v.at, Count: shape[3]}
	if v.deflated {
		var err error
		if p.Held, err = s.Memory.Take(v.bytes); err != nil {
			return fmt.Errorf("%w: write the file again with scipy.io.savemat(..., do_compression=False)", err)
		}
		if err := v.values(p.Held); err != nil {
			return err
		}
	}
	s.Parts = []fixedrecords.Part{p}
	return nil
}

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// readLabels adds y.
func (s *source) readLabels(v *variable) error {
	if v.class == "" || v.bytes > maxLabelBytes {
		return fmt.Errorf("expected a list of labels, got %s of shape %v", or(v.class, "a non-numeric type"), v.shape)
	}
	b := make([]byte, v.bytes)
	if err := v.values(b); err != nil {
		return err
	}
	s.labels = fixedrecords.Labels{}
	size := sizes[v.typ]
	for i := range v.numbers() {
		n, ok := number(b[i*size:], v.typ)
		if !ok || n < 0 || n > 1<<30 {
			return errors.New("label " + fmt.Sprint(i) + " is not a class number")
		}
		s.labels = append(s.labels, int32(n))
	}
	return nil
}

// digits changes SVHN's label 10 to 0, as torchvision does, and returns the class names. It returns nil for other
// labels.
func (s *source) digits() []string {
	if len(s.labels) == 0 || slices.Min(s.labels) < 1 || slices.Max(s.labels) > 10 || s.image.Width != 32 || s.image.Height != 32 {
		return nil
	}
	for i, c := range s.labels {
		s.labels[i] = c % 10
	}
	return strings.Split("0123456789", "")
}

// value sets the values of a record.
func (s *source) value(g *driver.Group, k int, b []byte) error {
	rec := &g.Records[k]
	rec.Values[1].Int = int64(s.labels[rec.ID])
	if b == nil { // not wanted
		return nil
	}
	var err error
	rec.Values[0], err = fixedrecords.Image(g, b, &s.image, true)
	return err
}

// IsFile reports whether the single object of a store begins like a MAT file, including unsupported versions.
func IsFile(ctx context.Context, st store.Store) bool {
	b := filelist.Head(ctx, st, "", headerBytes)
	return len(b) == headerBytes && (checkHeader(b) == nil || string(b[:7]) == "MATLAB ")
}
