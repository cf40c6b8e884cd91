package cli

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"math"
	"strings"

	"github.com/stokerdata/stoker/internal/units"
	"github.com/stokerdata/stoker/plan"
)

//go:embed plan.html.tmpl
var planPage string

// planTemplate escapes everything that comes from names and paths.
var planTemplate = template.Must(template.New("plan").Funcs(template.FuncMap{
	"bytes":     units.Bytes[float64],
	"bandwidth": units.Bandwidth[float64],
	"count":     units.Count,
	"seconds":   units.Seconds,
	"percent":   units.Percent,
	"times":     units.Times,
	"cores":     cores,
	"capital":   capital,
	"span":      func(low, high float64) string { return spanned(low, high, units.Count) },
	"spanBW":    func(low, high float64) string { return spanned(low, high, units.Bandwidth) },
	"f":         func(n int64) float64 { return float64(n) },
	"counted":   units.Plural[float64],
	"fi":        func(n int) float64 { return float64(n) },
}).Parse(planPage))

// planBar is one pair of bars: demand and capacity, as shares of the larger.
type planBar struct {
	Name, NeedText, HaveText, Verdict, Detail string
	Margin                                    string
	Need, Have                                template.CSS
	First                                     bool
}

// planPageData is the content of the page.
type planPageData struct {
	*planView
	Bars    []planBar
	Storage []planBar
	Verdict string
}

// planHTML is a plan as one page that needs nothing else.
func planHTML(v *planView) ([]byte, error) {
	d := planPageData{planView: v, Verdict: plan.VerdictYes}
	for _, r := range v.Resources {
		need, have := r.Need, r.Have
		if strings.HasPrefix(r.NeedText, "at most") {
			// Times: the expected one against the allowed one.
			need, have = have, need
		}
		b := planBar{Name: r.Name, NeedText: r.NeedText, HaveText: r.HaveText, Verdict: r.Verdict, Detail: r.Detail, Margin: units.Times(r.Margin), First: r.Name == v.FirstToFail}
		b.Need, b.Have = shareOf(need, have), shareOf(have, need)
		d.Bars = append(d.Bars, b)
	}
	for _, c := range v.Classes {
		b := planBar{Name: c.Title, HaveText: units.Count(c.PerSecond) + "/s", Verdict: c.Verdict, Detail: c.Text, Margin: units.Times(c.Margin)}
		b.Need, b.Have = shareOf(1, c.Margin), shareOf(c.Margin, 1)
		d.Storage = append(d.Storage, b)
	}
	switch {
	case !v.Meets || v.Delivered.AU < 0.985:
		d.Verdict = plan.VerdictNo
	case len(v.Resources) == 0:
		d.Verdict = plan.VerdictUnknown
	}
	var out bytes.Buffer
	if err := planTemplate.Execute(&out, d); err != nil {
		return nil, fmt.Errorf("writing the page: %w", err)
	}
	return out.Bytes(), nil
}

// shareOf returns the width of a bar of v next to one of other, in percent of the longer bar. It uses the square root,
// so that a tenth is still visible.
func shareOf(v, other float64) template.CSS {
	most := math.Max(v, other)
	if !(most > 0) || math.IsInf(most, 0) {
		return "width:100%"
	}
	return template.CSS(fmt.Sprintf("width:%.2f%%", math.Max(0.6, 100*math.Sqrt(v/most))))
}
