package cli

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

var update = flag.Bool("update", false, "write the lists of formats in README.md and docs/reference/formats.md")

// The lists of formats in README.md and docs/reference/formats.md are those of the program.
func TestFormatLists(t *testing.T) {
	for name, list := range map[string]string{"README.md": readmeList(), "docs/reference/formats.md": formatsPage()} {
		path := filepath.Join("../..", name)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		const begin, end = "<!-- formats:begin -->\n", "<!-- formats:end -->"
		before, rest, ok := strings.Cut(string(b), begin)
		old, after, closed := strings.Cut(rest, end)
		if !ok || !closed {
			t.Fatalf("%s has no %s and %s", name, strings.TrimSpace(begin), end)
		}
		switch {
		case old == list:
		case *update:
			if err := os.WriteFile(path, []byte(before+begin+list+end+after), 0o644); err != nil {
				t.Fatal(err)
			}
		default:
			t.Errorf("the list of formats in %s is out of date: make formats", name)
		}
	}
}

// readmeList has a row for each guide, with the formats that it is about. The last format
// that the program tries is the most common one, and comes first.
func readmeList() string {
	all := readables()
	slices.Reverse(all)
	var guides []string
	of := map[string][]readable{}
	for _, r := range all {
		if of[r.Guide] == nil {
			guides = append(guides, r.Guide)
		}
		of[r.Guide] = slices.Insert(of[r.Guide], 0, r)
	}
	rows := [][]string{{"data", "such as", "guide"}}
	for _, g := range guides {
		page, _, _ := strings.Cut(g, "#")
		var reads []string
		for _, r := range of[g] {
			reads = append(reads, r.Reads)
		}
		rows = append(rows, []string{
			strings.Join(reads, "; "), code(of[g][0].Example),
			fmt.Sprintf("[%s](docs/%s)", strings.ReplaceAll(strings.TrimSuffix(path.Base(page), ".md"), "-", " "), g),
		})
	}
	return markdown(rows)
}

// formatsPage lists the formats, and their parameters.
func formatsPage() string {
	formats := [][]string{{"format", "reads", "at random", "such as", "written by"}}
	params := [][]string{{"parameter", "", "default", "of"}}
	for _, r := range readables() {
		random := "yes"
		if r.Sequential != "" {
			random = "not " + r.Sequential
		}
		formats = append(formats, []string{fmt.Sprintf("[`%s`](../%s)", r.Name, r.Guide), r.Reads, random, code(r.Example), code(r.Writes)})
		for _, p := range r.Params {
			row := []string{code(p.Form()), p.Help, p.Default}
			if i := slices.IndexFunc(params, func(old []string) bool { return slices.Equal(old[:3], row) }); i >= 0 {
				params[i][3] += ", " + r.Name
			} else {
				params = append(params, append(row, r.Name))
			}
		}
	}
	return markdown(formats) + "\n## Checksums\n\n" + checksums() + "\n## Parameters\n\nA URL has them after `?`, with `&` between them: `videos/?frames=16&stride=2`.\n\n" + markdown(params)
}

// checksums lists which checksums of each format are compared.
func checksums() string {
	rows := [][]string{{"format", "compared when it is read"}}
	var none []string
	for _, r := range readables() {
		if r.Checksums == "" {
			none = append(none, r.Name)
		} else {
			rows = append(rows, []string{code(r.Name), r.Checksums})
		}
	}
	return "A checksum that does not match is an error of its record, which `on_error` handles. Files of these formats have no checksums, so damage\n" +
		"in them can change values without an error: " + strings.Join(none, ", ") + ".\n\n" + markdown(rows)
}

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}

func markdown(rows [][]string) string {
	var b strings.Builder
	for i, row := range rows {
		for _, cell := range row {
			b.WriteString("| " + cmp.Or(strings.ReplaceAll(cell, "|", `\|`), " ") + " ")
		}
		b.WriteString("|\n")
		if i == 0 {
			b.WriteString("|" + strings.Repeat("---|", len(row)) + "\n")
		}
	}
	return b.String()
}

// Each format is described in 80 columns. Package lint follows the links to the guides.
func TestFormatsAreDescribed(t *testing.T) {
	for _, r := range readables() {
		if r.Name == "" || r.Reads == "" || r.Example == "" || r.Guide == "" {
			t.Errorf("the format %q needs Name, Reads, Example and Guide", r.Name)
		}
		for _, p := range r.Params {
			if p.Name == "" || !strings.HasSuffix(p.Help, ".") {
				t.Errorf("parameter %q of %s needs a sentence of help", p.Name, r.Name)
			}
		}
		p := new(page)
		p.format(&r)
		for line := range strings.Lines(p.String()) {
			if len(strings.TrimSpace(line)) > pageWidth && !strings.Contains(line, r.Example) {
				t.Errorf("stoker formats %s has a line of %d columns: %s", r.Name, len(line), line)
			}
		}
	}
}

// The help of commands that read data names each format.
func TestHelpNamesFormats(t *testing.T) {
	app := &App{}
	for _, cmd := range []*cobra.Command{newPackCommand(app), newInspectCommand(app)} {
		words := strings.FieldsFunc(cmd.Long, func(r rune) bool { return r == ' ' || r == ',' || r == '\n' })
		for _, r := range readables() {
			if !slices.Contains(words, r.Name) {
				t.Errorf("stoker %s --help lacks the format %s", cmd.Name(), r.Name)
			}
		}
	}
}
