package hdf5source

import (
	"github.com/stokerdata/stoker/internal/source/format"
)

// Format is HDF5 files.
var Format = &format.Format{
	Name:      "hdf5",
	Reads:     "HDF5 files: data sets with the same first axis are fields, values with offsets are rows of any length",
	Checksums: "fletcher32 and gzip of each chunk; the structures of files with superblock 2 and newer (libver=\"latest\")",
	Example:   "x.h5?image:image=/train/x&label:label=/train/y",
	Guide:     "reference/hdf5-zarr.md",
	Params: []format.Param{
		{Name: "split", Type: format.Text, Help: "The group to read, such as train."},
		format.ColumnParam,
	},
	Patterns: true,
	Match:    format.MatchFiles(IsName, IsFile, nil),
	Open:     format.Opener(Open),
}
