package chart

import (
	"errors"
	"fmt"
	"io"
	"strconv"
)

// Matrix is a table of counts: the truth by the verdict. A larger share of its row makes a cell darker.
type Matrix struct {
	Heading
	// Of is the text above the columns.
	Of      string   `json:"of"`
	Rows    []string `json:"rows"`
	Columns []string `json:"columns"`
	// Counts are the cells row by row. Right has the number of right verdicts in each.
	Counts [][]int `json:"counts"`
	Right  [][]int `json:"right"`
}

func (c *Matrix) check() error {
	if err := checkMarks(len(c.Rows) * len(c.Columns)); err != nil {
		return err
	}
	if len(c.Counts) != len(c.Rows) || len(c.Right) != len(c.Rows) {
		return errors.New("counts and right must have as many rows as there are names")
	}
	for i := range c.Rows {
		if len(c.Counts[i]) != len(c.Columns) || len(c.Right[i]) != len(c.Columns) {
			return fmt.Errorf("row %d of counts or right does not have %d columns", i, len(c.Columns))
		}
	}
	return nil
}

// SVG draws the matrix.
func (c *Matrix) SVG(w io.Writer) error {
	const left, top, width, height = 150, 118, 84, 40
	right := left + width*len(c.Columns)
	out := newCanvas(right+90, top+height*len(c.Rows)+24, c.Heading)
	out.text(left+width*float64(len(c.Columns))/2, 84, "soft mid", c.Of)
	for j, name := range c.Columns {
		out.text(left+width*(float64(j)+0.5), top-12, "mid", name)
	}
	for i, name := range c.Rows {
		y := float64(top + height*i)
		out.text(left-12, y+height/2+4, "end strong", name)
		total, good := 0, 0
		for j := range c.Columns {
			total += c.Counts[i][j]
			good += c.Right[i][j]
		}
		for j := range c.Columns {
			n, isRight := c.Counts[i][j], c.Right[i][j] == c.Counts[i][j]
			fill, opacity := "faint", 1.0
			if n > 0 {
				fill, opacity = "wrong", 0.12+0.88*float64(n)/float64(max(total, 1))
				if isRight {
					fill = "ours"
				}
			}
			x := float64(left + width*j)
			out.add(`<rect class="%s" x="%s" y="%s" width="%d" height="%d" rx="5" fill-opacity="%.2f"/>`, fill, px(x+1.5), px(y+1.5), width-3, height-3, opacity)
			if n > 0 {
				weight, ink := 500, ""
				if isRight {
					weight = 700
				}
				if 2*n > total {
					ink = ";fill:#fff"
				}
				out.add(`<text class="mid" x="%s" y="%s" style="font-size:14px;font-weight:%d%s">%d</text>`, px(x+width/2), px(y+height/2+5), weight, ink, n)
			}
		}
		out.text(float64(right+12), y+height/2+4, "soft", strconv.Itoa(good)+" of "+strconv.Itoa(total))
	}
	return out.finish(w)
}
