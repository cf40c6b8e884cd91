package archive

import (
	"context"

	"github.com/stokerdata/stoker/internal/source/format"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// IsNote reports whether a file next to archives describes them: webdataset and other
// programs write lists, counts and tables of the same data.
var IsNote = format.Extensions(".json", ".jsonl", ".parquet", ".txt", ".md", ".idx", ".index", ".yaml", ".yml", ".csv")

// Opener returns the Open of a format of archives.
func Opener(open func(ctx context.Context, url string, st store.Store, opt *Options) (driver.Source, error)) func(context.Context, *format.Request) (driver.Source, error) {
	return func(ctx context.Context, r *format.Request) (driver.Source, error) {
		return open(ctx, r.URL, r.Store, &Options{Names: r.Names, Threads: r.Threads})
	}
}
