package parquetsource

import (
	"path"
	"strings"

	"github.com/stokerdata/stoker/internal/source/format"
)

// Format is Parquet files.
var Format = &format.Format{
	Name:      "parquet",
	Reads:     "Parquet files, and folders of the Hugging Face hub with splits",
	Checksums: "CRC-32 of each page, if the file has them",
	Example:   "food101/?split=train",
	Guide:     "reference/parquet.md",
	Params:    []format.Param{format.SplitParam, format.ColumnParam, format.ClipParam},
	Patterns:  true,
	Match: format.MatchFiles(IsName, IsFile, func(name string) bool {
		return format.IsNote(name) || strings.HasPrefix(path.Base(name), "_")
	}),
	Open: format.Opener(Open),
}
