package lint

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// page is a text in Markdown: the headings that links can lead to, and the links.
type page struct {
	anchors []string
	links   []string
}

var (
	markdownLink = regexp.MustCompile(`\[[^\]]*\]\(([^)\s]+)\)`)
	heading      = regexp.MustCompile(`^#+ (.*)`)
	inlineCode   = regexp.MustCompile("`[^`]*`")
)

func parsePage(text string) (p page) {
	code := false
	var prose strings.Builder // links may go on in the next line
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
		}
		if code {
			continue
		}
		if m := heading.FindStringSubmatch(line); m != nil {
			p.anchors = append(p.anchors, anchor(m[1]))
		}
		prose.WriteString(inlineCode.ReplaceAllString(line, ""))
	}
	for _, m := range markdownLink.FindAllStringSubmatch(prose.String(), -1) {
		if !strings.Contains(m[1], ":") {
			p.links = append(p.links, m[1])
		}
	}
	return p
}

// anchor returns the name of a heading in links.
func anchor(heading string) string {
	heading = markdownLink.ReplaceAllStringFunc(heading, func(s string) string { return s[1:strings.Index(s, "]")] })
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
			return unicode.ToLower(r)
		}
		return -1
	}, strings.TrimSpace(heading))
}

// Links between pages lead somewhere, and from the README to every page of docs.
func TestLinks(t *testing.T) {
	pages := map[string]page{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != root && (strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"testdata", "work", "build", "bin", "dist", "demo-data"}, d.Name())):
			return fs.SkipDir
		case d.IsDir() || filepath.Ext(name) != ".md":
			return nil
		}
		text, err := os.ReadFile(name)
		pages[filepath.Clean(name)] = parsePage(string(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	reached := []string{filepath.Join(root, "README.md")}
	for k := 0; k < len(reached); k++ {
		for _, link := range pages[reached[k]].links {
			to, _, _ := strings.Cut(link, "#")
			to = filepath.Join(filepath.Dir(reached[k]), to)
			if _, ok := pages[filepath.Join(to, "README.md")]; ok {
				to = filepath.Join(to, "README.md")
			}
			if _, ok := pages[to]; ok && !slices.Contains(reached, to) {
				reached = append(reached, to)
			}
		}
	}
	for name, p := range pages {
		short := strings.TrimPrefix(name, root+"/")
		for _, link := range p.links {
			path, to, _ := strings.Cut(link, "#")
			target := name
			if path != "" {
				target = filepath.Join(filepath.Dir(name), path)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: there is no %s", short, path)
			} else if other, ok := pages[target]; ok && to != "" && !slices.Contains(other.anchors, to) {
				t.Errorf("%s: %s has no heading for #%s", short, strings.TrimPrefix(target, root+"/"), to)
			}
		}
		if strings.HasPrefix(short, "docs/") && !slices.Contains(reached, name) {
			t.Errorf("%s: no link leads to it from the README", short)
		}
	}
}
