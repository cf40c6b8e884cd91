// Package volumesource reads volumes: NIfTI files, .npy files of three axes or more,
// TIFF files whose pages are the slices, and DICOM series, whose files are. Each volume
// is a record with its voxels, the slowest axis first (z, y, x), and, where the format
// says it, its affine. With a patch, each volume is cut into patches of that size, and
// each of them is a record. Of what is not compressed no more is read than the rows of
// a patch, or of the part that Group.Box asks for; of compressed strips and tiles only
// those that have some of it.
package volumesource

import (
	"context"
	"fmt"
	"slices"

	"github.com/stokerdata/stoker/internal/source/blockcache"
	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/source/pairsource"
	"github.com/stokerdata/stoker/internal/source/selection"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// Options change how volumes are read. Nil means whole ones.
type Options struct {
	// Format is what the source says that it is, "volumes" by default; "nifti" and
	// "dicom" take files of that kind alone.
	Format string
	// Fields are those of records that are several volumes each, such as an image and
	// its label. Without any, each volume is a record.
	Fields []pairsource.Field
	// Names are the files that are wanted, nil for all in the folder.
	Names []string
	// Patch is the size of patches: z, y, x. Zero means whole volumes.
	Patch [3]int
	// Stride is how far patches are apart, Patch by default. The last one of each
	// axis ends with the volume.
	Stride [3]int
	// Threads bounds the files whose headers are read at once.
	Threads int
}

type source struct {
	info    driver.Info
	columns []column
	// affine and origin are the places of those fields, -1 for none; the affine is that
	// of the first column that has one.
	affine, origin int
	patch          [3]int
	stride         [3]int
	first          []int64 // number of the first record of each volume, of patches
	cache          *blockcache.Cache
	useful         int64
	gz             bool
	skipped        []driver.Skipped
	left           *selection.Left
	// bad are the numbers of the volumes that cannot be read, with their paths. Each is one
	// record.
	bad filelist.Bad
}

// Open lists the volumes in st, or the one that it is, in the order of their names,
// and reads their headers.
func Open(ctx context.Context, url string, st store.Store, opt *Options) (driver.Source, error) {
	var o Options
	if opt != nil {
		o = *opt
	}
	if o.Format == "" {
		o.Format = "volumes"
	}
	s := &source{patch: o.Patch, cache: blockcache.New(), affine: -1, origin: -1, left: selection.Empty(st), info: driver.Info{URL: url, Format: o.Format}}
	if len(o.Fields) > 0 {
		if err := s.pairs(ctx, st, &o); err != nil {
			return nil, err
		}
	} else {
		c := column{}
		var err error
		if o.Names != nil {
			c.list, err = filelist.NamedRecords(ctx, st, o.Names)
		} else {
			c.list, s.left, err = selection.Names(ctx, st, wanted(o.Format))
		}
		if err != nil {
			return nil, err
		}
		if c.list.Len() == 0 {
			return nil, s.nothing()
		}
		if err := s.read(ctx, &c, &o); err != nil {
			return nil, err
		}
		s.columns = []column{c}
	}
	if len(s.columns[0].volumes) == 0 {
		return nil, s.nothing()
	}
	print := []string{o.Format, fmt.Sprint(o.Patch, o.Stride)}
	for i := range s.columns {
		c := &s.columns[i]
		c.first = s.info.Objects
		s.info.Objects += int64(c.list.Len())
		if i > 0 {
			print = append(print, c.list.Fingerprint())
		}
	}
	if err := s.fields(&o); err != nil {
		return nil, err
	}
	for i := range s.columns {
		print = append(print, s.info.Fields[i].Name)
	}
	s.info.Fingerprint = s.columns[0].list.Fingerprint(print...)
	return s, s.records(&o)
}

// wanted says which files of a folder may be volumes of a format. The headers of files
// whose names do not decide are read anyway.
func wanted(format string) selection.Options {
	switch format {
	case "nifti":
		return selection.Options{Kind: selection.NIfTI}
	case "dicom":
		return selection.Options{Kind: selection.DICOM, Late: true}
	}
	return selection.Options{Kind: selection.NIfTI, Also: isName, Late: true}
}

// nothing is the error of a folder without volumes.
func (s *source) nothing() error {
	switch s.info.Format {
	case "nifti":
		return s.left.Nothing(selection.NIfTI.Wanted())
	case "dicom":
		return s.left.Nothing(selection.DICOM.Wanted())
	}
	return s.left.Nothing("volume", ".nii, .nii.gz, .npy, .tif and DICOM files")
}

func (s *source) Info() *driver.Info { return &s.info }

func (s *source) Object(n int64) driver.Object {
	for i := len(s.columns) - 1; ; i-- {
		if c := &s.columns[i]; n >= c.first {
			return c.list.Object(n-c.first, true)
		}
	}
}

func (s *source) Name(id int64) string {
	if id < 0 || id >= s.info.Len {
		return fmt.Sprintf("%s, record %d", s.info.URL, id)
	}
	n, box := s.place(id)
	if s.first == nil {
		return s.columns[0].names[n]
	}
	return fmt.Sprintf("%s, patch at z, y, x = %d, %d, %d", s.columns[0].names[n], box.At[0], box.At[1], box.At[2])
}

// Skipped implements driver.Skipper.
func (s *source) Skipped() []driver.Skipped {
	return append(slices.Clone(s.skipped), s.left.Skipped()...)
}

func (s *source) Close() error {
	s.cache.Close()
	return nil
}
