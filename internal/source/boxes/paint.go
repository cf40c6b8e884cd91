package boxes

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/stokerdata/stoker/internal/mask"
	"github.com/stokerdata/stoker/internal/orient"
	"github.com/stokerdata/stoker/source/driver"
)

// Canvas is a mask on which shapes are painted. Pixels are stored by columns, like the run lengths of COCO. The
// result equals pycocotools in every pixel.
type Canvas struct {
	W, H int
	// Turn is the orientation of Value and Stack. Begin sets it to none.
	Turn int32

	size  int // bytes per pixel
	pix   []byte
	color uint16
	cross []int64 // positions where an outline crosses columns
	steps int     // steps left for outlines
}

// maxSteps limits the work for one mask: the points of all outlines, five per pixel.
const maxSteps = 1 << 26

// scale is the number of outline steps per pixel.
const scale = 5

// maxCoordinate limits the corners of shapes.
const maxCoordinate = 1 << 20

// Begin clears the canvas to w x h pixels of a type.
func (c *Canvas) Begin(w, h int, t driver.DType) error {
	if w < 1 || h < 1 || int64(w)*int64(h) > mask.MaxPixels {
		return fmt.Errorf("a mask of %d x %d pixels", w, h)
	}
	n := w * h * t.Size()
	if cap(c.pix) < n {
		c.pix = make([]byte, n)
	}
	c.pix = c.pix[:n]
	clear(c.pix)
	c.W, c.H, c.size, c.steps, c.Turn = w, h, t.Size(), maxSteps, 0
	return nil
}

// Color sets the value to paint with.
func (c *Canvas) Color(v int) { c.color = uint16(v) }

// fill paints pixels from to to (exclusive), counted by columns.
func (c *Canvas) fill(from, to int64) {
	if c.size == 1 {
		p := c.pix[from:to]
		for i := range p {
			p[i] = byte(c.color)
		}
		return
	}
	p := c.pix[2*from : 2*to]
	for i := 0; i < len(p); i += 2 {
		p[i], p[i+1] = byte(c.color), byte(c.color>>8)
	}
}

var errOutline = errors.New("its outlines have more points than a mask can need")

// Polygon paints a polygon with the corners x, y, x, y, ... It follows the outline in fifths of a pixel. A pixel is
// inside if the outline crosses its column above its centre an odd number of times.
func (c *Canvas) Polygon(xy []float64) error {
	k := len(xy) / 2
	corner := func(i int) (x, y int, err error) {
		i %= k
		if !(math.Abs(xy[2*i]) <= maxCoordinate && math.Abs(xy[2*i+1]) <= maxCoordinate) {
			return 0, 0, fmt.Errorf("the corner (%v, %v) is far outside of the image", xy[2*i], xy[2*i+1])
		}
		return int(float64(scale*xy[2*i]) + 0.5), int(float64(scale*xy[2*i+1]) + 0.5), nil // rounded twice, like pycocotools
	}
	c.cross = c.cross[:0]
	lastU, lastV, some := 0, 0, false
	point := func(u, v int) {
		if some && u != lastU {
			c.crossing(min(u, lastU), min(v, lastV))
		}
		lastU, lastV, some = u, v, true
	}
	for i := range k {
		xs, ys, err := corner(i)
		if err != nil {
			return err
		}
		xe, ye, err := corner(i + 1)
		if err != nil {
			return err
		}
		dx, dy := abs(xe-xs), abs(ye-ys)
		if c.steps -= max(dx, dy) + 1; c.steps < 0 {
			return errOutline
		}
		if dx >= dy {
			// Always walk from left to right, so that both directions round equally.
			x0, y0, slope := xs, ys, 0.0
			if xs > xe {
				x0, y0 = xe, ye
			}
			if dx > 0 {
				slope = float64((ye-ys)*sign(xe-xs)) / float64(dx)
			}
			for d := range dx + 1 {
				t := d
				if xs > xe {
					t = dx - d
				}
				point(t+x0, int(float64(y0)+float64(slope*float64(t))+0.5))
			}
			continue
		}
		x0, y0 := xs, ys
		if ys > ye {
			x0, y0 = xe, ye
		}
		slope := float64((xe-xs)*sign(ye-ys)) / float64(dy)
		for d := range dy + 1 {
			t := d
			if ys > ye {
				t = dy - d
			}
			point(int(float64(x0)+float64(slope*float64(t))+0.5), t+y0)
		}
	}
	c.between()
	return nil
}

// crossing notes that the outline passes between the columns u and u+1 of fifths, with the higher end at v.
func (c *Canvas) crossing(u, v int) {
	x := (float64(u)+0.5)/scale - 0.5
	if x != math.Floor(x) || x < 0 || x > float64(c.W-1) {
		return
	}
	y := min(max((float64(v)+0.5)/scale-0.5, 0), float64(c.H))
	c.cross = append(c.cross, int64(x)*int64(c.H)+int64(math.Ceil(y)))
}

// between paints the pixels between the first and the second crossing, the third and the fourth, and so on.
func (c *Canvas) between() {
	c.cross = append(c.cross, int64(c.W)*int64(c.H))
	slices.Sort(c.cross)
	for i := 0; i+1 < len(c.cross); i += 2 {
		c.fill(c.cross[i], c.cross[i+1])
	}
}

func abs(v int) int { return max(v, -v) }

func sign(v int) int {
	if v < 0 {
		return -1
	}
	return 1
}

// Box paints a box like pycocotools: as the polygon of its corners.
func (c *Canvas) Box(x, y, w, h float64) error {
	return c.Polygon([]float64{x, y, x, y + h, x + w, y + h, x + w, y})
}

// Runs paints consecutive run lengths. The first run is not painted.
type Runs struct {
	c  *Canvas
	at int64
	on bool
}

// Runs starts to paint run lengths.
func (c *Canvas) Runs() Runs { return Runs{c: c} }

// Add adds a run.
func (r *Runs) Add(n int64) error {
	if n < 0 || n > int64(r.c.W)*int64(r.c.H)-r.at {
		return fmt.Errorf("a run of %d pixels at %d of the %d of the image", n, r.at, r.c.W*r.c.H)
	}
	if r.on {
		r.c.fill(r.at, r.at+n)
	}
	r.at, r.on = r.at+n, !r.on
	return nil
}

// End returns an error if the runs do not cover all pixels.
func (r *Runs) End() error {
	if n := int64(r.c.W) * int64(r.c.H); r.at != n {
		return fmt.Errorf("the runs end after %d of %d pixels", r.at, n)
	}
	return nil
}

// Compressed adds the runs of COCO's compressed text: base-32 digits, the lowest first. From the fourth run on, a
// number is the difference to the run before the last one.
func (r *Runs) Compressed(text []byte) error {
	var last [2]int64 // the last two runs
	for i := 0; len(text) > 0; i++ {
		v := int64(0)
		for k := 0; ; k++ {
			if len(text) == 0 || k > 9 {
				return errors.New("the compressed runs are cut off")
			}
			d := int64(text[0]) - 48
			if d < 0 || d > 63 {
				return fmt.Errorf("the compressed runs have the byte %d", text[0])
			}
			text = text[1:]
			v |= (d & 31) << (5 * k)
			if d&32 == 0 {
				if d&16 != 0 {
					v |= -1 << (5 * (k + 1))
				}
				break
			}
		}
		if i > 2 {
			v += last[i%2]
		}
		if err := r.Add(v); err != nil {
			return err
		}
		last[i%2] = v
	}
	return nil
}

// Rows writes the pixels by rows to dst.
func (c *Canvas) Rows(dst []byte) {
	const block = 32 // columns per pass, so that they stay in the CPU cache
	for x0 := 0; x0 < c.W; x0 += block {
		x1 := min(x0+block, c.W)
		for y := range c.H {
			if c.size == 1 {
				row := dst[y*c.W : (y+1)*c.W]
				for x := x0; x < x1; x++ {
					row[x] = c.pix[x*c.H+y]
				}
				continue
			}
			for x := x0; x < x1; x++ {
				binary.LittleEndian.PutUint16(dst[2*(y*c.W+x):], binary.LittleEndian.Uint16(c.pix[2*(x*c.H+y):]))
			}
		}
	}
}

// Stack builds n masks of the canvas size with 0 and 1. paint(i) paints one object alone. bad is an error of one
// object, err is a lack of memory.
func (c *Canvas) Stack(g *driver.Group, n int, paint func(i int) error) (v driver.Value, bad, err error) {
	w, h, turn := c.W, c.H, c.Turn
	var stack []byte
	m := &mask.Mask{Width: w, Height: h, Size: 1, Pix: make([]byte, w*h)}
	for i := range n {
		if err := c.Begin(w, h, driver.Uint8); err != nil {
			return v, err, nil
		}
		c.Color(1)
		if err := paint(i); err != nil {
			return v, err, nil
		}
		c.Rows(m.Pix)
		one := m
		if turn > 1 {
			one = m.Turned(turn)
		}
		stack = mask.AppendToStack(stack, one)
	}
	out, err := g.Alloc(len(stack))
	if err != nil {
		return v, nil, fmt.Errorf("no memory for %d masks of %d x %d pixels: %w", n, w, h, err)
	}
	copy(out, stack)
	return driver.Value{Bytes: out}, nil, nil
}

// Value returns the mask as a value in the group's memory.
func (c *Canvas) Value(g *driver.Group) (driver.Value, error) {
	out, err := g.Alloc(len(c.pix))
	if err != nil {
		return driver.Value{}, fmt.Errorf("no memory for a mask of %d x %d pixels: %w", c.W, c.H, err)
	}
	c.Rows(out)
	v := driver.Value{Bytes: out, Codec: driver.CodecRaw, Width: int32(c.W), Height: int32(c.H), Channels: 1}
	if c.Turn > 1 {
		orient.Pixels(out, slices.Clone(out), c.W, c.H, c.size, c.Turn)
		v.Width, v.Height = orient.Size(c.Turn, v.Width, v.Height)
	}
	return v, nil
}
