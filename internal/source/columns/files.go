package columns

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// Files are the files that rows refer to. The table has their paths, but not their bytes.
type Files struct {
	near, remote filelist.List
	folder       string
	threads      int
	// of has the number of the file by field and record: n for file n of near, ^n for file n of
	// far.
	of  []map[int64]int64
	why []map[int64]error
}

// NewFiles returns an empty Files. near is the store of the folder of the table, and folder its
// absolute path. far is the store of all absolute paths. Both stores may be nil.
func NewFiles(fields int, near store.Store, folder string, far store.Store, threads int) *Files {
	f := &Files{folder: folder, threads: threads, of: make([]map[int64]int64, fields), why: make([]map[int64]error, fields)}
	f.near.Store, f.remote.Store = near, far
	return f
}

// Wanted reports whether values of c, as the field f, can be in files. only is set if all of them
// are. The paths are the text of c or of c.Paths.
func Wanted(c *Column, f *driver.Field) (wanted, only bool) {
	if c.Elem != nil || !column.IsFile(f.Kind) {
		return false, false
	}
	only = c.Value.Class == Text
	return only || c.Paths != nil, only
}

// Len returns the number of files.
func (f *Files) Len() int64 { return int64(f.near.Len() + f.remote.Len()) }

// Has reports whether the value of a field of a record is a file.
func (f *Files) Has(field int, id int64) bool {
	if f.of[field] == nil {
		return false
	}
	_, ok := f.of[field][id]
	_, no := f.why[field][id]
	return ok || no
}

// Locate returns the number of a file for Object, and the file's size.
func (f *Files) Locate(field int, id int64) (n, size int64, err error) {
	if err := f.why[field][id]; err != nil {
		return 0, 0, err
	}
	if n = f.of[field][id]; n < 0 {
		return ^n + int64(f.near.Len()), f.remote.Size(int(^n)), nil
	}
	return n, f.near.Size(int(n)), nil
}

// Object returns file n.
func (f *Files) Object(n int64) driver.Object {
	if near := int64(f.near.Len()); n >= near {
		return f.remote.Object(n-near, false)
	}
	return f.near.Object(n, false)
}

// Fingerprints returns the fingerprints of the files.
func (f *Files) Fingerprints() []string {
	if f.Len() == 0 {
		return nil
	}
	return []string{f.near.Fingerprint(), f.remote.Fingerprint()}
}

// Begin prepares a field for Add.
func (f *Files) Begin(field int) { f.of[field], f.why[field] = map[int64]int64{}, map[int64]error{} }

// None marks a record that has no file.
func (f *Files) None(field int, id int64) { f.why[field][id] = column.ErrMissing }

// Check returns an error if none of the paths of a field leads to a file.
func (f *Files) Check(field int) error {
	if len(f.of[field]) == 0 {
		return fmt.Errorf("leads to no file; row 0: %w", f.why[field][0])
	}
	return nil
}

// target is the file of a row.
type target struct {
	id     int64
	name   string
	remote bool
	e      store.Entry
	err    error
}

// Add finds the files of some records of a field.
func (f *Files) Add(ctx context.Context, i int, field *driver.Field, ids []int64, paths []string) error {
	targets := make([]target, len(ids))
	for k, id := range ids {
		t := &targets[k]
		t.id = id
		t.name, t.remote, t.err = f.name(paths[k])
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(f.threads)
	for i := range targets {
		if t := &targets[i]; t.err == nil {
			g.Go(func() error { return f.stat(gctx, t) })
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for _, t := range targets {
		switch {
		case t.err != nil:
			f.why[i][t.id] = t.err
			continue
		case t.remote:
			f.of[i][t.id] = ^int64(f.remote.Len())
			f.remote.Add(t.e)
		default:
			f.of[i][t.id] = int64(f.near.Len())
			f.near.Add(t.e)
		}
		field.MaxBytes = max(field.MaxBytes, t.e.Size)
		field.Stats = nil // only of the bytes in the table
	}
	return nil
}

var errOutside = errors.New("its bytes are missing, and its path leads out of the folder of the table")

// name returns the name of the file at path p in its store.
func (f *Files) name(p string) (name string, far bool, err error) {
	const most = 4096
	if len(p) > most {
		return "", false, fmt.Errorf("a path of %d bytes", len(p))
	}
	if !path.IsAbs(p) {
		p = path.Clean(p)
		if f.near.Store == nil || p == "." {
			return "", false, errOutside
		}
		if p != ".." && !strings.HasPrefix(p, "../") {
			return p, false, nil
		}
		p = path.Join(f.folder, p)
	}
	p = path.Clean(p)
	if rel, ok := strings.CutPrefix(p, f.folder+"/"); ok && f.folder != "" && f.near.Store != nil {
		return rel, false, nil
	}
	if f.remote.Store == nil {
		return "", false, errOutside
	}
	return strings.TrimPrefix(p, "/"), true, nil
}

// stat finds a file. Only errors that do not concern this file alone are returned.
func (f *Files) stat(ctx context.Context, t *target) error {
	st := f.near.Store
	if t.remote {
		st = f.remote.Store
	}
	e, err := st.Stat(ctx, t.name)
	switch {
	case err != nil && store.IsObjectError(err):
		t.err = fmt.Errorf("%s: %w", st.Path(t.name), store.Cause(err))
		return nil
	case err != nil:
		return err
	case e.Dir:
		t.err = fmt.Errorf("%s is a folder", st.Path(t.name))
		return nil
	}
	e.Name = t.name
	t.e = e
	return nil
}
