// Package packsource opens a pack as a source.
package packsource

import (
	"context"

	"github.com/stokerdata/stoker/internal/source/wrap/variants"
	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// Options configure Open. Nil means the defaults.
type Options struct {
	pack.ReadOptions
	// Patch is the size z, y, x of the patches into which volumes are cut. Each patch is a record. Zero keeps whole
	// volumes. Stride is the distance of patches, Patch by default.
	Patch, Stride [3]int
}

// Open opens the pack in st.
func Open(ctx context.Context, url string, st store.Store, opt *Options) (driver.Source, error) {
	var o Options
	if opt != nil {
		o = *opt
	}
	o.URL = url
	r, err := pack.OpenStore(ctx, st, &o.ReadOptions)
	if err != nil {
		return nil, err
	}
	var s driver.Source
	switch n := r.Manifest().Options.Augment; {
	case n < 2 && o.Patch == [3]int{}:
		return r, nil
	case n < 2:
		s, err = openPatches(r, o.Patch, o.Stride)
	case o.Patch != [3]int{}:
		err = errBoth
	default:
		s, err = variants.Open(r, n, pack.MergeStats)
	}
	if err != nil {
		_ = r.Close() // the first error counts
		return nil, err
	}
	return s, nil
}
