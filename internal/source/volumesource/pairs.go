package volumesource

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/internal/source/pairsource"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// pairs finds the volumes of records with several fields. Each field has a pattern of paths. A
// DICOM series matches by its folder, so the record has the folder's name.
func (s *source) pairs(ctx context.Context, st store.Store, o *Options) error {
	found := make([]map[string]int, len(o.Fields))
	var keys []string
	columns := make([]column, len(o.Fields))
	for i := range o.Fields {
		f, c := &o.Fields[i], &columns[i]
		list, of, skipped, err := pairsource.List(ctx, st, f)
		if err != nil {
			return fmt.Errorf("%s: %w", s.info.URL, err)
		}
		s.skipped = append(s.skipped, skipped...)
		c.list = list
		if err := s.read(ctx, c, o); err != nil {
			return err
		}
		found[i] = map[string]int{}
		for k := range c.volumes {
			file := int(c.volumes[k].blocks[0].file)
			key := of[file]
			if c.names[k] != c.list.Path(file) { // a series
				key = seriesKey(f.Pattern, c.list.Name(file))
			}
			if other, ok := found[i][key]; ok {
				s.skipped = append(s.skipped, driver.Skipped{Path: c.list.Name(file), Reason: "has the name of " + c.names[other]})
				continue
			}
			found[i][key] = k
			if i == 0 {
				keys = append(keys, key)
			}
		}
	}
	for i := range columns {
		c := &columns[i]
		s.columns = append(s.columns, column{list: c.list})
		for key, k := range found[i] {
			for j := range found {
				if _, ok := found[j][key]; !ok {
					s.skipped = append(s.skipped, driver.Skipped{Path: c.list.Name(int(c.volumes[k].blocks[0].file)), Reason: "has no partner in " + o.Fields[j].Pattern})
					break
				}
			}
		}
	}
	for _, key := range keys {
		all := true
		for i := range found {
			_, ok := found[i][key]
			all = all && ok
		}
		if !all {
			continue
		}
		for i := range columns {
			k := found[i][key]
			s.columns[i].volumes = append(s.columns[i].volumes, columns[i].volumes[k])
			s.columns[i].names = append(s.columns[i].names, columns[i].names[k])
		}
	}
	slices.SortStableFunc(s.skipped, func(a, b driver.Skipped) int { return strings.Compare(a.Path, b.Path) })
	if len(s.columns[0].volumes) == 0 {
		var examples []string
		for i := range columns {
			examples = append(examples, fmt.Sprintf("%s for %s", columns[i].list.Name(0), o.Fields[i].Pattern))
		}
		return fmt.Errorf("%s: no volume of one field has a partner of the same name in the others, such as %s", s.info.URL, strings.Join(examples, ", "))
	}
	return nil
}

// seriesKey returns the key of a series: the part of its folder's path that the stars of the
// pattern match, or the folder's name if the pattern does not match.
func seriesKey(pattern, name string) string {
	if key, ok := pairsource.Key(path.Dir(pattern), path.Dir(name)); ok {
		return key
	}
	return path.Base(path.Dir(name))
}
