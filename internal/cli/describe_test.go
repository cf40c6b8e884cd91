package cli

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/pipeline"
	"github.com/stokerdata/stoker/internal/transform"
	"github.com/stokerdata/stoker/source/view"
)

// Every environment variable in the sources is described, or known as internal.
func TestEnvironment(t *testing.T) {
	known := slices.Clone(internalVariables)
	for _, e := range environment {
		known = append(known, e.Name)
	}
	found := map[string]bool{}
	name := regexp.MustCompile(`\bSTOKER_[A-Z_]*[A-Z]\b`)
	for _, dir := range []string{"internal", "source", "store", "sink", "pack", "cmd", "python/src"} {
		err := filepath.WalkDir(filepath.Join("../..", dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.HasSuffix(path, "_test.go") || !slices.Contains([]string{".go", ".py"}, filepath.Ext(path)) ||
				filepath.Base(path) == "describe_lists.go" {
				return err
			}
			b, err := os.ReadFile(path)
			for _, v := range name.FindAllString(string(b), -1) {
				if found[v] = true; !slices.Contains(known, v) && !strings.HasPrefix(v, "STOKER_TEST") && !strings.HasPrefix(v, "STOKER_BENCH") {
					t.Errorf("%s: %s is in no list of describe_lists.go", path, v)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, v := range known {
		if !found[v] {
			t.Errorf("%s is described, and nothing reads it", v)
		}
	}
}

// Every section has a text and can be named, and examples of views can be read.
func TestDescribe(t *testing.T) {
	for _, s := range sections {
		for _, asJSON := range []bool{false, true} {
			p := new(page)
			if err := describe(p, []string{s.name}, asJSON); err != nil || len(p.String()) < 20 {
				t.Errorf("%s: %v, %q", s.name, err, p.String())
			}
		}
	}
	if err := describe(new(page), []string{"RandomCropp"}, false); err == nil || err.(*Error).Hint != "did you mean RandomCrop?" {
		t.Error(err)
	}
	for _, k := range view.Described {
		if _, specs, err := view.CutURL("x#" + k.Example); err != nil || len(specs) != 1 {
			t.Errorf("%s: %v", k.Example, err)
		}
	}
}

// The keys that are described are those of the structs, each once.
func TestDescribedKeys(t *testing.T) {
	var options, views []string
	for _, o := range pipeline.Options {
		options = append(options, o.Name)
	}
	for _, k := range view.Described {
		views = append(views, k.Name)
	}
	for _, c := range []struct {
		what      string
		got, want []string
	}{
		{"pipeline.Options", options, transform.KeysOf[pipeline.Config]()},
		{"view.Described", views, transform.KeysOf[view.Spec]()},
	} {
		slices.Sort(c.got)
		slices.Sort(c.want)
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s has %q, the struct %q", c.what, c.got, c.want)
		}
	}
	for i, name := range ownKeys {
		if !slices.Contains(options, name) || slices.Contains(ownKeys[:i], name) {
			t.Errorf("ownKeys: %q is not a key of the configuration, or is listed twice", name)
		}
	}
}
