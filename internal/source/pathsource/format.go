package pathsource

import (
	"context"

	"github.com/stokerdata/stoker/internal/source/format"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// Format is a list of paths that the Python client writes for the engine.
var Format = &format.Format{
	Name:     "paths",
	Internal: true,
	Cached:   true,
	Match:    func(ctx context.Context, p *format.Probe) bool { return !p.Dir && IsFile(ctx, p.Store) },
	Open: func(ctx context.Context, r *format.Request) (driver.Source, error) {
		return Open(ctx, r.URL, r.Store, func(folder string) store.Store { return localstore.New(folder) }, r.Threads)
	},
}
