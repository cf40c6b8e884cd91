package localstore

import (
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/stokerdata/stoker/store"
)

// WriteFile writes a file that appears durably and either complete or not at all: it is written in the same folder
// under a different name and renamed at the end. Links are followed. If path is not a regular file, such as
// /dev/stdout or a pipe, it is written to directly. Errors are *fs.PathError, as in package os.
func WriteFile(path string, write func(io.Writer) error) error {
	mode := fs.FileMode(0o666)
	st, err := os.Stat(path)
	switch {
	case err == nil && !st.Mode().IsRegular():
		return writeInto(path, write)
	case err == nil:
		mode = st.Mode().Perm()
		if path, err = filepath.EvalSymlinks(path); err != nil {
			return err
		}
	case errors.Is(err, store.ErrNotExist):
		if _, err := os.Lstat(path); err == nil {
			return writeInto(path, write) // a link to a missing file
		}
	default:
		return err
	}
	f, err := beside(path, mode)
	if err != nil {
		return err
	}
	err = write(f)
	if err == nil && st != nil {
		err = f.Chmod(mode) // what umask took away
	}
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err == nil {
		return syncFolder(filepath.Dir(path))
	}
	_ = os.Remove(f.Name())
	if pe := new(fs.PathError); errors.As(err, &pe) && pe.Path == f.Name() {
		pe.Path = path // the temporary name would be confusing
	}
	return err
}

// beside makes a new file in the folder of path.
func beside(path string, mode fs.FileMode) (*os.File, error) {
	dir, base := filepath.Split(path)
	if len(base) > 200 {
		base = base[:200]
	}
	f, err := os.OpenFile(dir+"."+base+"."+rand.Text()[:10]+store.PartialSuffix, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return nil, &fs.PathError{Op: "create", Path: path, Err: store.Cause(err)}
	}
	return f, nil
}

func writeInto(path string, write func(io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return err
	}
	err = write(f)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}
