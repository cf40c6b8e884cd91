package cli

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Commands in pages, help texts, errors and advice must be commands of this program.

// repo is the top of the repository, from here.
const repo = "../.."

// A printed line that names a command of this program.
type printed struct {
	where, line string
	// whole reports whether the line is a complete command that can be typed. Otherwise it is in the middle of a
	// sentence, and only its flags can be told from the words around.
	whole bool
}

// commandLine finds the program in a line of a page or of a help text.
var commandLine = regexp.MustCompile(`^\s*(?:\$ )?(?:bin/)?(stoker [a-z-].*)$`)

// mention finds the program in the middle of a text.
var mention = regexp.MustCompile(`(?:bin/)?\bstoker [a-z-][^` + "`" + `"]*`)

func TestPrintedCommandsExist(t *testing.T) {
	lines := append(inPages(t), inHelp(t)...)
	lines = append(lines, inStrings(t)...)
	lines = append(lines, inPython(t)...)
	whole := 0
	for _, p := range lines {
		if p.whole {
			whole++
		}
		for _, command := range commandsIn(p.line) {
			if err := check(command, p.whole); err != nil {
				t.Errorf("%s: %s\n  %v", p.where, strings.TrimSpace(command), err)
			}
		}
	}
	// Fewer would mean that this test searches the wrong places.
	if whole < 60 || len(lines) < 150 {
		t.Errorf("%d lines that name commands, %d of them commands as they are typed", len(lines), whole)
	}
}

// Wrong commands are found, so that the test above means something.
func TestPrintedCommandsAreChecked(t *testing.T) {
	for _, c := range []struct {
		line  string
		whole bool
		want  string
	}{
		{"stoker pack photos/ train/", true, ""},
		{"stoker pack photos/ train/ --images dct   # a comment, with --words", true, ""},
		{"stoker pack photos/", true, "OUT is missing"},
		{"stoker pack photos/ train/ more/", true, "one argument too many"},
		{"stoker pack shards/*.tar train/", true, "as many arguments as there are files"},
		{"stoker pack photos/ train/ --image dct", true, "--image"},
		{"stoker pack photos/ train/ --threads many", true, "invalid argument"},
		{"stoker pack photos/ train/ --threads N", true, ""},
		{"stoker unpack train/", true, "unknown command"},
		{"stoker gen pictures out/", true, "pictures"},
		{"stoker doctor -- python train.py --whatever", true, ""},
		{"stoker doctor --pip 4711", true, "--pip"},
		{"stoker doctor --save FILE writes one", false, ""},
		{"stoker doctor --safe FILE writes one", false, "--safe"},
		{"stoker pack SOURCE train/ && stoker bensch train/", true, "bensch"},
		{"stoker verify says what is damaged", false, ""},
	} {
		var err error
		for _, command := range commandsIn(c.line) {
			if err == nil {
				err = check(command, c.whole)
			}
		}
		if err == nil && c.want != "" || err != nil && (c.want == "" || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.line, err, c.want)
		}
	}
}

// inPages reads the code blocks and code spans of the Markdown pages.
func inPages(t *testing.T) []printed {
	t.Helper()
	var found []printed
	for _, name := range pages(t) {
		data, err := os.ReadFile(filepath.Join(repo, name))
		if err != nil {
			t.Fatal(err)
		}
		fenced := false
		for i, line := range strings.Split(string(data), "\n") {
			where := fmt.Sprintf("%s:%d", name, i+1)
			switch {
			case strings.HasPrefix(line, "```"):
				fenced = !fenced
			case fenced || strings.HasPrefix(line, "    "):
				m := commandLine.FindStringSubmatch(line)
				if m != nil && !strings.HasPrefix(m[1], "stoker doctor: ") { // what doctor prints
					found = append(found, printed{where, m[1], true})
				}
			default:
				for _, span := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(line, -1) {
					for _, m := range mention.FindAllString(span[1], -1) {
						found = append(found, printed{where, m, false})
					}
				}
			}
		}
	}
	return found
}

// pages are the Markdown files that users read.
func pages(t *testing.T) []string {
	t.Helper()
	names := []string{"README.md", "CONTRIBUTING.md"}
	err := filepath.WalkDir(filepath.Join(repo, "docs"), func(name string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(name, ".md") {
			rel, _ := filepath.Rel(repo, name)
			names = append(names, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// inHelp reads the texts and examples of every command.
func inHelp(t *testing.T) []printed {
	t.Helper()
	var found []printed
	for _, cmd := range every((&App{}).root(new(bool))) {
		for _, line := range strings.Split(cmd.Long+"\n"+cmd.Example, "\n") {
			if m := commandLine.FindStringSubmatch(line); m != nil && strings.HasPrefix(line, "  ") {
				found = append(found, printed{"stoker " + cmd.Name() + " --help", m[1], true})
			}
		}
	}
	return found
}

func every(cmd *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{cmd}
	for _, c := range cmd.Commands() {
		all = append(all, every(c)...)
	}
	return all
}

// inStrings reads the strings of the program: errors, hints, advice.
func inStrings(t *testing.T) []printed {
	t.Helper()
	var found []printed
	set := token.NewFileSet()
	err := filepath.WalkDir(repo, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != repo && (strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"testdata", "python", "bench", "bin", "build"}, d.Name()) && filepath.Dir(name) == repo):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		parsed, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		advice := strings.HasPrefix(filepath.Base(name), "advi") // advice.go, advise.go: what to type
		ast.Inspect(parsed, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			s, err := strconv.Unquote(lit.Value)
			if err != nil {
				return true
			}
			where := strings.TrimPrefix(set.Position(lit.Pos()).String(), repo+"/")
			for line := range strings.Lines(s) {
				if m := commandLine.FindStringSubmatch(strings.TrimSuffix(line, "\n")); advice && m != nil {
					found = append(found, printed{where, m[1], true})
					continue
				}
				for _, m := range mention.FindAllString(line, -1) {
					found = append(found, printed{where, strings.TrimSpace(m), false})
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// inPython reads the commands in messages and code spans of the Python package.
func inPython(t *testing.T) []printed {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(repo, "python", "src", "stoker", "*.py"))
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	span := regexp.MustCompile("``(stoker [^`]+)``|hint: [^\"]*(stoker [a-z][^\"]*)\"")
	var found []printed
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(data), "\n") {
			for _, m := range span.FindAllStringSubmatch(line, -1) {
				found = append(found, printed{fmt.Sprintf("%s:%d", filepath.Base(name), i+1), m[1] + m[2], false})
			}
		}
	}
	return found
}

// commandsIn cuts a line into its commands of this program: one, or several joined by && or after a comment's sign.
func commandsIn(line string) []string {
	var found []string
	for _, part := range regexp.MustCompile(` && |\s#.*?\b(?:or: )?`).Split(line, -1) {
		if at := strings.Index(part, "stoker "); at == 0 || at > 0 && strings.Contains(part, "or: stoker ") {
			found = append(found, part[at:])
		}
	}
	return found
}

// placeholder is a stand-in for a value: FILE, %s, {workers}, ...
var placeholder = regexp.MustCompile(`^(?:[A-Z][A-Z_]*|.*%[a-z].*|.*\{[a-z]+\}.*)$`)

// check finds the command of a line and its flags. If the line is whole, it parses it as the program does, without
// running it.
func check(line string, whole bool) error {
	words, err := split(line)
	if err != nil {
		return err
	}
	root := (&App{}).root(new(bool))
	name := strings.TrimRight(words[1], ".,;:)")
	if strings.Contains(name, "'") || strings.HasPrefix(name, "-") || !whole && !known(root, name) && !strings.Contains(line, " --") {
		return nil // the program's name in a sentence
	}
	words[1] = name
	cmd, rest, err := root.Find(words[1:])
	if err != nil {
		return err
	}
	if cmd == root {
		return fmt.Errorf("unknown command %q", name)
	}
	if cmd.HasSubCommands() && whole && len(rest) > 0 && !cmd.Runnable() {
		return fmt.Errorf("%s has no command %q", cmd.Name(), rest[0])
	}
	cmd.InitDefaultHelpFlag()
	abbreviated := slices.ContainsFunc(rest, func(w string) bool { return w == "..." || w == "[flags]" || w == "%s" })
	if end := slices.IndexFunc(rest, func(w string) bool { return strings.HasSuffix(w, ",") }); !whole && end >= 0 {
		rest = rest[:end+1] // the sentence goes on
	}
	var args []string
	for i := 0; i < len(rest); i++ {
		word := strings.Trim(rest[i], "[]")
		if !whole {
			word = strings.TrimRight(word, ".,;:)")
		}
		if word == "--" {
			args = append(args, rest[i:]...)
			break
		}
		if word == "..." || word == "" || rest[i] == "[flags]" {
			continue
		}
		args = append(args, word)
		if !strings.HasPrefix(word, "--") {
			if whole && strings.Contains(word, "*") {
				return fmt.Errorf("%s is as many arguments as there are files", word)
			}
			continue
		}
		flag := cmd.Flags().Lookup(strings.TrimPrefix(strings.SplitN(word, "=", 2)[0], "--"))
		if flag == nil {
			return fmt.Errorf("%s has no flag %s", cmd.CommandPath(), word)
		}
		if flag.NoOptDefVal != "" || strings.Contains(word, "=") || i+1 == len(rest) {
			continue
		}
		i++
		value := strings.Trim(rest[i], "[]")
		if placeholder.MatchString(value) || !whole {
			value = sample(flag)
		}
		args = append(args, value)
	}
	if !whole {
		return nil
	}
	if err := cmd.ParseFlags(args); err != nil {
		return err
	}
	if abbreviated {
		return nil
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}

func known(root *cobra.Command, name string) bool {
	cmd, _, err := root.Find([]string{name})
	return err == nil && cmd != root
}

// sample is a value that a flag takes.
func sample(flag *pflag.Flag) string {
	before := flag.Value.String()
	for _, value := range []string{flag.DefValue, "1", "1s", "1MiB", "32x32", "keep", "python"} {
		if value != "" && flag.Value.Set(value) == nil {
			_ = flag.Value.Set(before)
			return value
		}
	}
	return "x"
}

// split cuts a command line into words as a shell does, up to the redirection of its output.
func split(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	quote, open := rune(0), false
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' && word.Len() == 0 || r == '"':
			quote, open = r, true
		case r == ' ' || r == '\t':
			if open || word.Len() > 0 {
				words = append(words, word.String())
			}
			word.Reset()
			open = false
		default:
			word.WriteRune(r)
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("a quotation mark is not closed")
	}
	if open || word.Len() > 0 {
		words = append(words, word.String())
	}
	for i, w := range words {
		if w == ">" || w == "<" || w == "|" || w == "&" {
			words = words[:i]
			break
		}
	}
	if len(words) < 2 {
		return nil, fmt.Errorf("no command")
	}
	return words, nil
}

// This test runs everything that costs nothing: the help of every command, and the printed plans of published examples,
// which measure nothing.
func TestPrintedCommandsRun(t *testing.T) {
	t.Setenv("STOKER_CACHE_DIR", t.TempDir())
	run := func(words []string) {
		t.Helper()
		var out, bad bytes.Buffer
		if code := Main(words, strings.NewReader(""), &out, &bad); code != 0 || out.Len() == 0 {
			t.Errorf("stoker %s: exit code %d, %q", strings.Join(words, " "), code, bad.String())
		}
	}
	for _, cmd := range every((&App{}).root(new(bool))) {
		run(append(strings.Fields(cmd.CommandPath())[1:], "--help"))
	}
	plans := 0
	for _, p := range append(inPages(t), inHelp(t)...) {
		words, err := split(commandsIn(p.line)[0])
		if err != nil || words[1] != "plan" || slices.ContainsFunc(words, placeholder.MatchString) {
			continue
		}
		if slices.Contains(words, "--example") || slices.Contains(words, "list") {
			plans++
			run(words[1:])
		}
	}
	if plans < 1 {
		t.Errorf("%d plans were run", plans)
	}
}
