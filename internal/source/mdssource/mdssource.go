// Package mdssource reads the shards of MosaicML Streaming (MDS): index.json and the files next to it, whose
// records have columns. Records are read at random, or in order if shards exist only compressed.
//
// The format: a shard begins with the number of its samples and the offsets of all samples (package
// offsetshards). A sample begins with the sizes of its columns of variable size, four bytes each.
// Then follow the columns (encodings.go).
package mdssource

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/stokerdata/stoker/internal/source/dynvalue"
	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/source/format"
	"github.com/stokerdata/stoker/internal/source/jsonread"
	"github.com/stokerdata/stoker/internal/source/offsetshards"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// IndexName is the file name of the index.
const IndexName = "index.json"

// Options configure Open.
type Options = format.Options

// index is the content of index.json.
type index struct {
	Version int          `json:"version"`
	Shards  []indexShard `json:"shards"`
}

type indexShard struct {
	Format    string    `json:"format"`
	Version   int       `json:"version"`
	Names     []string  `json:"column_names"`
	Encodings []string  `json:"column_encodings"`
	Sizes     []*int64  `json:"column_sizes"`
	Samples   int64     `json:"samples"`
	Raw       *fileInfo `json:"raw_data"`
	Zip       *fileInfo `json:"zip_data"`
}

type fileInfo struct {
	Name  string `json:"basename"`
	Bytes int64  `json:"bytes"`
}

// Is reports whether a folder has the index of MDS shards, or subfolders that do.
func Is(ctx context.Context, st store.Store) bool {
	if isIndex(ctx, st, IndexName) {
		return true
	}
	splits, err := splitsOf(ctx, st)
	return err == nil && len(splits) > 0
}

func isIndex(ctx context.Context, st store.Store, name string) bool {
	var x index
	return readIndex(ctx, st, name, &x) == nil && len(x.Shards) > 0 && x.Shards[0].Format != ""
}

// maxSplits limits the subfolders that are probed.
const maxSplits = 64

// splitsOf lists the subfolders with an index. They are probed concurrently, because each probe is
// a round trip over a network.
func splitsOf(ctx context.Context, st store.Store) (splits []string, err error) {
	var folders []string
	enough := errors.New("enough")
	n := 0
	err = st.List(ctx, "", &store.ListOptions{Shallow: true, Names: true, Threads: 1, Bad: filelist.LeaveOut}, func(e store.Entry) error {
		if n++; n > maxSplits {
			return enough
		}
		if e.Dir {
			folders = append(folders, e.Name)
		}
		return nil
	})
	if err != nil && err != enough {
		return nil, err
	}
	has := make([]bool, len(folders))
	var wg sync.WaitGroup
	for i, name := range folders {
		wg.Go(func() { has[i] = isIndex(ctx, st, path.Join(name, IndexName)) })
	}
	wg.Wait()
	for i, name := range folders {
		if has[i] {
			splits = append(splits, path.Base(name))
		}
	}
	return splits, nil
}

func readIndex(ctx context.Context, st store.Store, name string, x *index) error {
	return jsonread.File(ctx, st, name, offsetshards.MaxIndex, x, "an index of MDS shards")
}

// Open reads the index and scans the samples of all shards.
func Open(ctx context.Context, url string, st store.Store, opt *Options) (driver.Source, error) {
	if opt == nil {
		opt = &Options{}
	}
	dir := ""
	if opt.Split != "" {
		var err error
		if dir, err = offsetshards.Name("", opt.Split); err != nil {
			return nil, fmt.Errorf("%s: split %q is not a folder in it", st, opt.Split)
		}
	}
	name := path.Join(dir, IndexName)
	var x index
	err := readIndex(ctx, st, name, &x)
	if errors.Is(err, store.ErrNotExist) {
		return nil, noIndex(ctx, st, opt.Split, err)
	}
	if err != nil {
		return nil, err
	}
	set := &offsetshards.Set{URL: url, Format: "mds", Wanted: opt.Columns, List: &filelist.List{Store: st}}
	columns, err := x.columns()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", st.Path(name), err)
	}
	for i := range x.Shards {
		f := &x.Shards[i]
		if f.Samples == 0 {
			continue
		}
		e, err := f.find(ctx, st, dir)
		if err != nil {
			return nil, fmt.Errorf("%s, shard %d: %w", st.Path(name), i, err)
		}
		set.List.Add(e)
		set.Records = append(set.Records, f.Samples)
	}
	for i := range columns {
		set.Columns = append(set.Columns, columns[i].name)
	}
	set.Split = func(w *offsetshards.Work, emit func(int, *dynvalue.Value) error) error {
		return split(columns, w, emit)
	}
	return offsetshards.Open(ctx, set)
}

// noIndex returns the error for a folder without an index, with the splits to choose from.
func noIndex(ctx context.Context, st store.Store, split string, err error) error {
	splits, listed := splitsOf(ctx, st)
	switch {
	case listed != nil:
		return listed
	case split != "" && len(splits) > 0:
		return fmt.Errorf("%s has no split %q: it has %s", st, split, strings.Join(splits, ", "))
	case len(splits) > 0:
		return fmt.Errorf("%s has the splits %s: choose one, such as ?split=%s", st, strings.Join(splits, ", "), splits[0])
	}
	return err
}

// find returns the file of a shard: the uncompressed one if it exists.
func (f *indexShard) find(ctx context.Context, st store.Store, dir string) (store.Entry, error) {
	var missing error
	for _, file := range []*fileInfo{f.Raw, f.Zip} {
		if file == nil {
			continue
		}
		name, err := offsetshards.Name(dir, file.Name)
		if err != nil {
			return store.Entry{}, err
		}
		e, err := st.Stat(ctx, name)
		if errors.Is(err, store.ErrNotExist) {
			missing = err
			continue
		}
		if err != nil {
			return e, err
		}
		if e.Dir || e.Size != file.Bytes {
			return e, fmt.Errorf("%s has %d bytes, but %d in the index: it is cut off or was changed", st.Path(name), e.Size, file.Bytes)
		}
		if file == f.Zip {
			if ext := path.Ext(file.Name); ext != ".zstd" && ext != ".gz" {
				return e, fmt.Errorf("%s has an unsupported compression (supported: zstd, gz): unpack it, streaming does so with keep_zip=False and leaves %s next to it", st.Path(name), f.Raw.Name)
			}
		}
		return e, nil
	}
	if missing == nil {
		missing = errors.New("it does not name a file")
	}
	return store.Entry{}, missing
}

// columns returns the columns, which must be the same in all shards.
func (x *index) columns() ([]stored, error) {
	if x.Version != 2 || len(x.Shards) == 0 {
		return nil, fmt.Errorf("not an index of MDS shards of version 2")
	}
	first := &x.Shards[0]
	for i := range x.Shards {
		f := &x.Shards[i]
		switch {
		case f.Format != "mds" || f.Version != 2:
			return nil, fmt.Errorf("shard %d has format %.20q, version %d: only mds version 2 is supported, read others by their files (jsonl:, csv:)", i, f.Format, f.Version)
		case f.Samples < 0 || f.Samples > 1<<31:
			return nil, fmt.Errorf("shard %d has %d samples", i, f.Samples)
		case len(f.Names) == 0 || len(f.Encodings) != len(f.Names) || len(f.Sizes) != len(f.Names):
			return nil, fmt.Errorf("shard %d has %d names, %d encodings and %d sizes of columns", i, len(f.Names), len(f.Encodings), len(f.Sizes))
		case !slices.Equal(f.Names, first.Names) || !slices.Equal(f.Encodings, first.Encodings):
			return nil, fmt.Errorf("shard %d has different columns than shard 0", i)
		}
		for k, size := range f.Sizes {
			if other := first.Sizes[k]; (size == nil) != (other == nil) || size != nil && *size != *other {
				return nil, fmt.Errorf("shard %d: column %q has a different size than in shard 0", i, f.Names[k])
			}
		}
	}
	var out []stored
	for k, name := range first.Names {
		if slices.Index(first.Names, name) != k {
			return nil, fmt.Errorf("column %q is listed twice", name)
		}
		c := stored{name: name}
		if size := first.Sizes[k]; size != nil && *size != 0 {
			if *size < 0 || *size > driver.MaxArrayBytes {
				return nil, fmt.Errorf("column %q has %d bytes", name, *size)
			}
			c.size = int(*size)
		}
		var err error
		if c.value, err = decoder(first.Encodings[k]); err != nil {
			return nil, fmt.Errorf("column %q: %w", name, err)
		}
		out = append(out, c)
	}
	return out, nil
}

// stored is a column of the samples.
type stored struct {
	name string
	size int // 0 if each sample has its own
	// value decodes the value at an offset of a sample.
	value func(w *offsetshards.Work, off, size int) (dynvalue.Value, error)
}

// split implements offsetshards.Set.Split.
func split(columns []stored, w *offsetshards.Work, emit func(int, *dynvalue.Value) error) error {
	n := 0
	for i := range columns {
		if columns[i].size == 0 {
			n++
		}
	}
	if 4*n > w.View.Size {
		return fmt.Errorf("a sample of %d bytes is too small for the sizes of %d columns", w.View.Size, n)
	}
	b, err := w.View.Get(0, 4*n)
	if err != nil {
		return err
	}
	sizes := append(w.Sizes[:0], b...) // the next Get overwrites b
	w.Sizes = sizes
	off := 4 * n
	for i := range columns {
		c := &columns[i]
		size := c.size
		if size == 0 {
			size = int(binary.LittleEndian.Uint32(sizes))
			sizes = sizes[4:]
		}
		if size > w.View.Size-off {
			return fmt.Errorf("column %q has %d bytes, but its sample has only %d left", c.name, size, w.View.Size-off)
		}
		if !w.Skips(i) {
			v, err := c.value(w, off, size)
			if err != nil {
				return fmt.Errorf("column %q: %w", c.name, err)
			}
			if err := emit(i, &v); err != nil {
				return err
			}
		}
		off += size
	}
	if off != w.View.Size {
		return fmt.Errorf("a sample has %d bytes, but its columns have %d", w.View.Size, off)
	}
	return nil
}
