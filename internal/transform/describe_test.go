package transform

import (
	"encoding/json"
	"flag"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write testdata/arguments.json")

// probes are values that parameters accept or refuse. Python's tests try the same ones.
var probes = []string{
	`null`, `true`, `false`, `0`, `1`, `2`, `3`, `-1`, `0.5`, `2.5`, `1000000000`, `-1000000000`, `""`, `"x"`, `"bilinear"`, `"random"`, `"float32"`,
	`[]`, `[1]`, `[0.5,1]`, `[1,0.5]`, `[0,1]`, `[3,5]`, `[1,2,3]`, `[1,2,3,4]`, `[1,2,3,4,5]`, `["x","y"]`, `[true]`, `[-1,1]`, `{}`,
}

// TestArguments holds which arguments are accepted. python/tests/test_surface.py holds the classes to the same file.
func TestArguments(t *testing.T) {
	type table struct {
		Probes   []json.RawMessage           `json:"probes"`
		Accepted map[string]map[string][]int `json:"accepted"`
	}
	got := table{Accepted: map[string]map[string][]int{}}
	for _, p := range probes {
		got.Probes = append(got.Probes, json.RawMessage(p))
	}
	for _, s := range All() {
		got.Accepted[s.Name] = map[string][]int{}
		for _, p := range s.Params {
			if p.Hidden || p.Type == Ops {
				continue
			}
			list := []int{}
			for i, probe := range probes {
				spec := Spec{Name: s.Name, Params: []Param{p}}
				_, err := spec.check(map[string]json.RawMessage{p.Name: json.RawMessage(probe)})
				if err == nil {
					list = append(list, i)
				} else if want := s.Name + ": " + p.Name + " must be " + p.Expects() + ", not " + probe; err.Error() != want {
					t.Errorf("%s\nwant %s", err, want)
				}
			}
			got.Accepted[s.Name][p.Name] = list
		}
	}
	text, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	text = append([]byte(strings.ReplaceAll(string(text), `},"`, "},\n\"")), '\n')
	const name = "testdata/arguments.json"
	if *update {
		if err := os.WriteFile(name, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(name); err != nil || string(want) != string(text) {
		t.Errorf("%s is out of date (%v): go test ./internal/transform -run TestArguments -update", name, err)
	}
}

// TestDescriptions holds the descriptions to their form.
func TestDescriptions(t *testing.T) {
	known := []string{"image", "mask", "frames", "boxes", "keypoints", "array", "audio", "volume", "batch"}
	for _, s := range All() {
		if !slices.ContainsFunc(Modules, func(m Module) bool { return m.Name == s.Module() }) {
			t.Errorf("%s: module %s", s.Name, s.Module())
		}
		if s.image == nil && s.clip == nil && s.sound == nil && s.volume == nil && s.batch == nil {
			t.Errorf("%s works on nothing", s.Name)
		}
		for _, text := range []string{s.Doc, s.Returns} {
			if !regexp.MustCompile(`^[A-Z\[].*\.$`).MatchString(text) {
				t.Errorf("%s: %q is not a sentence", s.Name, text)
			}
		}
		if len(s.Doc) > 110 {
			t.Errorf("%s: %q is too long for a line of Python", s.Name, s.Doc)
		}
		for _, k := range s.Kinds {
			if !slices.Contains(known, k) {
				t.Errorf("%s: kind %q", s.Name, k)
			}
		}
		if short := s.Name[strings.Index(s.Name, ".")+1:]; !strings.Contains(s.Example, short+"(") {
			t.Errorf("%s: example %s", s.Name, s.Example)
		}
		optional := false
		for _, p := range s.Params {
			switch {
			case p.Help == "" || strings.HasSuffix(p.Help, "."):
				t.Errorf("%s: help of %s is %q", s.Name, p.Name, p.Help)
			case p.Required && p.Default != nil:
				t.Errorf("%s: %s is required and has a default", s.Name, p.Name)
			case p.Required && optional && !s.Keyword:
				t.Errorf("%s: %s follows parameters with defaults", s.Name, p.Name)
			case !p.Required && p.Default == nil && !p.Optional:
				t.Errorf("%s: %s has no default", s.Name, p.Name)
			}
			optional = optional || !p.Required
			if p.Default == nil {
				continue
			}
			raw, err := json.Marshal(p.Default)
			if _, ok := p.read(raw); !ok || err != nil {
				t.Errorf("%s: %s refuses its default %s: it must be %s", s.Name, p.Name, raw, p.Expects())
			}
		}
	}
}
