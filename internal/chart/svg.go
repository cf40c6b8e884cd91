package chart

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// style is the style of every standalone picture.
const style = `<style>
text{font:12.5px -apple-system,system-ui,"Segoe UI",Helvetica,Arial,"DejaVu Sans",sans-serif;fill:#1f2933}
.title{font-size:19px;font-weight:650}.soft{fill:#616e7c}.tick{font-size:11px;fill:#616e7c}.strong{font-weight:650}
.mid{text-anchor:middle}.end{text-anchor:end}
.card{fill:#fff;stroke:#e4e7eb}.grid{stroke:#e4e7eb;fill:none}.axis{stroke:#9aa5b1;fill:none}.faint{fill:#f5f7fa}.band{fill:#fff1e3}
.ours{fill:#e8590c}.theirs{fill:#a9b4c0}.wrong{fill:#495057}.spread{stroke:#52606d;fill:none}.hollow{fill:#fff}
@media (prefers-color-scheme:dark){text{fill:#e4e7eb}.soft,.tick{fill:#9aa5b1}.card,.hollow{fill:#12171d}.card,.grid{stroke:#323f4b}
.faint{fill:#1c232b}.band{fill:#33241a}.theirs{fill:#616e7c}.wrong{fill:#9aa5b1}.spread{stroke:#cbd2d9}}
</style>
`

// canvas collects the text of a picture.
type canvas struct{ b strings.Builder }

// newCanvas begins a picture with its heading.
func newCanvas(width, height int, h Heading) *canvas {
	c := &canvas{}
	c.add(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" aria-label="%s">`, width, height, width, height, escape(h.Title))
	c.b.WriteByte('\n')
	c.b.WriteString(style)
	c.add(`<rect class="card" x="0.5" y="0.5" width="%d" height="%d" rx="10"/>`, width-1, height-1)
	c.text(24, 36, "title", h.Title)
	c.text(24, 58, "soft", h.Subtitle)
	if h.Footer != "" {
		c.text(24, float64(height)-12, "tick", h.Footer)
	}
	return c
}

// add writes one element whose contents are already escaped.
func (c *canvas) add(format string, args ...any) {
	fmt.Fprintf(&c.b, format, args...)
	c.b.WriteByte('\n')
}

func (c *canvas) text(x, y float64, class, text string) {
	c.add(`<text class="%s" x="%s" y="%s">%s</text>`, class, px(x), px(y), escape(text))
}

// upright writes a text that is read from below.
func (c *canvas) upright(x, y float64, class, text string) {
	c.add(`<text class="%s" transform="translate(%s %s) rotate(-90)">%s</text>`, class, px(x), px(y), escape(text))
}

func (c *canvas) finish(w io.Writer) error {
	c.b.WriteString("</svg>\n")
	_, err := io.WriteString(w, c.b.String())
	return err
}

// px writes a coordinate, to a tenth of a pixel.
func px(v float64) string { return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64) }

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

// number writes a tick or a value without noise.
func number(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }

// counted writes a value that may be large: thousands are set apart.
func counted(v float64) string {
	switch {
	case v >= 100:
		return thousands(strconv.FormatFloat(v, 'f', 0, 64))
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// thousands sets apart the thousands of a number that is not negative.
func thousands(s string) string {
	whole, rest, _ := strings.Cut(s, ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if rest != "" {
		whole += "." + rest
	}
	return whole
}

// round writes a tick: thousands are set apart, and there is no noise.
func round(v float64) string {
	return thousands(strconv.FormatFloat(math.Round(v*1e6)/1e6, 'f', -1, 64))
}
