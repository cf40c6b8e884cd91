package units

import "testing"

func TestList(t *testing.T) {
	for want, names := range map[string][]string{"": nil, "a": {"a"}, "a and b": {"a", "b"}, "a, b and c": {"a", "b", "c"}} {
		if got := List(names, "and"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestNearest(t *testing.T) {
	known := []string{"window", "dtype", "eot", "bos", "records"}
	for name, want := range map[string]string{"windows": "window", "Dtype": "dtype", "record": "records", "quality": "", "": ""} {
		if got := Nearest(name, known); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}
