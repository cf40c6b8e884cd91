package source

import (
	"context"

	"github.com/stokerdata/stoker/internal/source/hdf5source"
	"github.com/stokerdata/stoker/internal/source/zarrsource"
	"github.com/stokerdata/stoker/internal/source/zipsource"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// Formats of arrays in groups: their URLs choose arrays as those of tables choose
// columns, and ?split=train is a group.

func hdf5() format {
	return format{name: "hdf5", columns: true, parts: true, patterns: true,
		match: func(ctx context.Context, st store.Store, isDir bool) bool {
			if !isDir {
				return hdf5source.IsName(st.Path("")) || hdf5source.IsFile(ctx, st, "")
			}
			return allFiles(ctx, st, hdf5source.IsName)
		},
		open: func(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
			return hdf5source.Open(ctx, rawURL, st, &hdf5source.Options{Columns: opt.columns, Split: opt.Split, Names: opt.shards, Threads: opt.Threads})
		},
	}
}

func zarr() format {
	return format{name: "zarr", columns: true, parts: true,
		match: func(ctx context.Context, st store.Store, isDir bool) bool {
			if isDir {
				return zarrsource.Is(ctx, st)
			}
			return (zipsource.IsName(st.Path("")) || zipsource.IsFile(ctx, st, "")) && zarrsource.IsZip(ctx, st)
		},
		open: func(ctx context.Context, rawURL string, st store.Store, opt *Options) (driver.Source, error) {
			return zarrsource.Open(ctx, rawURL, st, &zarrsource.Options{Columns: opt.columns, Split: opt.Split, Threads: opt.Threads})
		},
	}
}
