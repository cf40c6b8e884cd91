// Package zarrsource reads Zarr arrays and groups, versions 2 and 3, from folders and zip files. Arrays with the
// same first axis are the fields of records.
//
// Opening lists the files of the folder, which are the chunks, and reads the metadata of the arrays and the indexes
// of shards. It decodes compressed arrays of up to 16 MiB. Of larger ones the most recently read chunks are cached.
package zarrsource

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"runtime"
	"slices"
	"sort"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/source/format"
	"github.com/stokerdata/stoker/internal/source/ndarray"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// Options configure Open.
type Options = format.Options

// The names of metadata files.
const (
	arrayName  = ".zarray"
	groupName  = ".zgroup"
	allName    = ".zmetadata"
	thirdName  = "zarr.json"
	maxJSON    = 64 << 20
	maxArrays  = 1 << 16
	maxAxes    = 32
	openFiles  = 64
	bytesIndex = 16 // size of an entry of a shard's index
)

// Is reports whether a folder is a Zarr array or group.
func Is(ctx context.Context, st store.Store) bool {
	names := []string{thirdName, groupName, arrayName, allName}
	there := make([]bool, len(names))
	var wg sync.WaitGroup
	for i, name := range names { // concurrently, because each is a round trip over a network
		wg.Go(func() {
			e, err := st.Stat(ctx, name)
			there[i] = err == nil && !e.Dir
		})
	}
	wg.Wait()
	for i, name := range names {
		if there[i] {
			return name != thirdName || isThird(ctx, st)
		}
	}
	return false
}

// isThird reports whether the zarr.json of a folder is Zarr metadata.
func isThird(ctx context.Context, st store.Store) bool {
	b, err := store.ReadFile(ctx, st, thirdName, maxJSON)
	return err == nil && strings.Contains(string(b), `"zarr_format"`)
}

// Open opens the array or the group in st.
func Open(ctx context.Context, url string, st store.Store, opt *Options) (driver.Source, error) {
	var o Options
	if opt != nil {
		o = *opt
	}
	if o.Threads <= 0 {
		o.Threads = 4 * runtime.GOMAXPROCS(0)
	}
	e, err := st.Stat(ctx, "")
	switch {
	// web servers return these for folders
	case errors.Is(err, store.ErrNotExist), errors.Is(err, store.ErrPermission):
	case err != nil:
		return nil, err
	case !e.Dir:
		if st, err = openZip(ctx, st); err != nil {
			return nil, err
		}
	}
	list := &filelist.List{Store: st}
	err = st.List(ctx, "", &store.ListOptions{Hidden: true}, func(e store.Entry) error {
		if !e.Dir {
			list.Add(e)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	pool := store.NewPool(st, openFiles)
	defer pool.Close()
	r := &reader{list: list, st: st, read: ndarray.ReadFrom(pool, list), threads: o.Threads}
	file, err := r.arrays(ctx)
	if err != nil {
		return nil, err
	}
	return ndarray.Open(ctx, driver.Info{URL: url, Format: "zarr"}, list, []*ndarray.File{file}, r.read, &ndarray.Options{Columns: o.Columns, Split: o.Split, Threads: o.Threads})
}

// reader reads files while the source is opened.
type reader struct {
	list    *filelist.List
	st      store.Store
	read    ndarray.Reader
	threads int
}

// arrays finds all arrays.
func (r *reader) arrays(ctx context.Context) (*ndarray.File, error) {
	out := &ndarray.File{Path: r.st.String()}
	seen := map[string]bool{}
	add := func(at string, where string, b []byte, version int) error {
		if seen[at] {
			return nil
		}
		m, err := parse(b, version)
		if err != nil {
			return fmt.Errorf("%s: %w", where, err)
		}
		if m == nil {
			return nil // a group
		}
		if seen[at] = true; len(seen) > maxArrays {
			return fmt.Errorf("%s has more than %d arrays", r.st, maxArrays)
		}
		out.Sets = append(out.Sets, r.sets(at, where, m)...)
		return nil
	}
	var all []int // consolidated metadata
	for i := range r.list.Len() {
		name := r.list.Name(i)
		version := 0
		switch path.Base(name) {
		case arrayName:
			version = 2
		case thirdName:
			version = 3
		}
		if name == allName || name == thirdName {
			all = append(all, i)
		}
		if version == 0 {
			continue
		}
		b, err := store.ReadEntry(ctx, r.st, r.list.Entry(i), maxJSON)
		if err != nil {
			return nil, err
		}
		at := path.Dir(name)
		if at == "." {
			at = ""
		}
		if err := add(at, r.list.Path(i), b, version); err != nil {
			return nil, err
		}
	}
	// Add arrays that only the consolidated metadata describes.
	for _, i := range all {
		b, err := store.ReadEntry(ctx, r.st, r.list.Entry(i), maxJSON)
		if err != nil {
			return nil, err
		}
		var c struct {
			Metadata     map[string]json.RawMessage
			Consolidated struct {
				Metadata map[string]json.RawMessage
			} `json:"consolidated_metadata"`
		}
		if err := json.Unmarshal(b, &c); err != nil {
			return nil, fmt.Errorf("%s: invalid Zarr metadata: %w", r.list.Path(i), err)
		}
		for at, m := range c.Consolidated.Metadata {
			if err := add(at, r.list.Path(i), m, 3); err != nil {
				return nil, err
			}
		}
		for name, m := range c.Metadata {
			if path.Base(name) != arrayName || r.list.Name(i) != allName {
				continue
			}
			at := path.Dir(name)
			if at == "." {
				at = ""
			}
			if err := add(at, r.list.Path(i), m, 2); err != nil {
				return nil, err
			}
		}
	}
	if len(out.Sets) == 0 {
		return nil, fmt.Errorf("%s has no Zarr arrays", r.st)
	}
	slices.SortFunc(out.Sets, func(a, b *ndarray.Set) int { return strings.Compare(a.Path, b.Path) })
	return out, nil
}

// sets returns the sets of an array: one, or one per member of a structured type.
func (r *reader) sets(at, where string, m *meta) []*ndarray.Set {
	name := strings.ToValidUTF8(at, "\uFFFD")
	if name == "" { // the store is one array
		name = strings.TrimSuffix(path.Base(r.st.Path("")), ".zarr")
	}
	if name == "" || name == "index" || name == "." || name == "/" {
		name = "data"
	}
	load := func(ctx context.Context) (*ndarray.Array, error) { return r.array(ctx, at, where, m) }
	if m.why != "" || len(m.members) == 0 {
		return []*ndarray.Set{{Path: name, Type: m.typ, Dims: m.shape, Why: m.why, Load: load}}
	}
	var out []*ndarray.Set
	for _, f := range m.members {
		out = append(out, &ndarray.Set{Path: name + "." + f.name, Type: f.typ, Dims: m.shape, Load: load})
	}
	return out
}

// chunks are the files that are chunks.
type chunks struct {
	at   []int64 // numbers of the existing chunks, ascending
	file []int32
}

func (c *chunks) find(n int64) (int64, bool) {
	i := sort.Search(len(c.at), func(i int) bool { return c.at[i] >= n })
	if i == len(c.at) || c.at[i] != n {
		return 0, false
	}
	return int64(c.file[i]), true
}

// files lists the chunks of an array, or its shards.
func (r *reader) files(at string, m *meta) (*chunks, error) {
	prefix := at
	if prefix != "" {
		prefix += "/"
	}
	prefix += m.prefix
	var sides []int64
	for i, n := range m.shape {
		sides = append(sides, (n-1)/m.chunk[i]+1)
		if n == 0 {
			sides[i] = 0
		}
	}
	out := &chunks{}
	from := sort.Search(r.list.Len(), func(i int) bool { return r.list.Name(i) >= prefix })
	sorted := true
	for i := from; i < r.list.Len(); i++ {
		name, ok := strings.CutPrefix(r.list.Name(i), prefix)
		if !ok {
			break
		}
		n, ok := number(name, m.separator, sides)
		if !ok {
			continue
		}
		sorted = sorted && (len(out.at) == 0 || out.at[len(out.at)-1] < n)
		out.at, out.file = append(out.at, n), append(out.file, int32(i))
	}
	if !sorted {
		sort.Sort(out)
	}
	return out, nil
}

// Len, Less and Swap implement sort.Interface.
func (c *chunks) Len() int           { return len(c.at) }
func (c *chunks) Less(i, j int) bool { return c.at[i] < c.at[j] }
func (c *chunks) Swap(i, j int) {
	c.at[i], c.at[j] = c.at[j], c.at[i]
	c.file[i], c.file[j] = c.file[j], c.file[i]
}

// number parses the name of a chunk, such as 3.0.1.
func number(name, separator string, sides []int64) (int64, bool) {
	n := int64(0)
	for i, side := range sides {
		part, rest, more := strings.Cut(name, separator)
		if more != (i < len(sides)-1) || part == "" || len(part) > 15 || len(part) > 1 && part[0] == '0' {
			return 0, false
		}
		c := int64(0)
		for _, d := range []byte(part) {
			if d < '0' || d > '9' {
				return 0, false
			}
			c = 10*c + int64(d-'0')
		}
		if c >= side { // the array has shrunk
			return 0, false
		}
		n, name = n*side+c, rest
	}
	return n, len(sides) > 0
}

// array returns the positions of an array's chunks.
func (r *reader) array(ctx context.Context, at, where string, m *meta) (*ndarray.Array, error) {
	a := &ndarray.Array{
		Name: fmt.Sprintf("array %q", at), Dims: m.shape, Elem: m.elem, Fill: m.fill, Chunk: m.chunk, Order: m.order, Codecs: m.codecs,
		File: func(object int64) string { return r.list.Path(int(object)) },
	}
	if m.shard != nil {
		a.Chunk, a.Codecs, a.Order = m.shard.chunk, m.shard.codecs, m.shard.order
	}
	if err := a.Check(); err != nil { // before any division
		return nil, fmt.Errorf("%s: %w", where, err)
	}
	files, err := r.files(at, m)
	if err != nil {
		return nil, err
	}
	if m.shard != nil {
		a.Find, err = r.shards(ctx, m, files)
		return a, err
	}
	size := a.ChunkBytes()
	if len(m.codecs) == 0 {
		for _, f := range files.file {
			if got := r.list.Size(int(f)); got != size {
				return nil, fmt.Errorf("%s has %d bytes, but a chunk has %d: it is cut off, or is not a chunk of this array", r.list.Path(int(f)), got, size)
			}
		}
	}
	a.Find = func(n int64) (ndarray.Place, bool) {
		f, ok := files.find(n)
		if !ok {
			return ndarray.Place{}, false
		}
		return ndarray.Place{Object: f, Size: r.list.Size(int(f))}, true
	}
	return a, nil
}

// index has the positions of the chunks in a shard.
type index struct {
	offset []int64 // -1 if never written
	size   []uint32
}

// shards reads the indexes of all shards and returns the function that finds chunks.
func (r *reader) shards(ctx context.Context, m *meta, files *chunks) (func(n int64) (ndarray.Place, bool), error) {
	inner := make([]int64, len(m.shape)) // chunks of a shard along each axis
	outer := make([]int64, len(m.shape)) // shards along each axis
	sides := make([]int64, len(m.shape)) // chunks along each axis
	count := int64(1)
	for i, n := range m.shape {
		inner[i] = m.chunk[i] / m.shard.chunk[i]
		outer[i] = (n + m.chunk[i] - 1) / m.chunk[i]
		sides[i] = (n + m.shard.chunk[i] - 1) / m.shard.chunk[i]
		if inner[i] > maxJSON || count > maxJSON/inner[i] {
			return nil, fmt.Errorf("its shards have more than %d chunks", maxJSON)
		}
		count *= inner[i]
	}
	all := make([]index, len(files.at))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(r.threads)
	for k := range all {
		g.Go(func() error {
			if err := gctx.Err(); err != nil {
				return context.Cause(gctx)
			}
			return r.index(ctx, m, int64(files.file[k]), count, &all[k])
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return func(n int64) (ndarray.Place, bool) {
		shard, in := int64(0), int64(0)
		step, istep := int64(1), int64(1)
		for i := len(sides) - 1; i >= 0; i-- {
			c := n % sides[i]
			n /= sides[i]
			shard += c / inner[i] * step
			in += c % inner[i] * istep
			step *= outer[i]
			istep *= inner[i]
		}
		k := sort.Search(len(files.at), func(k int) bool { return files.at[k] >= shard })
		if k == len(files.at) || files.at[k] != shard || all[k].offset[in] < 0 {
			return ndarray.Place{}, false
		}
		return ndarray.Place{Object: int64(files.file[k]), Offset: all[k].offset[in], Size: int64(all[k].size[in])}, true
	}, nil
}
