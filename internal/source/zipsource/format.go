package zipsource

import (
	"github.com/stokerdata/stoker/internal/source/archive"
	"github.com/stokerdata/stoker/internal/source/format"
)

// Format is zip files.
var Format = &format.Format{
	Name:      "zip",
	Reads:     "zip files, stored or deflated",
	Checksums: "CRC-32 of each member and its name, at each read",
	Example:   "photos.zip",
	Guide:     "reference/archives.md",
	Patterns:  true,
	Match:     format.MatchFiles(IsName, IsFile, archive.IsNote),
	Open:      format.Opener(Open),
}
