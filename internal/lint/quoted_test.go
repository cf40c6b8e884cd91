package lint

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	inQuotes = regexp.MustCompile(`'[^']*'|"[^"]*"`)
	// command is a line of a shell that runs stoker, and bare a word in it that a shell takes apart.
	command = regexp.MustCompile(`^\s*(?:\$ )?(?:\S*/)?stoker (\S.*)`)
	bare    = regexp.MustCompile(`\S[?&]\w+[:=]`)
)

// unquoted reports whether a line is a command with a URL whose ? or & a shell would interpret.
func unquoted(line string) bool {
	line, _, _ = strings.Cut(inQuotes.ReplaceAllString(line, ""), " #")
	m := command.FindStringSubmatch(line)
	return m != nil && bare.MatchString(m[1])
}

// Commands in pages and in help have their URLs in quotes.
func TestURLsAreQuoted(t *testing.T) {
	for line, want := range map[string]bool{
		"    stoker inspect a.csv?audio:audio=path&label:label=digit": true, "  stoker convert cifar?split=train x.npz": true,
		"  stoker convert 'cifar?split=train' x.npz": false, "stoker pack photos out  # see a.csv?b:c=d": false, `stoker inspect "a.csv?x:y=z"`: false,
	} {
		if unquoted(line) != want {
			t.Errorf("%q: %v", line, !want)
		}
	}
	root := filepath.Join("..", "..")
	out, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "*.md", "internal/cli/*.go").Output()
	if err != nil {
		t.Skipf("not a checkout: %v", err)
	}
	for _, name := range strings.Fields(string(out)) {
		b, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(b), "\n") {
			if unquoted(line) {
				t.Errorf("%s:%d: put the URL in quotes: %s", name, i+1, strings.TrimSpace(line))
			}
		}
	}
}
