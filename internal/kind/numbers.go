package kind

import (
	"encoding/binary"
	"math"

	"github.com/stokerdata/stoker/internal/item"
)

// numbers builds rows of one number each.
type numbers struct {
	dtype item.DType
	cols  []numberColumn
}

type numberColumn struct {
	Column
	field int
}

// planNumbers returns a Plan for numbers: item.I64 or item.F64.
func planNumbers(dtype item.DType) func(*Planner, []Want) ([]Maker, error) {
	return func(_ *Planner, wants []Want) ([]Maker, error) {
		m := &numbers{dtype: dtype}
		for i := range wants {
			if err := noOperations(&wants[i]); err != nil {
				return nil, err
			}
			m.cols = append(m.cols, numberColumn{wants[i].Column(dtype, nil), wants[i].Field})
		}
		return []Maker{m}, nil
	}
}

// Columns implements Maker.
func (m *numbers) Columns() []Column {
	cols := make([]Column, len(m.cols))
	for i := range m.cols {
		cols[i] = m.cols[i].Column
	}
	return cols
}

// Cost implements Maker.
func (m *numbers) Cost() Cost { return Cost{} }

// NewWorker implements Maker.
func (m *numbers) NewWorker(*Tools) (Worker, error) { return m, nil }

// Make implements Worker. This worker needs no memory of its own.
func (m *numbers) Make(g *RowGroup) {
	for i := range m.cols {
		c := &m.cols[i]
		rows := g.Batch.Span(c.Array, g.First, g.First+len(g.Records))
		for k := range g.Records {
			if g.Errs[k] != nil {
				continue
			}
			v := &g.Records[k].Values[c.field]
			bits := uint64(v.Int)
			if m.dtype == item.F64 {
				bits = math.Float64bits(v.Float)
			}
			binary.LittleEndian.PutUint64(rows[8*k:], bits)
		}
	}
}

// Close implements Worker.
func (m *numbers) Close() {}
