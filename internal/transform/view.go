package transform

import "github.com/stokerdata/stoker/internal/item"

// view is a fused chain of geometric steps over one image. It grows step by
// step for as long as a single item.Geometry, placed on a background, can
// express the chain.
type view struct {
	srcW, srcH int
	// box is the part cut out of the source, win the part kept of the box after a resize to rw x rh. Without a resize
	// win is the whole box.
	box          item.Rect
	resized      bool
	rw, rh       int
	win          item.Rect
	filter       item.Filter
	flipH, flipV bool
	// w and h are the size of the result. When padded, the window is its part
	// at (padX, padY) and the rest is fill.
	w, h       int
	padded     bool
	padX, padY int
	fill       Fill
}

func newView(w, h int) view {
	return view{srcW: w, srcH: h, w: w, h: h, box: item.Rect{W: int32(w), H: int32(h)}, filter: item.Bilinear}
}

// apply adds a step. It removes the added parts from s. If parts are left it returns false. Then the caller makes the
// pixels so far and applies the rest of s to a view of them. A step always fits a new view, except a resize after a
// crop that pads, and padding after one.
func (v *view) apply(s *Step) bool {
	if s.HasCrop {
		if !v.crop(s) {
			return false
		}
		s.HasCrop = false
	}
	if s.HasResize {
		if !v.resize(s) {
			return false
		}
		s.HasResize = false
	}
	if s.HasPad {
		if !v.crop(&Step{X: -s.PadX, Y: -s.PadY, W: s.PadW, H: s.PadH, Fill: s.Fill}) {
			return false
		}
		s.HasPad = false
	}
	if s.FlipH {
		v.flipH = !v.flipH
		v.padX = v.w - v.padX - v.contentW()
		s.FlipH = false
	}
	if s.FlipV {
		v.flipV = !v.flipV
		v.padY = v.h - v.padY - v.contentH()
		s.FlipV = false
	}
	return true
}

func (v *view) crop(s *Step) bool {
	if v.padded {
		return false
	}
	x, y, w, h := s.X, s.Y, s.W, s.H
	if x < 0 || y < 0 || x+w > v.w || y+h > v.h {
		if v.flipH || v.flipV {
			return false
		}
		x0, y0 := min(max(x, 0), v.w), min(max(y, 0), v.h)
		x1, y1 := max(min(x+w, v.w), x0), max(min(y+h, v.h), y0)
		v.cut(x0, y0, x1-x0, y1-y0)
		v.padded, v.fill = true, s.Fill
		v.padX, v.padY = x0-x, y0-y
	} else {
		if v.flipH {
			x = v.w - x - w
		}
		if v.flipV {
			y = v.h - y - h
		}
		v.cut(x, y, w, h)
	}
	v.w, v.h = w, h
	return true
}

// cut narrows the content. The given box is inside of it.
func (v *view) cut(x, y, w, h int) {
	r := &v.box
	if v.resized {
		r = &v.win
	}
	r.X += int32(x)
	r.Y += int32(y)
	r.W, r.H = int32(w), int32(h)
}

func (v *view) resize(s *Step) bool {
	if v.padded {
		return false
	}
	if s.RW == v.w && s.RH == v.h {
		return true
	}
	// Nearest is not symmetric: mirrored input is not mirrored output.
	if v.resized || s.Filter == item.Nearest && (v.flipH || v.flipV) {
		return false
	}
	v.resized, v.filter = true, s.Filter
	v.rw, v.rh = s.RW, s.RH
	v.win = item.Rect{W: int32(s.RW), H: int32(s.RH)}
	v.w, v.h = s.RW, s.RH
	return true
}

func (v *view) contentW() int {
	if v.resized {
		return int(v.win.W)
	}
	return int(v.box.W)
}

func (v *view) contentH() int {
	if v.resized {
		return int(v.win.H)
	}
	return int(v.box.H)
}

// empty reports whether no part of the source is in the result.
func (v *view) empty() bool { return v.contentW() == 0 || v.contentH() == 0 }

// identity reports whether the result is the source.
func (v *view) identity() bool {
	return !v.padded && !v.resized && !v.flipH && !v.flipV && int(v.box.W) == v.srcW && int(v.box.H) == v.srcH
}

// geometry is the content as a geometry of the source.
func (v *view) geometry() item.Geometry {
	g := item.Geometry{Box: v.box, FlipH: v.flipH, FlipV: v.flipV, Filter: v.filter}
	if v.resized {
		g.ResizeW, g.ResizeH, g.Window = int32(v.rw), int32(v.rh), v.win
	} else {
		g.ResizeW, g.ResizeH = v.box.W, v.box.H
		g.Window = item.Rect{W: v.box.W, H: v.box.H}
	}
	return g
}
