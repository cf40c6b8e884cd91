package arrowsource

import (
	"context"

	"github.com/stokerdata/stoker/internal/source/format"
	"github.com/stokerdata/stoker/source/driver"
)

// Format is Arrow files.
var Format = &format.Format{
	Name:     "arrow",
	Reads:    "Arrow IPC files and streams, and what save_to_disk of Hugging Face datasets writes",
	Example:  "saved/train/",
	Guide:    "arrow.md",
	Params:   []format.Param{format.ColumnParam, format.ClipParam},
	Patterns: true,
	Match: func(ctx context.Context, p *format.Probe) bool {
		return p.Dir && IsSaved(ctx, p.Store) || isFiles(ctx, p)
	},
	Open: func(ctx context.Context, r *format.Request) (driver.Source, error) {
		near, err := r.Surroundings()
		if err != nil {
			return nil, err
		}
		return Open(ctx, r.URL, r.Store, &Options{
			Columns: r.Columns, Names: r.Names, Threads: r.Threads, Files: near.Files, Folder: near.Folder, Outside: near.Outside,
		})
	},
}

var isFiles = format.MatchFiles(IsName, IsFile, format.IsNote)
