// Package indexcache keeps what was found out of a file when it was gone through as a
// whole, such as where the records of a compressed stream begin, in the user's cache
// folder (internal/cache): the next one who opens the same file need not do that again. A
// file is the same while its path, size, time of change and inode are.
//
// Nothing depends on it: what cannot be kept, or is damaged, is found out again.
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
	// Least is the size of files from which on it is worth it.
	Least = 1 << 20
	// version is part of keys: what other versions of this program have kept is of no use.
	version = "index 1"
	// most is the largest index, as it is kept and as it was.
	most     = 128 << 20
	unpacked = 1 << 30
)

// Files remembers what is found out of the files of a source. Its methods may be called
// from several goroutines at once, except Close, which is called once and last.
type Files struct {
	list *filelist.List
	seed []byte

	once  sync.Once
	set   *cache.Set
	name  string // of the store
	fixed bool   // inodes stay what they are
}

// New remembers something of the files of a list: which kind of thing it is and what it
// depends on beside the file says what.
func New(list *filelist.List, what ...string) *Files {
	return &Files{list: list, seed: []byte(strings.Join(append([]string{version}, what...), "\x00"))}
}

// open opens the cache, when it is wanted for the first time.
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

// key is what a file is known by, false where it is none that is remembered.
func (f *Files) key(ctx context.Context, i int) (k cache.Key, ok bool) {
	e := f.list.Entry(i)
	if e.Size < Least || !f.open() {
		return k, false
	}
	now, err := f.list.Store.Stat(ctx, e.Name)
	if err != nil || now.Size != e.Size || now.Version != e.Version || now.Version == "" && now.ModTime.IsZero() {
		return k, false // nothing says that it is the same
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

// Get sets what out points to to what is remembered of file i, and says whether there is
// something. Where it says no, out has anything.
func (f *Files) Get(ctx context.Context, i int, out any) bool {
	k, ok := f.key(ctx, i)
	if !ok {
		return false
	}
	b := f.set.Value(&k)
	return len(b) > 0 && Unpack(b, out) == nil
}

// Put remembers something of file i.
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

// Close ends the use of the cache.
func (f *Files) Close() {
	if f.set != nil {
		_ = f.set.Close() // what was not kept is found out again
	}
}

// Pack is something as it is kept.
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

// Unpack is the reverse of Pack.
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
