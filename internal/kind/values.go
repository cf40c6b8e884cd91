package kind

import (
	"fmt"
	"math"
	"slices"

	"github.com/stokerdata/stoker/internal/collate"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/source/driver"
)

// values makes rows of any length that are the stored bytes of their values.
type values struct {
	cols []valueColumn
	// check refuses values that are not what the kind promises; nil: all will do.
	check func(v []byte) error
}

type valueColumn struct {
	Column
	field int
	// perRecord is about how many bytes a value has, largest the most that may
	// have to be read into memory of its own.
	perRecord, largest int64
}

// exactCapacity is the size of a batch's values from which the largest batch
// is computed instead of taking each value to be as large as the largest.
const exactCapacity = 64 << 20

// planRagged returns a Plan for values of any length whose elements of the first
// axis are as of says.
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
			c.Stored, c.Ragged, c.MaxRow = true, true, w.F.MaxBytes
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

// room works out how much room a batch has for the values of a column.
func (c *valueColumn) room(p *Planner, w *Want) error {
	f, rows := w.F, int64(p.BatchSize)
	c.Capacity = f.MaxBytes * rows
	sizer, sized := p.Source.(driver.Sizer)
	switch {
	case f.MaxBytes < 0 || f.MaxBytes == 0 && !sized:
		return fmt.Errorf("field %q: %s does not say how large its values can get, so that there is no room for them in a batch; "+
			"leave it out of fields", f.Name, p.Info.URL)
	case f.MaxBytes > collate.MaxBatch/rows:
		return fmt.Errorf("field %q: values of up to %d bytes in batches of %d do not fit a batch of a terabyte; "+
			"leave it out of fields or lower batch_size", f.Name, f.MaxBytes, rows)
	case sized:
		c.largest = 0
		if c.Capacity > exactCapacity {
			c.Capacity = min(c.Capacity, largestBatch(sizer, w.Field, p.Info.Len, p.BatchSize))
		}
	}
	c.perRecord = c.Capacity / rows
	return nil
}

// largestBatch returns the sum of the rows largest values of a field, as far as the
// source knows their sizes: no batch has more.
func largestBatch(s driver.Sizer, field int, records int64, rows int) int64 {
	const step = 4096
	ids, sizes := make([]int64, step), make([]int64, step)
	largest := make([]int64, 0, rows+step)
	for at := int64(0); at < records; at += step {
		n := int(min(step, records-at))
		for i := range ids[:n] {
			ids[i] = at + int64(i)
		}
		if !s.Sizes(field, ids[:n], sizes[:n]) {
			return math.MaxInt64
		}
		largest = append(largest, sizes[:n]...)
		if len(largest) > rows {
			slices.SortFunc(largest, func(a, b int64) int { return int(min(max(b-a, -1), 1)) })
			largest = largest[:rows]
		}
	}
	total := int64(0)
	for _, n := range largest {
		total += n
	}
	return total
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
func (w *valueWorker) Make(g *Group) {
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
	clear(w.rows) // keeps no record's bytes alive
}

// Close implements Worker.
func (w *valueWorker) Close() {}
