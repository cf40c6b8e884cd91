// Package indexcache caches facts about a large file that need a full read, such as the offsets of the records in a
// compressed stream, so that the file is only read once. A file counts as unchanged if its path, size, modification
// time and inode are the same.
//
// The cache is optional: missing and damaged entries are computed again.
package indexcache

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/gob"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/stokerdata/stoker/internal/querycache"
	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/store"
)

const (
	// Least is the size of the smallest file that has an entry.
	Least = 1 << 20
	// version is part of keys, so that other versions of this program have other entries.
	version = "index 1"
	// most is the size of the largest entry, and unpacked its size before compression.
	most     = 128 << 20
	unpacked = 1 << 30
)

// Files caches facts about the files of a source. Its methods may be called from any goroutine.
type Files struct {
	list *filelist.List
	seed []string
}

// New returns the cache for the files of a list. The words name the facts, and everything besides the file that the
// facts depend on.
func New(list *filelist.List, what ...string) *Files {
	return &Files{list: list, seed: append([]string{version}, what...)}
}

// key returns the question about file i, "" if it has no entry.
func (f *Files) key(ctx context.Context, i int) string {
	e := f.list.Entry(i)
	id, ok := store.As[store.Identifier](f.list.Store)
	if e.Size < Least || !ok {
		return ""
	}
	now, err := f.list.Store.Stat(ctx, e.Name)
	if err != nil || now.Size != e.Size || now.Version != e.Version || now.Version == "" && now.ModTime.IsZero() {
		return "" // nothing shows that the file is the same
	}
	place, fixed := id.Identity()
	if !fixed {
		now.ID = 0
	}
	b := binary.LittleEndian.AppendUint64(nil, uint64(now.Size))
	if !now.ModTime.IsZero() {
		b = binary.LittleEndian.AppendUint64(b, uint64(now.ModTime.UnixNano()))
	}
	b = binary.LittleEndian.AppendUint64(b, now.ID)
	return strings.Join(append(f.seed[:len(f.seed):len(f.seed)], place, e.Name, now.Version, string(b)), "\x00")
}

// Get fills out with what is cached about file i, and reports whether there is anything. If
// not, the content of out is undefined.
func (f *Files) Get(ctx context.Context, i int, out any) bool {
	b, ok := querycache.Load(f.key(ctx, i))
	return ok && Unpack(b, out) == nil
}

// Put caches facts about file i.
func (f *Files) Put(ctx context.Context, i int, what any) {
	k := f.key(ctx, i)
	if k == "" {
		return
	}
	if b, err := Pack(what); err == nil && len(b) <= most {
		_, _ = querycache.Save(k, b)
	}
}

// Pack returns the stored form of what.
func Pack(what any) ([]byte, error) {
	var plain bytes.Buffer
	if err := gob.NewEncoder(&plain).Encode(what); err != nil {
		return nil, err
	}
	w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	defer w.Close()
	return w.EncodeAll(plain.Bytes(), nil), nil
}

// Unpack is the inverse of Pack.
func Unpack(b []byte, out any) error {
	r, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(unpacked))
	if err != nil {
		return err
	}
	defer r.Close()
	plain, err := r.DecodeAll(b, nil)
	if err != nil {
		return err
	}
	return gob.NewDecoder(bytes.NewReader(plain)).Decode(out)
}
