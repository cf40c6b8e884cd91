// Package matsource reads the cropped digits of SVHN, and other pictures in the same
// form: MAT files of version 5 with the variables X, uint8 of height x width x
// channels x number, and y, a label for each. A folder has the splits train, test and
// extra (train_32x32.mat).
//
// The last axis is the slowest one in such a file, so each picture lies in one piece.
// What is not compressed is read where it lies; a compressed X is unpacked into
// memory when the file is opened, up to fixed.MaxHeld bytes.
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

// Options say what is opened. Nil means a folder with one split. Splits of SVHN
// are train, test and extra.
type Options = fixedrecords.Options

// maxLabelBytes bounds y, which is held in memory.
const maxLabelBytes = 64 << 20

const suffix = "_32x32.mat"

// IsName says whether a file is called as SVHN's are.
func IsName(name string) bool {
	split, ok := strings.CutSuffix(name, suffix)
	return ok && split != ""
}

type source struct {
	fixedrecords.Source
	image  driver.Field
	labels fixedrecords.Labels
}

// Open opens the file of st that the options name.
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
			return nil, fmt.Errorf("cannot open %s: no file of SVHN's cropped digits is in it: looked for train_32x32.mat, test_32x32.mat and extra_32x32.mat", url)
		}
		split, err := splits.Choose(url, have, o.Split)
		if err != nil {
			return nil, err
		}
		name = split + suffix
	}
	e, ok := fixedrecords.Find(files, name)
	if !ok {
		return nil, fmt.Errorf("%s is gone", st.Path(name))
	}
	s := &source{}
	s.List = &filelist.List{Store: st}
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
		return fmt.Errorf("it has no variables X and y, as SVHN's cropped digits have, only %.100q", names)
	}
	if n := s.Parts[0].Count; int64(len(s.labels)) != n {
		return fmt.Errorf("X has %d pictures and y has %d labels", n, len(s.labels))
	}
	s.What, s.Field, s.Alone, s.Value = "image", -1, true, s.value
	label := s.labels.Field("label", s.digits())
	return s.Init(driver.Info{URL: url, Format: "mat", Fields: []driver.Field{s.image, label}})
}

// pictures takes X.
func (s *source) pictures(v *variable) error {
	shape := v.shape
	if len(shape) == 3 { // MATLAB leaves a last axis of 1 away
		shape = append(slices.Clone(shape), 1)
	}
	if v.class != "uint8" || v.typ != 2 || len(shape) != 4 || shape[2] != 1 && shape[2] != 3 {
		return fmt.Errorf("it is no uint8 of height x width x 1 or 3 x number, but %s of shape %v", or(v.class, "no plain numbers"), v.shape)
	}
	if v.bytes == 0 {
		return fmt.Errorf("it holds nothing: its shape is %v", v.shape)
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

// readLabels takes y.
func (s *source) readLabels(v *variable) error {
	if v.class == "" || v.bytes > maxLabelBytes {
		return fmt.Errorf("it is no list of labels, but %s of shape %v", or(v.class, "no plain numbers"), v.shape)
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
			return errors.New("label " + fmt.Sprint(i) + " is no class number")
		}
		s.labels = append(s.labels, int32(n))
	}
	return nil
}

// digits makes SVHN's labels what they say, as torchvision does: 10 stands for the
// digit 0. It returns the names of the classes, nil for labels of something else.
func (s *source) digits() []string {
	if len(s.labels) == 0 || slices.Min(s.labels) < 1 || slices.Max(s.labels) > 10 || s.image.Width != 32 || s.image.Height != 32 {
		return nil
	}
	for i, c := range s.labels {
		s.labels[i] = c % 10
	}
	return strings.Split("0123456789", "")
}

// value makes the values of a record.
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

// IsFile says whether the one object that a store is begins as a MAT file does, also
// as one of a version that is not read.
func IsFile(ctx context.Context, st store.Store) bool {
	b := filelist.Head(ctx, st, "", headerBytes)
	return len(b) == headerBytes && (checkHeader(b) == nil || string(b[:7]) == "MATLAB ")
}
