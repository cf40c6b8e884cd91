// Package litdatasource reads the chunks of LitData: index.json and the files next to it, whose items are the
// leaves of a tree (usually of a dict). Items are read at random. If chunks are compressed with zstd, they are read
// in order, or at random if each item is its own frame (compression_level="sample").
//
// The format: a chunk begins with the number of its items and the offsets of all items (package offsetshards). An
// item begins with the sizes of its leaves, four bytes each. Then follow the leaves (leaves.go). An item of the
// TokensLoader is one leaf without its size.
package litdatasource

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"

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
	Chunks []struct {
		Filename string `json:"filename"`
		Bytes    int64  `json:"chunk_bytes"`
		Size     int64  `json:"chunk_size"`
	} `json:"chunks"`
	Config *struct {
		Compression *string         `json:"compression"`
		Level       *string         `json:"compression_level"`
		Format      []string        `json:"data_format"`
		Spec        *string         `json:"data_spec"`
		Encryption  json.RawMessage `json:"encryption"`
		Loader      *string         `json:"item_loader"`
	} `json:"config"`
}

// Is reports whether a folder has the index of LitData's chunks.
func Is(ctx context.Context, st store.Store) bool {
	var x index
	return readIndex(ctx, st, &x) == nil && x.Chunks != nil && x.Config != nil && len(x.Config.Format) > 0
}

func readIndex(ctx context.Context, st store.Store, x *index) error {
	return jsonread.File(ctx, st, IndexName, offsetshards.MaxIndex, x, "an index of LitData's chunks")
}

// Open reads the index and scans the items of all chunks.
func Open(ctx context.Context, url string, st store.Store, opt *Options) (driver.Source, error) {
	if opt == nil {
		opt = &Options{}
	}
	var x index
	err := readIndex(ctx, st, &x)
	if err != nil {
		return nil, err
	}
	set := &offsetshards.Set{URL: url, Format: "litdata", Wanted: opt.Columns, List: &filelist.List{Store: st}, Framed: true}
	leaves, err := x.leaves()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", st.Path(IndexName), err)
	}
	for i, c := range x.Chunks {
		name, err := offsetshards.Name("", c.Filename)
		if err == nil && (c.Size < 0 || c.Size > 1<<31) {
			err = fmt.Errorf("invalid number of items %d", c.Size)
		}
		if err != nil {
			return nil, fmt.Errorf("%s, chunk %d: %w", st.Path(IndexName), i, err)
		}
		if c.Size == 0 {
			continue
		}
		e, err := st.Stat(ctx, name)
		if err != nil {
			return nil, err
		}
		if e.Dir {
			return nil, fmt.Errorf("%s is a folder: expected a file", st.Path(name))
		}
		set.List.Add(e)
		set.Records = append(set.Records, c.Size)
	}
	for i := range leaves {
		set.Columns = append(set.Columns, leaves[i].name)
	}
	tokens := x.Config.Loader != nil && *x.Config.Loader == "TokensLoader"
	each := x.Config.Compression != nil && x.Config.Level != nil && *x.Config.Level == "sample"
	set.Split = func(w *offsetshards.Work, emit func(int, *dynvalue.Value) error) error {
		if each {
			if err := inflate(w); err != nil {
				return err
			}
		}
		if tokens {
			return whole(&leaves[0], w, emit)
		}
		return split(leaves, each, w, emit)
	}
	return offsetshards.Open(ctx, set)
}

// leaves returns the leaves of an item.
func (x *index) leaves() ([]leaf, error) {
	c := x.Config
	switch {
	case c == nil || len(c.Format) == 0 || x.Chunks == nil:
		return nil, errors.New("not an index of LitData's chunks")
	case len(c.Encryption) > 0 && string(c.Encryption) != "null":
		return nil, errors.New("its chunks are encrypted, which is not supported")
	case c.Compression != nil && !strings.HasPrefix(*c.Compression, "zstd"):
		return nil, fmt.Errorf("its chunks are compressed with %.20q, only zstd is supported", *c.Compression)
	case c.Loader != nil && *c.Loader != "PyTreeLoader" && *c.Loader != "TokensLoader":
		return nil, fmt.Errorf("unsupported item loader %.40s, only PyTreeLoader and TokensLoader are supported", *c.Loader)
	case c.Loader != nil && *c.Loader == "TokensLoader" && len(c.Format) != 1:
		return nil, fmt.Errorf("an item of the TokensLoader must have 1 leaf, not %d", len(c.Format))
	}
	names, err := leafNames(c.Spec, len(c.Format))
	if err != nil {
		return nil, err
	}
	var out []leaf
	for i, format := range c.Format {
		l := leaf{name: names[i]}
		if l.value, err = decoder(format); err != nil {
			return nil, fmt.Errorf("leaf %q: %w", l.name, err)
		}
		out = append(out, l)
	}
	return out, nil
}

// node is a node of a tree, as written by torch's treespec_dumps.
type node struct {
	Type     *string `json:"type"`
	Context  *string `json:"context"`
	Children []node  `json:"children_spec"`
}

// leafNames returns the paths of the leaves of a tree: keys of dicts and indexes of lists, joined by dots.
func leafNames(spec *string, n int) ([]string, error) {
	var names []string
	if spec != nil {
		var both []json.RawMessage
		var root node
		if json.Unmarshal([]byte(*spec), &both) != nil || len(both) != 2 || json.Unmarshal(both[1], &root) != nil {
			return nil, errors.New("its data_spec is not a tree")
		}
		const maxDepth = 64
		var walk func(t *node, name string, depth int)
		walk = func(t *node, name string, depth int) {
			if t.Type == nil || depth > maxDepth || len(names) > n {
				names = append(names, strings.TrimPrefix(name, "."))
				return
			}
			var keys []any
			if t.Context != nil {
				_ = json.Unmarshal([]byte(*t.Context), &keys)
			}
			for i := range t.Children {
				key := any(i)
				if strings.HasSuffix(*t.Type, "ict") && i < len(keys) {
					key = keys[i]
				}
				walk(&t.Children[i], fmt.Sprintf("%s.%v", name, key), depth+1)
			}
		}
		walk(&root, "", 0)
	}
	if len(names) != n { // the tree is not of n leaves
		names = make([]string, n)
		for i := range names {
			names[i] = fmt.Sprint(i)
		}
	}
	if n == 1 && names[0] == "" || n == 1 && spec == nil {
		names[0] = "data"
	}
	seen := map[string]bool{}
	for _, name := range names {
		if seen[name] {
			return nil, fmt.Errorf("two leaves have the name %q", name)
		}
		seen[name] = true
	}
	return names, nil
}

// leaf is a leaf of the items.
type leaf struct {
	name string
	// value decodes the value at an offset of an item.
	value func(w *offsetshards.Work, off, size int) (dynvalue.Value, error)
}

// split implements offsetshards.Set.Split. temp is true if the memory of the item is reused.
func split(leaves []leaf, temp bool, w *offsetshards.Work, emit func(int, *dynvalue.Value) error) error {
	if 4*len(leaves) > w.View.Size {
		if w.View.Size == 0 {
			return errors.New("an item is empty: chunks with rows in an Arrow table are not supported")
		}
		return fmt.Errorf("an item of %d bytes is too small for the sizes of %d leaves", w.View.Size, len(leaves))
	}
	b, err := w.View.Get(0, 4*len(leaves))
	if err != nil {
		return err
	}
	w.Sizes = append(w.Sizes[:0], b...) // the next Get overwrites b
	off := 4 * len(leaves)
	for i := range leaves {
		size := int(binary.LittleEndian.Uint32(w.Sizes[4*i:]))
		if size > w.View.Size-off {
			return fmt.Errorf("leaf %q has %d bytes, but its item has only %d left", leaves[i].name, size, w.View.Size-off)
		}
		if !w.Skips(i) {
			v, err := leaves[i].value(w, off, size)
			if err != nil {
				return fmt.Errorf("leaf %q: %w", leaves[i].name, err)
			}
			v.Temp = v.Temp || temp
			if err := emit(i, &v); err != nil {
				return err
			}
		}
		off += size
	}
	if off != w.View.Size {
		return fmt.Errorf("an item has %d bytes, but its leaves have %d", w.View.Size, off)
	}
	return nil
}

// whole emits an item that is one leaf.
func whole(l *leaf, w *offsetshards.Work, emit func(int, *dynvalue.Value) error) error {
	v, err := l.value(w, 0, w.View.Size)
	if err != nil || w.Skips(0) {
		return err
	}
	return emit(0, &v)
}

// maxItem is the size limit of a decompressed item.
const maxItem = 1 << 30

// decoders decompress items. Each is used by one goroutine at a time.
var decoders = sync.Pool{New: func() any {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxItem))
	if err != nil {
		return err
	}
	return d
}}

// magic is the magic number of a zstd frame. It cannot be the size of a leaf, because it is too large.
var magic = []byte{0x28, 0xB5, 0x2F, 0xFD}

// inflate decompresses the item if it is compressed.
func inflate(w *offsetshards.Work) error {
	b, err := w.View.Get(0, w.View.Size)
	if err != nil || !bytes.HasPrefix(b, magic) { // LitData does not compress chunks with few rows
		return err
	}
	d, ok := decoders.Get().(*zstd.Decoder)
	if !ok {
		return errors.New("cannot start the zstd decoder")
	}
	defer decoders.Put(d)
	if w.Inflated, err = d.DecodeAll(b, w.Inflated[:0]); err != nil {
		return fmt.Errorf("cannot decompress it: %w", err)
	}
	w.View.All(w.Inflated)
	return nil
}
