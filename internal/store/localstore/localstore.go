// Package localstore is a store of local files: a folder or one file. Symbolic links are followed, also out of the
// folder, since data sets are often made of them.
package localstore

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/store"
)

// Store is a folder of files, or one file. It holds no open files.
type Store struct {
	root string
	// systems are the file systems of the files, by device.
	systems sync.Map
	// fault, for tests, is called before each system call and may return an error for it.
	fault func() error
}

var (
	_ store.WriteStore = (*Store)(nil)
	_ store.Resumer    = (*Store)(nil)
	_ store.Identifier = (*Store)(nil)
	_ store.Neighbour  = (*Store)(nil)
)

// New returns the store of the folder or the file at path, which does not have to exist yet. It does no I/O.
func New(path string) *Store { return &Store{root: filepath.Clean(path)} }

// String returns the path of the store.
func (s *Store) String() string { return s.root }

// At implements store.Neighbour.
func (s *Store) At(path string) store.Store { return New(path) }

// Path returns the path of an object.
func (s *Store) Path(name string) string {
	switch {
	case name == "":
		return s.root
	case strings.HasSuffix(s.root, "/"):
		return s.root + name
	}
	return s.root + "/" + name
}

// Close does nothing.
func (s *Store) Close() error { return nil }

// Stat describes a file or a folder.
func (s *Store) Stat(ctx context.Context, name string) (store.Entry, error) {
	var st unix.Stat_t
	err := s.check(ctx, name)
	if err == nil {
		err = s.again(func() error { return unix.Stat(s.Path(name), &st) })
	}
	if err != nil {
		return store.Entry{}, s.failed("look at", name, err)
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return store.Entry{Name: name, Dir: true}, nil
	}
	return entry(name, st.Size, st.Mtim.Nano(), id(&st)), nil
}

func entry(name string, size, mtime int64, id uint64) store.Entry {
	return store.Entry{Name: name, Size: size, Version: version(size, mtime), ModTime: time.Unix(0, mtime), ID: id}
}

// id identifies a file and its state: it is made of the inode number and the time of the last change. A program can
// set a modification time back, but not that time.
func id(st *unix.Stat_t) uint64 {
	return st.Ino ^ uint64(st.Ctim.Nano())*0x9E3779B97F4A7C15
}

// Identity implements store.Identifier.
func (s *Store) Identity() (name string, fixed bool) {
	name, err := filepath.Abs(s.root)
	if err != nil {
		return s.root, false
	}
	if real, err := filepath.EvalSymlinks(name); err == nil {
		name = real
	}
	// FUSE gives a file a different inode number each time.
	var st unix.Statfs_t
	return name, unix.Statfs(name, &st) == nil && st.Type != unix.FUSE_SUPER_MAGIC
}

// version is made of size and modification time. It does not contain the inode number, which differs each time with
// FUSE and some network file systems.
func version(size, mtime int64) string {
	var b [40]byte
	v := strconv.AppendInt(b[:0], size, 36)
	v = append(v, '-')
	return string(strconv.AppendInt(v, mtime, 36))
}

func (s *Store) check(ctx context.Context, name string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return store.CheckName(name)
}

// opFolder is the operation of errors about the folder of a new file.
const opFolder = "make the folder"

func (s *Store) failed(op, name string, err error) error {
	if e := (*store.Error)(nil); errors.As(err, &e) && e.Op == opFolder {
		return e
	}
	return &store.Error{Op: op, Path: s.Path(name), Err: explained(err)}
}

// explained adds the class of a system error, and a hint for some of them.
func explained(err error) error {
	err = store.Cause(err) // the path is already in the error
	switch {
	case errors.Is(err, unix.ENOTDIR):
		return fmt.Errorf("%w: %w", store.ErrNotExist, err)
	case errors.Is(err, unix.EMFILE):
		return fmt.Errorf("%w: raise the limit (ulimit -n)", err)
	}
	return err
}
