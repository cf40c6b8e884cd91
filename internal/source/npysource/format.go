package npysource

import (
	"context"

	"github.com/stokerdata/stoker/internal/source/format"
	"github.com/stokerdata/stoker/internal/source/tokensource"
	"github.com/stokerdata/stoker/source/driver"
)

var isName = format.Extensions(".npy")

// Format is NumPy's .npy files.
var Format = &format.Format{
	Name:     "npy",
	Reads:    "NumPy's .npy files: the files of a folder are fields, rows or windows are records",
	Example:  "tokens.npy?window=1024",
	Guide:    "reference/arrays-and-bytes.md",
	Params:   []format.Param{format.WindowParam},
	Patterns: true,
	Match:    format.MatchFiles(isName, nil, nil),
	Open: func(ctx context.Context, r *format.Request) (driver.Source, error) {
		if r.Documents {
			return tokensource.Format.Open(ctx, r)
		}
		return Open(ctx, r.URL, r.Store, &Options{Window: r.Int("window"), Names: r.Names})
	},
}
