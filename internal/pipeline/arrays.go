package pipeline

import (
	"context"
	"fmt"
	"slices"

	"github.com/stokerdata/stoker/internal/collate"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/kind"
	"github.com/stokerdata/stoker/internal/transform"
	"github.com/stokerdata/stoker/source/driver"
)

// This file plans the arrays of a batch, when a pipeline opens.

// arrays tells what a batch contains.
type arrays struct {
	// set builds the arrays of fields.
	set    *kind.Set
	layout *collate.Layout
	// batchOps run on complete batches.
	batchOps   []transform.BatchOp
	indexArray int
	drawn      bool // arrays are made with operations, which may use a part of a value
}

// planArrays asks the kinds of the fields for their arrays and lays out the batch: those arrays, the additions of batch
// operations, and the record numbers.
func (p *Pipeline) planArrays(ctx context.Context, info *driver.Info) error {
	cfg := &p.cfg
	planner := &kind.Planner{Source: p.src, Info: info, BatchSize: cfg.BatchSize, Seed: cfg.Seed, ApplyOrientation: cfg.ApplyOrientation, Cut: p.records.cut}
	if cfg.OnError != OnErrorMark { // whose client makes rows of any size
		planner.First = p.firstSize(ctx)
	}
	p.arrays.drawn = slices.ContainsFunc(cfg.Outputs, func(o transform.Output) bool { return len(o.Ops) > 0 })
	var err error
	if p.arrays.set, err = kind.Open(planner, &kind.Request{Kinds: cfg.Kinds, Outputs: cfg.Outputs, Fields: cfg.Fields, Layout: cfg.Layout, Pads: p.pads()}); err != nil {
		return err
	}
	cols, err := p.planBatchOps(p.arrays.set.Columns())
	if err != nil {
		return err
	}
	cols = p.alignArray(cols)
	p.arrays.indexArray = len(cols)
	cols = append(cols, collate.Column{Name: "index", DType: item.I64})
	p.arrays.layout, err = collate.New(cfg.BatchSize, cols)
	return err
}

// planBatchOps compiles the operations on whole batches; they may add arrays.
func (p *Pipeline) planBatchOps(cols []collate.Column) ([]collate.Column, error) {
	in := transform.BatchInfo{Classes: p.arrays.set.Labels()}
	for _, c := range cols {
		in.Arrays = append(in.Arrays, item.Array{Name: c.Name, Kind: c.Kind, Format: c.Format, Boxes: c.Boxes, DType: c.DType, Shape: c.Shape, Ragged: c.Ragged, Padded: c.Pad != nil})
	}
	for i, raw := range p.cfg.BatchOps {
		op, add, err := transform.CompileBatchOp(raw, in, i)
		if err != nil {
			return nil, fmt.Errorf("batch operation %d: %w", i+1, err)
		}
		p.arrays.batchOps = append(p.arrays.batchOps, op)
		if g, ok := op.(transform.Grower); ok {
			for k := range cols {
				if c := &cols[k]; c.Ragged {
					c.Capacity *= g.Grow(c.Name)
				}
			}
		}
		for _, a := range add {
			cols = append(cols, collate.Column{Name: a.Name, DType: a.DType, Shape: a.Shape})
			in.Arrays = append(in.Arrays, a)
		}
	}
	return cols, nil
}

// Place implements fetch.Places: it returns the bytes of the slot in which a source may put a value of n bytes.
func (b *batch) Place(row, field int, n int64) []byte {
	at, ok := b.p.arrays.set.Place(b.rows, row, field, n)
	if !ok {
		return nil
	}
	b.back(at, n)
	return b.p.memory.ring.Slot(b.slot)[at : at+n : at+n]
}

// backFrom is the size of a value from which a call to back its memory costs less than the page faults that it saves.
const backFrom = 64 << 10

// back maps memory for n bytes of a slot that was never used, in one call, before a source writes them. The call in
// worker.populate would be too late for that.
func (b *batch) back(lo, n int64) {
	if b.populate && n >= backFrom {
		b.p.memory.ring.Prefault(b.slot, lo, lo+n)
	}
}
