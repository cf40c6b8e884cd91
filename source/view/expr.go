package view

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// This file reads expressions:
//
//	or         := and { "or" and }
//	and        := not { "and" not }
//	not        := "not" not | comparison
//	comparison := operand { OP operand } | operand ["not"] "in" ( "(" literal { "," literal } ")" | field )
//	operand    := field | number | text | "(" or ")"
//	OP         := "==" | "!=" | "<" | "<=" | ">" | ">="
//
// A comparison of three or more holds when each of two neighbours does, as in
// Python: 0 <= label < 10. Lists may have square brackets.

// Limits of expressions.
const (
	maxExpression = 64 << 10
	maxDepth      = 100
)

// exprError is an error in an expression, with its byte position.
type exprError struct {
	text string
	at   int
	n    int // length in bytes, at least 1
	msg  string
}

// Error returns a line with the message, the expression, and a caret under the position.
func (e *exprError) Error() string {
	text, at, n := e.text, min(e.at, len(e.text)), e.n
	// Only the part of a long expression around the error is shown.
	const around = 60
	head, tail := "", ""
	if at > around {
		cut := at - around
		for !utf8.RuneStart(text[cut]) {
			cut++
		}
		text, at, head = text[cut:], at-cut, "..."
	}
	if len(text) > at+around {
		cut := at + around
		for !utf8.RuneStart(text[cut]) {
			cut--
		}
		text, tail = text[:cut], "..."
	}
	n = max(min(n, len(text)-at), 1)
	shown := strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f || r == utf8.RuneError {
			return ' '
		}
		return r
	}, text)
	pad := len(head) + utf8.RuneCountInString(text[:at])
	width := max(utf8.RuneCountInString(text[at:min(at+n, len(text))]), 1)
	return fmt.Sprintf("%s\n  %s%s%s\n  %s%s", e.msg, head, shown, tail, strings.Repeat(" ", pad), strings.Repeat("^", width))
}

type tokenKind int

const (
	tokEnd tokenKind = iota
	tokName
	tokNumber
	tokText
	tokOp     // == != < <= > >=
	tokSymbol // ( ) [ ] ,
	tokWord   // and or not in
)

type token struct {
	kind  tokenKind
	at, n int
	text  string // the name, the text without quotes, the operator
	num   number
}

// number is a literal: an integer or a float.
type number struct {
	whole bool
	i     int64
	f     float64
}

func lex(text string) ([]token, error) {
	fail := func(at, n int, format string, a ...any) error {
		return &exprError{text, at, n, fmt.Sprintf(format, a...)}
	}
	if len(text) > maxExpression {
		return nil, fmt.Errorf("an expression of %d bytes is longer than the limit of %d", len(text), maxExpression)
	}
	if i := strings.IndexFunc(text, func(r rune) bool { return r == utf8.RuneError }); i >= 0 {
		return nil, fmt.Errorf("the expression is not UTF-8 from byte %d on", i)
	}
	var all []token
	for at := 0; at < len(text); {
		c := text[at]
		next := byte(0)
		if at+1 < len(text) {
			next = text[at+1]
		}
		switch {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			at++
		case strings.IndexByte("()[],", c) >= 0:
			all = append(all, token{kind: tokSymbol, at: at, n: 1, text: text[at : at+1]})
			at++
		case (c == '=' || c == '!' || c == '<' || c == '>') && next == '=':
			all = append(all, token{kind: tokOp, at: at, n: 2, text: text[at : at+2]})
			at += 2
		case c == '<' && next == '>':
			return nil, fail(at, 2, "<> is written !=")
		case c == '<' || c == '>':
			all = append(all, token{kind: tokOp, at: at, n: 1, text: text[at : at+1]})
			at++
		case c == '=':
			return nil, fail(at, 1, "to compare write ==")
		case c == '&':
			return nil, fail(at, 1+bool01(next == '&'), "write and")
		case c == '|':
			return nil, fail(at, 1+bool01(next == '|'), "write or")
		case c == '!':
			return nil, fail(at, 1, "write not, or != to compare")
		case c == '\'' || c == '"':
			t, n, ok := quoted(text[at:])
			if !ok {
				return nil, fail(at, len(text)-at, "the text has no end: %c is missing", c)
			}
			all = append(all, token{kind: tokText, at: at, n: n, text: t})
			at += n
		case c == '`':
			n := strings.IndexByte(text[at+1:], '`')
			if n < 0 {
				return nil, fail(at, len(text)-at, "the name has no end: ` is missing")
			}
			if n == 0 {
				return nil, fail(at, 2, "the name is empty")
			}
			all = append(all, token{kind: tokName, at: at, n: n + 2, text: text[at+1 : at+1+n]})
			at += n + 2
		case isDigit(c) || (c == '-' || c == '+' || c == '.') && (isDigit(next) || next == '.'):
			n := 1
			for at+n < len(text) && (isNumberByte(text[at+n]) || (text[at+n] == '-' || text[at+n] == '+') && (text[at+n-1]|0x20) == 'e') {
				n++
			}
			num, ok := parseNumber(text[at : at+n])
			if !ok {
				return nil, fail(at, n, "%s is not a number", text[at:at+n])
			}
			all = append(all, token{kind: tokNumber, at: at, n: n, num: num, text: text[at : at+n]})
			at += n
		default:
			n := nameLen(text[at:])
			if n == 0 {
				r, size := utf8.DecodeRuneInString(text[at:])
				return nil, fail(at, size, "%q has no meaning here; names with other characters than letters, digits and _ are written between ` and `", r)
			}
			word := text[at : at+n]
			kind := tokName
			switch strings.ToLower(word) {
			case "and", "or", "not", "in":
				kind, word = tokWord, strings.ToLower(word)
			}
			all = append(all, token{kind: kind, at: at, n: n, text: word})
			at += n
		}
	}
	return append(all, token{kind: tokEnd, at: len(text), n: 1}), nil
}

func bool01(b bool) int {
	if b {
		return 1
	}
	return 0
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isNumberByte(c byte) bool {
	return isDigit(c) || c == '.' || c == '_' || c|0x20 >= 'a' && c|0x20 <= 'z'
}

func parseNumber(s string) (number, bool) {
	if i, err := strconv.ParseInt(s, 10, 64); err == nil {
		return number{whole: true, i: i, f: float64(i)}, true
	}
	clean := strings.TrimLeft(s, "+-")
	if strings.ContainsAny(clean, "xXpP") || strings.ContainsAny(clean[:min(1, len(clean))], "iInN") {
		return number{}, false
	}
	f, err := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64)
	if err != nil {
		return number{}, false
	}
	if i := int64(f); strings.Trim(clean, "0123456789_") == "" && float64(i) == f && i > -1<<53 && i < 1<<53 {
		return number{whole: true, i: i, f: f}, true
	}
	return number{f: f}, true
}

// nameLen returns the length of the name at the start of s: letters, digits and _, separated by
// points.
func nameLen(s string) int {
	n := 0
	for i, r := range s {
		if r != '_' && !unicode.IsLetter(r) && (n == 0 || !unicode.IsDigit(r) && (r != '.' || i+1 >= len(s) || s[i+1] == '.')) {
			break
		}
		n = i + utf8.RuneLen(r)
	}
	return len(strings.TrimRight(s[:n], "."))
}

// quoted parses a text between two equal quotes. A backslash escapes the next character.
func quoted(s string) (text string, n int, ok bool) {
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == s[0]:
			return b.String(), i + 1, true
		case s[i] == '\\' && i+1 < len(s):
			i++
			b.WriteByte(s[i])
		default:
			b.WriteByte(s[i])
		}
	}
	return "", 0, false
}

// node is a parsed part of an expression.
type node struct {
	at, n int
	// op is "or", "and", "not", "in", "name", "number", "text", or a comparison.
	op    string
	text  string
	num   number
	parts []*node
}

type parser struct {
	text  string
	toks  []token
	depth int
}

// parse reads an expression.
func parse(text string) (*node, error) {
	toks, err := lex(text)
	if err != nil {
		return nil, err
	}
	p := &parser{text: text, toks: toks}
	if p.peek().kind == tokEnd {
		return nil, p.fail(p.peek(), "there is no expression; write one such as label < 10 and width >= 224")
	}
	e, err := p.or()
	if err != nil {
		return nil, err
	}
	if t := p.peek(); t.kind != tokEnd {
		return nil, p.fail(t, "nothing is expected here but and, or or the end")
	}
	return e, nil
}

func (p *parser) peek() token { return p.toks[0] }

func (p *parser) take() token {
	t := p.toks[0]
	if t.kind != tokEnd {
		p.toks = p.toks[1:]
	}
	return t
}

func (p *parser) word(w string) bool {
	if t := p.peek(); t.kind == tokWord && t.text == w {
		p.take()
		return true
	}
	return false
}

func (p *parser) fail(t token, format string, a ...any) error {
	return &exprError{p.text, t.at, t.n, fmt.Sprintf(format, a...)}
}

func (p *parser) or() (*node, error)  { return p.list("or", p.and) }
func (p *parser) and() (*node, error) { return p.list("and", p.not) }

func (p *parser) list(word string, part func() (*node, error)) (*node, error) {
	first, err := part()
	if err != nil {
		return nil, err
	}
	all := []*node{first}
	for p.word(word) {
		next, err := part()
		if err != nil {
			return nil, err
		}
		all = append(all, next)
	}
	if len(all) == 1 {
		return first, nil
	}
	last := all[len(all)-1]
	return &node{at: first.at, n: last.at + last.n - first.at, op: word, parts: all}, nil
}

func (p *parser) not() (*node, error) {
	at := p.peek().at
	if !p.word("not") {
		return p.comparison()
	}
	if p.depth++; p.depth > maxDepth {
		return nil, p.fail(p.peek(), "more than %d parts lie in each other", maxDepth)
	}
	e, err := p.not()
	p.depth--
	if err != nil {
		return nil, err
	}
	return &node{at: at, n: e.at + e.n - at, op: "not", parts: []*node{e}}, nil
}

func (p *parser) comparison() (*node, error) {
	left, err := p.operand()
	if err != nil {
		return nil, err
	}
	in := p.peek()
	negated := in.kind == tokWord && in.text == "not" && len(p.toks) > 1 && p.toks[1].kind == tokWord && p.toks[1].text == "in"
	if negated {
		p.take()
	}
	if p.word("in") {
		e, err := p.in(left)
		if err == nil && negated {
			e = &node{at: e.at, n: e.n, op: "not", parts: []*node{e}}
		}
		return e, err
	}
	var all []*node
	for p.peek().kind == tokOp {
		op := p.take()
		right, err := p.operand()
		if err != nil {
			return nil, err
		}
		all = append(all, &node{at: left.at, n: right.at + right.n - left.at, op: op.text, parts: []*node{left, right}})
		left = right
	}
	switch len(all) {
	case 0:
		return left, nil
	case 1:
		return all[0], nil
	}
	return &node{at: all[0].at, n: left.at + left.n - all[0].at, op: "and", parts: all}, nil
}

func (p *parser) in(left *node) (*node, error) {
	open := p.take()
	if open.kind == tokName {
		field := &node{at: open.at, n: open.n, op: "name", text: open.text}
		return &node{at: left.at, n: open.at + open.n - left.at, op: "within", parts: []*node{left, field}}, nil
	}
	closing := map[string]string{"(": ")", "[": "]"}[open.text]
	if open.kind != tokSymbol || closing == "" {
		return nil, p.fail(open, "a list is expected behind in, such as (1, 2, 3)")
	}
	e := &node{at: left.at, op: "in", parts: []*node{left}}
	for {
		t := p.take()
		if t.kind == tokSymbol && t.text == closing && len(e.parts) > 1 { // after a comma
			e.n = t.at + t.n - e.at
			return e, nil
		}
		switch t.kind {
		case tokNumber:
			e.parts = append(e.parts, &node{at: t.at, n: t.n, op: "number", num: t.num})
		case tokText:
			e.parts = append(e.parts, &node{at: t.at, n: t.n, op: "text", text: t.text})
		default:
			return nil, p.fail(t, "a number or a text in quotes is expected in the list")
		}
		t = p.take()
		switch {
		case t.kind == tokSymbol && t.text == closing:
			e.n = t.at + t.n - e.at
			return e, nil
		case t.kind != tokSymbol || t.text != ",":
			return nil, p.fail(t, "%q or %q is expected in the list", ",", closing)
		}
	}
}

func (p *parser) operand() (*node, error) {
	t := p.take()
	switch {
	case t.kind == tokName:
		return &node{at: t.at, n: t.n, op: "name", text: t.text}, nil
	case t.kind == tokNumber:
		return &node{at: t.at, n: t.n, op: "number", num: t.num}, nil
	case t.kind == tokText:
		return &node{at: t.at, n: t.n, op: "text", text: t.text}, nil
	case t.kind == tokSymbol && t.text == "(":
		if p.depth++; p.depth > maxDepth {
			return nil, p.fail(t, "more than %d parts lie in each other", maxDepth)
		}
		e, err := p.or()
		p.depth--
		if err != nil {
			return nil, err
		}
		if end := p.take(); end.kind != tokSymbol || end.text != ")" {
			return nil, p.fail(end, ") is expected here")
		}
		return e, nil
	case t.kind == tokEnd:
		return nil, p.fail(t, "the expression ends where a field, a number or a text is expected")
	}
	return nil, p.fail(t, "a field, a number or a text in quotes is expected here")
}

// String returns the canonical text of an expression.
func (e *node) String() string {
	switch e.op {
	case "name":
		if nameLen(e.text) == len(e.text) && e.text != "" && !isWord(e.text) {
			return e.text
		}
		return "`" + e.text + "`"
	case "number":
		if e.num.whole {
			return strconv.FormatInt(e.num.i, 10)
		}
		s := strconv.FormatFloat(e.num.f, 'g', -1, 64)
		if !strings.ContainsAny(s, ".e") {
			s += ".0"
		}
		return s
	case "text":
		return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(e.text) + `"`
	case "not":
		return "not " + e.parts[0].inner()
	case "in":
		var list []string
		for _, p := range e.parts[1:] {
			list = append(list, p.String())
		}
		return e.parts[0].inner() + " in (" + strings.Join(list, ", ") + ")"
	case "within":
		return e.parts[0].inner() + " in " + e.parts[1].String()
	case "and", "or":
		var list []string
		for _, p := range e.parts {
			list = append(list, p.inner())
		}
		return strings.Join(list, " "+e.op+" ")
	}
	return e.parts[0].inner() + " " + e.op + " " + e.parts[1].inner()
}

// inner is String for a part of another expression.
func (e *node) inner() string {
	switch e.op {
	case "name", "number", "text":
		return e.String()
	}
	return "(" + e.String() + ")"
}

func isWord(s string) bool {
	switch strings.ToLower(s) {
	case "and", "or", "not", "in":
		return true
	}
	return false
}
