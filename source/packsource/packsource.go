// Package packsource makes a pack a source.
package packsource

import (
	"context"

	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// Options change how a pack is read. Nil means the defaults.
type Options = pack.ReadOptions

// Open opens the pack that st holds.
func Open(ctx context.Context, url string, st store.Store, opt *Options) (driver.Source, error) {
	var o Options
	if opt != nil {
		o = *opt
	}
	o.URL = url
	return pack.OpenStore(ctx, st, &o)
}
