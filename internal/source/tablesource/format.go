package tablesource

import (
	"context"

	"github.com/stokerdata/stoker/internal/source/format"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// The formats are tables of text.
var (
	FormatCSV   = table(CSV, "CSV: columns with paths of images, sound and video, labels, boxes, text", "train.csv?image:image=path&label:label=class", nil)
	FormatTSV   = table(TSV, "TSV: the same, separated by tabs", "train.tsv", nil)
	FormatJSONL = table(JSONL, "JSON lines: one object per line", "train.jsonl", IsJSONL)
)

func table(name, reads, example string, isFile func(ctx context.Context, st store.Store, name string) bool) *format.Format {
	return &format.Format{
		Name:      name,
		Reads:     reads,
		Example:   example,
		Checksums: "gzip and zstd: when it is opened; those of the files in its columns",
		Guide:     "reference/tables.md",
		Cached:    true,
		Params:    []format.Param{format.ColumnParam, format.ClipParam},
		Match:     format.MatchFiles(func(path string) bool { return IsName(name, path) }, isFile, nil),
		Open: format.Opener(func(ctx context.Context, url string, st store.Store, opt *Options) (driver.Source, error) {
			return Open(ctx, url, name, st, opt)
		}),
	}
}
