// Package indexcache stores the results of scanning a whole file, for example the offsets of records in a
// compressed stream, in the user's cache folder (internal/cache). The next process that opens the file need not
// scan it again. A file counts as unchanged if its path, size, modification time and inode are the same.
//
// The cache is optional: if an entry is missing or damaged, the file is scanned again.
package indexcache

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/gob"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"
	"github.com/zeebo/xxh3"

	"github.com/stokerdata/stoker/internal/cache"
	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/store"
)

const (
	// Least is the minimum size of files with an entry.
	Least = 1 << 20
	// version is part of the keys, so that entries of other program versions are not used.
	version = "index 1"
	// most is the size limit of an entry, compressed and decompressed.
	most     = 128 << 20
	unpacked = 1 << 30
)

// Files caches the scans of a source's files. Its methods are safe for concurrent use, except Close, which must be
// the last call.
type Files struct {
	list *filelist.List
	seed []byte

	once  sync.Once
	set   *cache.Set
	name  string // of the store
	fixed bool   // inodes are stable
}

// New returns the cache for the files of a list. what names the kind of scan and all that its result depends on
// besides the file.
func New(list *filelist.List, what ...string) *Files {
	return &Files{list: list, seed: []byte(strings.Join(append([]string{version}, what...), "\x00"))}
}

// open opens the cache at its first use.
func (f *Files) open() bool {
	f.once.Do(func() {
		id, ok := store.As[store.Identifier](f.list.Store)
		if !ok {
			return
		}
		f.name, f.fixed = id.Identity()
		dir, err := cache.At("", 0)
		if err != nil {
			return
		}
		set, err := cache.Open(dir, f.name, func(string) {})
		if err == nil {
			f.set = set
		}
	})
	return f.set != nil
}

// key returns the key of a file. ok is false if the file cannot be cached.
func (f *Files) key(ctx context.Context, i int) (k cache.Key, ok bool) {
	e := f.list.Entry(i)
	if e.Size < Least || !f.open() {
		return k, false
	}
	now, err := f.list.Store.Stat(ctx, e.Name)
	if err != nil || now.Size != e.Size || now.Version != e.Version || now.Version == "" && now.ModTime.IsZero() {
		return k, false // changes could not be detected
	}
	if !f.fixed {
		now.ID = 0
	}
	h := xxh3.New()
	_, _ = h.Write(f.seed)
	for _, text := range []string{f.name, e.Name, now.Version} {
		_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(text))))
		_, _ = h.WriteString(text)
	}
	b := binary.LittleEndian.AppendUint64(nil, uint64(now.Size))
	if !now.ModTime.IsZero() {
		b = binary.LittleEndian.AppendUint64(b, uint64(now.ModTime.UnixNano()))
	}
	_, _ = h.Write(binary.LittleEndian.AppendUint64(b, now.ID))
	return h.Sum128().Bytes(), true
}

// Get loads the entry of file i into out and reports whether it exists. If not, out may be partly set.
func (f *Files) Get(ctx context.Context, i int, out any) bool {
	k, ok := f.key(ctx, i)
	if !ok {
		return false
	}
	b := f.set.Value(&k)
	return len(b) > 0 && Unpack(b, out) == nil
}

// Put stores the entry of file i.
func (f *Files) Put(ctx context.Context, i int, what any) {
	k, ok := f.key(ctx, i)
	if !ok {
		return
	}
	b, err := Pack(what)
	if err != nil || len(b) > most {
		return
	}
	if to := f.set.Begin(true); to != nil {
		to.Add(&cache.Meta{Key: k, Name: f.list.Path(i) + " (index)"}, b)
		f.set.Keep(to, true)
	}
}

// Close closes the cache.
func (f *Files) Close() {
	if f.set != nil {
		_ = f.set.Close() // entries that were not written are only a loss of time
	}
}

// Pack encodes a value for the cache.
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

// Unpack decodes a value of Pack.
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
