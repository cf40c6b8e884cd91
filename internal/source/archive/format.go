package archive

import (
	"github.com/stokerdata/stoker/internal/source/format"
)

// IsNote reports whether a file next to archives describes them: webdataset and other
// programs write lists, counts and tables of the same data.
var IsNote = format.Extensions(".json", ".jsonl", ".parquet", ".txt", ".md", ".idx", ".index", ".yaml", ".yml", ".csv")
