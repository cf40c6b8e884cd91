package doctor

import (
	"bytes"
	"math"
	"strings"
	"testing"
)

func TestReportRoundTrip(t *testing.T) {
	r := &Report{
		Version: ReportVersion, Verdict: CPU, Confidence: 0.9, Gains: map[Verdict]float64{CPU: 1.5},
		Series: Series{"t": {0, 1}, "cpu": {0.123456, math.NaN()}},
	}
	var first, second bytes.Buffer
	if err := r.Write(&first); err != nil {
		t.Fatal(err)
	}
	read, err := ReadReport(bytes.NewReader(first.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if !math.IsNaN(read.Series["cpu"][1]) || read.Series["cpu"][0] != 0.1235 {
		t.Errorf("series came back as %v", read.Series["cpu"])
	}
	if err := read.Write(&second); err != nil {
		t.Fatal(err)
	}
	if first.String() != second.String() {
		t.Errorf("a report changes when it is read and written again:\n%s\n%s", &first, &second)
	}
}

func TestReadReportRefusesOthers(t *testing.T) {
	for _, text := range []string{"", "[]", "{", `{"version":2}`, `{"series":{"t":["a"]}}`} {
		if _, err := ReadReport(strings.NewReader(text)); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}

func FuzzReadReport(f *testing.F) {
	f.Add([]byte(`{"version":1,"verdict":"cpu","series":{"t":[0,null]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if r, err := ReadReport(bytes.NewReader(data)); err == nil {
			if err := r.Write(&bytes.Buffer{}); err != nil {
				t.Fatal(err)
			}
		}
	})
}
