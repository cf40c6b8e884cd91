// Package place works with the locations of data: local paths, and URLs of objects in a bucket or
// on a web server. It is like path/filepath for both. It also opens the store at a location next to
// an open store.
package place

import (
	"path"
	"path/filepath"
	"strings"

	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/internal/store/stores"
	"github.com/stokerdata/stoker/store"
)

// At returns the store at a location, of the same kind as st.
func At(st store.Store, location string) store.Store {
	if n, ok := store.As[store.Neighbour](st); ok {
		return n.At(location)
	}
	return localstore.New(location)
}

// Outside returns the store of all absolute paths that data in st may name. It is nil if
// data may not name any: remote data must not choose files of this machine.
func Outside(st store.Store) store.Store {
	if stores.IsURL(st.Path("")) {
		return nil
	}
	return localstore.New("/")
}

// Split splits a URL after the slashes of its scheme, which path functions must not clean. The
// scheme of a local path is "".
func Split(location string) (scheme, rest string) {
	if !stores.IsURL(location) {
		return "", location
	}
	i := strings.Index(location, "://") + len("://")
	return location[:i], location[i:]
}

// Dir returns the folder that holds a location.
func Dir(location string) string {
	scheme, rest := Split(location)
	if scheme == "" {
		return filepath.Dir(location)
	}
	return scheme + path.Dir(rest)
}

// Join returns the location of a path that is relative to a folder.
func Join(folder, rel string) string {
	scheme, rest := Split(folder)
	if scheme == "" {
		return filepath.Join(folder, rel)
	}
	return scheme + path.Join(rest, rel)
}

// Abs returns a location that does not depend on the working directory.
func Abs(location string) (string, error) {
	scheme, rest := Split(location)
	if scheme == "" {
		return filepath.Abs(location)
	}
	return scheme + path.Clean(rest), nil
}

// IsAbs reports whether a location in some data is absolute.
func IsAbs(location string) bool { return filepath.IsAbs(location) || stores.IsURL(location) }

// Rel returns the path of a location relative to a folder.
func Rel(folder, location string) (string, error) {
	_, a := Split(folder)
	_, b := Split(location)
	return filepath.Rel(a, b)
}
