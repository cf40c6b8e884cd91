package kind

import (
	"github.com/stokerdata/stoker/internal/collate"
	"github.com/stokerdata/stoker/source/driver"
)

// Rows builds the rows of batches. It belongs to one goroutine.
type Rows struct {
	tools   Tools
	large   *Large
	workers []Worker
	errs    []error
	group   RowGroup
	// Without is a field of which the records of the next group have no value, -1 for none.
	Without int
}

// Make fills the rows of recs, from row first of b on. The parameter draw is the first record's place in the epoch if
// random numbers depend on it, -1 if they depend on the record. The result is valid until the next call: the errors by
// record and the times of the group.
func (r *Rows) Make(b *collate.Batch, first int, epoch, draw int64, recs []driver.Record) (group *RowGroup) {
	r.group = RowGroup{Batch: b, First: first, Epoch: epoch, draw: draw, without: r.Without, Records: recs, Errs: r.errs[:len(recs)]}
	g := &r.group
	r.all(g)
	if r.tools.dec == nil {
		return g
	}
	for k := range recs {
		if g.Errs[k] != nil && recs[k].Err == nil {
			r.oneLarge(g, k)
		}
	}
	return g
}

// oneLarge fills a row again that failed for lack of memory, with the memory that it needs.
func (r *Rows) oneLarge(g *RowGroup, k int) {
	var w wish
	for w.learn(g.Errs[k]) {
		if err := r.large.with(&r.tools, &w, func() { r.one(g, k) }); err != nil {
			g.Errs[k] = err
			return
		}
	}
}

// all builds all rows of a group. After a panic it builds them one at a time, to find the record that causes it.
func (r *Rows) all(g *RowGroup) {
	for k := range g.Records {
		g.Errs[k] = g.Records[k].Err
	}
	err := r.guarded(g)
	switch {
	case err == nil:
	case len(g.Records) == 1:
		g.Errs[0] = err
	default:
		for k := range g.Records {
			r.one(g, k)
		}
	}
}

// one builds a single row.
func (r *Rows) one(g *RowGroup, k int) {
	one := RowGroup{Batch: g.Batch, First: g.First + k, Epoch: g.Epoch, draw: g.draw, without: g.without, Records: g.Records[k : k+1], Errs: g.Errs[k : k+1]}
	if one.draw >= 0 {
		one.draw += int64(k)
	}
	one.Errs[0] = one.Records[0].Err
	if err := r.guarded(&one); err != nil {
		one.Errs[0] = err
	}
	g.DecodeTime += one.DecodeTime
	g.TransformTime += one.TransformTime
}

func (r *Rows) guarded(g *RowGroup) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fault("decoding", p)
		}
	}()
	for _, w := range r.workers {
		w.Make(g)
	}
	return nil
}

// Close frees the workers' memory.
func (r *Rows) Close() {
	for _, w := range r.workers {
		w.Close()
	}
	r.workers = nil
	r.tools.close()
}
