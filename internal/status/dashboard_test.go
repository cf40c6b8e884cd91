package status

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Queries of the dashboard use series and labels that there are, and every series of a column is drawn.
func TestDashboard(t *testing.T) {
	data, err := os.ReadFile("../../deploy/grafana.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			ID      int
			Title   string
			Targets []struct{ Expr, LegendFormat string }
		}
		Templating struct {
			List []struct{ Name, Query string }
		}
	}
	if err := json.Unmarshal(data, &board); err != nil {
		t.Fatal(err)
	}
	labels := []string{"run", "rank", "engine", "loader", "accelerator", "instance", "quantile"}
	for i := range Metrics {
		labels = append(labels, Metrics[i].Label)
	}
	used := map[string]bool{}
	check := func(where, query string) {
		for _, name := range regexp.MustCompile(`stoker_[a-z_]+`).FindAllString(query, -1) {
			used[name] = true
			if !slices.Contains(Names(), name) {
				t.Errorf("%s: there is no series %s", where, name)
			}
		}
		for _, found := range regexp.MustCompile(`[{,(]\s*([a-z]+)\s*=|by \(([a-z]+)\)|\{\{([a-z]+)\}\}`).FindAllStringSubmatch(query, -1) {
			if label := found[1] + found[2] + found[3]; !slices.Contains(labels, label) {
				t.Errorf("%s: there is no label %s", where, label)
			}
		}
		if strings.Count(query, "(") != strings.Count(query, ")") || strings.Count(query, "{") != strings.Count(query, "}") {
			t.Errorf("%s: brackets do not match in %s", where, query)
		}
	}
	ids := map[int]bool{}
	for _, p := range board.Panels {
		if ids[p.ID] || len(p.Targets) == 0 {
			t.Errorf("panel %q: its number is used twice, or it has no query", p.Title)
		}
		ids[p.ID] = true
		for _, q := range p.Targets {
			check(p.Title, q.Expr)
			check(p.Title, q.LegendFormat)
			if regexp.MustCompile(`(rate|increase)\((stoker_[a-z_]+)`).MatchString(q.Expr) != strings.Contains(q.Expr, "$__rate_interval") {
				t.Errorf("%s: a rate has an interval, and a gauge has none: %s", p.Title, q.Expr)
			}
		}
	}
	for _, v := range board.Templating.List {
		check("variable "+v.Name, v.Query)
	}
	for i := range Metrics {
		m := &Metrics[i]
		name := m.FullName()
		if !used[name] && m.Width == Narrow && m.unit() != "ratio" { // the ratio is computed from the counters
			t.Errorf("%s is a column of stoker top and not in the dashboard", name)
		}
	}
}
