// Package litdatasource reads the chunks of LitData: index.json and the files beside
// it, whose items are the leaves of a tree (usually of a dict). Items are read at
// random; where chunks are compressed with zstd, in order, or, with a frame for each
// item (compression_level="sample"), at random too.
//
// The format, as LitData's writer has it: a chunk begins with the number of its items
// and the offsets of all of them (package shards); an item begins with the sizes of its
// leaves, four bytes each, behind which the leaves stand (leaves.go). Items of the
// TokensLoader are one leaf without its size.
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

	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/internal/source/dynvalue"
	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/source/offsetshards"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

// IndexName is the name of the index.
const IndexName = "index.json"

// Options change how chunks are read. Nil means the defaults.
type Options struct {
	// Columns say which leaves become which fields; nil means all of them.
	Columns []column.Want
}

// index is the index.
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

// Is says whether a folder has the index of LitData's chunks.
func Is(ctx context.Context, st store.Store) bool {
	b, err := offsetshards.ReadIndex(ctx, st, IndexName)
	if err != nil {
		return false
	}
	var x index
	return json.Unmarshal(b, &x) == nil && x.Chunks != nil && x.Config != nil && len(x.Config.Format) > 0
}

// Open reads the index and looks at the items of all chunks.
func Open(ctx context.Context, url string, st store.Store, opt *Options) (driver.Source, error) {
	if opt == nil {
		opt = &Options{}
	}
	b, err := offsetshards.ReadIndex(ctx, st, IndexName)
	if err != nil {
		return nil, err
	}
	var x index
	if err := json.Unmarshal(b, &x); err != nil {
		return nil, fmt.Errorf("%s: it is no index of LitData's chunks: %w", st.Path(IndexName), err)
	}
	set := &offsetshards.Set{URL: url, Format: "litdata", Wanted: opt.Columns, List: &filelist.List{Store: st}, Framed: true}
	leaves, err := x.leaves()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", st.Path(IndexName), err)
	}
	for i, c := range x.Chunks {
		name, err := offsetshards.Name("", c.Filename)
		if err == nil && (c.Size < 0 || c.Size > 1<<31) {
			err = fmt.Errorf("%d items", c.Size)
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
			return nil, fmt.Errorf("%s is a folder, and not a file", st.Path(name))
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

// leaves are those of an item.
func (x *index) leaves() ([]leaf, error) {
	c := x.Config
	switch {
	case c == nil || len(c.Format) == 0 || x.Chunks == nil:
		return nil, errors.New("it is no index of LitData's chunks")
	case len(c.Encryption) > 0 && string(c.Encryption) != "null":
		return nil, errors.New("its chunks are encrypted, which is not read")
	case c.Compression != nil && !strings.HasPrefix(*c.Compression, "zstd"):
		return nil, fmt.Errorf("its chunks are compressed with %.20q; zstd is read", *c.Compression)
	case c.Loader != nil && *c.Loader != "PyTreeLoader" && *c.Loader != "TokensLoader":
		return nil, fmt.Errorf("its items are those of a %.40s; those of PyTreeLoader and TokensLoader are read", *c.Loader)
	case c.Loader != nil && *c.Loader == "TokensLoader" && len(c.Format) != 1:
		return nil, fmt.Errorf("its items of tokens have %d leaves", len(c.Format))
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

// node is a node of a tree, as torch's treespec_dumps writes it.
type node struct {
	Type     *string `json:"type"`
	Context  *string `json:"context"`
	Children []node  `json:"children_spec"`
}

// leafNames are the ways to the leaves of a tree: the keys of dicts and the numbers of
// what lists have, with dots.
func leafNames(spec *string, n int) ([]string, error) {
	var names []string
	if spec != nil {
		var both []json.RawMessage
		var root node
		if json.Unmarshal([]byte(*spec), &both) != nil || len(both) != 2 || json.Unmarshal(both[1], &root) != nil {
			return nil, errors.New("its data_spec is no tree")
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
	if len(names) != n { // a tree of something else
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
			return nil, fmt.Errorf("two leaves are called %q", name)
		}
		seen[name] = true
	}
	return names, nil
}

// leaf is a leaf of the items.
type leaf struct {
	name string
	// value makes what stands at a place of an item a value.
	value func(w *offsetshards.Work, off, size int) (dynvalue.Value, error)
}

// split is that of shards.Set. temp says that the item lies in memory that is used again.
func split(leaves []leaf, temp bool, w *offsetshards.Work, emit func(int, *dynvalue.Value) error) error {
	if 4*len(leaves) > w.View.Size {
		if w.View.Size == 0 {
			return errors.New("an item without bytes: chunks whose rows LitData keeps as an Arrow table are not read")
		}
		return fmt.Errorf("an item of %d bytes does not have the sizes of %d leaves", w.View.Size, len(leaves))
	}
	b, err := w.View.Get(0, 4*len(leaves))
	if err != nil {
		return err
	}
	w.Sizes = append(w.Sizes[:0], b...) // what Get gave is gone with the next one
	off := 4 * len(leaves)
	for i := range leaves {
		size := int(binary.LittleEndian.Uint32(w.Sizes[4*i:]))
		if size > w.View.Size-off {
			return fmt.Errorf("leaf %q has %d bytes where its item has %d left", leaves[i].name, size, w.View.Size-off)
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
		return fmt.Errorf("an item of %d bytes whose leaves have %d", w.View.Size, off)
	}
	return nil
}

// whole gives an item that is one leaf.
func whole(l *leaf, w *offsetshards.Work, emit func(int, *dynvalue.Value) error) error {
	v, err := l.value(w, 0, w.View.Size)
	if err != nil || w.Skips(0) {
		return err
	}
	return emit(0, &v)
}

// maxItem is the largest item that is decompressed.
const maxItem = 1 << 30

// decoders decompress items, each in one goroutine at a time.
var decoders = sync.Pool{New: func() any {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxItem))
	if err != nil {
		return err
	}
	return d
}}

// magic is how a frame of zstd begins; as the size of a leaf it would be too large.
var magic = []byte{0x28, 0xB5, 0x2F, 0xFD}

// inflate decompresses the item, where it is compressed.
func inflate(w *offsetshards.Work) error {
	b, err := w.View.Get(0, w.View.Size)
	if err != nil || !bytes.HasPrefix(b, magic) { // LitData leaves chunks of some rows as they are
		return err
	}
	d, ok := decoders.Get().(*zstd.Decoder)
	if !ok {
		return errors.New("there is no decoder of zstd")
	}
	defer decoders.Put(d)
	if w.Inflated, err = d.DecodeAll(b, w.Inflated[:0]); err != nil {
		return fmt.Errorf("it cannot be decompressed: %w", err)
	}
	w.View.All(w.Inflated)
	return nil
}
