package volumesource

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/source/selection"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// column is a field of volumes.
type column struct {
	list *filelist.List
	// first is the number of its first object among those of the source.
	first int64
	// volumes are those of the records, names their paths.
	volumes []volume
	names   []string
	field   int
}

// read reads the headers of the files of a column, and puts the slices of series
// together.
func (s *source) read(ctx context.Context, c *column, o *Options) error {
	all := make([]parsed, c.list.Len())
	var mu sync.Mutex
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(max(o.Threads, 16))
	for i := range all {
		if err := c.list.Bad.Of(i); err != nil {
			mu.Lock()
			s.skipped = append(s.skipped, driver.Skipped{Path: c.list.Name(i), Reason: store.Cause(err).Error()})
			mu.Unlock()
			continue
		}
		g.Go(func() error {
			f, err := c.list.Open(gctx, i)
			if err != nil {
				return err
			}
			defer f.Close()
			p, err := parse(&reader{ctx: gctx, o: f})
			switch name := c.list.Name(i); {
			case err == nil:
				all[i] = p
			case strings.EqualFold(path.Base(name), "dicomdir"), errors.Is(err, errNone) && !selection.ByName(name).Known && name != "":
				mu.Lock() // a file beside them
				defer mu.Unlock()
				s.skipped = append(s.skipped, driver.Skipped{Path: name, Reason: err.Error(), Beside: true})
			default:
				return filelist.ErrPlace(c.list, int64(i), "", err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	slices.SortFunc(s.skipped, func(a, b driver.Skipped) int { return strings.Compare(a.Path, b.Path) })
	return c.gather(all)
}

// gather makes volumes of what was found in files. A series has the place of its first
// file.
func (c *column) gather(all []parsed) error {
	type key struct{ dir, series string }
	series := map[key][]*slice{}
	of := func(i int) key { return key{path.Dir(c.list.Name(i)), all[i].slice.series} }
	for i := range all {
		if sl := all[i].slice; sl != nil {
			sl.file = int32(i)
			series[of(i)] = append(series[of(i)], sl)
		}
	}
	for i := range all {
		switch {
		case all[i].volume != nil:
			v := *all[i].volume
			for k := range v.blocks {
				v.blocks[k].file = int32(i)
			}
			c.volumes, c.names = append(c.volumes, v), append(c.names, c.list.Path(i))
		case all[i].slice != nil:
			k := of(i)
			some := series[k]
			if some == nil {
				continue
			}
			delete(series, k)
			v, err := stack(some, func(file int32) string { return c.list.Path(int(file)) })
			if err != nil {
				return err
			}
			name := c.list.Path(i)
			if len(some) > 1 {
				name = c.list.Store.Path(strings.TrimPrefix(k.dir, "."))
			}
			c.volumes, c.names = append(c.volumes, *v), append(c.names, name)
		}
	}
	return nil
}
