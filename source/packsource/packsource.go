// Package packsource makes a pack a source.
package packsource

import (
	"context"

	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/variants"
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
	r, err := pack.OpenStore(ctx, st, &o)
	if err != nil {
		return nil, err
	}
	n := r.Manifest().Options.Augment
	if n < 2 {
		return r, nil
	}
	s, err := variants.Open(r, n, pack.MergeStats)
	if err != nil {
		_ = r.Close() // the refusal is what counts
		return nil, err
	}
	return s, nil
}
