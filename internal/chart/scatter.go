package chart

import (
	"fmt"
	"io"
	"math"
)

// Scatter is points on two equal logarithmic axes: how well Y agrees with X.
type Scatter struct {
	Heading
	XLabel string `json:"x_label"`
	YLabel string `json:"y_label"`
	// Unit follows the numbers of both axes.
	Unit string `json:"unit"`
	// Band is the highlighted share on either side of the diagonal, 0 for none, and BandName its name.
	Band     float64        `json:"band"`
	BandName string         `json:"band_name"`
	Groups   []ScatterGroup `json:"groups"`
	// Hollow describes the points that are not filled.
	Hollow string `json:"hollow"`
	// Notes are shown below the names, the first one bold.
	Notes []string `json:"notes"`
}

// ScatterGroup is points of one colour.
type ScatterGroup struct {
	Name   string  `json:"name"`
	Points []Point `json:"points"`
}

// Point is a point.
type Point struct {
	X      float64 `json:"x"`
	Y      float64 `json:"y"`
	Hollow bool    `json:"hollow"`
	// Tip is shown when the mouse rests on it.
	Tip string `json:"tip"`
}

func (c *Scatter) check() error {
	n := 0
	for _, g := range c.Groups {
		n += len(g.Points)
		for _, p := range g.Points {
			if err := checkRange(1e-9, p.X, p.Y); err != nil {
				return err
			}
		}
	}
	if !(c.Band >= 0 && c.Band < 1) {
		return fmt.Errorf("a band of %v; it is a share, from 0 to below 1", c.Band)
	}
	return checkMarks(n)
}

// SVG draws the points.
func (c *Scatter) SVG(w io.Writer) error {
	const left, top, side = 90, 92, 470
	legend := 170
	if len(c.Notes) > 0 {
		legend = 250
	}
	low, high := c.bounds()
	span := math.Log(high / low)
	atX := func(v float64) float64 { return left + math.Log(v/low)/span*side }
	atY := func(v float64) float64 { return top + side - math.Log(v/low)/span*side }
	out := newCanvas(left+side+legend, top+side+66, c.Heading)
	if c.Band > 0 {
		out.add(`<clipPath id="plot"><rect x="%d" y="%d" width="%d" height="%d"/></clipPath>`, left, top, side, side)
		out.add(`<path class="band" clip-path="url(#plot)" d="M%s %s L%s %s L%s %s L%s %s Z"/>`, px(atX(low)), px(atY(low*(1+c.Band))), px(atX(high)), px(atY(high*(1+c.Band))),
			px(atX(high)), px(atY(high*(1-c.Band))), px(atX(low)), px(atY(low*(1-c.Band))))
	}
	for _, v := range logTicks(low, high) {
		x, y := atX(v), atY(v)
		out.add(`<path class="grid" d="M%s %d V%d M%d %s H%d"/>`, px(x), top, top+side, left, px(y), left+side)
		out.text(x, top+side+18, "tick mid", round(v)+c.Unit)
		out.text(left-8, y+4, "tick end", round(v)+c.Unit)
	}
	out.add(`<path class="axis" stroke-dasharray="4 3" d="M%d %d L%d %d"/>`, left, top+side, left+side, top)
	for k, g := range c.Groups {
		for _, p := range g.Points {
			out.add(`<circle cx="%s" cy="%s" r="5" %s stroke="%s" stroke-width="2"><title>%s</title></circle>`, px(atX(p.X)), px(atY(p.Y)), pointFill(k, p.Hollow), colour(k), escape(p.Tip))
		}
	}
	out.text(left+side/2, top+side+44, "soft mid", c.XLabel)
	out.upright(28, top+side/2, "soft mid", c.YLabel)
	c.legend(out, left+side+34, top+12)
	return out.finish(w)
}

func pointFill(k int, hollow bool) string {
	if hollow {
		return `class="hollow" fill-opacity="0.85"`
	}
	return fmt.Sprintf(`fill="%s" fill-opacity="0.85"`, colour(k))
}

// legend draws the names of the groups next to the plot.
func (c *Scatter) legend(out *canvas, x, y float64) {
	for k, g := range c.Groups {
		out.add(`<circle cx="%s" cy="%s" r="5" %s stroke="%s" stroke-width="2"/>`, px(x), px(y), pointFill(k, false), colour(k))
		out.text(x+14, y+4, "", g.Name)
		y += 22
	}
	if c.Hollow != "" {
		out.add(`<circle class="axis" cx="%s" cy="%s" r="5" stroke-width="2"/>`, px(x), px(y))
		out.text(x+14, y+4, "", c.Hollow)
		y += 22
	}
	if c.Band > 0 {
		out.add(`<rect class="band" x="%s" y="%s" width="12" height="12"/>`, px(x-6), px(y-6))
		out.text(x+14, y+4, "", c.BandName)
		y += 22
	}
	y += 16
	for i, note := range c.Notes {
		class := ""
		if i == 0 {
			class = "strong"
		}
		out.text(x-5, y, class, note)
		y += 22
	}
}

// bounds returns the range of both axes, with some space around the points.
func (c *Scatter) bounds() (low, high float64) {
	low, high = math.Inf(1), 0
	for _, g := range c.Groups {
		for _, p := range g.Points {
			low, high = min(low, p.X, p.Y), max(high, p.X, p.Y)
		}
	}
	if !(low <= high) {
		return 1, 10
	}
	return low * 0.85, high * 1.2
}

// logTicks returns round numbers for a logarithmic axis: few per decade if there are many decades.
func logTicks(low, high float64) []float64 {
	factors := []float64{1, 2, 5}
	switch decades := math.Log10(high / low); {
	case decades < 1.7:
		factors = []float64{1, 1.5, 2, 3, 4, 6, 8}
	case decades > 4:
		factors = []float64{1}
	}
	var out []float64
	for decade := math.Floor(math.Log10(low)); decade <= math.Ceil(math.Log10(high)); decade++ {
		for _, f := range factors {
			if v := f * math.Pow(10, decade); v >= low && v <= high {
				out = append(out, v)
			}
		}
	}
	return out
}
