// Package volumesource reads volumes: NIfTI files, .npy files of three axes or more, TIFF files
// with a slice per page, and DICOM series with a slice per file. Each volume is a record: its
// voxels, the slowest axis first (z, y, x), and its affine if the file has one. With
// Options.Patch, each volume is cut into patches of that size, and each patch is a record.
//
// For a patch or for the part in Group.Box, only the needed rows of an uncompressed volume are
// read. From compressed strips and tiles, only those that overlap the part are read.
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

// Options select the volumes and the records. Nil means every volume of the folder, whole.
type Options struct {
	// Format is the format that the source reports, "volumes" by default. "nifti" and "dicom"
	// accept only files of that format.
	Format string
	// Fields are the fields of records with several volumes, such as an image and its label.
	// Without fields, each volume is a record.
	Fields []pairsource.Field
	// Names are the files to read, nil for all files of the folder.
	Names []string
	// Patch is the size of patches: z, y, x. Zero means whole volumes.
	Patch [3]int
	// Stride is the distance between patches, Patch by default. The last patch of each axis
	// ends with the volume.
	Stride [3]int
	// Threads limits the number of headers that are read at the same time.
	Threads int
}

type source struct {
	info    driver.Info
	columns []column
	// affine and origin are the indexes of these fields, -1 for none. The affine is that of the
	// first column that has one.
	affine, origin int
	patch          [3]int
	stride         [3]int
	first          []int64 // with patches, number of the first record of each volume
	cache          *blockcache.Cache
	useful         int64
	gz             bool
	skipped        []driver.Skipped
	left           *selection.Left
	// bad has the volumes that cannot be read. Each of them is one record.
	bad filelist.Bad
}

// Open lists the volumes in st, or st itself if it is one file, in the order of their names. It
// reads their headers.
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

// wanted returns the selection of files that can be volumes of a format. Files with undecided
// names are included, since their headers are read anyway.
func wanted(format string) selection.Options {
	switch format {
	case "nifti":
		return selection.Options{Kind: selection.NIfTI}
	case "dicom":
		return selection.Options{Kind: selection.DICOM, Late: true}
	}
	return selection.Options{Kind: selection.NIfTI, Also: isName, Late: true}
}

// nothing returns the error of a folder without volumes.
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
