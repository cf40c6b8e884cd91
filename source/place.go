package source

import (
	"path"
	"path/filepath"
	"strings"

	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/internal/store/stores"
	"github.com/stokerdata/stoker/store"
)

// Paths are those of local files, or URLs of what lies in a bucket, which begin with a
// scheme that must stay as it is.

// beside is the store at a path, of the kind that st is.
func beside(st store.Store, path string) store.Store {
	if n, ok := store.As[store.Neighbour](st); ok {
		return n.At(path)
	}
	return localstore.New(path)
}

// outside is the store of all absolute paths that data may name, nil where it may not:
// what lies somewhere else does not choose files of this machine.
func outside(st store.Store) store.Store {
	if stores.IsURL(st.Path("")) {
		return nil
	}
	return localstore.New("/")
}

// origin is the scheme of a URL with the slashes behind it, "" of a local path, and
// what follows.
func origin(p string) (scheme, rest string) {
	if !stores.IsURL(p) {
		return "", p
	}
	i := strings.Index(p, "://") + len("://")
	return p[:i], p[i:]
}

// folderOf is the folder that a path lies in.
func folderOf(p string) string {
	scheme, rest := origin(p)
	if scheme == "" {
		return filepath.Dir(p)
	}
	return scheme + path.Dir(rest)
}

// join leads from a folder to a path that is relative to it.
func join(folder, rel string) string {
	scheme, rest := origin(folder)
	if scheme == "" {
		return filepath.Join(folder, rel)
	}
	return scheme + path.Join(rest, rel)
}

// absolute is a path that holds wherever it is read.
func absolute(p string) (string, error) {
	scheme, rest := origin(p)
	if scheme == "" {
		return filepath.Abs(p)
	}
	return scheme + path.Clean(rest), nil
}

// isAbsolute says whether data may name a file so, whatever folder it lies in.
func isAbsolute(p string) bool { return filepath.IsAbs(p) || stores.IsURL(p) }

// relative is the way from a folder to a path.
func relative(folder, p string) (string, error) {
	_, a := origin(folder)
	_, b := origin(p)
	return filepath.Rel(a, b)
}
