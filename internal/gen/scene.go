package gen

// A class is the set of common traits of the images of one label: the main hues, their saturation, and the texture of
// surfaces. The traits are strong enough for a small model to learn them from any part of an image, flipped or not.
type class struct {
	hues       [2]int // on the colour circle of 1536
	saturation int    // of 255
	fibre      int    // percent of leaves with a directed texture
	angle      int    // its direction, of 256
	polygons   int    // percent of leaves with corners
}

const circle = 6 * 256 // the colour circle: six ramps of 256

// newClass returns class k of n. Neighbours on the colour circle differ in the
// second hue and in texture, which keeps many classes apart too.
func newClass(seed uint64, k, n int) class {
	s := newStream(seed, -1-int64(k))
	first := circle * k / n
	return class{
		hues:       [2]int{first, (first + 384 + 384*(k%3) + s.between(-60, 60)) % circle},
		saturation: 90 + 70*(k*7%5)/4,
		fibre:      15 + 60*(k%2),
		angle:      128 * (k * 5 % 8) / 8,
		polygons:   8 + 40*(k/2%2),
	}
}

// A leaf is one thing in the picture: a shape and its surface.
type leaf struct {
	shape  shape
	rgb    [3]int32 // colour in 1/16 levels
	shade  int32    // relative brightness at (0, 0), fixed point
	dx, dy int32    // and its change per pixel, in 1/16 of that
	// The texture: its start, its step per pixel (turned and scaled), both in fixed point, and its strength.
	texture *tile
	u, v    int32
	du, dv  int32
	gain    int32
}

// A scene is an image before it has pixels.
type scene struct {
	width, height int
	ground        leaf   // what shows where nothing else is
	blurred       []leaf // out of focus: painted at a quarter of the size
	leaves        []leaf // painted in order, each over those before it
	soft          int    // passes of blur: how far out of focus all is
	lens          uint16 // blur of a sharp lens, in 1/16
	grain         int32  // strength of the sensor's noise, in 1/256
	grainAt       int
}

// newScene draws a scene of the given size from a class.
func newScene(s *stream, c *class, t *tiles, width, height int) *scene {
	sc := &scene{width: width, height: height}
	w, h := width*16, height*16
	short := min(w, h)
	rough := s.between(20, 150) + s.between(0, 100) // percent: how busy this picture is

	sc.ground = newLeaf(s, c, t, shape{}, rough)
	sc.ground.gain /= 2
	small := max(16*max(width, height)/160, 16)
	for range s.between(30, 90) {
		r := s.radius(small*4, short/2)
		sh := placeShape(s, c, w, h, r)
		// The coordinates of the blurred layer are those of the small picture.
		sc.blurred = append(sc.blurred, newLeaf(s, c, t, sh.quarter(), rough/2))
	}

	// The number of leaves is chosen so that their areas add up to between some part of the picture and a few times its
	// area. That ranges from a few things before a blurred ground to a thicket.
	cover := s.between(20, 120)
	if s.chance(55) {
		cover = s.between(120, 420)
	}
	least := small * s.between(20, 70) / 20
	if s.chance(30) {
		least = small * 8
	}
	for left := int64(cover) * int64(w) / 100 * int64(h); left > 0 && len(sc.leaves) < 60000; {
		r := s.radius(least, short*45/100)
		sh := placeShape(s, c, w, h, r)
		sc.leaves = append(sc.leaves, newLeaf(s, c, t, sh, rough))
		left -= int64(r) * int64(r) * 3
	}
	if s.chance(20) {
		sc.soft = s.between(1, 2)
	}
	sc.lens = uint16(s.between(1, 3))
	sc.grain = int32(s.between(4, 40) + s.between(0, 26))
	sc.grainAt = s.below(1 << 16)
	return sc
}

// placeShape draws a shape of radius r anywhere in a picture of w x h.
func placeShape(s *stream, c *class, w, h, r int) shape {
	cx, cy := s.between(-r/2, w+r/2), s.between(-r/2, h+r/2)
	stretch := one + s.below(one*3/2)
	if s.chance(15) { // blades and branches
		stretch = one * s.between(5, 14)
	}
	angle := s.below(256)
	if s.chance(c.fibre) {
		angle = c.angle + s.bell(16)
		if s.chance(50) {
			angle = -angle // a class must survive a mirror
		}
	}
	return newShape(s, cx, cy, r, stretch, angle, s.chance(c.polygons))
}

// newLeaf draws the surface of a shape.
func newLeaf(s *stream, c *class, t *tiles, sh shape, rough int) leaf {
	l := leaf{
		shape:   sh,
		rgb:     leafColour(s, c),
		texture: &t.cloud,
		u:       int32(s.below(tileSize)) << oneBits,
		v:       int32(s.below(tileSize)) << oneBits,
	}
	angle := s.below(256)
	if s.chance(c.fibre) {
		l.texture = &t.fibre
		angle = c.angle + s.bell(10)
		if s.chance(50) {
			angle = -angle
		}
	}
	scale := s.between(one*3/8, one*2)
	sin, cos := sincos(angle)
	l.du, l.dv = int32(cos*scale>>oneBits), int32(sin*scale>>oneBits)
	// Texture of up to about +-25% of the brightness; some surfaces are smooth.
	l.gain = int32(s.between(1, 26) * rough / 100)
	if s.chance(20) {
		l.gain /= 6
	}
	// Light falls from one side: up to +-40% across a leaf of 100 pixels.
	l.dx, l.dy = int32(s.bell(260)), int32(s.bell(260))
	l.shade = one - (l.dx*int32(sh.cx>>4)+l.dy*int32(sh.cy>>4))/16
	return l
}

// quarter returns the shape at a quarter of its size.
func (sh shape) quarter() shape {
	sh.cx, sh.cy, sh.a, sh.b = sh.cx/4, sh.cy/4, max(sh.a/4, 1), max(sh.b/4, 1)
	for i := range sh.corners {
		sh.x[i], sh.y[i] = sh.x[i]/4, sh.y[i]/4
	}
	return sh
}

// leafColour draws a colour: mostly of the hues of the class, some of any kind,
// in all brightnesses.
func leafColour(s *stream, c *class) [3]int32 {
	var hue, sat int
	switch p := s.below(100); {
	case p < 56:
		hue, sat = c.hues[0]+s.bell(66), c.saturation+s.bell(50)
	case p < 76:
		hue, sat = c.hues[1]+s.bell(66), c.saturation+s.bell(60)
	case p < 93: // stone, cloth, cloud: nearly gray
		hue, sat = s.below(circle), s.between(0, 45)
	default:
		hue, sat = s.below(circle), s.between(60, 200)
	}
	value := s.between(12, 255)
	if s.chance(30) {
		value = s.between(60, 190)
	}
	return hsv(hue, min(max(sat, 0), 255), value)
}

// hsv converts a colour to RGB in 1/16 levels. Light colours that are saturated
// are rare in nature, so saturation falls as brightness rises.
func hsv(hue, sat, value int) [3]int32 {
	hue = (hue%circle + circle) % circle
	sat -= sat * value / 700
	ramp := hue & 255
	v := value * 16
	p := v * (255 - sat) / 255
	q := v * (255*255 - sat*ramp) / (255 * 255)
	t := v * (255*255 - sat*(255-ramp)) / (255 * 255)
	rgb := [6][3]int{{v, t, p}, {q, v, p}, {p, v, t}, {p, q, v}, {t, p, v}, {v, p, q}}[hue>>8]
	return [3]int32{int32(rgb[0]), int32(rgb[1]), int32(rgb[2])}
}
