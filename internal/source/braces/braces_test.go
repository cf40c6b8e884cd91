package braces

import (
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
		if got, err := Expand(text); err != nil || !slices.Equal(got, want) {
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
		if got, err := Expand(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %d names, %v", text, len(got), err)
		}
	}
}

func FuzzBraces(f *testing.F) {
	for _, text := range []string{"a{0000..0003}.tar", "x{a,b{1,2},}y", "{a..e..2}", "\\{a", "{1{2,3}"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if got, err := Expand(text); err == nil && (len(got) == 0 || len(got) > Most) {
			t.Errorf("%q stands for %d names", text, len(got))
		}
	})
}
