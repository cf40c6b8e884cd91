package chart

import (
	"encoding/xml"
	"io"
	"regexp"
	"strings"
	"testing"
)

// drawn draws a picture, and counts its elements and the text in them.
func drawn(t *testing.T, picture interface{ SVG(io.Writer) error }) (elements map[string]int, text string) {
	t.Helper()
	var svg strings.Builder
	if err := picture.SVG(&svg); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(svg.String(), "NaN") || strings.Contains(svg.String(), "Inf") || strings.Contains(svg.String(), "%!") {
		t.Errorf("no picture: %s", svg.String())
	}
	elements = map[string]int{}
	d := xml.NewDecoder(strings.NewReader(svg.String()))
	for {
		token, err := d.Token()
		if err == io.EOF {
			return elements, text
		}
		if err != nil {
			t.Fatalf("the SVG is not XML: %v", err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			elements[token.Name.Local]++
		case xml.CharData:
			text += string(token) + "\n"
		}
	}
}

func contains(t *testing.T, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
}

func curves() *Curves {
	return &Curves{
		Heading: Heading{Title: "Time", Subtitle: `<&"photos">`}, XLabel: "workers", YLabel: "seconds per epoch",
		Curves: []Curve{
			{Name: "decode on", X: []float64{1, 2, 4, 7}, Y: []float64{260, 150, 100, 96}, Low: []float64{250, 150, 99, 95}, High: []float64{270, 150, 101, 96}, Mark: 2, MarkName: "knee"},
			{Name: "decode off", X: []float64{1, 2, 4, 7}, Y: []float64{40, 40, 40, 40}, Mark: 0, MarkName: "knee"},
		},
	}
}

func TestCurves(t *testing.T) {
	elements, text := drawn(t, curves())
	if elements["circle"] != 8+2 { // the points, and a ring around each mark
		t.Errorf("%d circles", elements["circle"])
	}
	contains(t, text, `<&"photos">`, "workers 1: 260 (250 to 270)", "knee", "decode off")
	text = regexp.MustCompile(`\x1b\[[0-9;]*m`).ReplaceAllString(curves().Terminal(50, 10), "")
	contains(t, text, "seconds per epoch", "300 ┤", "workers", "● decode on", "▲ decode off")
	for _, degenerate := range [][]Curve{nil, {{X: []float64{3}, Y: []float64{0}, Mark: -1}}, {{X: []float64{1, 1}, Y: []float64{1e9, 2e-9}, Mark: 1}}} {
		c := &Curves{Curves: degenerate}
		c.Terminal(1, 1)
		drawn(t, c)
	}
}

const (
	barsJSON = `{"bars": {"title": "Images per second", "subtitle": "a <b>", "footer": "2 cores", "unit": "img/s", "groups": [
		{"title": "as they are", "bars": [{"label": "Stoker", "value": 2241, "low": 2200, "high": 2300, "ours": true, "remark": "1.7 x"}, {"label": "other", "value": 9.5}]},
		{"title": "empty", "bars": []}]}}`
	matrixJSON = `{"matrix": {"title": "said", "of": "doctor said", "rows": ["cpu", "storage"], "columns": ["cpu", "storage"],
		"counts": [[13, 1], [0, 7]], "right": [[13, 0], [0, 7]]}}`
	scatterJSON = `{"scatter": {"title": "gains", "x_label": "measured", "y_label": "predicted", "unit": " x", "band": 0.2, "band_name": "within 20%", "hollow": "wrong",
		"groups": [{"name": "cpu", "points": [{"x": 2, "y": 2.1, "tip": "one"}, {"x": 8, "y": 3, "hollow": true}]}], "notes": ["median error", "3%"]}}`
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		json  string
		count string
		n     int
		text  []string
	}{
		{barsJSON, "rect", 1 + 1 + 2, []string{"Images per second", "a <b>", "2,241", "9.50", "1.7 x", "1,000", "img/s", "2 cores"}},
		{matrixJSON, "rect", 1 + 4, []string{"doctor said", "13 of 14", "7 of 7"}},
		{scatterJSON, "circle", 2 + 2, []string{"measured", "predicted", "3 x", "within 20%", "wrong", "median error", "one"}},
	} {
		picture, err := Parse([]byte(c.json))
		if err != nil {
			t.Fatal(err)
		}
		elements, text := drawn(t, picture)
		if elements[c.count] != c.n {
			t.Errorf("%d of %s, want %d: %s", elements[c.count], c.count, c.n, c.json)
		}
		contains(t, text, c.text...)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct{ json, says string }{
		{`[]`, "cannot unmarshal"},
		{`{}`, "0 charts"},
		{`{"bars": {}, "matrix": {}}`, "2 charts"},
		{`{"pie": {}}`, "unknown field"},
		{`{"bars": {}}`, "nothing to draw"},
		{`{"bars": {"groups": [{"bars": [{"value": -1}]}]}}`, "a value of -1"},
		{`{"matrix": {"rows": ["a"], "columns": ["a"], "counts": [], "right": []}}`, "as many rows"},
		{`{"matrix": {"rows": ["a"], "columns": ["a"], "counts": [[1]], "right": [[]]}}`, "1 columns"},
		{`{"scatter": {"groups": [{"points": [{"x": 0, "y": 1}]}]}}`, "a value of 0"},
		{`{"scatter": {"band": 1, "groups": [{"points": [{"x": 1, "y": 1}]}]}}`, "a band of 1"},
		{`{"bars": {"groups": [{"bars": [` + strings.Repeat(`{},`, maxMarks) + `{}]}]}}`, "at most 10000"},
	} {
		if _, err := Parse([]byte(c.json)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%.60s: %v, want %q", c.json, err, c.says)
		}
	}
}

func TestTicks(t *testing.T) {
	if got := ticks(260, 6); got[len(got)-1] != 300 || got[1] != 50 {
		t.Errorf("%v", got)
	}
	for _, c := range []struct {
		low, high float64
		want      int
	}{{0.9, 16, 9}, {300, 25000, 6}, {1, 1e9, 10}} {
		if got := logTicks(c.low, c.high); len(got) != c.want {
			t.Errorf("from %v to %v: %v", c.low, c.high, got)
		}
	}
	for v, want := range map[float64]string{0: "0", 1000: "1,000", 1234567: "1,234,567", 0.1 + 0.2: "0.3"} {
		if got := round(v); got != want {
			t.Errorf("%v: %s", v, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(barsJSON))
	f.Add([]byte(matrixJSON))
	f.Add([]byte(scatterJSON))
	f.Fuzz(func(t *testing.T, data []byte) {
		picture, err := Parse(data)
		if err == nil {
			drawn(t, picture)
		}
	})
}
