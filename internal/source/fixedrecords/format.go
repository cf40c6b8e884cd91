package fixedrecords

import (
	"context"
	"errors"
	"slices"

	"github.com/stokerdata/stoker/internal/source/format"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// Opener returns the Open of a format whose files belong to others in their folder, which
// may have several splits.
func Opener(open func(ctx context.Context, url string, st store.Store, opt *Options) (driver.Source, error)) func(context.Context, *format.Request) (driver.Source, error) {
	return func(ctx context.Context, r *format.Request) (driver.Source, error) {
		opt, err := r.Options()
		if err == nil && opt.File != "" && opt.Split != "" {
			err = errors.New("a split is of a folder, this is a file")
		}
		if err != nil {
			return nil, r.Fail(err)
		}
		return open(ctx, r.URL, opt.Files, opt)
	}
}

// Match returns the Match of a format that accepts files by their name, or by their
// content if isFile is not nil, and folders that hold such a file.
func Match(isName func(name string) bool, isFile func(ctx context.Context, st store.Store) bool) func(context.Context, *format.Probe) bool {
	return func(ctx context.Context, p *format.Probe) bool {
		if p.Dir {
			names, _ := p.Siblings(ctx)
			return slices.ContainsFunc(names, isName)
		}
		_, file := p.Folder()
		return isName(file) || isFile != nil && isFile(ctx, p.Store)
	}
}
