package spoolsource

import (
	"context"

	"github.com/stokerdata/stoker/internal/source/format"
	"github.com/stokerdata/stoker/source/driver"
)

// Format is a file of records that came from the Python client.
var Format = &format.Format{
	Name:     "spool",
	Internal: true,
	Match:    func(ctx context.Context, p *format.Probe) bool { return !p.Dir && IsFile(ctx, p.Store) },
	Open: func(ctx context.Context, r *format.Request) (driver.Source, error) {
		return Open(ctx, r.URL, r.Store)
	},
}
