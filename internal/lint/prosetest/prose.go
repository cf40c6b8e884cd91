package prosetest

import (
	"regexp"
	"strings"
)

// A Finding is a sentence that breaks rules.
type Finding struct {
	Line     int
	Kind     Kind
	Rules    []string
	Sentence string
}

// A Score counts the words and the findings of one kind of text.
type Score struct{ Words, Findings int }

// PerThousand returns the findings per 1,000 words.
func (s Score) PerThousand() float64 { return 1000 * float64(s.Findings) / float64(max(s.Words, 1)) }

var (
	code   = regexp.MustCompile("`[^`]*`")
	link   = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
	web    = regexp.MustCompile(`https?://\S+`)
	border = regexp.MustCompile(`[.!?] +[A-Z]`)
)

// Check returns the findings in a file and adds its words to the scores.
func Check(name, content string, scores map[Kind]Score) []Finding {
	var findings []Finding
	for _, t := range texts(name, content) {
		score := scores[t.kind]
		for _, sentence := range sentences(t.body) {
			words := len(word.FindAllString(sentence, -1))
			rules := broken(t.kind, sentence, words)
			score.Words += words
			score.Findings += len(rules)
			if len(rules) > 0 {
				findings = append(findings, Finding{t.line, t.kind, rules, sentence})
			}
		}
		scores[t.kind] = score
	}
	return findings
}

func broken(kind Kind, sentence string, words int) []string {
	var names []string
	for i := range Rules {
		r := &Rules[i]
		if (!r.CommentsOnly || kind == Comment) && r.match(sentence) {
			names = append(names, r.Name)
		}
	}
	if words > longest && kind != Message {
		names = append(names, "long")
	}
	return names
}

// sentences splits a text. Code and addresses count as one word.
func sentences(body string) []string {
	body = web.ReplaceAllString(link.ReplaceAllString(code.ReplaceAllString(body, "X"), "$1"), "X")
	var found []string
	at := 0
	for _, m := range border.FindAllStringIndex(body, -1) {
		found = append(found, body[at:m[0]+1])
		at = m[1] - 1
	}
	return append(found, strings.TrimSpace(body[at:]))
}
