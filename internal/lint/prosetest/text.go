package prosetest

import (
	"path"
	"regexp"
	"strings"
)

// A Kind is a kind of text, with a limit of its own.
type Kind string

// The kinds of text.
const (
	Page    Kind = "page"
	Comment Kind = "comment"
	Message Kind = "message"
)

// A text is a paragraph, a comment or a message of a file.
type text struct {
	kind Kind
	line int
	body string
}

// texts returns the texts of a file that people read. Generated files have none.
func texts(name, content string) []text {
	if strings.Contains(content[:min(400, len(content))], "DO NOT EDIT") {
		return nil
	}
	switch path.Ext(name) {
	case ".md":
		return paragraphs(content)
	case ".go":
		return append(lineComments(content, "//"), messages(content)...)
	case ".py":
		return append(append(lineComments(content, "#"), docstrings(content)...), messages(content)...)
	case ".c", ".h":
		return append(blockComments(content), lineComments(content, "//")...)
	}
	return nil
}

var (
	bullet   = regexp.MustCompile(`^\s*(?:[-*]|\d+\.) `)
	notProse = []string{"    ", "|", "#", "<", "\t"}
)

// paragraphs returns the paragraphs and list items of a page, without code, tables and headings.
func paragraphs(content string) []text {
	var found []text
	var lines []string
	start, fenced := 0, false
	flush := func() {
		if len(lines) > 0 {
			found = append(found, text{Page, start, strings.Join(lines, " ")})
			lines = nil
		}
	}
	for i, line := range strings.Split(content+"\n", "\n") {
		if strings.HasPrefix(strings.TrimLeft(line, " \t"), "```") {
			fenced, line = !fenced, ""
		}
		skipped := fenced || strings.TrimSpace(line) == ""
		for _, prefix := range notProse {
			skipped = skipped || strings.HasPrefix(line, prefix)
		}
		if skipped || bullet.MatchString(line) {
			flush()
		}
		if skipped {
			continue
		}
		if len(lines) == 0 {
			start = i + 1
		}
		lines = append(lines, strings.TrimSpace(bullet.ReplaceAllString(line, "")))
	}
	flush()
	return found
}

// lineComments joins neighbouring comment lines. Directives and indented code are not prose.
func lineComments(content, mark string) []text {
	var found []text
	var lines []string
	start := 0
	for i, line := range strings.Split(content+"\n", "\n") {
		body, ok := strings.CutPrefix(strings.TrimLeft(line, " \t"), mark)
		directive := strings.HasPrefix(body, "go:") || strings.HasPrefix(body, "nolint") || strings.HasPrefix(body, "!")
		body = strings.TrimPrefix(body, " ")
		if ok && !directive && !strings.HasPrefix(body, "  ") && !strings.HasPrefix(body, "\t") {
			if len(lines) == 0 {
				start = i + 1
			}
			lines = append(lines, strings.TrimSpace(body))
			continue
		}
		if len(lines) > 0 {
			found = append(found, text{Comment, start, strings.Join(lines, " ")})
			lines = nil
		}
	}
	return found
}

var (
	block     = regexp.MustCompile(`(?s)/\*(.*?)\*/`)
	blockLine = regexp.MustCompile(`\s*\n\s*\*?\s*`)
	docstring = regexp.MustCompile(`(?ms)^[ \t]*[rR]?"""(.*?)"""`)
	emptyLine = regexp.MustCompile(`\n\s*\n`)
	call      = regexp.MustCompile(`(?:Errorf|errors\.New|_fail|raise \w+|hint|Hint|Sprintf|Fprintf|printf)\(\s*[fru]?"((?:[^"\\]|\\.){20,})"`)
	verb      = regexp.MustCompile(`%[-+.#0-9]*[a-zA-Z]|\{[^}]*\}`)
)

func blockComments(content string) []text {
	var found []text
	for _, m := range block.FindAllStringSubmatchIndex(content, -1) {
		found = append(found, text{Comment, lineOf(content, m[0]), strings.TrimSpace(blockLine.ReplaceAllString(content[m[2]:m[3]], " "))})
	}
	return found
}

// docstrings returns the paragraphs of Python's docstrings. Paragraphs that are indented more are code.
func docstrings(content string) []text {
	var found []text
	for _, m := range docstring.FindAllStringSubmatchIndex(content, -1) {
		body := content[m[2]:m[3]]
		indent := strings.Repeat(" ", m[2]-3-strings.LastIndexByte(content[:m[2]], '\n')-1)
		for _, para := range emptyLine.Split(body, -1) {
			para = strings.TrimPrefix(strings.TrimPrefix(para, "\n"), indent)
			if !strings.HasPrefix(para, " ") && !strings.HasPrefix(para, ">>>") {
				found = append(found, text{Comment, lineOf(content, m[0]), strings.Join(strings.Fields(para), " ")})
			}
		}
	}
	return found
}

// messages returns the formats of errors, hints and other output.
func messages(content string) []text {
	var found []text
	for _, m := range call.FindAllStringSubmatchIndex(content, -1) {
		found = append(found, text{Message, lineOf(content, m[0]), verb.ReplaceAllString(content[m[2]:m[3]], "X")})
	}
	return found
}

func lineOf(content string, at int) int { return strings.Count(content[:at], "\n") + 1 }
