package energonsource

import (
	"context"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/internal/source/format"
)

// Format is the data sets of Megatron-Energon.
var Format = &format.Format{
	Name:      "energon",
	Reads:     "Megatron-Energon's data sets: webdataset tars with a folder .nv-meta",
	Checksums: "of headers; the content of members has none",
	Example:   "coco/?split=train",
	Guide:     "reference/archives.md#megatron-energon",
	Params:    []format.Param{format.SplitParam},
	Match:     match,
	Open:      format.Opener(Open),
}

// match looks for the folder .nv-meta only if the folder of the data, or its first file, shows tar files, because each
// look takes a round trip.
func match(ctx context.Context, p *format.Probe) bool {
	if !p.Dir {
		return false
	}
	names, _ := p.Siblings(ctx)
	isTar := func(name string) bool { return strings.Contains(name, ".tar") || strings.HasPrefix(name, folder) }
	return (slices.ContainsFunc(names, isTar) || isTar(p.First(ctx))) && Is(ctx, p.Store)
}
