package npzsource

import (
	"github.com/stokerdata/stoker/internal/source/format"
)

// Format is the format of NumPy's .npz files.
var Format = &format.Format{
	Name:    "npz",
	Reads:   "NumPy's .npz files, stored or deflated: one record per file, or one file whose arrays are columns",
	Example: "samples/",
	Guide:   "arrays-and-bytes.md",
	Params:  []format.Param{format.SplitParam, format.ColumnParam},
	Match:   format.MatchFiles(format.Extensions(".npz"), nil, nil),
	Open:    format.Opener(Open),
}
