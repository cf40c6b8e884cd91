package view

import (
	"context"
	"fmt"

	"github.com/stokerdata/stoker/internal/phash"
)

// similar returns the records of within whose images are not similar to an earlier record that
// stays. A record that cannot be read stays, so that its reader gets the error.
func (f *finder) similar(ctx context.Context, within *set) (*set, error) {
	field, distance, err := phash.Parse(f.v.spec.Similar, f.src.Info())
	if err != nil {
		return nil, err
	}
	req := &phash.Request{Field: field, Threads: f.opt.Threads}
	if f.opt.Progress != nil {
		req.Progress = func(done, total int64) { f.opt.Progress("similar", done, total) }
	}
	if within != nil {
		req.Within = within.has
	}
	ids, hashes, err := phash.Hashes(ctx, f.src, req)
	if err != nil {
		return nil, fmt.Errorf("similar: %w", err)
	}
	repeats, err := phash.Repeats(ctx, ids, hashes, distance)
	if err != nil {
		return nil, err
	}
	out := newSet(f.v.in.Len)
	for id := range f.v.in.Len {
		if within == nil || within.has(id) {
			out.add(id)
		}
	}
	for _, id := range repeats {
		out.words[id/64] &^= 1 << (id % 64)
	}
	out.index()
	return out, nil
}
