package doctor

import (
	"slices"
	"strings"
)

// In a loop without a loader that is known, what stands before the step either
// makes a batch (a call that needs nothing of the loop's own), or makes it ready
// (it uses the batch), or has nothing to do with it: metrics and logging of the step
// before. Which it is, is told by the names that the statements use.

// A flowUse is what a statement of a loop has to do with the batch.
type flowUse uint8

const (
	useNone     flowUse = iota // nothing: it belongs to the step before
	useProduces                // makes what later statements use
	usePrepares                // changes the batch
)

// maxFlow bounds how many lines of a loop are looked at.
const maxFlow = 200

// flow says, for each line of a loop from the one after the statement that asks up
// to that of the step, what its statement does. ok is false where the source
// cannot be read.
func flow(file string, loop, step int, text func(place) string) (uses map[int]flowUse, ok bool) {
	head := text(place{file, loop})
	if head == "" || step <= loop || step-loop > maxFlow {
		return nil, false
	}
	type statement struct {
		lines   []int
		targets []string
		reads   []string
	}
	var all []statement
	for line := loop + 1; line <= step; line++ {
		s := statement{lines: []int{line}}
		code := text(place{file, line})
		for depth := brackets(code); depth > 0 && line < loop+maxFlow; depth += brackets(text(place{file, line})) {
			line++
			s.lines = append(s.lines, line)
			code += " " + strings.TrimSpace(text(place{file, line}))
		}
		s.targets, s.reads = assignment(code)
		all = append(all, s)
	}
	uses = map[int]flowUse{}
	batch := loopTargets(head)
	// Backwards: what the step needs, and what that needs.
	needed := map[string]bool{}
	makes := make([]bool, len(all))
	for i, s := range slices.Backward(all) {
		last := i == len(all)-1
		makes[i] = last || slices.ContainsFunc(s.targets, func(n string) bool { return needed[n] })
		if makes[i] {
			for _, n := range s.reads {
				needed[n] = true
			}
		}
	}
	// Forwards: what comes of the batch.
	of := map[string]bool{}
	for _, n := range batch {
		of[n] = true
	}
	for i, s := range all {
		kind := useNone
		fromBatch := slices.ContainsFunc(s.reads, func(n string) bool { return of[n] })
		switch {
		case i == len(all)-1: // the step itself
		case fromBatch:
			kind = usePrepares
		case makes[i] && len(s.targets) > 0:
			kind = useProduces
		}
		if kind != useNone {
			for _, n := range s.targets {
				of[n] = true
			}
		}
		for _, line := range s.lines {
			uses[line] = kind
		}
	}
	return uses, true
}

// brackets is how many more brackets a line opens than it closes.
func brackets(code string) int {
	n := 0
	for _, r := range withoutText(code) {
		switch r {
		case '(', '[', '{':
			n++
		case ')', ']', '}':
			n--
		}
	}
	return n
}

// withoutText blanks the strings and the comment of a line of Python, as far as a
// line shows.
func withoutText(code string) string {
	var out strings.Builder
	var quote rune
	escaped := false
	for _, r := range code {
		switch {
		case escaped:
			escaped = false
		case quote != 0 && r == '\\':
			escaped = true
		case quote != 0:
			if r == quote {
				quote = 0
			}
		case r == '"' || r == '\'':
			quote = r
		case r == '#':
			return out.String()
		default:
			out.WriteRune(r)
		}
	}
	return out.String()
}

// loopTargets are the names that a for statement binds.
func loopTargets(head string) []string {
	head = strings.TrimSpace(withoutText(head))
	head = strings.TrimPrefix(head, "async ")
	rest, ok := strings.CutPrefix(head, "for ")
	if !ok {
		return nil
	}
	targets, _, ok := strings.Cut(rest, " in ")
	if !ok || strings.Contains(rest, " in range(") || strings.Contains(rest, " in count(") {
		return nil // numbers
	}
	names := identifiers(targets)
	if strings.Contains(rest, "enumerate(") && len(names) > 1 {
		names = names[1:] // the number of the batch is not of it
	}
	return names
}

// assignment splits a statement into the names that it binds and those that it uses.
func assignment(code string) (targets, reads []string) {
	code = withoutText(code)
	depth, from, augmented := 0, 0, false
	for i := 0; i < len(code); i++ {
		switch code[i] {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth--
		case '=':
			if depth != 0 || i+1 < len(code) && code[i+1] == '=' || i > 0 && strings.ContainsRune("=!<>", rune(code[i-1])) {
				continue
			}
			augmented = augmented || i > 0 && strings.ContainsRune("+-*/|&%@^", rune(code[i-1]))
			targets = append(targets, identifiers(code[from:i])...)
			from = i + 1
		}
	}
	reads = identifiers(code[from:])
	if augmented {
		reads = append(reads, targets...)
	}
	return targets, reads
}

// identifiers are the names in a piece of code: not those behind a dot, and no
// words of the language.
func identifiers(code string) []string {
	var out []string
	for i := 0; i < len(code); {
		if !letter(code[i]) {
			i++
			continue
		}
		j := i
		for j < len(code) && (letter(code[j]) || code[j] >= '0' && code[j] <= '9') {
			j++
		}
		name := code[i:j]
		if (i == 0 || code[i-1] != '.' && !(code[i-1] >= '0' && code[i-1] <= '9')) && !pythonWords[name] {
			out = append(out, name)
		}
		i = j
	}
	return out
}

func letter(b byte) bool {
	return b == '_' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= 0x80
}

var pythonWords = map[string]bool{
	"for": true, "in": true, "if": true, "else": true, "elif": true, "while": true, "not": true, "and": true, "or": true, "is": true, "lambda": true,
	"None": true, "True": true, "False": true, "with": true, "as": true, "try": true, "except": true, "return": true, "yield": true, "await": true,
	"async": true, "del": true, "import": true, "from": true, "pass": true, "break": true, "continue": true, "raise": true, "assert": true, "print": true,
	"len": true, "range": true, "next": true, "self": true, "torch": true, "np": true, "int": true, "float": true,
}
