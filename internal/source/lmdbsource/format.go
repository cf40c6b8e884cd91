package lmdbsource

import (
	"context"

	"github.com/stokerdata/stoker/internal/source/format"
)

// Format is LMDB databases.
var Format = &format.Format{
	Name:    "lmdb",
	Reads:   "LMDB databases: images, .npy files, Caffe's Datum or any bytes by key",
	Example: "faces.lmdb/?value:image",
	Guide:   "reference/records.md",
	Params: []format.Param{
		{Name: "split", Type: format.Text, Help: "The named database to read, of a file with several."},
		format.ColumnParam,
	},
	Match: func(ctx context.Context, p *format.Probe) bool {
		return p.Dir && Is(ctx, p.Store) || !p.Dir && IsFile(ctx, p.Store, "")
	},
	Open: format.Opener(Open),
}
