package bench

import "github.com/stokerdata/stoker/internal/chart"

// Chart returns the curve of a study: time over the axis.
func (s *Study) Chart() *chart.Curves {
	c := &chart.Curves{Heading: chart.Heading{Title: "Time against " + s.axisWords(), Subtitle: s.Subject}, XLabel: s.axisWords(), YLabel: s.Unit}
	if s.X == AxisDecode {
		c.XNames = map[float64]string{0: "on", 1: "off"}
	}
	for _, series := range s.Series {
		line := chart.Curve{Name: series.Name, X: series.X, Mark: series.Knee, MarkName: "knee"}
		if s.X == AxisDecode || series.Knee == len(series.Cells)-1 {
			line.Mark = -1 // there is none, or it lies beyond the last point
		}
		for _, i := range series.Cells {
			cell := s.Cells[i]
			line.Y = append(line.Y, cell.Epoch)
			line.Low, line.High = append(line.Low, cell.Low), append(line.High, cell.High)
		}
		c.Curves = append(c.Curves, line)
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
