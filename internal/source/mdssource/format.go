package mdssource

import (
	"github.com/stokerdata/stoker/internal/source/format"
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
	Open:       format.Opener(Open),
}
