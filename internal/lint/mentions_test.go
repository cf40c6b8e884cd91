package lint

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Text and comments speak of packages that exist: neither of those that were
// renamed nor of those that are only planned. The changelog may remember.
func TestPackagesThatAreNamedExist(t *testing.T) {
	named := regexp.MustCompile(`(?:^|[^\w/.-])(internal/[a-z0-9]+)(?:[^\w]|$)`)
	skipped := []string{"testdata", "work", "build", "bin", "dist", "demo-data", "results"}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != root && (strings.HasPrefix(d.Name(), ".") || slices.Contains(skipped, d.Name())):
			return fs.SkipDir
		case d.IsDir() || d.Name() == "CHANGELOG.md" || !slices.Contains([]string{".go", ".md", ".py", ".c", ".h", ".sh"}, filepath.Ext(name)):
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		for _, m := range named.FindAllStringSubmatch(string(text), -1) {
			if st, err := os.Stat(filepath.Join(root, m[1])); err != nil || !st.IsDir() {
				t.Errorf("%s names %s, which does not exist", strings.TrimPrefix(name, root+"/"), m[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
