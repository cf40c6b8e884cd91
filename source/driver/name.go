package driver

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// ValidName returns a name as UTF-8: a byte that is not part of a character becomes \xNN, as in Python. Names that
// differ stay different, unless one of them has such text.
func ValidName(name string) string {
	if utf8.ValidString(name) {
		return name
	}
	var b strings.Builder
	for len(name) > 0 {
		r, n := utf8.DecodeRuneInString(name)
		if r == utf8.RuneError && n == 1 {
			fmt.Fprintf(&b, `\x%02x`, name[0])
		} else {
			b.WriteString(name[:n])
		}
		name = name[n:]
	}
	return b.String()
}

// validNames returns the names with ValidName. Those that change stay different from all others.
func validNames(names []string) []string {
	if !slices.ContainsFunc(names, func(n string) bool { return !utf8.ValidString(n) }) {
		return names
	}
	taken := map[string]bool{}
	for _, name := range names {
		taken[name] = true
	}
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = ValidName(name)
		for out[i] != name && taken[out[i]] {
			out[i] += "_"
		}
		taken[out[i]] = true
	}
	return out
}

// ValidNames makes the names of fields, classes and columns UTF-8, which manifests and clients need.
func ValidNames(fields []Field) {
	names := make([]string, len(fields))
	for i := range fields {
		names[i] = fields[i].Name
	}
	valid := validNames(names)
	for i := range fields {
		f := &fields[i]
		f.Name, f.Classes = valid[i], validNames(f.Classes)
		if k := slices.Index(names, f.Boxes); k >= 0 {
			f.Boxes = valid[k]
		}
		for k := range f.Columns {
			c := &f.Columns[k]
			c.Field, c.Classes = ValidName(c.Field), validNames(c.Classes)
		}
	}
}
