package kind

import (
	"fmt"

	"github.com/stokerdata/stoker/internal/collate"
	"github.com/stokerdata/stoker/internal/dtype"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/source/driver"
)

// fixed builds rows from the stored bytes of values of one shape. If a source can, it reads them straight into the
// batch. Otherwise they are copied once.
type fixed struct{ cols []fixedColumn }

type fixedColumn struct {
	Column
	field int
	bytes int64
}

// planFixed plans arrays with the types and shapes of the fields.
func planFixed(_ *Planner, wants []Want) ([]Maker, error) {
	m := &fixed{}
	for i := range wants {
		w := &wants[i]
		if err := noOperations(w); err != nil {
			return nil, err
		}
		size, err := driver.ArrayBytes(w.F.DType, w.F.Shape)
		if err != nil {
			return nil, fmt.Errorf("field %q: %w", w.F.Name, err)
		}
		dtype, err := elementType(w)
		if err != nil {
			return nil, err
		}
		c := fixedColumn{w.Column(dtype, w.F.Shape), w.Field, size}
		c.Stored = true
		m.cols = append(m.cols, c)
	}
	return []Maker{m}, nil
}

// elementType is the type of a field's elements.
func elementType(w *Want) (item.DType, error) {
	dtype, ok := dtype.Parse(string(w.F.DType))
	if !ok {
		return 0, fmt.Errorf("field %q: element type %q is not known", w.F.Name, w.F.DType)
	}
	return dtype, nil
}

// Columns implements Maker.
func (m *fixed) Columns() []Column {
	cols := make([]Column, len(m.cols))
	for i := range m.cols {
		cols[i] = m.cols[i].Column
	}
	return cols
}

// Cost implements Maker.
func (m *fixed) Cost() (c Cost) {
	for i := range m.cols {
		c.ValueBytes += m.cols[i].bytes
		c.UnplacedBytes = max(c.UnplacedBytes, m.cols[i].bytes)
	}
	return c
}

// NewWorker implements Maker.
func (m *fixed) NewWorker(t *Tools) (Worker, error) {
	return &fixedWorker{m: m, values: make([][]byte, 0, t.GroupRows)}, nil
}

type fixedWorker struct {
	m      *fixed
	values [][]byte
}

// Make implements Worker.
func (w *fixedWorker) Make(g *RowGroup) {
	for i := range w.m.cols {
		w.column(&w.m.cols[i], g)
	}
}

func (w *fixedWorker) column(c *fixedColumn, g *RowGroup) {
	w.values = w.values[:0]
	for k := range g.Records {
		if g.Errs[k] != nil {
			continue
		}
		v := g.Records[k].Values[c.field].Bytes
		if int64(len(v)) != c.bytes {
			g.Errs[k] = fmt.Errorf("field %q has %d bytes and not %d", c.Name, len(v), c.bytes)
			continue
		}
		if !collate.SameStart(v, g.Batch.Row(c.Array, g.First+k)) {
			w.values = append(w.values, v)
		}
	}
	switch len(w.values) {
	case 0: // all were read into their place
	case len(g.Records):
		g.Batch.Gather(c.Array, g.First, w.values)
	default:
		for k := range g.Records {
			if g.Errs[k] == nil {
				g.Batch.Copy(g.Batch.Row(c.Array, g.First+k), g.Records[k].Values[c.field].Bytes)
			}
		}
	}
	clear(w.values) // so that no record's bytes stay alive
}

// Close implements Worker.
func (w *fixedWorker) Close() {}
