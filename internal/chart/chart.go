// Package chart draws every picture of this project. These are the curves of studies, for a terminal and as SVG, the
// bars, matrices and scatter plots of the benchmarks, and the timelines of doctor's pages.
//
// This package writes the SVG itself instead of using a plotting library. Text is then real text in the reader's own
// fonts, and follows a dark background. The tested libraries add 8 MB of fonts and rasterisers to a program of 4 MB.
// All text is escaped, because labels may come from anywhere.
package chart

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
)

// Heading is the text above and below every picture.
type Heading struct {
	Title    string `json:"title"`
	Subtitle string `json:"subtitle"`
	Footer   string `json:"footer"`
}

// Drawing is a chart of any kind.
type Drawing interface {
	// SVG writes the chart as a standalone picture.
	SVG(w io.Writer) error
	// check refuses charts that cannot be drawn.
	check() error
}

// maxMarks limits the number of points, bars and cells of one picture.
const maxMarks = 10_000

// Parse reads a chart from JSON, an object with one member that names its kind:
// "bars", "matrix" or "scatter".
func Parse(data []byte) (Drawing, error) {
	var kinds struct {
		Bars    *Bars    `json:"bars"`
		Matrix  *Matrix  `json:"matrix"`
		Scatter *Scatter `json:"scatter"`
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&kinds); err != nil {
		return nil, err
	}
	var found []Drawing
	if kinds.Bars != nil {
		found = append(found, kinds.Bars)
	}
	if kinds.Matrix != nil {
		found = append(found, kinds.Matrix)
	}
	if kinds.Scatter != nil {
		found = append(found, kinds.Scatter)
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("%d charts; there must be one of bars, matrix and scatter", len(found))
	}
	if err := found[0].check(); err != nil {
		return nil, err
	}
	return found[0], nil
}

// checkMarks refuses a picture of nothing, and of too much.
func checkMarks(n int) error {
	switch {
	case n == 0:
		return errors.New("there is nothing to draw")
	case n > maxMarks:
		return fmt.Errorf("%d marks; at most %d can be drawn", n, maxMarks)
	}
	return nil
}

// checkRange refuses values that an axis cannot show.
func checkRange(least float64, values ...float64) error {
	for _, v := range values {
		if !(v >= least && v <= 1e15) {
			return fmt.Errorf("a value of %v", v)
		}
	}
	return nil
}

// palette has the colours that distinguish series. They also differ in lightness.
var palette = []string{"#e8590c", "#1971c2", "#2f9e44", "#9c36b5", "#c2255c", "#0f766e", "#b45309", "#4338ca"}

func colour(i int) string { return palette[i%len(palette)] }

// ticks returns round numbers from 0 to at least top, about n of them.
func ticks(top float64, n int) []float64 {
	step := math.Pow(10, math.Floor(math.Log10(top/float64(n))))
	for _, f := range []float64{1, 2, 5, 10} {
		if top/(step*f) <= float64(n) {
			step *= f
			break
		}
	}
	var out []float64
	for i := 0; i <= 2*n+2; i++ {
		out = append(out, float64(i)*step)
		if float64(i)*step >= top*(1-1e-9) {
			break
		}
	}
	return out
}
