package archive

import (
	"context"

	"github.com/stokerdata/stoker/internal/source/indexcache"
	"github.com/stokerdata/stoker/internal/source/inorder"
)

// known is the cached scan of a compressed archive: its members, and the points where decompression can start.
// These are numbered by members.
type known struct {
	inorder.File
	Names    []byte
	Ends     []uint32
	At, Size []int64
}

// table returns the cached table of members, or nil if it is not consistent.
func (k *known) table(size int64) *Table {
	n := len(k.Ends)
	bad := len(k.At) != n || len(k.Size) != n || k.Records != int64(n) || k.Check(size) != nil
	end, pos := uint32(0), int64(0)
	for i := 0; i < n && !bad; i++ {
		bad = k.Ends[i] < end || k.At[i] < pos || k.Size[i] < 0
		end, pos = k.Ends[i], k.At[i]
	}
	if bad || int(end) != len(k.Names) {
		return nil
	}
	return &Table{names: k.Names, ends: k.Ends, at: k.At, size: k.Size}
}

// recall sets t and f from the cached scan of archive i, which has size bytes. It reports whether there is one for
// the format in f.
func recall(ctx context.Context, from *indexcache.Files, i int, size int64, t *Table, f *inorder.File) bool {
	var k known
	if !from.Get(ctx, i, &k) || k.Format != f.Format {
		return false
	}
	have := k.table(size)
	if have == nil {
		return false
	}
	*t, *f = *have, k.File
	f.Records = 0 // known counts members there
	return true
}

// remember caches the scan of archive i.
func remember(ctx context.Context, to *indexcache.Files, i int, t *Table, f *inorder.File) {
	k := known{File: *f, Names: t.names, Ends: t.ends, At: t.at, Size: t.size}
	k.Records = int64(t.len())
	to.Put(ctx, i, &k)
}
