package mdssource

import (
	"context"

	"github.com/stokerdata/stoker/internal/source/format"
	"github.com/stokerdata/stoker/source/driver"
)

// Format is the shards of MosaicML Streaming.
var Format = &format.Format{
	Name:       "mds",
	Reads:      "MDS shards of MosaicML Streaming, also compressed with zstd or gz",
	Example:    "mds/?split=train",
	Sequential: "compressed shards",
	Guide:      "records.md",
	Params:     []format.Param{format.SplitParam, format.ColumnParam},
	Unlisted:   true,
	Match:      format.MatchIndex(IndexName, Is),
	Open: func(ctx context.Context, r *format.Request) (driver.Source, error) {
		return Open(ctx, r.URL, r.Store, &Options{Columns: r.Columns, Split: r.Text("split")})
	},
}
