package driver

import (
	"encoding/json"
	"slices"
	"testing"
	"unicode/utf8"
)

func TestValidNames(t *testing.T) {
	fields := []Field{
		{Name: "x\xff", Classes: []string{"a", "k\xfe", "k\xff", `k\xff`}, Columns: []Column{{Field: "c\x80", Classes: []string{"é", "\xe9"}}}},
		{Name: "x\xfe", Boxes: "x\xff"}, {Name: "\uFFFD"},
	}
	ValidNames(fields)
	if got := []string{fields[0].Name, fields[1].Name, fields[1].Boxes, fields[2].Name}; !slices.Equal(got, []string{`x\xff`, `x\xfe`, `x\xff`, "\uFFFD"}) {
		t.Errorf("names %q", got)
	}
	if got := fields[0].Classes; !slices.Equal(got, []string{"a", `k\xfe`, `k\xff_`, `k\xff`}) {
		t.Errorf("classes %q", got)
	}
	if c := fields[0].Columns[0]; c.Field != `c\x80` || !slices.Equal(c.Classes, []string{"é", `\xe9`}) {
		t.Errorf("column %+v", c)
	}
}

func FuzzValidName(f *testing.F) {
	f.Add("k\xff")
	f.Add("\uFFFD\xed\xa0\x80")
	f.Fuzz(func(t *testing.T, name string) {
		got := ValidName(name)
		b, err := json.Marshal(got)
		var back string
		if err != nil || json.Unmarshal(b, &back) != nil || back != got {
			t.Errorf("%q became %q, and %q in JSON", name, got, back)
		}
		if utf8.ValidString(name) && got != name {
			t.Errorf("%q became %q", name, got)
		}
	})
}
