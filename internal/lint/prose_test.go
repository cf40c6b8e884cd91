package lint

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/lint/prosetest"
)

var proseOf = flag.String("prose", "", "print the findings in files below this path, from the top of the repository")

// ceilings are the findings per 1,000 words that are allowed.
var ceilings = map[prosetest.Kind]float64{prosetest.Page: 4, prosetest.Comment: 5, prosetest.Message: 1}

// Texts for people are in plain English. To see the findings in a folder:
//
//	go test ./internal/lint -run Prose -args -prose docs
func TestProse(t *testing.T) {
	list, err := exec.Command("git", "-C", root, "ls-files", "-z").Output()
	if err != nil {
		t.Skip("not a checkout of git")
	}
	scores := map[prosetest.Kind]prosetest.Score{}
	for name := range strings.SplitSeq(strings.TrimRight(string(list), "\x00"), "\x00") {
		if strings.Contains(name, "testdata/") {
			continue
		}
		content, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			continue // deleted, and not committed yet
		}
		found := prosetest.Check(name, string(content), scores)
		if *proseOf == "" || !strings.HasPrefix(name, *proseOf) {
			continue
		}
		for _, f := range found {
			t.Logf("%s:%d: %s: %s", name, f.Line, strings.Join(f.Rules, ", "), f.Sentence)
		}
	}
	for kind, limit := range ceilings {
		s := scores[kind]
		t.Logf("%s: %d words, %.1f findings per 1,000", kind, s.Words, s.PerThousand())
		if s.PerThousand() > limit {
			t.Errorf("%ss have %.1f findings per 1,000 words; %.1f are allowed. See them with: go test ./internal/lint -v -run Prose -args -prose PATH", kind, s.PerThousand(), limit)
		}
	}
}
