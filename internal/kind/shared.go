package kind

import (
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/source/driver"
)

// shared is a stored field that several outputs are made from.
type shared struct {
	field   int
	outputs []int
	pixels  item.PixelType
	mask    bool
	index   int
}

// decide sets the box that is worth decoding once for all outputs of a record,
// or an empty one when they are better decoded one by one. Boxes are exact, so
// this changes no pixel.
func (sh *shared) decide(w *pixelWorker, mine int, rec *driver.Record) {
	w.box[sh.index] = item.Rect{}
	v := &rec.Values[sh.field]
	if v.Codec == driver.CodecRaw || v.Codec == driver.CodecRuns {
		return
	}
	dct := v.Codec == driver.CodecDCT
	var all item.Rect
	apart := 0.0
	width := 0
	for _, o := range sh.outputs {
		run := &w.runs[mine+o]
		if w.gathered[o] || run.Empty() {
			return
		}
		g := run.Geometry()
		width, _ = run.SourceSize()
		apart += boxCost(g.Box, width, dct)
		all = unite(all, g.Box)
	}
	if boxCost(all, width, dct) < 0.9*apart {
		w.box[sh.index] = all
	}
}

// boxCost returns about the cost of decoding a box, in pixels. Without an index the entropy code of a JPEG must be read
// up to the last row of the box.
func boxCost(b item.Rect, width int, dct bool) float64 {
	area := float64(b.W) * float64(b.H)
	if dct {
		return area
	}
	return 0.35*area + 0.65*float64(width)*float64(b.Y+b.H)
}

func unite(a, b item.Rect) item.Rect {
	if a.W == 0 {
		return b
	}
	x, y := min(a.X, b.X), min(a.Y, b.Y)
	return item.Rect{X: x, Y: y, W: max(a.X+a.W, b.X+b.W) - x, H: max(a.Y+a.H, b.Y+b.H) - y}
}

// planShared finds the fields that several outputs are made from.
func (m *pixels) planShared() {
	for o := range m.outputs {
		first := &m.outputs[o]
		if first.shared >= 0 || isFlow(&m.p.Info.Fields[first.field]) { // which changes on its way
			continue
		}
		sh := shared{field: first.field, pixels: first.prog.In, mask: first.prog.Mask, index: len(m.shared)}
		for other := o; other < len(m.outputs); other++ {
			if out := &m.outputs[other]; out.field == sh.field && out.prog.In == sh.pixels && out.prog.Mask == sh.mask {
				sh.outputs = append(sh.outputs, other)
			}
		}
		if len(sh.outputs) < 2 {
			continue
		}
		for _, other := range sh.outputs {
			m.outputs[other].shared = sh.index
		}
		m.shared = append(m.shared, sh)
	}
}
