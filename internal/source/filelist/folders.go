package filelist

import (
	"context"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/store"
)

// Folders returns the names of the folders that lie directly in the folder dir, sorted.
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

// FindFolder returns the first of some folders that is called like one of wanted, in any
// capitalisation, "" if there is none. The order of wanted decides.
func FindFolder(folders []string, wanted ...string) string {
	for _, w := range wanted {
		if i := slices.IndexFunc(folders, func(f string) bool { return strings.EqualFold(f, w) }); i >= 0 {
			return folders[i]
		}
	}
	return ""
}

// ImageFolders are names of folders of images that lie next to folders with the
// annotations of these, in lower case.
var ImageFolders = []string{"jpegimages", "images", "image", "imgs", "img"}
