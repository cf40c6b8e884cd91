package filelist

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/stokerdata/stoker/internal/units"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// Bad has the errors of files that cannot be listed, opened or parsed, by the number of the
// file. The records of such a file are bad records: Locate sets their Err. The zero value is
// empty.
type Bad struct{ why map[int]error }

// Len returns the number of bad files.
func (b *Bad) Len() int { return len(b.why) }

// Of returns the error of file i, nil for a good file.
func (b *Bad) Of(i int) error { return b.why[i] }

// LeaveOut is a store.ListOptions.Bad for listings that only detect what a folder has. It
// ignores entries that cannot be listed.
func LeaveOut(store.Entry, error) error { return nil }

// Note marks file i as bad if err concerns only this file (store.IsObjectError). Otherwise it
// returns err.
func (b *Bad) Note(i int, err error) error {
	if !store.IsObjectError(err) {
		return err
	}
	if b.why == nil {
		b.why = map[int]error{}
	}
	b.why[i] = err
	return nil
}

// Located returns err with the path of the file that it concerns.
func Located(path string, err error) error {
	var named *store.Error
	if errors.As(err, &named) {
		return err
	}
	return &store.Error{Op: "read", Path: path, Err: err}
}

// Append adds the bad files of another list, whose files are numbered from first on.
func (b *Bad) Append(first int, more *Bad) {
	for i, err := range more.why {
		_ = b.Note(first+i, err)
	}
}

// Probe calls probe for each of n files that is not bad yet, several at the same time. It marks
// the files for which probe fails as bad.
func (b *Bad) Probe(ctx context.Context, n, threads int, probe func(ctx context.Context, i int) error) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(threads)
	var mu sync.Mutex // guards b
	listed := maps.Clone(b.why)
	for i := range n {
		if listed[i] != nil {
			continue
		}
		g.Go(func() error {
			err := probe(gctx, i)
			if err == nil || gctx.Err() != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			return b.Note(i, err)
		})
	}
	return g.Wait()
}

// Check returns an error if all of n files are bad. place adds the path of file i to its error.
func (b *Bad) Check(n int, place func(i int, err error) error) error {
	switch {
	case n == 0 || len(b.why) < n:
		return nil
	case n == 1:
		return place(0, b.why[0])
	}
	return fmt.Errorf("none of %s can be read; the first: %w", units.Plural(n, "file"), place(0, b.why[0]))
}

// Report sets Info.Bad and Info.BadFiles. path returns the path of a file below the source.
func (b *Bad) Report(info *driver.Info, path func(i int) string) {
	for _, i := range slices.Sorted(maps.Keys(b.why)) {
		if len(info.Bad) < driver.MaxBad {
			info.Bad = append(info.Bad, driver.Skipped{Path: path(i), Reason: store.Cause(b.why[i]).Error()})
		}
		info.BadFiles++
	}
}
