package parquetsource

import (
	"context"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/source/parquet"
	"github.com/stokerdata/stoker/store"
)

// extensions are the file name extensions of Parquet files.
var extensions = []string{".parquet", ".pq", ".parq"}

// IsName reports whether a path has the extension of a Parquet file.
func IsName(name string) bool { return slices.Contains(extensions, strings.ToLower(path.Ext(name))) }

// IsFile reports whether an object begins like a Parquet file.
func IsFile(ctx context.Context, st store.Store, name string) bool {
	b := string(filelist.Head(ctx, st, name, len(parquet.Magic)))
	return b == parquet.Magic || b == parquet.MagicEncrypted
}

// listFiles returns the files of the records, in order.
func listFiles(ctx context.Context, st store.Store, opt *Options) (*filelist.List, error) {
	if opt.Names != nil {
		if opt.Split != "" {
			return nil, fmt.Errorf("%s: a split needs a folder, not a pattern", st)
		}
		return filelist.Named(ctx, st, opt.Names)
	}
	l, err := filelist.Scan(ctx, st, func(name string) bool { return name == "" || IsName(name) && !strings.HasPrefix(path.Base(name), "_") }, 0)
	if err != nil {
		return nil, err
	}
	if l.Len() == 0 {
		return nil, fmt.Errorf("no Parquet file in %s: expected *%s", st, strings.Join(extensions, ", *"))
	}
	if l.Len() == 1 && l.Name(0) == "" {
		if opt.Split != "" {
			return nil, fmt.Errorf("a split needs a folder, but %s is a file", st)
		}
		return l, nil
	}
	return split(l, opt.Split)
}

// A folder in the layout of `datasets` has the splits in its file names, such as data/train-00000-of-00005.parquet,
// or in the names of its subfolders. Several data sets have a folder each.

// shard matches the part of a file name that differs within a split.
var shard = regexp.MustCompile(`(?i)[-._]?\d{1,8}([-._]of[-._]\d{1,8})?([-.][0-9a-f]{8,40})?$`)

// splitNames are the names of splits that are recognised without a shard number.
var splitNames = []string{"train", "training", "test", "testing", "validation", "valid", "val", "dev", "eval", "evaluation"}

// splitOf returns the split and the data set of a file from its name, "" for none.
func splitOf(name string) (split, set string) {
	dir, file := path.Split(name)
	dir = strings.TrimSuffix(dir, "/")
	base := shard.ReplaceAllString(strings.TrimSuffix(file, path.Ext(file)), "")
	numbered := strings.Contains(file, "-of-")
	isSplit := func(s string) bool { return slices.Contains(splitNames, strings.ToLower(s)) }
	switch parent := path.Base(dir); {
	case isSplit(parent):
		return parent, clean(path.Dir(dir))
	case base == "":
	case isSplit(base[strings.LastIndex(base, "-")+1:]): // such as cifar-train
		at := strings.LastIndex(base, "-") + 1
		return base[at:], path.Join(dir, base[:at])
	case numbered:
		return base, dir
	}
	return "", dir
}

func clean(dir string) string {
	if dir == "." {
		return ""
	}
	return dir
}

// split keeps the files of one split. If none is wanted, there must be only one.
func split(l *filelist.List, want string) (*filelist.List, error) {
	var splits, sets []string
	var of []int // split by file, -1 for none
	for i := range l.Len() {
		s, set := splitOf(l.Name(i))
		if s == "" {
			of = append(of, -1)
			continue
		}
		k := slices.Index(splits, s)
		if k < 0 {
			k = len(splits)
			splits = append(splits, s)
		}
		if (want == "" || s == want) && !slices.Contains(sets, set) {
			sets = append(sets, set)
		}
		of = append(of, k)
	}
	switch at := slices.Index(splits, want); {
	case want == "" && len(splits) < 2 && len(sets) < 2:
		return l, nil
	case want != "" && len(splits) == 0:
		return nil, fmt.Errorf("%s has no splits: it has no files with names such as train-00000-of-00001.parquet", l.Store)
	case want != "" && at < 0:
		return nil, fmt.Errorf("%s has no split %q: it has %s", l.Store, want, filelist.Quoted(splits))
	case want == "" && len(splits) > 1:
		return nil, fmt.Errorf("%s has the splits %s: choose one, such as ?split=%s", l.Store, filelist.Quoted(splits), splits[0])
	case len(sets) > 1:
		return nil, fmt.Errorf("%s has several data sets, in %s: give the folder of one, such as %s", l.Store, filelist.Quoted(sets), l.Store.Path(strings.TrimSuffix(sets[0], "/")))
	default:
		out := &filelist.List{Store: l.Store}
		for i := range l.Len() {
			if of[i] == at {
				out.Add(l.Entry(i))
			}
		}
		return out, nil
	}
}
