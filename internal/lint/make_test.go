package lint

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Targets of make that workflows, the README and CONTRIBUTING.md name are in the Makefile.
func TestMakeTargetsExist(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	workflows, err := filepath.Glob(filepath.Join(root, ".github/workflows/*.yml"))
	if err != nil || len(workflows) == 0 {
		t.Fatal("no workflows", err)
	}
	named := regexp.MustCompile("(?m)(?:run: |`|^    |&& )make ([a-z][a-z0-9-]*)")
	for _, name := range append(workflows, filepath.Join(root, "README.md"), filepath.Join(root, "CONTRIBUTING.md")) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range named.FindAllStringSubmatch(string(text), -1) {
			if !strings.Contains("\n"+string(makefile), "\n"+m[1]+":") {
				t.Errorf("%s: make %s does not exist", strings.TrimPrefix(name, root+"/"), m[1])
			}
		}
	}
}
