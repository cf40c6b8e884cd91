package chart

import (
	"encoding/xml"
	"io"
	"math"
	"strings"
	"testing"
)

func timeline(t *testing.T, c *Timeline) string {
	t.Helper()
	var svg strings.Builder
	if err := c.SVG(&svg); err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(strings.NewReader(svg.String())); ; {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("the SVG is not XML: %v", err)
		}
	}
	if strings.Contains(svg.String(), "NaN") || strings.Contains(svg.String(), "Inf") {
		t.Errorf("no picture: %s", svg.String())
	}
	return svg.String()
}

func TestTimeline(t *testing.T) {
	nan := math.NaN()
	c := &Timeline{T: []float64{10, 11, 12, 13, 14}, Top: 100, Lines: []TimeLine{
		{Color: "cpu", Values: []float64{100, 50, nan, 25, nan}}, // a gap, and a dot
		{Color: "wait", Fill: true, Values: []float64{0, 0, 0, 0, 1e300}},
	}, Bands: []Band{{Start: 11, End: 99, Color: "warning"}, {Start: 50, End: 60, Color: "critical"}, {Start: nan, End: 3, Color: "careful"}}}
	svg := timeline(t, c)
	contains(t, svg, `viewBox="10 0 4 100"`, `d="M10 0L11 50M13 75h0"`, `style="fill:var(--wait)"`, `M11 0H14V100H11Z`, `14 -10`)
	if strings.Contains(svg, "critical") || strings.Contains(svg, "careful") {
		t.Errorf("a band outside of the plot is drawn: %s", svg)
	}
	c.Stacked = true
	contains(t, timeline(t, c), `d="M10 100L10 0L11 50L11 100Z`)
	if got := c.TimeTicks(); len(got) != 5 || got[1] != (Tick{25, "11 s"}) {
		t.Errorf("%v", got)
	}
	if got := c.ValueTicks("%"); len(got) != 5 || got[4] != (Tick{0, "100%"}) {
		t.Errorf("%v", got)
	}
}

// Long runs are drawn with the minimum and maximum in each column.
func TestLongTimeline(t *testing.T) {
	c := &Timeline{Top: 1, Lines: []TimeLine{{Color: "cpu"}}}
	for i := range 100_000 {
		c.T = append(c.T, float64(i))
		v := 0.5
		if i == 31_234 {
			v = 1
		}
		c.Lines[0].Values = append(c.Lines[0].Values, v)
	}
	svg := timeline(t, c)
	if len(svg) > 100_000 || !strings.Contains(svg, "L31234 0L") {
		t.Errorf("%d bytes", len(svg))
	}
}

func TestOddTimelines(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []*Timeline{
		{},
		{T: []float64{5}, Lines: []TimeLine{{Values: []float64{1}}}},
		{T: []float64{nan, inf}, Top: inf, Lines: []TimeLine{{Values: []float64{1, 2}}}},
		{T: []float64{0, 1, 2}, Stacked: true, Lines: []TimeLine{{Values: []float64{1}}, {Values: []float64{1, 2, 3, 4}}}},
		{T: []float64{-1e15, 1e15}, Top: 1e-300, Lines: []TimeLine{{Color: `"><script>`, Values: []float64{1e300, -1e300}}}},
	} {
		if svg := timeline(t, c); strings.Contains(svg, "<script") {
			t.Error("a colour became markup")
		}
		c.TimeTicks()
		c.ValueTicks("")
	}
}
