package zarrsource

import (
	"context"

	"github.com/stokerdata/stoker/internal/source/format"
	"github.com/stokerdata/stoker/internal/source/zipsource"
)

// Format is Zarr arrays and groups. It comes before zip files in the list of formats.
var Format = &format.Format{
	Name:      "zarr",
	Reads:     "Zarr 2 and 3, in folders or zip files: arrays with the same first axis are fields",
	Checksums: "crc32c, gzip, zlib, bz2 and zstd of each chunk, the index of each shard, CRC-32 of members of zip files",
	Example:   "x.zarr?image:image=train/x&label:label=train/y",
	Guide:     "reference/hdf5-zarr.md",
	Params: []format.Param{
		{Name: "split", Type: format.Text, Help: "The group to read, such as train."},
		format.ColumnParam,
	},
	Unlisted: true,
	Match: func(ctx context.Context, p *format.Probe) bool {
		if p.Dir {
			return Is(ctx, p.Store)
		}
		return (zipsource.IsName(p.Store.Path("")) || zipsource.IsFile(ctx, p.Store, "")) && IsZip(ctx, p.Store)
	},
	Open: format.Opener(Open),
}
