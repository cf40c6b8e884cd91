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

// Files are those that rows lead to whose bytes are not in the table: the path is
// there, the bytes are missing, or the column has nothing but paths.
type Files struct {
	near, far filelist.List
	folder    string
	threads   int
	// of says, by field and record, which one it is: of near, or ^n of far.
	of  []map[int64]int64
	why []map[int64]error
}

// NewFiles are none. Paths of the store near are those below folder, its absolute
// path; far is the store of all absolute paths. Either may be nil.
func NewFiles(fields int, near store.Store, folder string, far store.Store, threads int) *Files {
	f := &Files{folder: folder, threads: threads, of: make([]map[int64]int64, fields), why: make([]map[int64]error, fields)}
	f.near.Store, f.far.Store = near, far
	return f
}

// Wanted says whether the values of a column, which becomes a field, may lie in
// files; only says that all of them do. Its paths are then those of the text of c
// or of c.Paths.
func Wanted(c *Column, f *driver.Field) (wanted, only bool) {
	if c.Elem != nil || !column.IsFile(f.Kind) {
		return false, false
	}
	only = c.Value.Class == Text
	return only || c.Paths != nil, only
}

// Len is how many there are.
func (f *Files) Len() int64 { return int64(f.near.Len() + f.far.Len()) }

// Has says whether the value of a field of a record is a file.
func (f *Files) Has(field int, id int64) bool {
	if f.of[field] == nil {
		return false
	}
	_, ok := f.of[field][id]
	_, no := f.why[field][id]
	return ok || no
}

// Locate returns the number among all files, and the size.
func (f *Files) Locate(field int, id int64) (n, size int64, err error) {
	if err := f.why[field][id]; err != nil {
		return 0, 0, err
	}
	if n = f.of[field][id]; n < 0 {
		return ^n + int64(f.near.Len()), f.far.Size(int(^n)), nil
	}
	return n, f.near.Size(int(n)), nil
}

// Object is file n.
func (f *Files) Object(n int64) driver.Object {
	if near := int64(f.near.Len()); n >= near {
		return f.far.Object(n-near, false)
	}
	return f.near.Object(n, false)
}

// Fingerprints are those of the files.
func (f *Files) Fingerprints() []string {
	if f.Len() == 0 {
		return nil
	}
	return []string{f.near.Fingerprint(), f.far.Fingerprint()}
}

// Begin makes ready for Add of a field.
func (f *Files) Begin(field int) { f.of[field], f.why[field] = map[int64]int64{}, map[int64]error{} }

// None says why a record has no file.
func (f *Files) None(field int, id int64) { f.why[field][id] = column.ErrMissing }

// Check fails when a field that has nothing but paths leads to no file.
func (f *Files) Check(field int) error {
	if len(f.of[field]) == 0 {
		return fmt.Errorf("leads to no file; row 0: %w", f.why[field][0])
	}
	return nil
}

// target is a file that a row leads to.
type target struct {
	id   int64
	name string
	far  bool
	e    store.Entry
	err  error
}

// Add looks at the files of some records of a field.
func (f *Files) Add(ctx context.Context, i int, field *driver.Field, ids []int64, paths []string) error {
	targets := make([]target, len(ids))
	for k, id := range ids {
		t := &targets[k]
		t.id = id
		t.name, t.far, t.err = f.name(paths[k])
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
		case t.far:
			f.of[i][t.id] = ^int64(f.far.Len())
			f.far.Add(t.e)
		default:
			f.of[i][t.id] = int64(f.near.Len())
			f.near.Add(t.e)
		}
		field.MaxBytes = max(field.MaxBytes, t.e.Size)
		field.Stats = nil // which are of the bytes in the table
	}
	return nil
}

var errOutside = errors.New("its bytes are missing, and its path leads out of the folder of the table")

// name is the name in its store of the file at a path.
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
	if f.far.Store == nil {
		return "", false, errOutside
	}
	return strings.TrimPrefix(p, "/"), true, nil
}

// stat looks at a file. Errors that are not the file's own end the search.
func (f *Files) stat(ctx context.Context, t *target) error {
	st := f.near.Store
	if t.far {
		st = f.far.Store
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
