package arrowsource

import (
	"context"

	"github.com/stokerdata/stoker/internal/source/format"
)

// Format is Arrow files.
var Format = &format.Format{
	Name:      "arrow",
	Reads:     "Arrow IPC files and streams, and what save_to_disk of Hugging Face datasets writes",
	Checksums: "zstd and LZ4 of each buffer, if its frames have checksums",
	Example:   "saved/train/",
	Guide:     "reference/arrow.md",
	Params:    []format.Param{format.ColumnParam, format.ClipParam},
	Patterns:  true,
	Match: func(ctx context.Context, p *format.Probe) bool {
		return p.Dir && IsSaved(ctx, p.Store) || isFiles(ctx, p)
	},
	Open: format.Opener(Open),
}

var isFiles = format.MatchFiles(IsName, IsFile, format.IsNote)
