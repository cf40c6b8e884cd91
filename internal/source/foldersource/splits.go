package foldersource

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/source/place"
	"github.com/stokerdata/stoker/internal/source/selection"
	"github.com/stokerdata/stoker/internal/source/splits"
	"github.com/stokerdata/stoker/store"
)

// A folder has splits if its top folders have names such as train, val and test. The folders in
// a split are classes. They are numbered as if all splits were one folder, so a class has the
// same number in each split.

// lookFolders is the number of folders that are listed at the same time.
const lookFolders = 32

// scanSplit lists one of the splits parts of st. The top folders of st are tops.
func scanSplit(ctx context.Context, st store.Store, tops, parts []string, opt ScanOptions) (*Listing, error) {
	name, err := splits.Choose(opt.URL, parts, opt.Split)
	if err != nil {
		return nil, err
	}
	opt.one = true
	l, err := Scan(ctx, place.At(st, st.Path(name)), opt)
	if err != nil {
		return nil, err
	}
	for _, dir := range tops {
		if !slices.Contains(parts, dir) && selection.Litter(dir+"/") == "" {
			l.Left.Add("../"+dir+"/", "folders next to the splits")
		}
	}
	if l.Classes == nil {
		return l, nil
	}
	all, err := classesOf(ctx, st, parts, l.Classes, opt.Kind)
	if err != nil {
		return nil, err
	}
	number := make([]int32, len(l.Classes))
	for i, c := range l.Classes {
		k, _ := slices.BinarySearch(all, c)
		number[i] = int32(k)
	}
	for i, k := range l.label {
		l.label[i] = number[k]
	}
	l.Classes = all
	return l, nil
}

// classesOf returns the classes of all splits. The classes of one split are known. Folders of
// other splits are classes if they have a file of the given kind.
func classesOf(ctx context.Context, st store.Store, parts, known []string, kind selection.Kind) ([]string, error) {
	var more []string // names of possible classes that are not known
	at := map[string][]string{}
	for _, part := range parts {
		dirs, err := filelist.Folders(ctx, st, part)
		if err != nil {
			return nil, err
		}
		for _, dir := range dirs {
			if _, is := slices.BinarySearch(known, dir); is || selection.Litter(dir+"/") != "" {
				continue
			}
			if at[dir] == nil {
				more = append(more, dir)
			}
			at[dir] = append(at[dir], part+"/"+dir)
		}
	}
	some := make([]bool, len(more))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(lookFolders)
	found := errors.New("found")
	for i, class := range more {
		g.Go(func() error {
			for _, dir := range at[class] {
				_, err := selection.Scan(gctx, place.At(st, st.Path(dir)), selection.Options{Kind: kind}, func(selection.File) error { return found })
				if some[i] = errors.Is(err, found); some[i] {
					return nil
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	all := slices.Clone(known)
	for i, class := range more {
		if some[i] {
			all = append(all, class)
		}
	}
	slices.Sort(all)
	return all, nil
}
