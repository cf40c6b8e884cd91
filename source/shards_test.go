package source

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The results are those of Python's braceexpand.
func TestBraces(t *testing.T) {
	for text, want := range map[string][]string{
		"a{0000..0003}.tar": {"a0000.tar", "a0001.tar", "a0002.tar", "a0003.tar"},
		"{a,b}x{1..2}":      {"ax1", "ax2", "bx1", "bx2"},
		"{3..1}":            {"3", "2", "1"},
		"{1..10..4}":        {"1", "5", "9"},
		"{-1..1}":           {"-1", "0", "1"},
		"{08..11}":          {"08", "09", "10", "11"},
		"x{a,b{1,2},}y":     {"xay", "xb1y", "xb2y", "xy"},
		"{x}":               {"{x}"},
		"{a..e..2}":         {"a", "c", "e"},
		"{e..a}":            {"e", "d", "c", "b", "a"},
		"\\{a,b\\}":         {"{a,b}"},
		"{{1..2},z}":        {"1", "2", "z"},
		"ä":                 {"ä"},
		"a,b":               {"a,b"},
		"{Y..b}":            {"Y", "Z", "a", "b"},
		"{00..0}":           {"00"},
		"{,}":               {"", ""},
	} {
		if got, err := expandBraces(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"a{b":                        "not closed",
		"a}b":                        "without an opening one",
		"{1{2,3}":                    "not closed",
		"{0..99999999}":              "more than 1048576 names",
		strings.Repeat("{0..99}", 4): "more than 1048576 names",
		strings.Repeat("{", 100):     "too many braces",
	} {
		if got, err := expandBraces(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %d names, %v", text, len(got), err)
		}
	}
}

func FuzzBraces(f *testing.F) {
	for _, text := range []string{"a{0000..0003}.tar", "x{a,b{1,2},}y", "{a..e..2}", "\\{a", "{1{2,3}"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if got, err := expandBraces(text); err == nil && (len(got) == 0 || len(got) > maxShards) {
			t.Errorf("%q stands for %d names", text, len(got))
		}
	})
}

func TestPatterns(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a/2.tar", "a/10.tar", "b/1.tar", "b/x.txt"} {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for pattern, want := range map[string][]string{
		"a/*.tar":          {"10.tar", "2.tar"},
		"{b,a}/{1,2}*.tar": {"b/1.tar", "a/10.tar", "a/2.tar"},
		"?/[0-9].tar":      {"a/2.tar", "b/1.tar"},
		"a/{10,2}.tar":     {"10.tar", "2.tar"},
		"b/../a/{2,10}.*":  {"2.tar", "10.tar"},
	} {
		loc := &location{path: filepath.Join(dir, "x")[:len(dir)+1] + pattern}
		if err := loc.expand(t.Context()); err != nil || !slices.Equal(loc.names, want) {
			t.Errorf("%s: %q, %v", pattern, loc.names, err)
		}
		t.Chdir(dir)
		loc = &location{path: pattern}
		if err := loc.expand(t.Context()); err != nil || !slices.Equal(loc.names, want) {
			t.Errorf("%s, from there: %q below %s, %v", pattern, loc.names, loc.store, err)
		}
	}
	if _, err := Open(t.Context(), "a/no*.tar", nil); err == nil || err.Error() != "cannot open a/no*.tar: no file has such a name" {
		t.Error(err)
	}
	if _, err := Open(t.Context(), "b/{1,2}.tar", nil); err == nil || !strings.Contains(err.Error(), "b/2.tar") {
		t.Error(err)
	}
	if _, err := Open(t.Context(), "b/{x,y}.txt", nil); err == nil || !strings.Contains(err.Error(), "b/{x,y}.txt: its format is not known") {
		t.Error(err)
	}
}
