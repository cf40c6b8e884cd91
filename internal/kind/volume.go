package kind

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/stokerdata/stoker/internal/budget"
	"github.com/stokerdata/stoker/internal/source/wrap/crop"
	"github.com/stokerdata/stoker/internal/transform"
	"github.com/stokerdata/stoker/source/driver"
)

// Volume is a volume of numbers, whose last three axes are z, y and x. Without operations a row is the volume
// unchanged. Volumes of different sizes need operations that make them fit one batch.
var Volume = Kind{Name: driver.KindVolume, Decoded: true, Plan: planVolumes}

func planVolumes(p *Planner, wants []Want) (makers []Maker, err error) {
	m := &volumes{p: p}
	var plain []Want
	for i := range wants {
		w := &wants[i]
		if w.F.Mask {
			w.Out.Mask = true
			if w.Out.Follow == "" {
				w.Out.Follow = FirstVolume(p.Info, outputs(p))
			}
		}
		if err := p.checkFollow(w); err != nil {
			return nil, err
		}
		o, err := m.output(w)
		if err != nil {
			return nil, err
		}
		if o.prog.Plain() {
			w.Out.Ops, w.Out.Mask, w.Out.Follow = nil, false, ""
			plain = append(plain, *w)
			continue
		}
		m.outs = append(m.outs, o)
	}
	if len(plain) > 0 {
		if makers, err = planFixed(p, plain); err != nil {
			return nil, err
		}
	}
	if len(m.outs) > 0 {
		makers = append(makers, m)
	}
	return makers, nil
}

// outputs returns the requested outputs of all arrays.
func outputs(p *Planner) (all []transform.Output) {
	for i := range p.Wants {
		all = append(all, p.Wants[i].Out)
	}
	return all
}

// FirstVolume returns the array with which volumes of classes move by default: the first one of other volumes, "" if
// there is none.
func FirstVolume(info *driver.Info, outputs []transform.Output) string {
	for _, out := range outputs {
		name := cmp.Or(out.Field, out.Name)
		for i := range info.Fields {
			if f := &info.Fields[i]; f.Name == name && f.Kind == driver.KindVolume && !f.Mask && !out.Mask {
				return out.Name
			}
		}
	}
	return ""
}

// volumes builds rows of volumes.
type volumes struct {
	p    *Planner
	outs []volumeOutput
}

type volumeOutput struct {
	Column
	prog  *transform.VolumeProgram
	field int
	shape []int // that all volumes share, else nil
	// lead is the product of the axes before the last three.
	lead int
}

func (m *volumes) output(w *Want) (o volumeOutput, err error) {
	f := w.F
	least, most := f.Least, f.Most
	if len(f.Shape) > 0 {
		least, most = f.Shape, f.Shape
	}
	n := len(most) - 3
	if n < 0 || len(least) != len(most) {
		return o, fmt.Errorf("field %q: a volume of shape %v, from %v to %v", f.Name, f.Shape, f.Least, f.Most)
	}
	o.lead, o.field, o.shape = 1, w.Field, f.Shape
	for _, side := range most[:n] {
		o.lead *= side
	}
	dtype, err := elementType(w)
	if err != nil {
		return o, err
	}
	_, cut := m.p.Cut[w.Field]
	o.prog, err = transform.CompileVolume(w.Out, transform.VolumeInput{
		DType: dtype, Channels: o.lead, Least: [3]int(least[n:]), Most: [3]int(most[n:]), Mask: w.Out.Mask, Cut: cut,
	})
	if err != nil {
		return o, err
	}
	if lo, hi := o.prog.Least, o.prog.Most; lo != hi {
		return o, fmt.Errorf("output %q: its volumes have from %v to %v voxels (z, y, x), and rows of a batch have one size: "+
			"end the list with volume.ResizeWithPadOrCrop, cut them with volume.RandSpatialCrop to at most %v, or read patches of one size, ?patch=64x64x64", w.Out.Name, lo, hi, lo)
	}
	shape := append(append([]int{}, most[:n]...), o.prog.Most[:]...)
	if _, err := driver.ArrayBytes(driver.DType(o.prog.DType.String()), shape); err != nil && o.prog.DType.Size() > 2 {
		return o, fmt.Errorf("output %q: %w", w.Out.Name, err)
	}
	o.Column = w.Column(o.prog.DType, shape)
	return o, nil
}

// Columns implements Maker.
func (m *volumes) Columns() []Column {
	cols := make([]Column, len(m.outs))
	for i := range m.outs {
		cols[i] = m.outs[i].Column
	}
	return cols
}

// Cost implements Maker. A volume is like an image of as many pixels as it has voxels.
func (m *volumes) Cost() (c Cost) {
	for i := range m.outs {
		o := &m.outs[i]
		f := &m.p.Info.Fields[o.field]
		voxels := int64(o.lead)
		for _, side := range o.prog.In.Most {
			voxels *= int64(side)
		}
		const side = 1 << 12
		c.Images = append(c.Images, budget.Image{MaxBytes: voxels * int64(f.DType.Size()), MaxWidth: side, MaxHeight: voxels/side + 1, PixelBytes: 4, Kept: true})
	}
	return c
}

// NewWorker implements Maker.
func (m *volumes) NewWorker(t *Tools) (Worker, error) {
	// The decoder brings its memory.
	if _, err := t.Decoder(); err != nil {
		return nil, err
	}
	return &volumeWorker{m: m, t: t}, nil
}

type volumeWorker struct {
	m *volumes
	t *Tools
}

// Make implements Worker.
func (w *volumeWorker) Make(g *RowGroup) {
	start := time.Now()
	for i := range w.m.outs {
		o := &w.m.outs[i]
		g.each(w.m.p.Info.Fields[o.field].Name, func(k int) error { return w.row(g, k, o) })
	}
	g.TransformTime += time.Since(start)
}

func (w *volumeWorker) row(g *RowGroup, k int, o *volumeOutput) error {
	mem := soundMemory{w.t.scratch.sound}
	mem.Reset()
	rec := &g.Records[k]
	v := &rec.Values[o.field]
	sides := [3]int{int(v.Depth), int(v.Height), int(v.Width)}
	if n := len(o.shape); n > 0 && !o.prog.In.Cut {
		sides = [3]int(o.shape[n-3:])
	}
	bytes := int64(o.lead) * int64(o.prog.In.DType.Size())
	for a, side := range sides {
		if side < o.prog.In.Least[a] || side > o.prog.In.Most[a] {
			return fmt.Errorf("a volume of %v voxels, its source says that they have from %v to %v", sides, o.prog.In.Least, o.prog.In.Most)
		}
		bytes *= int64(side)
	}
	if int64(len(v.Bytes)) != bytes {
		return fmt.Errorf("%d bytes for a volume of %v voxels, which takes %d", len(v.Bytes), sides, bytes)
	}
	return o.prog.Run(g.Batch.Row(o.Array, g.First+k), v.Bytes, sides, w.m.p.Seed, g.Epoch, g.Draw(k), mem)
}

// Close implements Worker.
func (w *volumeWorker) Close() {}

// CutVolumes lets a source read only the part of volumes that the crops at the beginning of operation lists need, if it
// can. It returns the source to use and the fields that this applies to.
func CutVolumes(src driver.Source, r *Request, seed uint64) (driver.Source, map[int]bool) {
	info := src.Info()
	cutter, ok := driver.As[driver.Cutter](src)
	if !ok || info.Sequential || driver.EpochsOf(src) || driver.VariantsOf(src) > 1 {
		return src, nil
	}
	fields, of := map[int]crop.Field{}, map[string]int{}
	for _, out := range r.Outputs {
		of[cmp.Or(out.Field, out.Name)]++
	}
	for _, out := range r.Outputs {
		name := cmp.Or(out.Field, out.Name)
		i := slices.IndexFunc(info.Fields, func(f driver.Field) bool { return f.Name == name })
		if i < 0 || info.Fields[i].Kind != driver.KindVolume || !cutter.Cuts(i) || of[name] > 1 || slices.Contains(r.Fields, name) {
			continue
		}
		if info.Fields[i].Mask && out.Follow == "" {
			out.Follow = FirstVolume(info, r.Outputs)
		}
		if first := transform.FirstCut(out); first != nil {
			fields[i] = crop.Field{Sides: first.Sides, Part: func(epoch, record int64, sides [3]int) (at, size [3]int) {
				return first.Part(seed, epoch, record, sides)
			}}
		}
	}
	if len(fields) == 0 {
		return src, nil
	}
	places := map[int]bool{}
	for i := range fields {
		places[i] = true
	}
	return crop.Open(src, fields), places
}
