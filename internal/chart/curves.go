package chart

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// Curves are lines through points, on a y axis that begins at 0.
type Curves struct {
	Heading
	XLabel, YLabel string
	Curves         []Curve
	// XNames replaces numbers on the x axis, when set.
	XNames map[float64]string
}

// Curve is one line.
type Curve struct {
	Name string
	X, Y []float64
	// Low and High are the spread of Y; may be nil.
	Low, High []float64
	// Mark is the index of the highlighted point, -1 for none, and MarkName its name.
	Mark     int
	MarkName string
}

// The size of the picture and of its margins, in pixels.
const (
	curvesWidth, curvesHeight                        = 760, 460
	curvesLeft, curvesRight, curvesTop, curvesBottom = 76, 190, 92, 66
)

// SVG draws the curves.
func (c *Curves) SVG(w io.Writer) error {
	const width, height = curvesWidth - curvesLeft - curvesRight, curvesHeight - curvesTop - curvesBottom
	x0, x1, top := c.bounds()
	marks := ticks(top, 6)
	top = marks[len(marks)-1]
	atX := func(x float64) float64 { return curvesLeft + 14 + (x-x0)/(x1-x0)*(width-28) }
	atY := func(y float64) float64 { return curvesTop + (1-y/top)*height }
	h := c.Heading
	h.Subtitle = clip(h.Subtitle, 100)
	out := newCanvas(curvesWidth, curvesHeight, h)
	for _, m := range marks {
		out.add(`<path class="grid" d="M%d %s H%d"/>`, curvesLeft, px(atY(m)), curvesWidth-curvesRight)
		out.text(curvesLeft-8, atY(m)+4, "tick end", number(m))
	}
	out.add(`<path class="axis" d="M%d %s H%d"/>`, curvesLeft, px(atY(0)), curvesWidth-curvesRight)
	free := math.Inf(-1)
	for _, x := range c.xs() {
		name := c.xName(x)
		out.add(`<path class="axis" d="M%s %s v5"/>`, px(atX(x)), px(atY(0)))
		// A name that would overlap the previous one is left out.
		if half := 3.5 * float64(len(name)); atX(x)-half > free {
			out.text(atX(x), atY(0)+20, "tick mid", name)
			free = atX(x) + half + 4
		}
	}
	out.text(curvesLeft+width/2, curvesHeight-22, "soft mid", c.XLabel)
	out.upright(24, curvesTop+height/2, "soft mid", c.YLabel)
	for k := range c.Curves {
		l := &c.Curves[k]
		var path []string
		for i := range l.X {
			path = append(path, px(atX(l.X[i]))+","+px(atY(l.Y[i])))
		}
		out.add(`<polyline points="%s" fill="none" stroke="%s" stroke-width="2.2"/>`, strings.Join(path, " "), colour(k))
		for i := range l.X {
			x, y := px(atX(l.X[i])), px(atY(l.Y[i]))
			tip := fmt.Sprintf("%s %s: %s", c.XLabel, c.xName(l.X[i]), number(l.Y[i]))
			if i < len(l.Low) && i < len(l.High) && l.High[i] > l.Low[i] {
				out.add(`<path d="M%s %s V%s" stroke="%s" stroke-opacity="0.5" stroke-width="5"/>`, x, px(atY(l.High[i])), px(atY(l.Low[i])), colour(k))
				tip += fmt.Sprintf(" (%s to %s)", number(l.Low[i]), number(l.High[i]))
			}
			out.add(`<circle cx="%s" cy="%s" r="4" fill="%s"><title>%s</title></circle>`, x, y, colour(k), escape(tip))
			if i == l.Mark {
				out.add(`<circle cx="%s" cy="%s" r="9" fill="none" stroke="%s" stroke-width="1.6"/>`, x, y, colour(k))
				out.text(atX(l.X[i]), atY(l.Y[i])-15, "mid", l.MarkName)
			}
		}
	}
	if c.named() {
		for k, l := range c.Curves {
			y := curvesTop + 6 + 22*k
			out.add(`<path d="M%d %d h20" stroke="%s" stroke-width="3"/>`, curvesWidth-curvesRight+16, y, colour(k))
			out.text(curvesWidth-curvesRight+42, float64(y+4), "", clip(l.Name, 22))
		}
	}
	return out.finish(w)
}

// named reports whether the lines need names.
func (c *Curves) named() bool {
	return len(c.Curves) > 1 || len(c.Curves) == 1 && c.Curves[0].Name != ""
}

// bounds returns the range of both axes.
func (c *Curves) bounds() (x0, x1, y1 float64) {
	x0, x1 = math.Inf(1), math.Inf(-1)
	for _, l := range c.Curves {
		for i, x := range l.X {
			x0, x1 = min(x0, x), max(x1, x)
			y := l.Y[i]
			if i < len(l.High) {
				y = max(y, l.High[i])
			}
			y1 = max(y1, y)
		}
	}
	if x0 > x1 {
		x0, x1 = 0, 1
	}
	if x0 == x1 {
		x1 = x0 + 1
	}
	if y1 < 1e-12 { // no time at all: any scale does
		y1 = 1
	}
	return x0, x1, y1
}

// xs lists the x values that have a point, in order.
func (c *Curves) xs() []float64 {
	var out []float64
	for _, l := range c.Curves {
		out = append(out, l.X...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (c *Curves) xName(x float64) string {
	if name, ok := c.XNames[x]; ok {
		return name
	}
	return number(x)
}
