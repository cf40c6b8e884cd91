package npzsource

import (
	"github.com/stokerdata/stoker/internal/source/format"
)

// Format is the format of NumPy's .npz files.
var Format = &format.Format{
	Name:      "npz",
	Reads:     "NumPy's .npz files, stored or deflated: one record per file, or one file whose arrays are columns",
	Checksums: "CRC-32 of each array, at each read; in a file that is a table when it is opened, stored arrays up to 64 MiB and all deflated ones",
	Example:   "samples/",
	Guide:     "reference/arrays-and-bytes.md",
	Params:    []format.Param{format.SplitParam, format.ColumnParam},
	Match:     format.MatchFiles(format.Extensions(".npz"), nil, nil),
	Open:      format.Opener(Open),
}
