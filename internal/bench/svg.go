package bench

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
)

// The size of the picture and of its margins, in pixels.
const (
	svgWidth, svgHeight                  = 760, 440
	svgLeft, svgRight, svgTop, svgBottom = 76, 190, 74, 62
)

// SVG writes the chart as a picture that stands on its own. It is written here
// and not by a plotting library because text is then real text in the reader's
// own fonts, it follows a dark background, and the ones that were tried bring 8 MB
// of fonts and rasterisers into a program of 4.
func (c *Chart) SVG(w io.Writer) error {
	var b strings.Builder
	x0, x1, top := c.bounds()
	marks := ticks(top, 6)
	top = marks[len(marks)-1]
	const plotW, plotH = svgWidth - svgLeft - svgRight, svgHeight - svgTop - svgBottom
	px := func(x float64) float64 { return svgLeft + 14 + (x-x0)/(x1-x0)*(plotW-28) }
	py := func(y float64) float64 { return svgTop + (1-y/top)*plotH }
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" aria-label="%s">
<style>
 text { font: 13px system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2937 }
 .title { font-size: 17px; font-weight: 600 } .sub, .tick { fill: #6b7280 } .grid { stroke: #e5e7eb } .axis { stroke: #9ca3af } .back { fill: #fff }
 @media (prefers-color-scheme: dark) { text { fill: #e5e7eb } .sub, .tick { fill: #9ca3af } .grid { stroke: #374151 } .back { fill: #111827 } }
</style>
<rect class="back" width="100%%" height="100%%"/>
`, svgWidth, svgHeight, svgWidth, svgHeight, escape(c.Title))
	fmt.Fprintf(&b, `<text class="title" x="%d" y="28">%s</text>`+"\n", 20, escape(c.Title))
	fmt.Fprintf(&b, `<text class="sub" x="%d" y="48">%s</text>`+"\n", 20, escape(clip(c.Subtitle, 100)))
	for _, m := range marks {
		y := py(m)
		fmt.Fprintf(&b, `<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/>`, svgLeft, svgWidth-svgRight, y, y)
		fmt.Fprintf(&b, `<text class="tick" x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n", svgLeft-8, y+4, number(m))
	}
	fmt.Fprintf(&b, `<line class="axis" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/>`+"\n", svgLeft, svgWidth-svgRight, py(0), py(0))
	for _, x := range c.xs() {
		fmt.Fprintf(&b, `<line class="axis" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, px(x), px(x), py(0), py(0)+5)
		fmt.Fprintf(&b, `<text class="tick" x="%.1f" y="%.1f" text-anchor="middle">%s</text>`+"\n", px(x), py(0)+20, escape(c.xName(x)))
	}
	fmt.Fprintf(&b, `<text class="tick" x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", svgLeft+plotW/2, svgHeight-18, escape(c.XLabel))
	fmt.Fprintf(&b, `<text class="tick" transform="translate(22 %d) rotate(-90)" text-anchor="middle">%s</text>`+"\n", svgTop+plotH/2, escape(c.YLabel))
	for k, l := range c.Lines {
		color := lineColors[k%len(lineColors)]
		var path []string
		for i := range l.X {
			path = append(path, fmt.Sprintf("%.1f,%.1f", px(l.X[i]), py(l.Y[i])))
		}
		fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2.2"/>`+"\n", strings.Join(path, " "), color)
		for i := range l.X {
			x, y := px(l.X[i]), py(l.Y[i])
			tip := fmt.Sprintf("%s %s: %s", c.XLabel, c.xName(l.X[i]), number(l.Y[i]))
			if i < len(l.Low) && i < len(l.High) && l.High[i] > l.Low[i] {
				fmt.Fprintf(&b, `<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" stroke="%s" stroke-opacity="0.5" stroke-width="5"/>`, x, x, py(l.High[i]), py(l.Low[i]), color)
				tip += fmt.Sprintf(" (%s to %s)", number(l.Low[i]), number(l.High[i]))
			}
			fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="4" fill="%s"><title>%s</title></circle>`+"\n", x, y, color, escape(tip))
			if i == l.Mark {
				fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="9" fill="none" stroke="%s" stroke-width="1.6"/>`, x, y, color)
				fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="middle">knee</text>`+"\n", x, y-15)
			}
		}
	}
	c.legend(&b)
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// legend names the lines, beside the plot.
func (c *Chart) legend(b *strings.Builder) {
	if len(c.Lines) == 1 && c.Lines[0].Name == "" {
		return
	}
	for k, l := range c.Lines {
		y := svgTop + 6 + 22*k
		fmt.Fprintf(b, `<line x1="%d" x2="%d" y1="%d" y2="%d" stroke="%s" stroke-width="3"/>`, svgWidth-svgRight+16, svgWidth-svgRight+36, y, y, lineColors[k%len(lineColors)])
		fmt.Fprintf(b, `<text x="%d" y="%d">%s</text>`+"\n", svgWidth-svgRight+42, y+4, escape(clip(l.Name, 22)))
	}
}

func clip(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder takes everything
	return b.String()
}
