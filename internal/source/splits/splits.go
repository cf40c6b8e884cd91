// Package splits knows the names of the parts that people divide data sets into.
package splits

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/internal/store/stores"
	"github.com/stokerdata/stoker/internal/units"
)

// common are the names of splits, by the split that each of them means.
var common = map[string]string{
	"train": "train", "training": "train",
	"val": "val", "valid": "val", "validation": "val", "dev": "val",
	"test": "test", "testing": "test",
	"eval": "eval", "evaluation": "eval",
}

// order is the order in which splits are named.
var order = []string{"train", "val", "test", "eval"}

// Of returns the split that a name means, in any capitalisation: train for Training.
// It returns "" for other names.
func Of(name string) string { return common[strings.ToLower(name)] }

// Among returns the splits among the names of the folders of a folder, train first. There
// are none unless all folders are called so, or two of them.
func Among(folders []string) (names []string) {
	for _, f := range folders {
		if Of(f) != "" {
			names = append(names, f)
		}
	}
	if len(names) < 2 && len(names) < len(folders) {
		return nil
	}
	Sort(names)
	return names
}

// Cut takes the name of a split off either end of a name such as x_train or
// test_labels. Without a split in the name, split is "".
func Cut(name string) (split, rest string) {
	isSep := func(r rune) bool { return strings.ContainsRune("_-./ ", r) }
	if Of(name) != "" {
		return name, ""
	}
	if i := strings.LastIndexFunc(name, isSep); i >= 0 && Of(name[i+1:]) != "" {
		return name[i+1:], name[:i]
	}
	if i := strings.IndexFunc(name, isSep); i >= 0 && Of(name[:i]) != "" {
		return name[:i], name[i+1:]
	}
	return "", name
}

// Sort sorts names of splits: train first, and names that are not common last.
func Sort(names []string) {
	at := func(name string) int {
		if i := slices.Index(order, Of(name)); i >= 0 {
			return i
		}
		return len(order)
	}
	slices.SortFunc(names, func(a, b string) int {
		if c := at(a) - at(b); c != 0 {
			return c
		}
		return strings.Compare(a, b)
	})
}

// Choose returns the one of the splits have that want names: in any capitalisation, or
// by another name of the same split. Without a want it is the only split that there is.
func Choose(url string, have []string, want string) (string, error) {
	if slices.Contains(have, want) {
		return want, nil
	}
	for _, same := range []func(name string) bool{
		func(name string) bool { return strings.EqualFold(name, want) },
		func(name string) bool { return Of(want) != "" && Of(name) == Of(want) },
	} {
		if i := slices.IndexFunc(have, same); i >= 0 && !slices.ContainsFunc(have[i+1:], same) {
			return have[i], nil
		}
	}
	switch {
	case want != "":
		return "", fmt.Errorf("cannot open %s: it has no split %q, only %s", url, want, units.List(have, "and"))
	case len(have) > 1:
		return "", fmt.Errorf("cannot open %s: it has the splits %s: choose one, such as %s", url, units.List(have, "and"), units.Shell(stores.Ask(url, "split="+have[0])))
	}
	return have[0], nil
}
