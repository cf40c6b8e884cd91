package hdf5source

import (
	"context"

	"github.com/stokerdata/stoker/internal/source/format"
	"github.com/stokerdata/stoker/source/driver"
)

// Format is HDF5 files.
var Format = &format.Format{
	Name:    "hdf5",
	Reads:   "HDF5 files: data sets with the same first axis are fields, values with offsets are rows of any length",
	Example: "x.h5?image:image=/train/x&label:label=/train/y",
	Guide:   "hdf5-zarr.md",
	Params: []format.Param{
		{Name: "split", Type: format.Text, Help: "The group to read, such as train."},
		format.ColumnParam,
	},
	Patterns: true,
	Match:    format.MatchFiles(IsName, IsFile, nil),
	Open: func(ctx context.Context, r *format.Request) (driver.Source, error) {
		return Open(ctx, r.URL, r.Store, &Options{Columns: r.Columns, Split: r.Text("split"), Names: r.Names, Threads: r.Threads})
	},
}
