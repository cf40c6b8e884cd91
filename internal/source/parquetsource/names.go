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

// extensions are those of Parquet files.
var extensions = []string{".parquet", ".pq", ".parq"}

// IsName says whether a path looks like a Parquet file.
func IsName(name string) bool { return slices.Contains(extensions, strings.ToLower(path.Ext(name))) }

// IsFile says whether an object begins as a Parquet file does.
func IsFile(ctx context.Context, st store.Store, name string) bool {
	b := string(filelist.Head(ctx, st, name, len(parquet.Magic)))
	return b == parquet.Magic || b == parquet.MagicEncrypted
}

// listFiles says which files the records lie in, in their order.
func listFiles(ctx context.Context, st store.Store, opt *Options) (*filelist.List, error) {
	if opt.Names != nil {
		if opt.Split != "" {
			return nil, fmt.Errorf("%s: a split is of a folder, and not of a pattern", st)
		}
		return filelist.Named(ctx, st, opt.Names)
	}
	l, err := filelist.Scan(ctx, st, func(name string) bool { return name == "" || IsName(name) && !strings.HasPrefix(path.Base(name), "_") }, 0)
	if err != nil {
		return nil, err
	}
	if l.Len() == 0 {
		return nil, fmt.Errorf("no file in %s is called *%s", st, strings.Join(extensions, ", *"))
	}
	if l.Len() == 1 && l.Name(0) == "" {
		if opt.Split != "" {
			return nil, fmt.Errorf("%s is a file: a split is of a folder", st)
		}
		return l, nil
	}
	return split(l, opt.Split)
}

// A folder as `datasets` lays it out has the splits in the names of its files, such as
// data/train-00000-of-00005.parquet, or in those of their folders. Several data sets
// lie in folders of their own.

// shard is what the names of the files of a split differ in.
var shard = regexp.MustCompile(`(?i)[-._]?\d{1,8}([-._]of[-._]\d{1,8})?([-.][0-9a-f]{8,40})?$`)

// splitNames are the words that are taken for splits where they stand alone.
var splitNames = []string{"train", "training", "test", "testing", "validation", "valid", "val", "dev", "eval", "evaluation"}

// splitOf is the split that a file belongs to by its name, "" for none, and the data
// set that it is a part of.
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

// split leaves the files of one split. Where none is asked for there must be one.
func split(l *filelist.List, want string) (*filelist.List, error) {
	var splits, sets []string
	var of []int // by file, its split; -1 for none
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
		return nil, fmt.Errorf("%s has no splits: none of its files is called such as train-00000-of-00001.parquet", l.Store)
	case want != "" && at < 0:
		return nil, fmt.Errorf("%s has no split %q: it has %s", l.Store, want, filelist.Quoted(splits))
	case want == "" && len(splits) > 1:
		return nil, fmt.Errorf("%s has the splits %s: say which one is wanted, such as ?split=%s", l.Store, filelist.Quoted(splits), splits[0])
	case len(sets) > 1:
		return nil, fmt.Errorf("%s has several data sets, in %s: give the folder of one of them, such as %s", l.Store, filelist.Quoted(sets), l.Store.Path(strings.TrimSuffix(sets[0], "/")))
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
