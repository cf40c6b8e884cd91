// Package npysource reads NumPy's .npy files. Record i is row i of the array. If a folder has several files with
// the same number of rows, record i has row i of each. A one-dimensional file can be cut into windows of L
// elements, as tokens for language models often are.
//
// Opening reads only the headers. Rows are read in place.
package npysource

import (
	"context"
	"fmt"
	"math"
	"path"
	"strings"

	"github.com/stokerdata/stoker/internal/dtype"
	"github.com/stokerdata/stoker/internal/npy"
	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// maxFiles is the maximum number of files. Each file is a field.
const maxFiles = 64

// Options configure Open. Nil means the defaults.
type Options struct {
	// Window is the number of elements per record, for one-dimensional arrays. The rest at the end is not used. 0
	// makes each row a record.
	Window int64
	// Names are the files to read, nil for all.
	Names []string
}

type file struct {
	offset int64      // of row 0
	row    int64      // bytes of a row
	single dtype.Type // of a field of single numbers, else 0
}

type source struct {
	list  *filelist.List
	info  driver.Info
	files []file
}

// Open opens the single .npy file that st is, or the files in st.
func Open(ctx context.Context, url string, st store.Store, opt *Options) (driver.Source, error) {
	var o Options
	if opt != nil {
		o = *opt
	}
	var list *filelist.List
	var err error
	if o.Names != nil {
		list, err = filelist.Named(ctx, st, o.Names)
	} else {
		list, err = filelist.Scan(ctx, st, func(p string) bool { return p == "" || isName(p) }, 0)
	}
	if err != nil {
		return nil, err
	}
	switch n := list.Len(); {
	case n == 0:
		return nil, fmt.Errorf("no .npy file in %s", st)
	case n > maxFiles:
		return nil, fmt.Errorf("%s has %d .npy files, each of which would be a field: the limit is %d; to load each file as a record write files:%s", st, n, maxFiles, st)
	}
	s := &source{list: list, info: driver.Info{
		URL: url, Format: "npy", Objects: int64(list.Len()), Fingerprint: list.Fingerprint("npy", fmt.Sprint(o.Window)),
	}}
	for i := range list.Len() {
		if err := s.open(ctx, i, o.Window); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// open reads the header of file i.
func (s *source) open(ctx context.Context, i int, window int64) error {
	name := s.list.Path(i)
	o, err := s.list.Open(ctx, i)
	if err != nil {
		return err
	}
	defer o.Close()
	h, err := npy.Read(store.ReaderAt(ctx, o), o.Size())
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if len(h.Shape) == 0 {
		return fmt.Errorf("%s is a single number without rows", name)
	}
	rows, shape := h.Shape[0], h.Shape[1:]
	if window > 0 {
		if len(h.Shape) != 1 {
			return fmt.Errorf("%s has the shape %v: a window needs an array with one axis", name, h.Shape)
		}
		rows, shape = rows/window, []int64{window}
		if rows == 0 {
			return fmt.Errorf("%s has %d elements, fewer than a window of %d", name, h.Shape[0], window)
		}
	}
	if rows == 0 {
		return fmt.Errorf("%s has no rows: its shape is %v", name, h.Shape)
	}
	if i > 0 && rows != s.info.Len {
		return fmt.Errorf("%s has %d rows and %s has %d: the .npy files of a folder are fields of the same records; to load each file as a record write files:%s",
			name, rows, s.list.Path(0), s.info.Len, s.info.URL)
	}
	f := driver.Field{Name: fieldName(s.list.RelPath(i)), Kind: driver.KindArray, DType: h.DType}
	for _, n := range shape {
		if n > math.MaxInt32 {
			return fmt.Errorf("%s has the shape %v: a row is too large", name, h.Shape)
		}
		f.Shape = append(f.Shape, int(n))
	}
	row, err := driver.ArrayBytes(f.DType, f.Shape)
	if err != nil {
		return fmt.Errorf("%s: its rows: %w", name, err)
	}
	s.info.Len = rows
	s.files = append(s.files, file{offset: h.Offset, row: row, single: column.Single(&f)})
	s.info.Fields = append(s.info.Fields, f)
	return nil
}

// fieldName returns the name of a file without folder and extension. "index" is not usable: batches use it for the
// record numbers.
func fieldName(p string) string {
	name := strings.TrimSuffix(path.Base(p), ".npy")
	if name == "" || name == "index" {
		return "data"
	}
	return name[:min(len(name), 255)]
}

func (s *source) Info() *driver.Info { return &s.info }

func (s *source) Name(id int64) string {
	if id < 0 || id >= s.info.Len || len(s.files) != 1 {
		return fmt.Sprintf("%s, row %d", s.info.URL, id)
	}
	f := &s.files[0]
	return fmt.Sprintf("%s, row %d (byte %d)", s.list.Path(0), id, f.offset+id*f.row)
}

func (s *source) Object(n int64) driver.Object { return s.list.Object(n, true) }

func (s *source) Locate(g *driver.Group) {
	for k, id := range g.IDs {
		if filelist.Has(g, k, &s.info) {
			for i := range s.files {
				if !g.Wants(i) {
					continue
				}
				f, field := &s.files[i], int32(i)
				if f.single != 0 {
					field = -1
				}
				g.Extents = append(g.Extents, driver.Extent{Object: int64(i), Offset: f.offset + id*f.row, Size: f.row, Field: field})
			}
		}
		g.Next()
	}
}

func (s *source) Parse(g *driver.Group) error {
	for k, id := range g.IDs {
		rec := &g.Records[k]
		if rec.Err != nil {
			continue
		}
		at := g.First[k]
		for i := range s.files {
			if !g.Wants(i) {
				continue
			}
			if t := s.files[i].single; t == 0 {
				rec.Values[i].Bytes = g.Bytes[at]
			} else if err := column.Put(&s.info.Fields[i], &rec.Values[i], t, g.Bytes[at]); err != nil {
				rec.Err = fmt.Errorf("%s: field %q: %w", s.Name(id), s.info.Fields[i].Name, err)
				break
			}
			at++
		}
	}
	return nil
}

func (s *source) Close() error { return nil }
