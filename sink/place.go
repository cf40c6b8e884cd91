package sink

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/leftover"
	"github.com/stokerdata/stoker/internal/store/stores"
	"github.com/stokerdata/stoker/internal/upload"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// place is the folder that a run writes into.
type place struct {
	target *Target
	dir    string
	lock   *os.File
	done   bool
	// listed ends the listing of dir as unfinished output.
	listed func()
	to     store.WriteStore // nil for a local target
}

// newPlace makes the folder next to the target that the run writes into.
func newPlace(ctx context.Context, t *Target, src driver.Source) (*place, error) {
	if t.remote {
		return remotePlace(ctx, t, src)
	}
	if err := apart(t.Path, src); err != nil {
		return nil, err
	}
	if fi, err := os.Lstat(t.Path); err == nil {
		// An empty folder may have been made by the user for this purpose: it is replaced.
		if !fi.IsDir() || t.File || os.Remove(t.Path) != nil {
			return nil, fmt.Errorf("%s already exists: choose another name or delete it first", t.Path)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(t.Path), 0o777); err != nil {
		err = fmt.Errorf("cannot make the folder %s: %w", filepath.Dir(t.Path), store.Cause(err))
		return nil, err
	}
	p := &place{target: t, dir: t.Path + store.PartialSuffix}
	if err := os.Mkdir(p.dir, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	var err error
	if p.lock, err = os.Open(p.dir); err != nil {
		return nil, err
	}
	if err := unix.Flock(int(p.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = p.lock.Close()
		return nil, fmt.Errorf("%s is being written by another process", t.Path)
	}
	// Leftovers of a run that was killed cannot be used.
	if err := empty(p.dir); err != nil {
		_ = p.lock.Close()
		return nil, err
	}
	p.listed = leftover.Add(p.dir, "")
	return p, nil
}

// empty removes the leftovers of a killed run from a folder.
func empty(dir string) error {
	list, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range list {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// finish makes everything durable and renames the folder to its target.
func (p *place) finish(ctx context.Context) (files, bytes int64, err error) {
	if p.to != nil {
		if files, bytes, err = upload.Tree(ctx, p.dir, p.to); err == nil {
			p.done = true
			_ = os.RemoveAll(p.dir)
			_ = p.to.Close()
		}
		return files, bytes, err
	}
	var few []string // A few files are synced one by one. For many files the whole file system is synced once.
	err = filepath.WalkDir(p.dir, func(path string, d fs.DirEntry, err error) error {
		if len(few) <= manyFiles {
			few = append(few, path)
		}
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			files++
			bytes += info.Size()
		}
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	if len(few) > manyFiles {
		err = unix.Syncfs(int(p.lock.Fd()))
	} else {
		for _, path := range few {
			if err == nil {
				err = syncFile(path)
			}
		}
	}
	if err != nil {
		return 0, 0, fmt.Errorf("sync %s: %w", p.dir, err)
	}
	from := p.dir
	if p.target.File {
		from = filepath.Join(p.dir, filepath.Base(p.target.Path))
	}
	// A file or folder that another process made in the meantime is not overwritten.
	err = unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, p.target.Path, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) { // The file system does not support RENAME_NOREPLACE.
		if _, serr := os.Lstat(p.target.Path); serr == nil {
			err = unix.EEXIST
		} else {
			err = os.Rename(from, p.target.Path)
		}
	}
	if errors.Is(err, unix.EEXIST) {
		return 0, 0, fmt.Errorf("%s was created by another process in the meantime: it is not overwritten; choose another name", p.target.Path)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("rename to %s: %w", p.target.Path, err)
	}
	if p.target.File {
		_ = os.RemoveAll(p.dir)
	}
	p.done = true
	_ = p.lock.Close()
	_ = syncFile(filepath.Dir(p.target.Path))
	return files, bytes, nil
}

// manyFiles is the number of files above which the whole file system is synced.
const manyFiles = 16

// syncFile makes a file or folder durable.
func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	err = f.Sync()
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// abort removes everything, unless finish has succeeded.
func (p *place) abort() {
	defer p.listed()
	if p.done {
		return
	}
	_ = os.RemoveAll(p.dir)
	if p.to != nil {
		_ = p.to.Close()
	} else {
		_ = p.lock.Close()
	}
}

// remotePlace makes a folder for temporary files, which are uploaded to a store at the end.
func remotePlace(ctx context.Context, t *Target, src driver.Source) (*place, error) {
	if info := src.Info(); info.Objects > 0 {
		if root := src.Object(0).Store.Path(""); t.Path == root || strings.HasPrefix(t.Path, root+"/") {
			return nil, fmt.Errorf("%s is inside %s, its own source: choose a folder outside", t.Path, root)
		}
	}
	whole, err := stores.OpenWrite(ctx, t.Path+t.options)
	if err != nil {
		return nil, err
	}
	p := &place{target: t, to: whole}
	if err = upload.Empty(ctx, whole, t.Path); err != nil {
		_ = whole.Close()
		return nil, err
	}
	if t.File {
		_ = whole.Close()
		if p.to, err = stores.OpenWrite(ctx, t.Path[:strings.LastIndexByte(t.Path, '/')+1]+t.options); err != nil {
			return nil, err
		}
	}
	if p.dir, err = os.MkdirTemp("", "stoker-convert-*"); err != nil {
		_ = p.to.Close()
		return nil, err
	}
	p.listed = leftover.Add(p.dir, "")
	return p, nil
}

// apart fails if the target is in a folder whose files all belong to the source.
func apart(path string, src driver.Source) error {
	info := src.Info()
	if info.Objects == 0 || !slices.Contains([]string{"pack", "folder", "files", "pairs"}, info.Format) {
		return nil
	}
	root, err := filepath.Abs(src.Object(0).Store.Path(""))
	if err != nil {
		return err
	}
	at, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	if rel, err := filepath.Rel(root, at); err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
		return fmt.Errorf("%s is inside %s, its own source: choose a folder outside", path, root)
	}
	return nil
}
