package gen

// A shape is a convex region, filled row by row. Coordinates are in 1/16 pixel.
type shape struct {
	// An ellipse: half axes a (across) and b (down) around (cx, cy), each row
	// moved sideways by shear (fixed point) times its distance from cy. Any
	// turned ellipse can be written so.
	cx, cy, a, b, shear int
	// A polygon if corners > 0: its corners in order.
	corners int
	x, y    [6]int
}

// newShape draws a shape of about the given radius. stretch >= one is its ratio of length to width, along angle (of
// 256).
func newShape(s *stream, cx, cy, r, stretch, angle int, polygon bool) shape {
	sh := shape{cx: cx, cy: cy}
	sin, cos := sincos(angle)
	// Half axes along and across angle, of the same area as the circle.
	root := isqrt(int64(stretch) * one)
	long, short := max(r*root/one, 1), max(r*one/root, 1)
	if polygon {
		sh.corners = s.between(3, 6)
		start := s.below(256)
		for i := range sh.corners {
			turn := start + 256*i/sh.corners + s.bell(100/sh.corners)
			ps, pc := sincos(turn)
			px, py := pc*long/one, ps*short/one
			sh.x[i] = cx + (px*cos-py*sin)/one
			sh.y[i] = cy + (px*sin+py*cos)/one
		}
		return sh
	}
	// The turned ellipse M = R diag(long^2, short^2) R' has the half height
	// b = sqrt(M_yy), the shear M_xy/M_yy and the half width long*short/b.
	l2, s2 := int64(long)*int64(long), int64(short)*int64(short)
	c2, n2, cn := int64(cos)*int64(cos)/one, int64(sin)*int64(sin)/one, int64(cos)*int64(sin)/one
	yy := max((l2*n2+s2*c2)/one, 1)
	sh.b = max(isqrt(yy), 1)
	sh.a = max(long*short/sh.b, 1)
	sh.shear = int((l2 - s2) * cn / yy)
	return sh
}

// rows returns the rows [top, bottom) of an image of the given height that the
// shape may touch.
func (sh *shape) rows(height int) (top, bottom int) {
	lo, hi := sh.cy-sh.b, sh.cy+sh.b
	if sh.corners > 0 {
		lo, hi = sh.y[0], sh.y[0]
		for _, y := range sh.y[1:sh.corners] {
			lo, hi = min(lo, y), max(hi, y)
		}
	}
	return max(lo>>4, 0), min(hi>>4+1, height)
}

// span returns the pixels [from, to) of row y whose centres are inside the shape.
func (sh *shape) span(y, width int) (from, to int) {
	yc := y*16 + 8
	var lo, hi int
	if sh.corners > 0 {
		lo, hi = 1<<30, -1<<30
		for i := range sh.corners {
			j := i + 1
			if j == sh.corners {
				j = 0
			}
			x0, y0, x1, y1 := sh.x[i], sh.y[i], sh.x[j], sh.y[j]
			if (y0 <= yc) == (y1 <= yc) {
				continue
			}
			x := x0 + (x1-x0)*(yc-y0)/(y1-y0)
			lo, hi = min(lo, x), max(hi, x)
		}
		if lo > hi {
			return 0, 0
		}
	} else {
		dy := yc - sh.cy
		rest := sh.b*sh.b - dy*dy
		if rest <= 0 {
			return 0, 0
		}
		half := sh.a * isqrt(int64(rest)) / sh.b
		mid := sh.cx + sh.shear*dy>>oneBits
		lo, hi = mid-half, mid+half
	}
	return max((lo+7)>>4, 0), min((hi+8)>>4, width)
}
