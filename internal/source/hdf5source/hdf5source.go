// Package hdf5source reads HDF5 files, without libhdf5. Data sets with the same first axis are the fields of
// records, in any groups. Several files with the same data sets are read as one.
//
// Opening reads the structure of the files and the positions of all chunks and of all values of variable length. It
// decodes compressed data sets of up to 16 MiB. Of larger ones the most recently read chunks are cached.
package hdf5source

import (
	"context"
	"fmt"
	"path"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/stokerdata/stoker/internal/source/codec"
	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/source/format"
	"github.com/stokerdata/stoker/internal/source/hdf5"
	"github.com/stokerdata/stoker/internal/source/ndarray"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// Options configure Open.
type Options = format.Options

// extensions are the file name extensions of HDF5 files.
var extensions = []string{".h5", ".hdf5", ".hdf", ".he5"}

// IsName reports whether a path has the extension of an HDF5 file.
func IsName(name string) bool { return slices.Contains(extensions, strings.ToLower(path.Ext(name))) }

// IsFile reports whether an object begins like an HDF5 file.
func IsFile(ctx context.Context, st store.Store, name string) bool {
	o, err := st.Open(ctx, name)
	if err != nil {
		return false
	}
	defer o.Close()
	return hdf5.IsFile(ctx, o)
}

// Open opens the single HDF5 file that st is, or the files in st.
func Open(ctx context.Context, url string, st store.Store, opt *Options) (driver.Source, error) {
	var o Options
	if opt != nil {
		o = *opt
	}
	if o.Threads <= 0 {
		o.Threads = 2 * runtime.GOMAXPROCS(0)
	}
	var list *filelist.List
	var err error
	if o.Names != nil {
		list, err = filelist.Named(ctx, st, o.Names)
	} else {
		list, err = filelist.Scan(ctx, st, func(name string) bool { return name == "" || IsName(name) }, 0)
	}
	if err != nil {
		return nil, err
	}
	if list.Len() == 0 {
		return nil, fmt.Errorf("no HDF5 file in %s: expected *%s", st, strings.Join(extensions, ", *"))
	}
	pool := store.NewPool(list.Store, 64)
	defer pool.Close()
	r := &reader{list: list, read: ndarray.ReadFrom(pool, list)}
	files := make([]*ndarray.File, list.Len())
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(o.Threads)
	for i := range files {
		g.Go(func() error {
			if err := gctx.Err(); err != nil {
				return context.Cause(gctx)
			}
			var err error
			files[i], err = r.file(ctx, i)
			return r.named(i, err)
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return ndarray.Open(ctx, driver.Info{URL: url, Format: "hdf5"}, list, files, r.read, &ndarray.Options{Columns: o.Columns, Split: o.Split, Threads: o.Threads})
}

// reader reads files while the source is opened.
type reader struct {
	list *filelist.List
	read ndarray.Reader
}

func (r *reader) named(i int, err error) error {
	if err == nil {
		return nil
	}
	return filelist.ErrPlace(r.list, int64(i), "", err)
}

// object is a file for package hdf5.
type object struct {
	r *reader
	i int
}

func (o object) Size() int64 { return o.r.list.Size(o.i) }

func (o object) ReadAt(ctx context.Context, p []byte, off int64) error {
	return o.r.read(ctx, int64(o.i), p, off)
}

// file reads the structure of file i.
func (r *reader) file(ctx context.Context, i int) (*ndarray.File, error) {
	f, err := hdf5.Open(ctx, object{r, i})
	if err != nil {
		return nil, err
	}
	sets, left, err := f.Walk()
	if err != nil {
		return nil, err
	}
	out := &ndarray.File{Path: r.list.Path(i)}
	for _, l := range left {
		out.Left = append(out.Left, driver.Skipped{Path: clean(l.Path), Reason: l.Why})
	}
	for _, d := range sets {
		out.Sets = append(out.Sets, r.sets(int64(i), d)...)
	}
	return out, nil
}

// clean makes a path printable.
func clean(path string) string { return strings.ToValidUTF8(path, "\uFFFD") }

// sets returns the sets of a data set: one, or one per member of a compound type.
func (r *reader) sets(file int64, d *hdf5.Dataset) []*ndarray.Set {
	var array *ndarray.Array // shared by all members
	load := func(context.Context) (*ndarray.Array, error) {
		if array != nil {
			return array.Clone(), nil
		}
		a, err := r.array(file, d)
		if err != nil {
			return nil, err
		}
		array = a
		return array.Clone(), nil
	}
	var out []*ndarray.Set
	var add func(name string, t *hdf5.Type, at int64)
	add = func(name string, t *hdf5.Type, at int64) {
		if d.Why == "" && t.Class == hdf5.Compound {
			for _, m := range t.Members {
				add(name+"."+clean(m.Name), m.Type, at+m.Offset)
			}
			return
		}
		s := &ndarray.Set{Path: name, Dims: d.Dims, Why: d.Why, Load: load}
		if s.Why == "" {
			if s.Type, s.Why = typeOf(t); s.Why == "" {
				s.Type.At = at
			}
		}
		if s.Why == "" {
			if _, err := codecs(d); err != nil {
				s.Why = err.Error()
			}
		}
		if t != nil && (t.Class == hdf5.VarText || t.Class == hdf5.VarList) {
			heaps := d.Heaps()
			unit := int64(1)
			if t.Class == hdf5.VarList {
				unit = t.Base.Size
			}
			s.Ref = func(elem []byte) (int64, int64, int64, error) {
				offset, size, err := heaps.Find(elem, unit)
				return file, offset, size, err
			}
		}
		out = append(out, s)
	}
	add(clean(d.Path), d.Type, 0)
	return out
}

// numbers are the element types, by size.
var numbers = map[int64][3]driver.DType{
	1: {driver.Uint8, driver.Int8, ""}, 2: {driver.Uint16, driver.Int16, driver.Float16},
	4: {driver.Uint32, driver.Int32, driver.Float32}, 8: {driver.Uint64, driver.Int64, driver.Float64},
}

// typeOf converts a type, or returns why it is not supported.
func typeOf(t *hdf5.Type) (ndarray.Type, string) {
	out := ndarray.Type{Size: t.Size, Dims: t.Dims}
	number := func(t *hdf5.Type) string {
		k := 0
		switch {
		case t.Float:
			k = 2
		case t.Signed:
			k = 1
		}
		if out.DType, out.Big = numbers[t.Element()][k], t.Big; out.DType == "" {
			return fmt.Sprintf("has the type %s, which is not read", t)
		}
		return ""
	}
	switch t.Class {
	case hdf5.Number:
		return out, number(t)
	case hdf5.Enum:
		if t.IsBool() {
			out.DType = driver.Bool
			return out, ""
		}
		out.Names = names(t)
		return out, number(t)
	case hdf5.Text:
		out.Class, out.Zero, out.Blanks = ndarray.Text, t.Pad == 0, t.Pad == 2
		return out, ""
	case hdf5.Opaque:
		out.Class = ndarray.Opaque
		return out, ""
	case hdf5.VarText:
		out.Class = ndarray.VarText
		return out, ""
	case hdf5.VarList:
		out.Class = ndarray.VarList
		if t.Base.Class == hdf5.Enum && !t.Base.IsBool() {
			out.Names = names(t.Base)
		}
		why := number(t.Base)
		if t.Base.IsBool() {
			out.DType = driver.Bool
		}
		out.Dims = t.Base.Dims
		return out, why
	}
	return out, fmt.Sprintf("has the type %s, which is not read", t)
}

// names returns the names of an enumeration with the values 0, 1, 2 and so on, otherwise nil.
func names(t *hdf5.Type) []string {
	out := make([]string, len(t.Names))
	for i, v := range t.Values {
		if v < 0 || v >= int64(len(out)) || out[v] != "" {
			return nil
		}
		out[v] = t.Names[i]
	}
	return out
}

// array returns the position of a data set.
func (r *reader) array(file int64, d *hdf5.Dataset) (*ndarray.Array, error) {
	a := &ndarray.Array{Name: fmt.Sprintf("data set %q", clean(d.Path)), Dims: d.Dims, Elem: d.Type.Size, Fill: d.Fill}
	switch d.Layout {
	case hdf5.Compact:
		n := d.Type.Size
		for _, side := range d.Dims {
			n *= side
		}
		a.Held = d.Bytes[:n:n]
	case hdf5.Contiguous:
		a.Whole = ndarray.Place{Object: file, Offset: d.Offset, Size: d.Type.Size}
	case hdf5.Chunked:
		chunks, err := d.Chunks()
		if err != nil {
			return nil, fmt.Errorf("(object header at byte %d): %w", d.Addr, err)
		}
		if a.Codecs, err = codecs(d); err != nil {
			return nil, err
		}
		a.Chunk = d.Chunk
		a.Find = func(n int64) (ndarray.Place, bool) {
			p, ok := chunks.Find(n)
			return ndarray.Place{Object: file, Offset: p.Offset, Size: p.Size, Mask: p.Mask}, ok
		}
	}
	return a, nil
}

// The numbers of HDF5 filters.
const (
	filterDeflate    = 1
	filterShuffle    = 2
	filterFletcher   = 3
	filterSzip       = 4
	filterBzip2      = 307
	filterLZF        = 32000
	filterBlosc      = 32001
	filterLZ4        = 32004
	filterBitshuffle = 32008
	filterZstd       = 32015
)

// codecs returns the decoders of a data set's filters.
func codecs(d *hdf5.Dataset) (codec.Pipeline, error) {
	var out codec.Pipeline
	for _, f := range d.Filters {
		value := func(i int) int {
			if i >= len(f.Values) {
				return 0
			}
			return int(f.Values[i])
		}
		var c codec.Codec
		switch f.ID {
		case filterDeflate:
			c = codec.Deflate{}
		case filterShuffle:
			if n := value(0); n < 1 || n > 1<<20 {
				return nil, fmt.Errorf("is damaged: the shuffle filter has elements of %d bytes", n)
			}
			c = codec.Shuffle{Element: value(0)}
		case filterFletcher:
			c = codec.Fletcher32{}
		case filterBzip2:
			c = codec.Bzip2{}
		case filterLZF:
			c = codec.LZF{}
		case filterBlosc:
			c = codec.Blosc{}
		case filterLZ4:
			c = codec.BlockLZ4{}
		case filterBitshuffle:
			b := codec.Bitshuffle{Element: value(2), Block: value(3)}
			switch value(4) {
			case 0:
			case 2:
				b.Inner = codec.LZ4{}
			case 3:
				b.Inner = codec.Zstd{}
			default:
				return nil, fmt.Errorf("is compressed with bitshuffle and codec %d, which is not read", value(4))
			}
			c = b
		case filterZstd:
			c = codec.Zstd{}
		default:
			name := f.Name
			if f.ID == filterSzip {
				name = "szip"
			}
			return nil, fmt.Errorf("is compressed with filter %d (%.60q), which is not read: rewrite it, for example with h5repack -f GZIP=4", f.ID, clean(name))
		}
		out = append(out, c)
	}
	return out, nil
}
