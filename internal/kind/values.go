package kind

import (
	"fmt"

	"github.com/stokerdata/stoker/internal/collate"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/source/driver"
)

// values builds rows of any length from the stored bytes of their values.
type values struct {
	cols []valueColumn
	// check refuses values that break the rules of the kind; nil accepts all.
	check func(v []byte) error
}

type valueColumn struct {
	Column
	field int
	// perRecord is about how many bytes a value has, largest the most that may
	// have to be read into memory of its own.
	perRecord, largest int64
}

// planRagged returns a Plan for values of any length. The function of returns the type and shape of the elements of the
// first axis.
func planRagged(of func(w *Want) (item.DType, []int, error), check func(v []byte) error) func(*Planner, []Want) ([]Maker, error) {
	return func(p *Planner, wants []Want) ([]Maker, error) {
		m := &values{check: check}
		for i := range wants {
			w := &wants[i]
			if err := noOperations(w); err != nil {
				return nil, err
			}
			dtype, shape, err := of(w)
			if err != nil {
				return nil, err
			}
			c := valueColumn{Column: w.Column(dtype, shape), field: w.Field, largest: w.F.MaxBytes}
			c.Stored, c.Ragged, c.MaxRow, c.Format = true, true, w.F.MaxBytes, string(w.F.Format)
			if err := c.room(p, w); err != nil {
				return nil, err
			}
			m.cols = append(m.cols, c)
		}
		return []Maker{m}, nil
	}
}

// ofBytes is for planRagged: values are strings of bytes.
func ofBytes(*Want) (item.DType, []int, error) { return item.U8, nil, nil }

// room computes the capacity of a batch for the values of a column.
func (c *valueColumn) room(p *Planner, w *Want) error {
	f, rows := w.F, int64(p.BatchSize)
	_, sized := driver.As[driver.Sizer](p.Source)
	switch {
	case f.MaxBytes < 0 || f.MaxBytes == 0 && !sized && f.Stats == nil:
		return fmt.Errorf("field %q: %s does not say how large its values can get, so that there is no room for them in a batch; "+
			"leave it out of fields", f.Name, p.Info.URL)
	case f.MaxBytes > collate.MaxBatch/rows:
		return fmt.Errorf("field %q: values of up to %d bytes in batches of %d do not fit a batch of a terabyte; "+
			"leave it out of fields or lower batch_size", f.Name, f.MaxBytes, rows)
	}
	c.Capacity = largestBatch(p, w.Field)
	c.perRecord = c.Capacity / rows
	if f.Stats != nil && f.Stats.Count > 0 {
		c.perRecord = f.Stats.Bytes / f.Stats.Count
	}
	if sized && !p.Source.Info().Sequential { // which is read before there is a place
		c.largest = 0
	}
	return nil
}

// Columns implements Maker.
func (m *values) Columns() []Column {
	cols := make([]Column, len(m.cols))
	for i := range m.cols {
		cols[i] = m.cols[i].Column
	}
	return cols
}

// Cost implements Maker.
func (m *values) Cost() (c Cost) {
	for i := range m.cols {
		c.ValueBytes += m.cols[i].perRecord
		c.UnplacedBytes = max(c.UnplacedBytes, m.cols[i].largest)
	}
	return c
}

// NewWorker implements Maker.
func (m *values) NewWorker(t *Tools) (Worker, error) {
	return &valueWorker{m: m, rows: make([][]byte, 0, t.GroupRows)}, nil
}

type valueWorker struct {
	m    *values
	rows [][]byte
}

// Make implements Worker.
func (w *valueWorker) Make(g *RowGroup) {
	for i := range w.m.cols {
		c := &w.m.cols[i]
		w.rows = w.rows[:0]
		for k := range g.Records {
			v := g.Records[k].Values[c.field].Bytes
			w.rows = append(w.rows, v)
			if g.Errs[k] == nil && w.m.check != nil {
				if err := w.m.check(v); err != nil {
					g.Errs[k] = fmt.Errorf("field %q %w", c.Name, err)
				}
			}
		}
		g.Batch.PutRows(c.Array, g.First, w.rows, g.Errs)
	}
	clear(w.rows) // so that no record's bytes stay alive
}

// Close implements Worker.
func (w *valueWorker) Close() {}
