package arrowsource

import (
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/internal/arrowipc"
	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/source/jsonread"
	"github.com/stokerdata/stoker/store"
)

// extensions are the file name extensions of Arrow files.
var extensions = []string{".arrow", ".feather", ".ipc"}

// IsName reports whether a path has the extension of an Arrow file.
func IsName(name string) bool { return slices.Contains(extensions, strings.ToLower(path.Ext(name))) }

// IsFile reports whether an object begins like an Arrow file.
func IsFile(ctx context.Context, st store.Store, name string) bool {
	return string(filelist.Head(ctx, st, name, len(arrowipc.Magic))) == arrowipc.Magic
}

// Files that save_to_disk of `datasets` writes next to the data: the names of the data files, and the names of the
// splits.
const (
	stateName  = "state.json"
	splitsName = "dataset_dict.json"
)

// IsSaved reports whether save_to_disk wrote a folder.
func IsSaved(ctx context.Context, st store.Store) bool {
	for _, name := range []string{splitsName, stateName} {
		b, err := store.ReadFile(ctx, st, name, maxJSON)
		if err == nil && (strings.Contains(string(b), `"splits"`) || strings.Contains(string(b), `"_data_files"`)) {
			return true
		}
	}
	return false
}

// maxJSON is the size limit of a metadata file.
const maxJSON = 16 << 20

// listFiles returns the files of the records, in order.
func listFiles(ctx context.Context, st store.Store, names []string) (*filelist.List, error) {
	if names != nil {
		return filelist.Named(ctx, st, names)
	}
	e, err := st.Stat(ctx, "")
	if err != nil {
		return nil, err
	}
	if e.Dir {
		if names, err = savedFiles(ctx, st); err != nil {
			return nil, err
		}
		if names != nil {
			return filelist.Named(ctx, st, names)
		}
	}
	l, err := filelist.Scan(ctx, st, func(name string) bool { return name == "" || IsName(name) }, 0)
	if err != nil {
		return nil, err
	}
	if l.Len() == 0 {
		return nil, fmt.Errorf("no Arrow file in %s: expected *%s", st, strings.Join(extensions, ", *"))
	}
	return l, oneSplit(ctx, st, l)
}

// savedFiles returns the data files that save_to_disk of `datasets` listed. It returns nil if save_to_disk did not
// write the folder. The folder may also contain cached results of computations, which are not data.
func savedFiles(ctx context.Context, st store.Store) ([]string, error) {
	var dict struct {
		Splits []string `json:"splits"`
	}
	err := jsonread.File(ctx, st, splitsName, maxJSON, &dict, "a file of datasets")
	if err == nil {
		if len(dict.Splits) == 0 {
			return nil, fmt.Errorf("%s does not name a split", st.Path(splitsName))
		}
		return nil, fmt.Errorf("%s has the splits %s: choose one, such as %s", st, filelist.Quoted(dict.Splits), st.Path(dict.Splits[0]))
	}
	if !errors.Is(err, store.ErrNotExist) {
		return nil, err
	}
	var state struct {
		Files []struct {
			Name string `json:"filename"`
		} `json:"_data_files"`
	}
	err = jsonread.File(ctx, st, stateName, maxJSON, &state, "a file of datasets")
	if errors.Is(err, store.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, f := range state.Files {
		if f.Name == "" || f.Name != path.Base(f.Name) || f.Name == ".." || f.Name == "." {
			return nil, fmt.Errorf("%s: invalid file name %.100q: expected a file in the same folder", st.Path(stateName), f.Name)
		}
		names = append(names, f.Name)
	}
	if names == nil {
		return nil, fmt.Errorf("%s does not name data files", st.Path(stateName))
	}
	return names, nil
}

// shardNumber matches the part of a file name that differs within a split.
var shardNumber = regexp.MustCompile(`-\d{5}-of-\d{5}$`)

// oneSplit returns an error for a cache folder of `datasets` with several splits.
func oneSplit(ctx context.Context, st store.Store, l *filelist.List) error {
	if _, err := st.Stat(ctx, "dataset_info.json"); err != nil {
		if errors.Is(err, store.ErrNotExist) || errors.Is(err, store.ErrName) {
			return nil
		}
		return err
	}
	var bases []string
	for i := range l.Len() {
		name := l.Name(i)
		base := shardNumber.ReplaceAllString(strings.TrimSuffix(name, path.Ext(name)), "")
		if !slices.Contains(bases, base) {
			bases = append(bases, base)
		}
	}
	if len(bases) > 1 {
		return fmt.Errorf("%s has several data sets, %s: choose one, such as %s", st, filelist.Quoted(bases), st.Path(bases[0]+"*"+path.Ext(l.Name(0))))
	}
	return nil
}
