package betonsource

import (
	"context"

	"github.com/stokerdata/stoker/internal/source/format"
	"github.com/stokerdata/stoker/source/driver"
)

// Format is FFCV's .beton files.
var Format = &format.Format{
	Name:    name,
	Reads:   "FFCV's .beton files: images, numbers, bytes, JSON and arrays",
	Example: "train.beton",
	Guide:   "reference/records.md",
	Match:   format.MatchFiles(format.Extensions(".beton"), nil, nil),
	Open: func(ctx context.Context, r *format.Request) (driver.Source, error) {
		return Open(ctx, r.URL, r.Store)
	},
}
