package chart

import (
	"fmt"
	"math"
	"strings"

	"charm.land/lipgloss/v2"
)

// Terminal draws the chart with Braille dots, width x height characters plus the axes.
func (c *Curves) Terminal(width, height int) string {
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
	for k, l := range c.Curves {
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
	for k, l := range c.Curves {
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
	if c.named() {
		for k, l := range c.Curves {
			fmt.Fprintf(&out, "%*s  %s %s\n", wide, "", painted(string(pointRunes[k%len(pointRunes)]), k+1), l.Name)
		}
	}
	return out.String()
}

// pointRunes are the points of lines, which a terminal without colours needs.
var pointRunes = []rune{'●', '▲', '■', '◆', '○', '△', '□', '◇'}

func painted(s string, color int) string {
	if color == 0 {
		return s
	}
	return lipgloss.NewStyle().Foreground(lipgloss.Color(colour(color - 1))).Render(s)
}

// brailleBit returns the dot of a Braille character at column x of 2 and row y of 4.
func brailleBit(x, y int) rune {
	return [2][4]rune{{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}}[x][y]
}

// segment calls set for each dot between two points.
func segment(xa, ya, xb, yb float64, set func(x, y int)) {
	n := int(max(math.Abs(xb-xa), math.Abs(yb-ya), 1))
	for i := range n + 1 {
		f := float64(i) / float64(n)
		set(int(xa+(xb-xa)*f), int(ya+(yb-ya)*f))
	}
}
