package parquetsource

import (
	"context"
	"path"
	"strings"

	"github.com/stokerdata/stoker/internal/source/format"
	"github.com/stokerdata/stoker/source/driver"
)

// Format is Parquet files.
var Format = &format.Format{
	Name:     "parquet",
	Reads:    "Parquet files, and folders of the Hugging Face hub with splits",
	Example:  "food101/?split=train",
	Guide:    "parquet.md",
	Params:   []format.Param{format.SplitParam, format.ColumnParam, format.ClipParam},
	Patterns: true,
	Match: format.MatchFiles(IsName, IsFile, func(name string) bool {
		return format.IsNote(name) || strings.HasPrefix(path.Base(name), "_")
	}),
	Open: func(ctx context.Context, r *format.Request) (driver.Source, error) {
		near, err := r.Surroundings()
		if err != nil {
			return nil, err
		}
		return Open(ctx, r.URL, r.Store, &Options{
			Columns: r.Columns, Names: r.Names, Split: r.Text("split"), Threads: r.Threads,
			Files: near.Files, Folder: near.Folder, Outside: near.Outside,
		})
	},
}
