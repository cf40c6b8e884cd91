package gen

// A painter turns scenes into pixels. It keeps its buffers from one to the next.
type painter struct {
	ids   []uint16 // of each pixel: 1 + the leaf that shows there, 0 for none
	rgb   []byte   // the picture
	small []byte   // the blurred layer at a quarter of the size
	row   []uint16
	out   []byte
}

// paint returns the pixels of sc, RGB rows without gaps. They are valid until
// the next call.
func (p *painter) paint(sc *scene, t *tiles) []byte {
	w, h := sc.width, sc.height
	sw, sh := w/4+2, h/4+2
	p.small = resized(p.small, sw*sh*3)
	p.cover(sc.blurred, sw, sh)
	p.colour(p.small, &sc.ground, sc.blurred, sw, sh)
	for range 2 {
		p.out = resized(p.out, len(p.small))
		p.blur(p.out, p.small, sw, sh, 4, nil, 0, 0)
		p.small, p.out = p.out, p.small
	}
	p.rgb = resized(p.rgb, w*h*3)
	p.enlarge(p.rgb, w, h, sw)
	p.cover(sc.leaves, w, h)
	p.colour(p.rgb, nil, sc.leaves, w, h)

	p.out = resized(p.out, w*h*3)
	for range sc.soft {
		p.blur(p.out, p.rgb, w, h, 4, nil, 0, 0)
		p.rgb, p.out = p.out, p.rgb
	}
	// The last blur smooths the stairs at edges, and then comes the grain.
	p.blur(p.out, p.rgb, w, h, sc.lens, &t.grain, sc.grain, sc.grainAt)
	return p.out
}

func resized[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// cover finds which leaf shows at each pixel.
func (p *painter) cover(leaves []leaf, w, h int) {
	p.ids = resized(p.ids, w*h)
	clear(p.ids)
	for i := range leaves {
		sh := &leaves[i].shape
		top, bottom := sh.rows(h)
		for y := top; y < bottom; y++ {
			from, to := sh.span(y, w)
			if from >= to {
				continue
			}
			row := p.ids[y*w+from : y*w+to]
			id := uint16(i + 1)
			for x := range row {
				row[x] = id
			}
		}
	}
}

// colour paints the pixels of each leaf. Pixels outside of all leaves get the ground, or stay unchanged without a
// ground.
func (p *painter) colour(dst []byte, ground *leaf, leaves []leaf, w, h int) {
	for y := range h {
		ids := p.ids[y*w : (y+1)*w]
		row := dst[y*w*3 : (y+1)*w*3]
		for x := 0; x < w; {
			id, from := ids[x], x
			for x++; x < w && ids[x] == id; x++ {
			}
			l := ground
			if id > 0 {
				l = &leaves[id-1]
			}
			if l != nil {
				l.colour(row[from*3:x*3], from, y)
			}
		}
	}
}

// colour paints a run of pixels that begins at (x, y).
func (l *leaf) colour(run []byte, x, y int) {
	u := l.u + int32(x)*l.du - int32(y)*l.dv
	v := l.v + int32(x)*l.dv + int32(y)*l.du
	light := l.shade<<4 + int32(x)*l.dx + int32(y)*l.dy
	r, g, b := l.rgb[0], l.rgb[1], l.rgb[2]
	for ; len(run) >= 3; run = run[3:] {
		t := int32(l.texture[(v>>oneBits&tileMask)<<tileBits|u>>oneBits&tileMask])
		k := min(max(light>>4+t*l.gain, one/4), one*7/4)
		run[0] = byte(min(r*k>>(oneBits+4), 255))
		run[1] = byte(min(g*k>>(oneBits+4), 255))
		run[2] = byte(min(b*k>>(oneBits+4), 255))
		u += l.du
		v += l.dv
		light += l.dx
	}
}

// enlarge fills a picture of w x h from the small one, four times as large.
func (p *painter) enlarge(dst []byte, w, h, sw int) {
	p.row = resized(p.row, sw*3)
	mixed := p.row
	for y := range h {
		f := uint16(y & 3)
		a := p.small[(y>>2)*sw*3:][:sw*3]
		b := p.small[(y>>2+1)*sw*3:][:sw*3]
		for i := range mixed {
			mixed[i] = uint16(a[i])*(4-f) + uint16(b[i])*f
		}
		row := dst[y*w*3 : (y+1)*w*3]
		for x := range w {
			f := uint16(x & 3)
			m := mixed[(x>>2)*3:][:6]
			o := row[x*3:][:3]
			o[0] = byte((m[0]*(4-f) + m[3]*f) >> 4)
			o[1] = byte((m[1]*(4-f) + m[4]*f) >> 4)
			o[2] = byte((m[2]*(4-f) + m[5]*f) >> 4)
		}
	}
}

// blur mixes side/16 of the neighbours on both sides into each pixel, across and down, and adds grain if grain is not
// nil.
func (p *painter) blur(dst, src []byte, w, h int, side uint16, grain *[1 << 16]int8, strength int32, at int) {
	n := w * 3
	p.row = resized(p.row, n+6)
	sums, centre := p.row, 16-2*side
	for y := range h {
		up := src[max(y-1, 0)*n:][:n]
		mid := src[y*n:][:n]
		down := src[min(y+1, h-1)*n:][:n]
		inner := sums[3:][:n]
		for i := range inner {
			inner[i] = side*(uint16(up[i])+uint16(down[i])) + centre*uint16(mid[i])
		}
		copy(sums[:3], sums[3:6])
		copy(sums[n+3:], sums[n:n+3])
		out := dst[y*n:][:n]
		left, right := sums[:n], sums[6:][:n]
		if grain == nil {
			for i := range out {
				out[i] = byte((side*(left[i]+right[i]) + centre*inner[i] + 128) >> 8)
			}
			continue
		}
		for i := range out {
			v := int32(side*(left[i]+right[i])+centre*inner[i]) + int32(grain[at&0xffff])*strength + 128
			out[i] = byte(min(max(v>>8, 0), 255))
			at++
		}
		at += 4099 // no grain lies under another of the row above
	}
}
