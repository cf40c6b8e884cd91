package chart

import (
	"io"
	"math"
)

// Bars are horizontal bars in groups, all on one scale that begins at 0.
type Bars struct {
	Heading
	// Unit is shown at the end of the scale.
	Unit   string     `json:"unit"`
	Groups []BarGroup `json:"groups"`
}

// BarGroup is some bars under a title, which may be empty.
type BarGroup struct {
	Title string `json:"title"`
	Bars  []Bar  `json:"bars"`
}

// Bar is one bar, with a whisker from Low to High.
type Bar struct {
	Label string  `json:"label"`
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
	// Ours sets it off.
	Ours bool `json:"ours"`
	// Remark follows the value.
	Remark string `json:"remark"`
}

func (c *Bars) check() error {
	n := 0
	for _, g := range c.Groups {
		n += len(g.Bars)
		for _, b := range g.Bars {
			if err := checkRange(0, b.Value, b.Low, b.High); err != nil {
				return err
			}
		}
	}
	return checkMarks(n)
}

// The measures of the picture, in pixels.
const (
	barsWidth, barsLabel, barsRight = 860, 300, 128
	barsRow, barHeight              = 25, 15
)

// SVG draws the bars.
func (c *Bars) SVG(w io.Writer) error {
	top, height := 0.0, 92.0+34
	for _, g := range c.Groups {
		height += g.head() + barsRow*float64(len(g.Bars))
		for _, b := range g.Bars {
			top = max(top, b.Value, b.High)
		}
	}
	bottom := 40.0
	if c.Footer != "" {
		bottom += 18
		height += 18
	}
	top = max(top*1.02, 1e-12)
	scale := (barsWidth - barsLabel - barsRight) / top
	out := newCanvas(barsWidth, int(height), c.Heading)
	const start = 76.0
	end := height - bottom
	step := gridStep(top, 6)
	for i := 0; i <= int(top/step); i++ {
		x := barsLabel + float64(i)*step*scale
		out.add(`<path class="grid" d="M%s %s V%s"/>`, px(x), px(start), px(end))
		out.text(x, end+17, "tick mid", round(float64(i)*step))
	}
	out.text(barsWidth-24, end+17, "tick end", c.Unit)
	y := start
	for _, g := range c.Groups {
		if len(g.Bars) == 0 {
			continue
		}
		if g.Title != "" {
			out.add(`<rect class="faint" x="16" y="%s" width="%d" height="20" rx="4"/>`, px(y+7), barsWidth-32)
			out.text(24, y+21, "strong", g.Title)
		}
		y += g.head()
		for _, b := range g.Bars {
			b.draw(out, y+barsRow/2.0-2, scale)
			y += barsRow
		}
	}
	return out.finish(w)
}

// head returns the space above the bars of a group.
func (g *BarGroup) head() float64 {
	switch {
	case len(g.Bars) == 0:
		return 0
	case g.Title == "":
		return 8
	}
	return 34
}

// draw draws one bar around the line middle.
func (b *Bar) draw(out *canvas, middle, scale float64) {
	fill, label := "theirs", "end"
	if b.Ours {
		fill, label = "ours", "end strong"
	}
	out.text(barsLabel-10, middle+4, label, b.Label)
	width := max(b.Value*scale, 1.5)
	out.add(`<rect class="%s" x="%d" y="%s" width="%s" height="%d" rx="3"/>`, fill, barsLabel, px(middle-barHeight/2.0), px(width), barHeight)
	x := barsLabel + width
	if b.High > b.Low {
		low, high := barsLabel+b.Low*scale, barsLabel+b.High*scale
		out.add(`<path class="spread" d="M%s %s H%s M%s %s v6 M%s %s v6"/>`, px(low), px(middle), px(high), px(low), px(middle-3), px(high), px(middle-3))
		x = max(x, high)
	}
	weight, remark := "500", ""
	if b.Ours {
		weight = "650"
	}
	if b.Remark != "" {
		remark = `<tspan class="soft" dx="6">` + escape(b.Remark) + `</tspan>`
	}
	out.add(`<text x="%s" y="%s"><tspan font-weight="%s">%s</tspan>%s</text>`, px(x+7), px(middle+4), weight, counted(b.Value), remark)
}

// gridStep returns a round distance between grid lines, so that at most n fit.
func gridStep(top float64, n int) float64 {
	step := math.Pow(10, math.Floor(math.Log10(top/float64(n))))
	for _, f := range []float64{1, 2, 2.5, 5, 10} {
		if top/(step*f) <= float64(n) {
			return step * f
		}
	}
	return step * 10
}
