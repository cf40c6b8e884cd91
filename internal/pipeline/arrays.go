package pipeline

import (
	"fmt"

	"github.com/stokerdata/stoker/internal/collate"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/transform"
	"github.com/stokerdata/stoker/source/driver"
)

// This file plans the arrays of a batch, when a pipeline opens.

// planArrays compiles the outputs and lays the batch out.
func (p *Pipeline) planArrays(info *driver.Info) error {
	cfg := &p.cfg
	fieldOf := map[string]int{}
	names := make([]string, 0, len(info.Fields))
	for i, f := range info.Fields {
		fieldOf[f.Name] = i
		names = append(names, f.Name)
	}
	wanted := map[int]bool{}
	for _, name := range cfg.Fields {
		i, ok := fieldOf[name]
		if !ok {
			return fmt.Errorf("%s has no field %q%s", info.URL, name, transform.DidYouMean(name, names))
		}
		if info.Fields[i].Kind == driver.KindText {
			return fmt.Errorf("field %q is text, which has no fixed size and cannot be part of a batch; leave it out of fields", name)
		}
		wanted[i] = true
	}
	outputs := cfg.Outputs
	if len(outputs) == 0 {
		for i, f := range info.Fields {
			if f.Kind == driver.KindImage && (wanted[i] || len(cfg.Fields) == 0) {
				outputs = append(outputs, transform.Output{Name: f.Name, Field: f.Name})
			}
		}
	}
	var cols []collate.Column
	for _, out := range outputs {
		if out.Field == "" {
			out.Field = out.Name
		}
		i, ok := fieldOf[out.Field]
		if !ok {
			return fmt.Errorf("output %q: %s has no field %q%s", out.Name, info.URL, out.Field, transform.DidYouMean(out.Field, names))
		}
		f := &info.Fields[i]
		if isValue(f) && len(out.Ops) == 0 {
			col, err := p.planValue(out.Name, i, info, len(cols))
			if err != nil {
				return err
			}
			cols = append(cols, col)
			continue
		}
		if f.Kind != driver.KindImage {
			return fmt.Errorf("output %q: field %q is not an image but %q; operations work on images", out.Name, out.Field, f.Kind)
		}
		w, h := int(f.Width), int(f.Height)
		if cfg.ApplyOrientation && w != h {
			w, h = 0, 0 // some may be turned on their side
		}
		in, err := out.Image(w, h)
		if err != nil {
			return err
		}
		prog, err := transform.Compile(out, in)
		if err != nil {
			return err
		}
		p.outputs = append(p.outputs, output{prog: prog, field: i, array: len(cols), gather: prog.Identity() && !cfg.ApplyOrientation})
		cols = append(cols, collate.Column{Name: out.Name, DType: prog.Store.DType, Shape: prog.Shape()})
	}
	p.planShared()
	for i := range info.Fields {
		if f := &info.Fields[i]; isValue(f) && p.wantsValue(i, wanted) {
			col, err := p.planValue(f.Name, i, info, len(cols))
			if err != nil {
				return err
			}
			cols = append(cols, col)
		}
	}
	p.planPlaces(info)
	for i, f := range info.Fields {
		if f.Kind != driver.KindLabel && f.Kind != driver.KindInt || len(cfg.Fields) > 0 && !wanted[i] {
			continue
		}
		p.columns = append(p.columns, column{field: i, array: len(cols)})
		cols = append(cols, collate.Column{Name: f.Name, DType: item.I64})
	}
	var err error
	if cols, err = p.planBatchOps(cols, info); err != nil {
		return err
	}
	p.indexArray = len(cols)
	cols = append(cols, collate.Column{Name: "index", DType: item.I64})
	p.layout, err = collate.New(cfg.BatchSize, cols)
	return err
}

// planBatchOps compiles the operations on whole batches; they may add arrays.
func (p *Pipeline) planBatchOps(cols []collate.Column, info *driver.Info) ([]collate.Column, error) {
	in := transform.BatchInfo{Classes: map[string]int{}}
	for _, f := range info.Fields {
		if f.Kind == driver.KindLabel {
			in.Classes[f.Name] = len(f.Classes)
		}
	}
	for _, c := range cols {
		if !c.Ragged {
			in.Arrays = append(in.Arrays, item.Array{Name: c.Name, DType: c.DType, Shape: c.Shape})
		}
	}
	for i, raw := range p.cfg.BatchOps {
		op, add, err := transform.CompileBatchOp(raw, in, i)
		if err != nil {
			return nil, fmt.Errorf("batch operation %d: %w", i+1, err)
		}
		p.batchOps = append(p.batchOps, op)
		for _, a := range add {
			cols = append(cols, collate.Column{Name: a.Name, DType: a.DType, Shape: a.Shape})
			in.Arrays = append(in.Arrays, a)
		}
	}
	return cols, nil
}

func (p *Pipeline) classes(info *driver.Info) map[string][]string {
	var m map[string][]string
	for _, c := range p.columns {
		f := &info.Fields[c.field]
		if f.Kind == driver.KindLabel && len(f.Classes) > 0 {
			if m == nil {
				m = map[string][]string{}
			}
			m[f.Name] = f.Classes
		}
	}
	return m
}
