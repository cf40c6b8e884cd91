package mdssource

import (
	"github.com/stokerdata/stoker/internal/source/format"
)

// Format is the shards of MosaicML Streaming.
var Format = &format.Format{
	Name:       "mds",
	Reads:      "MDS shards of MosaicML Streaming, also compressed with zstd or gz",
	Checksums:  "gzip and zstd: at the end of the stream; not `hashes` of index.json, which are of whole shards",
	Example:    "mds/?split=train",
	Sequential: "compressed shards",
	Guide:      "reference/records.md",
	Params:     []format.Param{format.SplitParam, format.ColumnParam},
	Unlisted:   true,
	Match:      format.MatchIndex(IndexName, Is),
	Open:       format.Opener(Open),
}
