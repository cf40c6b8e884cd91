package source

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/internal/source/braces"
	"github.com/stokerdata/stoker/internal/source/place"
	"github.com/stokerdata/stoker/internal/store/stores"
	"github.com/stokerdata/stoker/store"
)

// One path can name several files of a dataset, with the syntax of shells and the webdataset
// library: shards/train-{0000..0127}.tar, or shards/*.tar.

// isPattern reports whether a path is a pattern.
func isPattern(p string) bool { return strings.ContainsAny(p, "{*?[") }

// expand finds the files that match the path. Braces keep their written order. Matches of a star
// are sorted by name.
func (loc *location) expand(ctx context.Context) error {
	at := loc.path
	if stores.IsURL(at) {
		at = loc.store.Path("") // the URL without a user, as in the names of objects
	}
	scheme, rest := place.Split(at)
	all, err := braces.Expand(rest)
	if err != nil {
		return err
	}
	base := commonFolder(all)
	if scheme != "" && base == "." {
		return errors.New("the name of a bucket cannot be a pattern")
	}
	st := place.At(loc.store, scheme+base)
	for _, p := range all {
		name := strings.TrimPrefix(strings.TrimPrefix(path.Clean(p), base), "/")
		if base == "." {
			name = path.Clean(p)
		}
		if !strings.ContainsAny(name, "*?[") {
			loc.names = append(loc.names, name)
			continue
		}
		found, err := glob(ctx, st, name)
		if err != nil {
			return err
		}
		loc.names = append(loc.names, found...)
	}
	if len(loc.names) == 0 {
		return errors.New("no file has such a name")
	}
	loc.path, loc.store = scheme+base, st
	return nil
}

// commonFolder returns the deepest folder without a pattern that contains all paths.
func commonFolder(all []string) string {
	base := path.Dir(path.Clean(all[0]))
	for _, p := range all {
		for p = path.Clean(p); !strings.HasPrefix(p, base+"/") && base != "." && base != "/"; {
			base = path.Dir(base)
		}
	}
	for isPattern(base) {
		base = path.Dir(base)
	}
	return base
}

// glob lists the objects of a store that match a pattern. A star matches any part of a name, but
// not a slash.
func glob(ctx context.Context, st store.Store, pattern string) ([]string, error) {
	if _, err := path.Match(pattern, ""); err != nil {
		return nil, fmt.Errorf("%q is not a pattern of names", pattern)
	}
	dir := path.Dir(pattern)
	for isPattern(dir) {
		dir = path.Dir(dir)
	}
	if dir == "." {
		dir = ""
	}
	var names []string
	err := st.List(ctx, dir, &store.ListOptions{Names: true, Keep: func(name string) bool {
		ok, _ := path.Match(pattern, name)
		return ok
	}}, func(e store.Entry) error {
		names = append(names, e.Name)
		return nil
	})
	slices.Sort(names)
	return names, err
}
