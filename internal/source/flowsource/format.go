package flowsource

import (
	"context"

	"github.com/stokerdata/stoker/internal/source/format"
	"github.com/stokerdata/stoker/source/driver"
)

// The formats are maps of float32 pixels.
var (
	FormatFlo = maps(Flo, "optical flow: Middlebury's .flo files", "flow/")
	FormatPFM = maps(PFM, "portable float maps: .pfm files", "depth/")
)

func maps(name, reads, example string) *format.Format {
	return &format.Format{
		Name:    name,
		Reads:   reads,
		Example: example,
		Guide:   "reference/arrays-and-bytes.md",
		Match:   format.MatchFiles(func(path string) bool { return IsName(name, path) }, nil, nil),
		Open: func(ctx context.Context, r *format.Request) (driver.Source, error) {
			return Open(ctx, r.URL, name, r.Store)
		},
	}
}
