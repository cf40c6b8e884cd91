package chart

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Timeline is a plot over time inside a page. It stretches to the available width. One horizontal unit is a second,
// and the height is 100, so another viewBox shows another part. The page writes names and axes next to it. Colours
// are names of the page's CSS variables.
type Timeline struct {
	// T are seconds, in order; a line has as many values.
	T     []float64
	Lines []TimeLine
	Bands []Band
	// Top is the upper end of the scale, which begins at 0.
	Top float64
	// Stacked lines are drawn on top of each other.
	Stacked bool
}

// TimeLine is one line. A NaN value is a gap.
type TimeLine struct {
	Color  string
	Fill   bool
	Values []float64
}

// Band is a time span that is highlighted in the background.
type Band struct {
	Start, End float64
	Color      string
}

// Tick is a position on an axis, in percent of its length, and its label.
type Tick struct {
	At   float64
	Text string
}

// Range returns the time that the plot shows.
func (c *Timeline) Range() (from, to float64) {
	from, to = math.Inf(1), math.Inf(-1)
	for _, t := range c.T {
		if finite(t) {
			from, to = min(from, t), max(to, t)
		}
	}
	switch {
	case !(from <= to):
		return 0, 1
	case from == to:
		return from - 1, to + 1
	}
	return from, to
}

// TimeTicks returns round times, from the left.
func (c *Timeline) TimeTicks() []Tick {
	from, to := c.Range()
	var out []Tick
	for _, t := range ticksBetween(from, to, 7) {
		out = append(out, Tick{100 * (t - from) / (to - from), round(t) + " s"})
	}
	return out
}

// ValueTicks returns round values with a unit, from the top down.
func (c *Timeline) ValueTicks(unit string) []Tick {
	var out []Tick
	for _, v := range ticksBetween(0, c.top(), 4) {
		out = append(out, Tick{100 - 100*v/c.top(), round(v) + unit})
	}
	return out
}

// ticksBetween returns at most n + 1 multiples of a round number.
func ticksBetween(from, to float64, n int) []float64 {
	step := gridStep(to-from, n)
	var out []float64
	for i := math.Ceil(from / step); i*step <= to && len(out) <= n+1; i++ {
		out = append(out, i*step)
	}
	return out
}

func (c *Timeline) top() float64 {
	if c.Top > 0 && finite(c.Top) {
		return c.Top
	}
	return 1
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// SVG draws bands, grid and lines.
func (c *Timeline) SVG(w io.Writer) error {
	var b strings.Builder
	from, to := c.Range()
	fmt.Fprintf(&b, `<svg viewBox="%s 0 %s 100" preserveAspectRatio="none">`, decimal(from), decimal(to-from))
	for _, band := range c.Bands {
		if !finite(band.Start) || !finite(band.End) || band.End < from || band.Start > to {
			continue
		}
		start, end := max(band.Start, from), max(min(band.End, to), max(band.Start, from))
		// The line makes a short one visible. Faint over the whole height, clear at the top.
		fmt.Fprintf(&b, `<g style="fill:var(--%s);stroke:var(--%s)"><path class="behind" d="M%s 0H%sV100H%sZ"/><path class="cap" d="M%s 0H%sV2.7H%sZ"/></g>`,
			escape(band.Color), escape(band.Color), decimal(start), decimal(end), decimal(start), decimal(start), decimal(end), decimal(start))
	}
	b.WriteString(`<path class="grid across" d="`)
	for _, tick := range c.ValueTicks("") {
		fmt.Fprintf(&b, "M%s %sH%s", decimal(from), decimal(tick.At), decimal(to))
	}
	b.WriteString(`"/><path class="grid down" d="`)
	for _, t := range ticksBetween(from, to, 7) {
		fmt.Fprintf(&b, "M%s 0V100", decimal(t))
	}
	b.WriteString(`"/>`)
	c.lines(&b)
	b.WriteString("</svg>")
	_, err := io.WriteString(w, b.String())
	return err
}

// lines draws the lines. A stacked line is drawn up to the sum of itself and the earlier ones. The last is drawn
// first, so that the earlier ones cover their part.
func (c *Timeline) lines(b *strings.Builder) {
	values := make([][]float64, len(c.Lines))
	for i, l := range c.Lines {
		values[i] = l.Values
		if c.Stacked && i > 0 {
			values[i] = sums(values[i-1], l.Values)
		}
	}
	order := make([]int, len(c.Lines))
	for i := range order {
		order[i] = i
	}
	if c.Stacked {
		slices.Reverse(order)
	}
	for _, i := range order {
		line, area := c.paths(values[i])
		color := escape(c.Lines[i].Color)
		switch {
		case c.Stacked:
			fmt.Fprintf(b, `<path style="fill:var(--%s)" d="%s"/>`, color, area)
			continue
		case c.Lines[i].Fill:
			fmt.Fprintf(b, `<path class="under" style="fill:var(--%s)" d="%s"/>`, color, area)
		}
		fmt.Fprintf(b, `<path class="line" style="stroke:var(--%s)" d="%s"/>`, color, line)
	}
}

// sums adds two lines. If both have a gap, the sum has one.
func sums(below, values []float64) []float64 {
	out := make([]float64, len(values))
	for i, v := range values {
		switch under := valueAt(below, i); {
		case !finite(v):
			out[i] = under
		case !finite(under):
			out[i] = v
		default:
			out[i] = v + under
		}
	}
	return out
}

func valueAt(values []float64, i int) float64 {
	if i < len(values) {
		return values[i]
	}
	return math.NaN()
}

// maxColumns limits the points of a drawn line: of the values in one column, the minimum and the maximum are drawn.
const maxColumns = 2000

// paths makes the line and the area under it.
func (c *Timeline) paths(values []float64) (line, area string) {
	type point struct{ t, v float64 }
	var l, a strings.Builder
	var run []point
	end := func() {
		if len(run) == 0 {
			return
		}
		fmt.Fprintf(&a, "M%s 100", decimal(run[0].t))
		for i, p := range run {
			op := "L"
			if i == 0 {
				op = "M"
			}
			fmt.Fprintf(&l, "%s%s %s", op, decimal(p.t), c.height(p.v))
			fmt.Fprintf(&a, "L%s %s", decimal(p.t), c.height(p.v))
		}
		if len(run) == 1 {
			l.WriteString("h0") // a dot
		}
		fmt.Fprintf(&a, "L%s 100Z", decimal(run[len(run)-1].t))
		run = run[:0]
	}
	n := min(len(c.T), len(values))
	size := max(1, (n+maxColumns-1)/maxColumns)
	for at := 0; at < n; at += size {
		least, most := -1, -1
		for i := at; i < min(at+size, n); i++ {
			if !finite(values[i]) || !finite(c.T[i]) {
				continue
			}
			if least < 0 || values[i] < values[least] {
				least = i
			}
			if most < 0 || values[i] > values[most] {
				most = i
			}
		}
		if least < 0 {
			end()
			continue
		}
		for _, i := range slices.Compact([]int{min(least, most), max(least, most)}) {
			run = append(run, point{c.T[i], values[i]})
		}
	}
	end()
	return l.String(), a.String()
}

// height returns the position of a value, at most a little beyond the edges.
func (c *Timeline) height(v float64) string {
	return decimal(min(max(100-100*(v/c.top()), -10), 110))
}

// decimal writes a coordinate, to a hundredth.
func decimal(v float64) string { return strconv.FormatFloat(math.Round(v*100)/100, 'f', -1, 64) }
