// Package stlsource reads STL-10. Each split has a file of 96 x 96 images (train_X.bin, test_X.bin, unlabeled_X.bin)
// and a file of class numbers from 1 on (train_y.bin). Images have planes, and each plane is stored by columns.
package stlsource

import (
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

// Options select a file or a split. Nil means a folder with one split. The splits are train, test and unlabeled.
type Options = fixedrecords.Options

const (
	side   = 96
	pixels = 3 * side * side
	names  = "class_names.txt"
	// maxLabels is the size limit of the file of class numbers.
	maxLabels = 64 << 20
)

// IsName reports whether a file has the name of STL-10's images.
func IsName(name string) bool { return splitOf(name) != "" }

func splitOf(name string) string {
	split, ok := strings.CutSuffix(name, "_X.bin")
	if ok && slices.Contains([]string{"train", "test", "unlabeled"}, split) {
		return split
	}
	return ""
}

type source struct {
	fixedrecords.Base
	image  driver.Field
	labels fixedrecords.Labels
}

// Open opens the files of st that the options select.
func Open(ctx context.Context, url string, st store.Store, opt *Options) (driver.Source, error) {
	var o Options
	if opt != nil {
		o = *opt
	}
	files, err := fixedrecords.Files(ctx, st, func(name string) bool {
		return IsName(name) || name == names || strings.HasSuffix(name, "_y.bin")
	})
	if err != nil {
		return nil, err
	}
	split := splitOf(o.File)
	if o.File == "" {
		var have []string
		for _, e := range files {
			if s := splitOf(e.Name); s != "" {
				have = append(have, s)
			}
		}
		if len(have) == 0 {
			return nil, fmt.Errorf("cannot open %s: it has no file of STL-10: expected train_X.bin, test_X.bin or unlabeled_X.bin", url)
		}
		if split, err = splits.Choose(url, have, o.Split); err != nil {
			return nil, err
		}
	}
	e, ok := fixedrecords.Find(files, split+"_X.bin")
	if !ok {
		return nil, fmt.Errorf("cannot open %s: %s is not a file of STL-10: expected train_X.bin, test_X.bin or unlabeled_X.bin", url, o.File)
	}
	if e.Size == 0 || e.Size%pixels != 0 {
		return nil, fmt.Errorf("%s: it has %d bytes, which is not a multiple of the image size %d: the file is cut off, or is not STL-10", st.Path(e.Name), e.Size, pixels)
	}
	s := &source{image: fixedrecords.ImageField(side, side, 3)}
	s.List = &filelist.List{Store: st}
	s.List.Add(e)
	s.Size, s.What, s.Field, s.Alone, s.Value = pixels, "image", -1, true, s.value
	s.Parts = []fixedrecords.Part{{Count: e.Size / pixels}}
	info := driver.Info{URL: url, Format: "stl10", Fields: []driver.Field{s.image}}
	var classes []string
	if labels, ok := fixedrecords.Find(files, split+"_y.bin"); ok {
		if err := s.readLabels(ctx, st, labels); err != nil {
			return nil, err
		}
		if n, ok := fixedrecords.Find(files, names); ok {
			if classes, err = fixedrecords.Lines(ctx, st, n); err != nil {
				return nil, err
			}
		}
		info.Fields = append(info.Fields, s.labels.Field("label", classes))
	}
	return s, s.Init(info, classes...)
}

// readLabels reads class numbers, which start at 1.
func (s *source) readLabels(ctx context.Context, st store.Store, e store.Entry) error {
	b, err := store.ReadEntry(ctx, st, e, maxLabels)
	if err != nil {
		return err
	}
	path := st.Path(e.Name)
	if n := s.Parts[0].Count; int64(len(b)) != n {
		return fmt.Errorf("%s has %d labels and %s has %d images", path, len(b), s.List.Path(0), n)
	}
	for i, c := range b {
		if c == 0 {
			return fmt.Errorf("%s, byte %d: invalid class number 0: they start at 1", path, i)
		}
		s.labels = append(s.labels, int32(c)-1)
	}
	s.List.Add(e)
	return nil
}

// value sets the values of a record.
func (s *source) value(g *driver.Group, k int, b []byte) error {
	rec := &g.Records[k]
	if s.labels != nil {
		rec.Values[1].Int = int64(s.labels[rec.ID])
	}
	if b == nil { // not wanted
		return nil
	}
	var err error
	rec.Values[0], err = fixedrecords.Image(g, b, &s.image, true)
	return err
}
