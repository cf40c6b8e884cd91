package dtype

import (
	"strings"
	"testing"
)

func TestTypes(t *testing.T) {
	if len(All()) != 13 {
		t.Errorf("%d types", len(All()))
	}
	seen := map[string]Type{}
	for _, d := range All() {
		if d.Size() < 1 || d.Size() > 8 {
			t.Errorf("%v has %d bytes", d, d.Size())
		}
		if p, ok := Parse(d.String()); !ok || p != d {
			t.Errorf("%v by its name: %v, %t", d, p, ok)
		}
		if n := d.NumPy(); n != "" {
			if p, ok := ParseNumPy(n); !ok || p != d || int(n[1]-'0') != d.Size() {
				t.Errorf("%v by NumPy's description %q: %v, %t", d, n, p, ok)
			}
		} else if d != BF16 {
			t.Errorf("%v has no description", d)
		}
		for _, name := range append([]string{d.String()}, types[d].others...) {
			if other, ok := seen[name]; ok {
				t.Errorf("%q is %v and %v", name, other, d)
			}
			seen[name] = d
			if p, ok := ParseAny(name); !ok || p != d {
				t.Errorf("%q: %v, %t", name, p, ok)
			}
		}
		// The sizes that names speak of are those there are.
		if digits := strings.TrimLeft(d.String(), "abcdefghijklmnopqrstuvwxyz"); digits != "" && digits != map[int]string{1: "8", 2: "16", 4: "32", 8: "64"}[d.Size()] {
			t.Errorf("%v has %d bytes", d, d.Size())
		}
	}
	for _, name := range []string{"", "u1", "complex64", "Uint8"} {
		if d, ok := ParseAny(name); ok {
			t.Errorf("%q is %v", name, d)
		}
	}
	if _, ok := Parse("half"); ok {
		t.Error("half is the name of a type")
	}
	for _, d := range []Type{0, 14, 255} {
		if d.Size() != 0 || d.NumPy() != "" || !strings.HasPrefix(d.String(), "dtype(") {
			t.Errorf("type %d: %q of %d bytes", uint8(d), d, d.Size())
		}
	}
}
