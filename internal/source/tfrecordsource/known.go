package tfrecordsource

import (
	"context"
	"errors"

	"github.com/stokerdata/stoker/internal/source/dynvalue"
	"github.com/stokerdata/stoker/internal/source/inorder"
	"github.com/stokerdata/stoker/internal/source/stream"
)

// known is the cached scan of a compressed file.
type known struct {
	inorder.File
	Sizes            []uint32
	Examples, Others int64
	Why              string
	Columns          *dynvalue.State
}

// recall returns the cached scan of file i.
func (l *looks) recall(ctx context.Context, i int, format stream.Format) (f file, ok bool) {
	var k known
	if !l.known.Get(ctx, i, &k) || k.Columns == nil || k.Format != format || k.Records != int64(len(k.Sizes)) || k.Check(l.list.Size(i)) != nil {
		return f, false
	}
	f = file{sizes: k.Sizes, File: k.File, seen: newSeen(l.columns)}
	f.seen.examples, f.seen.others = k.Examples, k.Others
	if k.Why != "" {
		f.seen.why = errors.New(k.Why)
	}
	return f, f.seen.columns.Restore(k.Columns) == nil
}

// remember caches the scan of file i.
func (l *looks) remember(ctx context.Context, i int, f *file) {
	k := known{File: f.File, Sizes: f.sizes, Examples: f.seen.examples, Others: f.seen.others, Columns: f.seen.columns.State()}
	k.Records = int64(len(f.sizes))
	if f.seen.why != nil {
		k.Why = f.seen.why.Error()
	}
	if k.Columns != nil {
		l.known.Put(ctx, i, &k)
	}
}
