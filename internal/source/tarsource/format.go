package tarsource

import (
	"github.com/stokerdata/stoker/internal/source/archive"
	"github.com/stokerdata/stoker/internal/source/format"
)

// Format is tar files.
var Format = &format.Format{
	Name:       "tar",
	Reads:      "tar files, also of webdataset, also .tar.gz and .tar.zst",
	Checksums:  "of headers; gzip and zstd: at the end of the stream; the content of members has none",
	Example:    "shards/train-{0000..0127}.tar",
	Sequential: ".tar.gz and .tar.zst",
	Guide:      "reference/archives.md",
	Patterns:   true,
	Match:      format.MatchFiles(IsName, IsFile, archive.IsNote),
	Open:       format.Opener(Open),
}
