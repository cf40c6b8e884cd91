package tablesource

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/video"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// maxFileBytes is the size limit of a file that a row names.
const maxFileBytes = 1 << 30

// files are the files that a column names.
type files struct {
	list filelist.List // file i belongs to row i
	// absent has the error of each row without a file.
	absent map[int64]error
	remote bool // some are outside of Options.Files
}

var errOutside = errors.New("the path leads outside the folder of the table")

// name resolves a path in a table to a name in the store.
func (s *source) name(table int, p string, far bool) (name string, outside bool) {
	if !path.IsAbs(p) {
		p = path.Join(s.dir(table), p)
		if p != ".." && !strings.HasPrefix(p, "../") && !far {
			return p, false
		}
		p = path.Join(s.opt.Folder, p)
	}
	p = path.Clean(p)
	if rel, ok := strings.CutPrefix(p, s.opt.Folder+"/"); ok && !far && s.opt.Folder != "" {
		return rel, false
	}
	return strings.TrimPrefix(p, "/"), true
}

// lead returns the kind of the files that a column names, "" if it does not name files. It looks
// for extensions of images, sounds and videos in the first values.
func (s *source) lead(ctx context.Context, field string, c *seen) (driver.Kind, error) {
	for _, p := range c.example {
		kind := filelist.KindOf(field, p)
		if slices.Contains(video.Extensions, strings.ToLower(path.Ext(p))) {
			kind = driver.KindFrames
		} else if kind != driver.KindImage && kind != driver.KindMask && kind != driver.KindAudio {
			continue
		}
		name, far := s.name(int(c.examples>>40), p, false)
		if e, err := s.stat(ctx, name, far); err != nil {
			return "", err
		} else if e.err == nil {
			return kind, nil
		}
	}
	return "", nil
}

// VideoPaths returns the text fields with paths of videos. Package clips uses it.
func (s *source) VideoPaths() []string { return s.videos }

// FolderOf returns the folder of the table that has a record, relative to Options.Files.
func (s *source) FolderOf(id int64) string {
	table, _, _ := s.place(id)
	return s.dir(table)
}

// found is a file that a path leads to.
type found struct {
	store.Entry
	err     error // of this file
	outside bool
}

// stat looks up a file. It returns an error only if the scan must stop; errors of the file itself
// are in found.err.
func (s *source) stat(ctx context.Context, name string, far bool) (found, error) {
	st := s.opt.Files
	if far {
		st = s.opt.Outside
	}
	if st == nil {
		return found{err: errOutside}, nil
	}
	e, err := st.Stat(ctx, name)
	switch {
	case errors.Is(err, store.ErrNotExist) || errors.Is(err, store.ErrName):
		return found{err: fmt.Errorf("%s: %w", st.Path(cutName(name)), store.Cause(err))}, nil
	case err != nil:
		return found{}, err
	case e.Dir:
		return found{err: fmt.Errorf("%s is a folder", st.Path(name))}, nil
	}
	e.Name = name
	return found{Entry: e}, nil
}

// cutName shortens names for messages.
func cutName(name string) string {
	const most = 200
	if len(name) > most {
		return name[:most] + "..."
	}
	return name
}

// chunk is the number of rows looked up together.
const chunk = 1024

// findFiles looks up the files of all rows, or loads the result of an earlier run.
func (s *source) findFiles(ctx context.Context) error {
	if err := s.lookForFiles(ctx); err != nil {
		return err
	}
	again := false
	for _, f := range s.files {
		again = again || f != nil && f.remote && s.opt.Outside != nil
	}
	if again {
		for i, f := range s.files {
			if f != nil {
				s.files[i] = &files{remote: f.remote && s.opt.Outside != nil}
			}
		}
		if err := s.lookForFiles(ctx); err != nil {
			return err
		}
	}
	for i, fs := range s.files {
		if fs == nil {
			continue
		}
		if int64(len(fs.absent)) == s.info.Len {
			return fmt.Errorf("%s: column %q leads to no file; row 0: %w", s.list.Store, s.columns[i].From, fs.absent[0])
		}
		f := &s.info.Fields[i]
		_, f.MaxBytes = fs.list.Bytes()
		if f.Kind == driver.KindImage && fs.absent[0] == nil && fs.list.Len() > 0 {
			if err := fs.list.MapType(ctx, f); err != nil {
				return err
			}
		}
		if f.Kind == driver.KindMask {
			var err error
			if f.DType, err = fs.list.MaskType(ctx, func(i int) bool { return fs.absent[int64(i)] == nil }); err != nil {
				return err
			}
		}
	}
	return nil
}

// lookForFiles reads the paths of all rows and looks up the files.
func (s *source) lookForFiles(ctx context.Context) error {
	for _, f := range s.files {
		if f != nil {
			f.list.Store, f.absent = s.opt.Files, map[int64]error{}
			if f.remote {
				f.list.Store = s.opt.Outside
			}
		}
	}
	cells := make([]cell, s.width)
	for table := range s.list.Len() {
		end := s.info.Len
		if table+1 < len(s.first) {
			end = s.first[table+1]
		}
		if s.first[table] == end {
			continue
		}
		o, err := s.open(ctx, table)
		if err != nil {
			return err
		}
		for id := s.first[table]; id < end && err == nil; id += chunk {
			err = s.lookAtRows(ctx, o, table, id, min(id+chunk, end), cells)
		}
		if cerr := o.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// lookAtRows looks up the files of rows lo to hi of a table.
func (s *source) lookAtRows(ctx context.Context, o bytesOf, table int, lo, hi int64, cells []cell) error {
	out := make([][]found, len(s.files))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(s.opt.Threads)
	for i, f := range s.files {
		if f != nil {
			out[i] = make([]found, hi-lo)
		}
	}
	var row []byte
	for id := lo; id < hi; id++ {
		_, from, to := s.place(id)
		if int64(cap(row)) < to-from {
			row = make([]byte, to-from)
		}
		row = row[:to-from]
		if err := o.ReadAt(ctx, row, from); err != nil {
			_ = g.Wait()
			return err
		}
		clear(cells)
		err := s.reader.cells(row, cells, nil)
		for i, f := range s.files {
			if f == nil {
				continue
			}
			to := &out[i][id-lo]
			c := cells[s.from[i]]
			switch {
			case err != nil:
				to.err = err
				continue
			case c.form == absent || len(c.b) == 0:
				to.err = fmt.Errorf("column %q: %w", s.columns[i].From, column.ErrMissing)
				continue
			}
			name, far := s.name(table, string(c.appendText(nil)), f.remote)
			to.outside = far && !f.remote
			if to.outside {
				to.err = fmt.Errorf("column %q: %w", s.columns[i].From, errOutside)
				continue
			}
			g.Go(func() error {
				e, err := s.stat(gctx, name, f.remote)
				if e.err != nil {
					e.err = fmt.Errorf("column %q: %w", s.columns[i].From, e.err)
				}
				*to = e
				to.Name = name
				return err
			})
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for i, f := range s.files {
		for k := range out[i] {
			e := &out[i][k]
			if e.err != nil {
				f.absent[lo+int64(k)] = e.err
				e.Entry = store.Entry{Name: e.Name}
			}
			f.remote = f.remote || e.outside
			f.list.Add(e.Entry)
		}
	}
	return nil
}
