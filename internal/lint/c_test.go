package lint

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// cPrefixes are the prefixes of names that several C files of a package use; docs/internals/c-code.md explains them.
var cPrefixes = map[string][]string{
	"internal/cdec": {"sk_", "dct_"}, "internal/csound": {"ss_"}, "internal/imagelib": {"si_"}, "internal/videodec": {"sv_"},
	"internal/dynlib": {"sd_"},
}

// foreignFiles are files of C libraries that comments name.
var foreignFiles = []string{"jidctint.c", "jdsample.c", "jdcolor.c", "Resample.c", "jpeglib.h", "jpegint.h"}

// cFile is a C file, with its comments apart.
type cFile struct{ name, code, comments string }

func cFiles(t *testing.T) []cFile {
	t.Helper()
	cmd := exec.Command("git", "ls-files", "-co", "--exclude-standard", "*.c", "*.h")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("git cannot list the files: %v", err)
	}
	token := regexp.MustCompile(`"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|//[^\n]*|(?s:/\*.*?\*/)`)
	var files []cFile
	for name := range strings.FieldsSeq(string(out)) {
		b, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		f := cFile{name: name}
		f.code = token.ReplaceAllStringFunc(string(b), func(s string) string {
			if s[0] == '/' {
				f.comments += s + "\n"
				return ""
			}
			return s
		})
		files = append(files, f)
	}
	if len(files) < 50 {
		t.Fatalf("found %d C files: this test looks in the wrong place", len(files))
	}
	return files
}

// Comments of C files name functions, constants and files that exist.
func TestNamesInCommentsOfCExist(t *testing.T) {
	files := cFiles(t)
	known := map[string]bool{"sk_xxx_decode_box": true} // a placeholder
	var names []string
	word := regexp.MustCompile(`\w+`)
	for _, f := range files {
		names = append(names, path.Base(f.name))
		for _, w := range word.FindAllString(f.code, -1) {
			known[w] = true
		}
	}
	named := regexp.MustCompile(`\b(?:sk|dct|ss|si|sv|sd|SK|DCT|SS|SI|SV)_\w*[a-zA-Z0-9]\b(?:\.[a-z]+\b)?`)
	file := regexp.MustCompile(`\b[\w-]+\.[ch]\b`)
	for _, f := range files {
		for _, w := range named.FindAllString(f.comments, -1) {
			if name, member, _ := strings.Cut(w, "."); !known[name] && member != "c" && member != "h" {
				t.Errorf("%s: a comment names %s, which does not exist", f.name, w)
			}
		}
		for _, w := range file.FindAllString(f.comments, -1) {
			if !slices.Contains(names, w) && !slices.Contains(foreignFiles, w) {
				t.Errorf("%s: a comment names the file %s, which does not exist", f.name, w)
			}
		}
	}
}

// Functions of C that are not static have the prefix of their package.
func TestPrefixesOfC(t *testing.T) {
	function := regexp.MustCompile(`(?m)^(?:const )?(?:\w+ ){1,2}\*?(\w+)\([^;{]*\)\n?\s*\{`)
	n := 0
	for _, f := range cFiles(t) {
		prefixes := cPrefixes[path.Dir(f.name)]
		if prefixes == nil || !strings.HasSuffix(f.name, ".c") {
			continue
		}
		for _, m := range function.FindAllStringSubmatch(f.code, -1) {
			switch {
			case strings.Contains(m[0], "static "), strings.Contains(m[0], "INLINE"), strings.HasPrefix(m[1], "__wrap_"):
			case slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(m[1], p) }):
				n++
			default:
				t.Errorf("%s: %s is not static and does not begin with %s", f.name, m[1], strings.Join(prefixes, " or "))
			}
		}
	}
	if n < 80 {
		t.Errorf("found %d functions: this test looks in the wrong place", n)
	}
}
