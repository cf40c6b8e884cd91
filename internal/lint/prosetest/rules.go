// Package prosetest finds sentences that a stranger has to read twice, in pages, comments and messages. It checks wording,
// not meaning: a finding is a sentence to read again. CONTRIBUTING.md has the rules.
package prosetest

import (
	"regexp"
	"strings"
)

// A Rule is one kind of sentence that is hard to read.
type Rule struct {
	Name, Hint string
	// CommentsOnly limits the rule to comments.
	CommentsOnly bool
	match        func(sentence string) bool
}

// longest is the number of words that a sentence may have.
const longest = 30

var word = regexp.MustCompile(`[A-Za-z][A-Za-z'-]*`)

// Rules are all rules, in the order in which findings name them.
var Rules = []Rule{
	{Name: "clause-subject", Hint: "start with the subject: a noun, then a verb", match: clauseSubject},
	{Name: "of-front", Hint: "move the \"of ...\" after the noun it belongs to", match: pattern(`^Of (?:a|an|the|these|those|such|what|all|each|data|images|files|packs?)\b`)},
	{Name: "says-whether", Hint: "write reports whether, returns or documents", CommentsOnly: true, match: pattern(`\bsays? (?:whether|that|what|how|which|why|so)\b`)},
	{Name: "is-what", Hint: "name the thing", match: pattern(`\b(?:is|are) (?:what|who|how|where)\b`)},
	{Name: "is-no", Hint: "write \"is not a\"", match: isNo},
	{Name: "nobody", Hint: "name the actor: the caller, the user, the engine", match: pattern(`\b(?:nobody|somebody|whoever|who(?:m)?ever|whosoever)\b`)},
	{Name: "where-if", Hint: "write if or when", match: pattern(`\bwhere (?:that|there|it|this|these|those|one) (?:is|are|can|could|has|have|does|serves|pays|exists?)\b`)},
	{Name: "the-like", Hint: "list them, or write \"for example\"", match: pattern(`\b(?:and the like|its kin|and kin|and such)\b`)},
	{Name: "as-it-is", Hint: "write unchanged", match: pattern(`\bas (?:it|they) (?:is|are|stands?|was|were)\b`)},
	{Name: "beside-behind", Hint: "write next to, compared with, after or before", match: besideBehind},
	{Name: "comma-too", Hint: "write also", match: pattern(`, too\b`)},
	{Name: "come-to-be", Hint: "use a plain verb: is in, again, immediately, automatically", match: pattern(`\b(?:comes? to be|has come to|stands? in|lies? in|is at hand|by and by|anew|at once|for ever|for itself|by itself)\b`)},
	{Name: "others-in", Hint: "write differs", match: pattern(`\b(?:others (?:in|than|of)|is another one|are others)\b`)},
	{Name: "that-of", Hint: "split the sentence", match: pattern(`\b(?:that|those) of (?:what|which|whom)\b`)},
	{Name: "semicolons", Hint: "write one idea per sentence", match: pattern(";[^;`]*;")},
}

func pattern(expr string) func(string) bool { return regexp.MustCompile(expr).MatchString }

var clauseStart = regexp.MustCompile(`^(?:What|Whatever|Who|Whoever|Where|Which)\b(.*)`)

// clauseSubject reports whether a clause takes the place of the subject. Questions may begin so.
func clauseSubject(sentence string) bool {
	m := clauseStart.FindStringSubmatch(sentence)
	return m != nil && !strings.HasSuffix(sentence, "?") && !startsWithWord(m[1], " to", " is new", " you")
}

var noNoun = regexp.MustCompile(`(?:^|(\S+) )(?:is|are|was|were) no (\w+)`)

// isNo reports whether something is called "no X". "There is no X" and "is no longer" are plain English.
func isNo(sentence string) bool {
	for _, m := range noNoun.FindAllStringSubmatch(sentence, -1) {
		if !strings.EqualFold(m[1], "there") && !startsWithWord(m[2], "longer", "more", "less", "different", "better", "worse", "one", "way", "need") {
			return true
		}
	}
	return false
}

var beside = regexp.MustCompile(`\b(?:beside|behind|in front of)\b`)

// besideBehind finds words for places in space that are used for time or comparison.
func besideBehind(sentence string) bool {
	return beside.MatchString(strings.ReplaceAll(sentence, "behind the scenes", ""))
}

func startsWithWord(s string, words ...string) bool {
	for _, w := range words {
		if rest, ok := strings.CutPrefix(s, w); ok && (rest == "" || !word.MatchString(rest[:1])) {
			return true
		}
	}
	return false
}
