package bench

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"charm.land/lipgloss/v2"
)

// Line is one line of a chart.
type Line struct {
	Name string
	X, Y []float64
	// Low and High are the spread of Y; may be nil.
	Low, High []float64
	// Mark is the place of the point to point out, -1 for none.
	Mark int
}

// Chart is what both kinds of picture show.
type Chart struct {
	Title, Subtitle string
	XLabel, YLabel  string
	Lines           []Line
	// XNames replaces numbers on the axis, when set.
	XNames map[float64]string
}

// Chart returns the curve of a study: time over the axis.
func (s *Study) Chart() *Chart {
	c := &Chart{Title: "Time against " + s.axisWords(), Subtitle: s.Subject, XLabel: s.axisWords(), YLabel: s.Unit}
	if s.X == AxisDecode {
		c.XNames = map[float64]string{0: "on", 1: "off"}
	}
	for _, series := range s.Series {
		line := Line{Name: series.Name, X: series.X, Mark: series.Knee}
		if s.X == AxisDecode || series.Knee == len(series.Cells)-1 {
			line.Mark = -1 // there is none, or it lies beyond the last point
		}
		for _, i := range series.Cells {
			cell := s.Cells[i]
			line.Y = append(line.Y, cell.Epoch)
			line.Low, line.High = append(line.Low, cell.Low), append(line.High, cell.High)
		}
		c.Lines = append(c.Lines, line)
	}
	return c
}

func (s *Study) axisWords() string {
	switch s.X {
	case AxisCache:
		return "share of the data in memory (%)"
	case AxisDecode:
		return "decoding"
	}
	return s.X
}

// colors of lines, and their points on a terminal. They differ in lightness too.
var (
	lineColors = []string{"#C2410C", "#0369A1", "#15803D", "#7E22CE", "#B45309", "#0F766E", "#BE123C", "#4338CA"}
	pointRunes = []rune{'●', '▲', '■', '◆', '○', '△', '□', '◇'}
)

// bounds returns the range of both axes. The y axis begins at 0: a study is
// about factors.
func (c *Chart) bounds() (x0, x1, y1 float64) {
	x0, x1 = math.Inf(1), math.Inf(-1)
	for _, l := range c.Lines {
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

// ticks are round numbers from 0 to at least y1, about n of them.
func ticks(y1 float64, n int) []float64 {
	step := math.Pow(10, math.Floor(math.Log10(y1/float64(n))))
	for _, f := range []float64{1, 2, 5, 10} {
		if y1/(step*f) <= float64(n) {
			step *= f
			break
		}
	}
	var out []float64
	for i := 0; i <= 2*n+2; i++ {
		out = append(out, float64(i)*step)
		if float64(i)*step >= y1*(1-1e-9) {
			break
		}
	}
	return out
}

// number writes a tick or a value without noise.
func number(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }

// xs lists the places on the x axis that have a point, in order.
func (c *Chart) xs() []float64 {
	seen := map[float64]bool{}
	var out []float64
	for _, l := range c.Lines {
		for _, x := range l.X {
			if !seen[x] {
				seen[x] = true
				out = append(out, x)
			}
		}
	}
	for i := range out {
		for j := i; j > 0 && out[j] < out[j-1]; j-- {
			out[j], out[j-1] = out[j-1], out[j]
		}
	}
	return out
}

func (c *Chart) xName(x float64) string {
	if name, ok := c.XNames[x]; ok {
		return name
	}
	return number(x)
}

// Terminal draws the chart with Braille dots, width x height characters and
// the axes beside them.
func (c *Chart) Terminal(width, height int) string {
	width, height = max(width, 20), max(height, 5)
	x0, x1, top := c.bounds()
	marks := ticks(top, height/3)
	top = marks[len(marks)-1]
	dots := make([][]rune, height) // Braille bits
	color := make([][]int, height)
	points := make([][]rune, height)
	for i := range dots {
		dots[i], color[i], points[i] = make([]rune, width), make([]int, width), make([]rune, width)
	}
	// A point at the very edge needs half a character on either side.
	px := func(x float64) float64 { return 2 + (x-x0)/(x1-x0)*float64(2*width-5) }
	py := func(y float64) float64 { return (1 - y/top) * float64(4*height-1) }
	for k, l := range c.Lines {
		for i := range l.X {
			if i > 0 {
				segment(px(l.X[i-1]), py(l.Y[i-1]), px(l.X[i]), py(l.Y[i]), func(x, y int) {
					if x >= 0 && y >= 0 && x < 2*width && y < 4*height {
						dots[y/4][x/2] |= brailleBit(x%2, y%4)
						color[y/4][x/2] = k + 1
					}
				})
			}
		}
	}
	for k, l := range c.Lines {
		for i := range l.X {
			row, col := int(py(l.Y[i]))/4, int(px(l.X[i]))/2
			if row >= 0 && row < height && col >= 0 && col < width {
				points[row][col], color[row][col] = pointRunes[k%len(pointRunes)], k+1
			}
		}
	}
	labels := make([]string, height)
	wide := 0
	for _, m := range marks {
		row := int(py(m)) / 4
		labels[min(max(row, 0), height-1)] = number(m)
		wide = max(wide, len(number(m)))
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%*s %s\n", wide+1, "", c.YLabel)
	for row := range height {
		bar := "│"
		if labels[row] != "" {
			bar = "┤"
		}
		fmt.Fprintf(&out, "%*s %s", wide, labels[row], bar)
		var run []rune
		for col := range width {
			r := ' '
			switch {
			case points[row][col] != 0:
				r = points[row][col]
			case dots[row][col] != 0:
				r = 0x2800 + dots[row][col]
			}
			run = append(run, r)
			if col+1 == width || color[row][col+1] != color[row][col] {
				out.WriteString(painted(string(run), color[row][col]))
				run = run[:0]
			}
		}
		out.WriteByte('\n')
	}
	axis := []rune(strings.Repeat("─", width))
	names := []rune(strings.Repeat(" ", width+8))
	free := 0
	for _, x := range c.xs() {
		col := int(px(x)) / 2
		axis[min(col, width-1)] = '┬'
		name := []rune(c.xName(x))
		at := max(col-len(name)/2, 0)
		if at >= free && at+len(name) <= len(names) {
			copy(names[at:], name)
			free = at + len(name) + 1
		}
	}
	fmt.Fprintf(&out, "%*s └%s\n", wide, "", string(axis))
	fmt.Fprintf(&out, "%*s  %s\n", wide, "", strings.TrimRight(string(names), " "))
	fmt.Fprintf(&out, "%*s  %s\n", wide, "", lipgloss.PlaceHorizontal(width, lipgloss.Center, c.XLabel))
	if len(c.Lines) > 1 || c.Lines[0].Name != "" {
		for k, l := range c.Lines {
			fmt.Fprintf(&out, "%*s  %s %s\n", wide, "", painted(string(pointRunes[k%len(pointRunes)]), k+1), l.Name)
		}
	}
	return out.String()
}

func painted(s string, color int) string {
	if color == 0 {
		return s
	}
	return lipgloss.NewStyle().Foreground(lipgloss.Color(lineColors[(color-1)%len(lineColors)])).Render(s)
}

// brailleBit is the dot of a Braille character at column x of 2 and row y of 4.
func brailleBit(x, y int) rune {
	return [2][4]rune{{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}}[x][y]
}

// segment calls set for each dot between two places.
func segment(xa, ya, xb, yb float64, set func(x, y int)) {
	n := int(max(math.Abs(xb-xa), math.Abs(yb-ya), 1))
	for i := range n + 1 {
		f := float64(i) / float64(n)
		set(int(xa+(xb-xa)*f), int(ya+(yb-ya)*f))
	}
}
