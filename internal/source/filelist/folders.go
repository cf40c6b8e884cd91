package filelist

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/store"
)

// Folders returns the names of the folders directly in the folder dir, sorted.
func Folders(ctx context.Context, st store.Store, dir string) (names []string, err error) {
	none := func(string) bool { return false }
	err = st.List(ctx, dir, &store.ListOptions{Folder: true, Shallow: true, Keep: none, Bad: LeaveOut}, func(e store.Entry) error {
		if e.Dir {
			names = append(names, e.Name[strings.LastIndexByte(e.Name, '/')+1:])
		}
		return nil
	})
	slices.Sort(names)
	return names, err
}

// FindFolder returns the first of wanted that is the name of a folder, ignoring case. It
// returns the name as spelled in folders, "" if there is none.
func FindFolder(folders []string, wanted ...string) string {
	for _, w := range wanted {
		if i := slices.IndexFunc(folders, func(f string) bool { return strings.EqualFold(f, w) }); i >= 0 {
			return folders[i]
		}
	}
	return ""
}

// ImageFolders are the lower-case names of image folders that have folders with annotations
// next to them.
var ImageFolders = []string{"jpegimages", "images", "image", "imgs", "img"}

// Lookup describes a file or a folder. found is false if the store has none, or answers that access is denied, as buckets
// that may not be listed do. Other failures are errors, so that a store that fails does not look empty.
func Lookup(ctx context.Context, st store.Store, name string) (e store.Entry, found bool, err error) {
	e, err = st.Stat(ctx, name)
	if errors.Is(err, store.ErrNotExist) || errors.Is(err, store.ErrPermission) || errors.Is(err, store.ErrName) {
		return e, false, nil
	}
	return e, err == nil, err
}
