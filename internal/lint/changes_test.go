package lint

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The changelog has a section for the version of the Python package, which is the version of a release.
func TestChangelogHasTheVersion(t *testing.T) {
	version := regexp.MustCompile(`__version__ = "(.+)"`).FindStringSubmatch(read(t, "python/src/stoker/_version.py"))
	if version == nil {
		t.Fatal("python/src/stoker/_version.py has no version")
	}
	if !strings.Contains(read(t, "CHANGELOG.md"), "\n## "+version[1]+"\n") {
		t.Errorf("CHANGELOG.md has no section %s", version[1])
	}
}

// Each file in changes has one short paragraph.
func TestChangesAreShort(t *testing.T) {
	const most = 60 // words
	files, err := filepath.Glob(filepath.Join(root, "changes", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		rel := strings.TrimPrefix(name, root+"/")
		text := strings.TrimSpace(read(t, rel))
		switch {
		case filepath.Base(name) == "README.md":
		case filepath.Ext(name) != ".md":
			t.Errorf("%s: the files of changes end with .md", rel)
		case text == "" || strings.Contains(text, "\n\n") || strings.HasPrefix(text, "#") || strings.HasPrefix(text, "- "):
			t.Errorf("%s: write one paragraph, without a heading or a list", rel)
		case len(strings.Fields(text)) > most:
			t.Errorf("%s has %d words: write at most %d", rel, len(strings.Fields(text)), most)
		case !strings.HasSuffix(text, "."):
			t.Errorf("%s: end with a full stop", rel)
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
