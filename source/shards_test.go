package source

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

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
