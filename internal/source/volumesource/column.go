package volumesource

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/source/selection"
	"github.com/stokerdata/stoker/source/driver"
)

// column is a field of volumes.
type column struct {
	list *filelist.List
	// first is the number of the column's first object in the source.
	first int64
	// volumes has one volume per record, names their paths.
	volumes []volume
	names   []string
	field   int
}

// read reads the headers of a column's files and joins the slices of each series.
func (s *source) read(ctx context.Context, c *column, o *Options) error {
	all := make([]parsed, c.list.Len())
	var mu sync.Mutex
	err := c.list.Bad.Probe(ctx, len(all), max(o.Threads, 16), func(ctx context.Context, i int) error {
		f, err := c.list.Open(ctx, i)
		if err != nil {
			return err
		}
		defer f.Close()
		p, err := parse(&reader{ctx: ctx, o: f})
		switch name := c.list.Name(i); {
		case err != nil && (strings.EqualFold(path.Base(name), "dicomdir") || errors.Is(err, errNone) && !selection.ByName(name).Known && name != ""):
			mu.Lock() // an unrelated file in the folder
			defer mu.Unlock()
			s.skipped = append(s.skipped, driver.Skipped{Path: name, Reason: err.Error(), Beside: true})
			return nil
		case err != nil:
			p.volume = nil
		}
		all[i] = p
		return err
	})
	if err != nil {
		return err
	}
	slices.SortFunc(s.skipped, func(a, b driver.Skipped) int { return strings.Compare(a.Path, b.Path) })
	return c.gather(all)
}

// key identifies a DICOM series. Files of different folders never share a series.
type key struct{ dir, series string }

// series finds the files of each series. A bad file that may be a slice belongs to the series
// it names, or else to the folder's only series of several files. The series must not be read
// without that slice, since it would be a different volume.
func (c *column) series(all []parsed) map[key][]*slice {
	series := map[key][]*slice{}
	several, only := map[string]int{}, map[string]string{}
	add := func(i int) {
		sl := all[i].slice
		sl.file, sl.err = int32(i), c.list.Bad.Of(i)
		k := key{path.Dir(c.list.Name(i)), sl.series}
		if series[k] = append(series[k], sl); len(series[k]) == 2 {
			several[k.dir]++
			only[k.dir] = k.series
		}
	}
	for i := range all {
		if sl := all[i].slice; sl != nil && (sl.series != "" || c.list.Bad.Of(i) == nil) {
			add(i)
		}
	}
	for i := range all {
		dir := path.Dir(c.list.Name(i))
		if _, mayBe := IsDICOMName(c.list.Name(i)); mayBe && c.list.Bad.Of(i) != nil && several[dir] == 1 && (all[i].slice == nil || all[i].slice.series == "") {
			all[i].slice = &slice{series: only[dir]}
			add(i)
		}
	}
	return series
}

// gather builds the volumes from the parsed files. A series takes the position of its first
// file.
func (c *column) gather(all []parsed) error {
	series := c.series(all)
	add := func(v *volume, name string) {
		c.volumes, c.names = append(c.volumes, *v), append(c.names, name)
	}
	for i := range all {
		switch {
		case all[i].slice == nil && c.list.Bad.Of(i) != nil:
			add(badVolume(i, c.list.Bad.Of(i)), c.list.Path(i))
		case all[i].volume != nil:
			v := *all[i].volume
			for k := range v.blocks {
				v.blocks[k].file = int32(i)
			}
			add(&v, c.list.Path(i))
		case all[i].slice != nil:
			k := key{path.Dir(c.list.Name(i)), all[i].slice.series}
			some := series[k]
			if some == nil {
				continue
			}
			delete(series, k)
			v, err := stack(some, func(file int32) string { return c.list.Path(int(file)) })
			if bad := slices.IndexFunc(some, func(s *slice) bool { return s.err != nil }); bad >= 0 {
				v = badVolume(int(some[bad].file), some[bad].err)
			} else if err != nil {
				v = badVolume(i, err)
			}
			name := c.list.Path(i)
			if len(some) > 1 {
				name = c.list.Store.Path(strings.TrimPrefix(k.dir, "."))
			}
			add(v, name)
		}
	}
	good := slices.IndexFunc(c.volumes, func(v volume) bool { return v.err == nil })
	for i := range c.volumes {
		switch v := &c.volumes[i]; {
		case v.err != nil && good < 0:
			return filelist.Located(c.list.Path(int(v.blocks[0].file)), v.err)
		case v.err != nil: // a bad volume must not change the common shape and type
			v.shape, v.dtype = c.volumes[good].shape, c.volumes[good].dtype
		}
	}
	return nil
}

// badVolume returns a volume that cannot be read because of a file.
func badVolume(file int, err error) *volume {
	return &volume{err: err, blocks: []block{{file: int32(file)}}}
}
