package litdatasource

import (
	"context"

	"github.com/stokerdata/stoker/internal/source/format"
	"github.com/stokerdata/stoker/source/driver"
)

// Format is the chunks of LitData.
var Format = &format.Format{
	Name:       "litdata",
	Reads:      "chunks of LitData, also of tokens, also compressed with zstd",
	Checksums:  "zstd, if its frames have checksums",
	Example:    "litdata/",
	Sequential: "chunks that are compressed as a whole",
	Guide:      "reference/records.md",
	Params:     []format.Param{format.ColumnParam},
	Unlisted:   true,
	Match:      format.MatchIndex(IndexName, Is),
	Open: func(ctx context.Context, r *format.Request) (driver.Source, error) {
		st := r.Store
		if folder, file := r.Folder(); file == IndexName {
			st = folder
		}
		return Open(ctx, r.URL, st, &Options{Columns: r.Columns})
	},
}
