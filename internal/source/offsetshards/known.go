package offsetshards

import (
	"context"

	"github.com/stokerdata/stoker/internal/source/dynvalue"
	"github.com/stokerdata/stoker/internal/source/indexcache"
	"github.com/stokerdata/stoker/internal/source/inorder"
	"github.com/stokerdata/stoker/store"
)

// known is the cached scan of a compressed file.
type known struct {
	inorder.File
	At      []uint32
	Columns *dynvalue.State
}

// once scans a compressed file with its own looker, unless the result of a scan is cached.
func (l *looker) once(ctx context.Context, i int, o store.Object, files *indexcache.Files, through func(l *looker) error) error {
	list, f := l.s.set.List, &l.s.shards[i]
	var k known
	if files.Get(ctx, i, &k) && k.good(l.s.set.Records[i], o.Size()) && l.columns.Restore(k.Columns) == nil {
		f.File, f.at = k.File, k.At
		return store.Check(ctx, o)
	}
	own := l.s.newLooker()
	own.w.View, own.w.record = l.w.View, l.w.record
	err := through(own)
	l.w.View, l.w.record = own.w.View, own.w.record
	if err != nil {
		return inorder.Placed(list.Path(i), err)
	}
	if err := store.Check(ctx, o); err != nil {
		return err
	}
	if state := own.columns.State(); state != nil {
		files.Put(ctx, i, &known{f.File, f.at, state})
	}
	l.columns.Merge(own.columns)
	return nil
}

// good reports whether a cached scan is consistent with a file of n records and this size.
func (k *known) good(n, size int64) bool {
	bad := k.Columns == nil || k.Records != n || int64(len(k.At)) != n+1 || k.Check(size) != nil
	for i := 1; i < len(k.At); i++ {
		bad = bad || k.At[i] < k.At[i-1]
	}
	return !bad
}
