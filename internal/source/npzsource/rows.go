package npzsource

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/stokerdata/stoker/internal/npy"
	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/source/fixedrecords"
	"github.com/stokerdata/stoker/internal/source/ndarray"
	"github.com/stokerdata/stoker/internal/source/splits"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// A .npz file can be a table: its arrays have the same first axis, and row i of each of them is
// record i. Names such as x_train and x_test belong to splits. The path of such a set is then
// split/field, like a group in HDF5.
//
// Rows of stored arrays are read from the file. Deflated arrays are inflated into memory when the
// source is opened. The checksum is of a whole array. It is compared when the array is opened, unless the array is stored
// and large: rows are read at random, and opening must not read all of the data.

// errNoRows is the error for a file that is not a table.
var errNoRows = errors.New("its arrays do not have the same first axis")

// maxCompared is the size up to which stored arrays are read for their checksum.
const maxCompared = 64 << 20

// maxRatio is the largest compression ratio of deflate.
const maxRatio = 1032

// rows reads the rows of arrays.
type rows struct {
	*ndarray.Source

	mu  sync.Mutex // guards mem while the source is opened
	mem fixedrecords.Memory
}

// Held implements driver.Holder.
func (r *rows) Held() int64 { return r.Source.Held() + r.mem.Total() }

// Close implements driver.Source.
func (r *rows) Close() error {
	err := r.Source.Close()
	r.mem.Free()
	return err
}

// openRows opens the files of a list as tables. If opt asks for nothing and the first file does not
// look like a table, the error is errNoRows.
func openRows(ctx context.Context, url string, list *filelist.List, opt *Options) (driver.Source, error) {
	pool := store.NewPool(list.Store, 64)
	defer pool.Close()
	r := &rows{}
	r.mem.Use(ctx)
	read := ndarray.ReadFrom(pool, list)
	files := make([]*ndarray.File, list.Len())
	split := opt.Split
	columns := slices.Clone(opt.Columns)
	for i := range files {
		f, err := r.file(ctx, list, i, read)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", list.Path(i), err)
		}
		files[i] = f
		have, renamed := findSplits(f)
		if i > 0 {
			continue
		}
		named := false // an array of a split, by its full name
		for k, c := range columns {
			if to, ok := renamed[c.From]; ok {
				columns[k].From, named = to, true
			}
		}
		switch {
		case len(columns) == 0 && len(have) == 0 && !table(f, split != ""):
			return nil, errNoRows
		case len(have) > 0 && !named:
			if split, err = splits.Choose(url, have, split); err != nil {
				return nil, err
			}
		}
	}
	src, err := ndarray.Open(ctx, driver.Info{URL: url, Format: "npz"}, list, files, read, &ndarray.Options{Columns: columns, Split: split, Threads: opt.Threads})
	if err != nil {
		r.mem.Free()
		return nil, err
	}
	r.Source = src
	return r, nil
}

// isSet reports whether name is the exact path of a set.
func isSet(f *ndarray.File, name string) bool {
	return slices.ContainsFunc(f.Sets, func(s *ndarray.Set) bool { return s.Path == name })
}

// file reads the directory of file i and the headers of its arrays.
func (r *rows) file(ctx context.Context, list *filelist.List, i int, read ndarray.Reader) (*ndarray.File, error) {
	at := &readerAt{ctx, read, int64(i), list.Size(i)}
	z, err := zip.NewReader(at, at.size)
	if err != nil {
		return nil, fmt.Errorf("not a .npz file that can be read: %w", err)
	}
	if n := len(z.File); n == 0 || n > maxSets {
		return nil, fmt.Errorf("not a .npz file that can be read: %d arrays, from 1 to %d can be loaded", n, maxSets)
	}
	out := &ndarray.File{Path: list.Path(i)}
	for _, f := range z.File {
		name, ok := strings.CutSuffix(strings.ToValidUTF8(f.Name, "\uFFFD"), ".npy")
		switch {
		case !ok || name == "" || len(name) > 255:
			out.Left = append(out.Left, driver.Skipped{Path: strings.ToValidUTF8(f.Name, "\uFFFD"), Reason: "not a .npy array"})
		case isSet(out, name):
			return nil, fmt.Errorf("two arrays are called %q", name)
		default:
			s, err := r.set(at, f, name)
			if err != nil {
				return nil, fmt.Errorf("array %q: %w", name, err)
			}
			out.Sets = append(out.Sets, s)
		}
	}
	return out, nil
}

// maxSets limits the arrays of a table.
const maxSets = 4096

// set describes an array of a file.
func (r *rows) set(at *readerAt, f *zip.File, name string) (*ndarray.Set, error) {
	s := &ndarray.Set{Path: name}
	m, head, err := head(at, at.size, f, true)
	if err != nil {
		return nil, err
	}
	h, err := npy.Parse(head)
	if err != nil {
		s.Why = "is " + err.Error()
		return s, nil
	}
	s.Dims = h.Shape
	if h.Descr == npy.Objects {
		s.Why = "holds Python objects (a pickle), which are not loaded: save numbers or text as an array of their own type"
	} else {
		s.Type, s.Why = ndarray.NumPy(h.Descr)
	}
	if s.Why == "" && h.Fortran && len(h.Shape) > 1 {
		s.Why = "is in Fortran order, which is not read: save numpy.ascontiguousarray(a)"
	}
	if s.Why != "" {
		return s, nil
	}
	size, err := h.Size(s.Type.Size)
	if err != nil {
		return nil, err
	}
	if uint64(h.Offset)+uint64(size) != f.UncompressedSize64 {
		return nil, fmt.Errorf("a %s array of shape %v has %d bytes, the member has %d", &s.Type, h.Shape, size, int64(f.UncompressedSize64)-h.Offset)
	}
	if size == 0 {
		s.Why = "has no elements"
		return s, nil
	}
	a := &ndarray.Array{Name: fmt.Sprintf("array %q", name), Dims: h.Shape, Elem: s.Type.Size}
	if f.Method == zip.Store {
		a.Whole = ndarray.Place{Object: at.object, Offset: m.data + h.Offset, Size: s.Type.Size}
	}
	compared := f.Method != zip.Store || size > maxCompared
	s.Load = func(ctx context.Context) (*ndarray.Array, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if !compared {
			if err := compare(f); err != nil {
				return nil, err
			}
			compared = true
		}
		if f.Method != zip.Store {
			if a.Held == nil {
				if err := r.inflate(a, f, h.Offset, size); err != nil {
					return nil, err
				}
			}
		}
		return a.Clone(), nil
	}
	return s, nil
}

// compare reads a stored array and compares its checksum.
func compare(f *zip.File) error {
	z, err := f.Open()
	if err != nil {
		return err
	}
	defer z.Close()
	if _, err := io.Copy(io.Discard, z); err != nil {
		return fmt.Errorf("it is damaged: %w", err)
	}
	return nil
}

// inflate fills a.Held with the elements of a deflated array.
func (r *rows) inflate(a *ndarray.Array, f *zip.File, offset, size int64) error {
	if f.CompressedSize64 < uint64(size)/maxRatio {
		return fmt.Errorf("it is damaged: %d bytes cannot inflate to %d", f.CompressedSize64, size)
	}
	held, err := r.mem.Take(size)
	if err != nil {
		return fmt.Errorf("%w: write the file again with numpy.savez", err)
	}
	z, err := f.Open()
	if err != nil {
		return err
	}
	defer z.Close()
	if _, err = io.CopyN(io.Discard, z, offset); err == nil {
		_, err = io.ReadFull(z, held)
	}
	if err == nil {
		_, err = io.ReadFull(z, make([]byte, 1)) // compares the checksum at the end
	}
	if err != io.EOF {
		return fmt.Errorf("it is damaged: %w", err)
	}
	a.Held = held
	return nil
}

// readerAt reads an object for package zip.
type readerAt struct {
	ctx    context.Context
	read   ndarray.Reader
	object int64
	size   int64
}

// ReadAt implements io.ReaderAt.
func (r *readerAt) ReadAt(p []byte, off int64) (int, error) {
	n := max(0, min(int64(len(p)), r.size-off))
	if err := r.read(r.ctx, r.object, p[:n], off); err != nil {
		return 0, err
	}
	if n < int64(len(p)) {
		return int(n), io.EOF
	}
	return int(n), nil
}

// findSplits renames the sets whose names contain a split to split/field. It returns the splits,
// and the new names by the old names. If other arrays have as many rows as those of a split, the
// names mean something else, such as train_mask of a graph.
func findSplits(f *ndarray.File) (have []string, renamed map[string]string) {
	renamed = map[string]string{}
	lengths := map[int64]bool{}
	for _, s := range f.Sets {
		split, field := splits.Cut(s.Path)
		if split == "" || len(s.Dims) == 0 {
			continue
		}
		if split = strings.ToLower(split); field == "" {
			field = "data"
		}
		to := path.Join(split, field)
		for _, other := range renamed {
			if other == to { // x_train and train_x
				to = path.Join(split, s.Path)
			}
		}
		renamed[s.Path] = to
		lengths[s.Dims[0]] = true
		if !slices.Contains(have, split) {
			have = append(have, split)
		}
	}
	for _, s := range f.Sets {
		if renamed[s.Path] == "" && len(s.Dims) > 0 && lengths[s.Dims[0]] {
			return nil, nil
		}
	}
	for _, s := range f.Sets {
		if to := renamed[s.Path]; to != "" {
			s.Path = to
		}
	}
	splits.Sort(have)
	return have, renamed
}

// table reports whether a file is a table: the arrays with the longest first axis are its
// columns, and there are several of them or there is no other array.
func table(f *ndarray.File, asked bool) bool {
	longest, count := int64(0), 0
	for _, s := range f.Sets {
		if len(s.Dims) == 0 || s.Dims[0] < longest {
			continue
		}
		if s.Dims[0] > longest {
			longest, count = s.Dims[0], 0
		}
		count++
	}
	if asked || longest > 0 && (count > 1 || len(f.Sets) == 1) {
		for _, s := range f.Sets {
			if s.Why == "" && len(s.Dims) > 0 && s.Dims[0] != longest && !asked {
				s.Why = fmt.Sprintf("its first axis has %d elements, that of the fields %d", s.Dims[0], longest)
			}
		}
		return true
	}
	return false
}
