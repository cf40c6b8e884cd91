package filesource

import (
	"context"

	"github.com/stokerdata/stoker/internal/source/format"
	"github.com/stokerdata/stoker/source/driver"
)

// Format is any files, which the URL has to ask for: files:PATH.
var Format = &format.Format{
	Name:    "files",
	Reads:   "any files, as bytes",
	Example: "files:scans/",
	Guide:   "reference/arrays-and-bytes.md",
	Open: func(ctx context.Context, r *format.Request) (driver.Source, error) {
		return Open(ctx, r.URL, r.Store)
	},
}
