// Package localstore is a store of local files: those below a folder, or one
// file. Symbolic links are followed, also out of the folder: data sets are made
// of them.
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

// Store is a folder of files, or one file. It holds nothing open.
type Store struct {
	root string
	// disks says of the file systems of files that were open whether they are on a disk.
	disks sync.Map
	// fault, of tests, is asked before each call of the system; what it answers counts.
	fault func() error
}

var (
	_ store.WriteStore = (*Store)(nil)
	_ store.Resumer    = (*Store)(nil)
	_ store.Identifier = (*Store)(nil)
	_ store.Neighbour  = (*Store)(nil)
)

// New returns the store of the folder or the file at path, which need not be
// there yet. It does no I/O.
func New(path string) *Store { return &Store{root: filepath.Clean(path)} }

// String is the path of the store.
func (s *Store) String() string { return s.root }

// At implements store.Neighbour.
func (s *Store) At(path string) store.Store { return New(path) }

// Path is the path of an object.
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
	return entry(name, st.Size, st.Mtim.Nano(), st.Ino), nil
}

func entry(name string, size, mtime int64, inode uint64) store.Entry {
	return store.Entry{Name: name, Size: size, Version: version(size, mtime), ModTime: time.Unix(0, mtime), ID: inode}
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
	// FUSE makes up another number for a file each time.
	var st unix.Statfs_t
	return name, unix.Statfs(name, &st) == nil && st.Type != unix.FUSE_SUPER_MAGIC
}

// version is size and time of change. The number of the inode is not in it:
// FUSE and some network file systems make up another one each time.
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

// failed makes the error of an operation.
func (s *Store) failed(op, name string, err error) error {
	return &store.Error{Op: op, Path: s.Path(name), Err: explained(err)}
}

// explained puts an error of the system into its class, and says what to do
// where that is known.
func explained(err error) error {
	err = store.Cause(err) // the path is named already
	switch {
	case errors.Is(err, unix.ENOTDIR):
		return fmt.Errorf("%w: %w", store.ErrNotExist, err)
	case errors.Is(err, unix.EMFILE):
		return fmt.Errorf("%w: raise the limit (ulimit -n)", err)
	}
	return err
}
