package cachedsource

import (
	"context"
	"errors"

	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/store"
)

// files is the folder of the segments, as a store. Segments grow while they are read, but the
// listed bytes never change. So size and version are ignored.
type files struct{ path string }

var errFiles = errors.New("internal error: a store of cache segments only supports Open")

// Open implements store.Store.
func (f files) Open(ctx context.Context, name string) (store.Object, error) {
	o, err := localstore.New(f.path).Open(ctx, name)
	if err != nil {
		return nil, err
	}
	return growing{o}, nil
}

func (f files) List(context.Context, string, *store.ListOptions, func(store.Entry) error) error {
	return errFiles
}

func (f files) Stat(context.Context, string) (store.Entry, error) { return store.Entry{}, errFiles }
func (f files) String() string                                    { return f.path }
func (f files) Path(name string) string                           { return localstore.New(f.path).Path(name) }
func (f files) Close() error                                      { return nil }

// growing is a segment that may grow.
type growing struct{ store.Object }

// Size and Version are the same in every listing.
func (growing) Size() int64     { return 0 }
func (growing) Version() string { return "" }

// Check implements store.Checker. The listed bytes never change, so it never fails.
func (growing) Check(context.Context) error { return nil }

// Unwrap returns the file, so that its abilities are found.
func (g growing) Unwrap() store.Object { return g.Object }
