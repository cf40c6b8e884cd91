package npzsource

import (
	"context"

	"github.com/stokerdata/stoker/internal/source/format"
	"github.com/stokerdata/stoker/source/driver"
)

// Format is NumPy's .npz files.
var Format = &format.Format{
	Name:    "npz",
	Reads:   "NumPy's .npz files, stored or deflated: one record per file, or one file whose arrays are columns",
	Example: "samples/",
	Guide:   "arrays-and-bytes.md",
	Params:  []format.Param{format.SplitParam, format.ColumnParam},
	Match:   format.MatchFiles(format.Extensions(".npz"), nil, nil),
	Open: func(ctx context.Context, r *format.Request) (driver.Source, error) {
		return Open(ctx, r.URL, r.Store, &Options{Columns: r.Columns, Split: r.Text("split"), Threads: r.Threads})
	},
}
