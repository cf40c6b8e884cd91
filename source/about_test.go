package source

import (
	"slices"
	"testing"
)

func TestEveryFormatIsDescribed(t *testing.T) {
	names := Formats()
	for _, name := range names {
		if a := told[name]; a.Reads == "" || a.Random == "" || a.Example == "" {
			t.Errorf("source/about.go has to say what the format %q reads, whether at random, and an example", name)
		}
	}
	for name := range told {
		if !slices.Contains(names, name) {
			t.Errorf("source/about.go describes %q, which is no format", name)
		}
	}
}
