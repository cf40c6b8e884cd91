package doctor

import (
	"maps"
	"slices"
	"strings"
)

// In a loop without a known loader, a statement before the step has one of three purposes. It makes a batch (a call
// that needs nothing from the loop), prepares it (it uses the batch), or is unrelated, such as metrics and logging of
// the previous step. The names in the statements decide.

// A flowUse is the purpose of a loop's statement for the batch.
type flowUse uint8

const (
	useNone     flowUse = iota // unrelated: it belongs to the previous step
	useProduces                // produces the input of later statements
	usePrepares                // changes the batch
)

// maxFlow limits the number of a loop's lines that are analysed.
const maxFlow = 200

// flow returns the purpose of each line of a loop, from the line after the statement that requests a batch to the line
// of the step. The result ok is false if the source cannot be read.
func flow(file string, loop, step int, text func(place) string) (uses map[int]flowUse, ok bool) {
	head := text(place{file, loop})
	if head == "" || step <= loop || step-loop > maxFlow {
		return nil, false
	}
	var all []statement
	for line := loop + 1; line <= step; line++ {
		s := statementAt(file, line, loop+maxFlow, text)
		line += len(s.lines) - 1
		all = append(all, s)
	}
	uses = map[int]flowUse{}
	batch := loopTargets(head)
	// Backwards: the inputs of the step, and their inputs.
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
	// Forwards: the values that are derived from the batch.
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

// A statement is a statement of a loop: its lines, its text, the names that it binds and the names that it uses.
type statement struct {
	lines          []int
	code           string
	targets, reads []string
}

// statementAt returns the statement that begins in a line, which ends before the line last.
func statementAt(file string, line, last int, text func(place) string) statement {
	s := statement{lines: []int{line}, code: text(place{file, line})}
	for depth := brackets(s.code); depth > 0 && line < last; depth += brackets(text(place{file, line})) {
		line++
		s.lines = append(s.lines, line)
		s.code += " " + strings.TrimSpace(text(place{file, line}))
	}
	s.targets, s.reads = assignment(s.code)
	return s
}

// gathering are words in the names of functions that join a batch with earlier ones, or with statistics of the data.
// The values that they carry on are not a model.
var gathering = []string{"concat", "append", "stack", "extend", "mean", "stats", "norm", "count", "metric", "meter", "augment", "shuffle", "pad", "buffer", "cache"}

// carries returns the line of a loop in which its step begins, found by the values that it carries from one batch to
// the next. Parameters and optimizer state go into a call together with the batch and come back changed, as in "state,
// loss = update(state, batch)". That is the style of libraries whose models are values, and their compiled code shows
// no frames. The result is 0 if no statement does that.
func carries(file string, loop int, text func(place) string) int {
	head := text(place{file, loop})
	least := indent(head)
	if strings.TrimSpace(head) == "" {
		return 0
	}
	of := around(file, loop, text) // names of this batch
	got := loopTargets(head)
	if startsLoop(strings.TrimSpace(head)) {
		least++
	} else {
		got, _ = assignment(head) // a statement that asks for a batch
	}
	for _, n := range got {
		of[n] = true
	}
	given := map[string]bool{} // names bound since the batch arrived
	from := maps.Clone(of)     // those that the loop itself binds
	first := 0
	var all []statement
	for line, blank := loop+1, 0; line <= loop+maxFlow && blank < 20; line++ {
		code := text(place{file, line})
		if strings.TrimSpace(withoutText(code)) == "" {
			blank++
			continue
		}
		blank = 0
		if indent(code) < least {
			break
		}
		s := statementAt(file, line, loop+maxFlow, text)
		line += len(s.lines) - 1
		all = append(all, s)
		passed := passes(s.code)
		state := map[string]bool{}
		for _, n := range s.targets {
			if slices.Contains(passed, n) && !of[n] && !given[n] {
				state[n] = true
			}
		}
		if len(state) > 0 && !containsAny(strings.ToLower(firstCall(s.code)), gathering) {
			// The first use of this state for the batch begins the step: its gradients.
			batch := maps.Clone(from)
			for _, t := range all {
				if slices.ContainsFunc(passes(t.code), func(n string) bool { return state[n] }) && slices.ContainsFunc(t.reads, func(n string) bool { return batch[n] && !state[n] }) {
					if first == 0 || t.lines[0] < first {
						first = t.lines[0]
					}
					break
				}
				for _, n := range t.targets {
					batch[n] = true
				}
			}
		}
		for _, n := range s.targets {
			given[n] = true
			of[n] = of[n] || !state[n]
		}
		for _, n := range loopTargets(s.code) {
			of[n], from[n] = true, true
		}
	}
	return first
}

// startsLoop reports whether a line begins a loop.
func startsLoop(words string) bool {
	return strings.HasPrefix(words, "for ") || strings.HasPrefix(words, "while ") || strings.HasPrefix(words, "async for ")
}

// around returns the names that outer loops bind before a loop. If several steps use one batch, the batch comes from
// there.
func around(file string, loop int, text func(place) string) map[string]bool {
	names, since := map[string]bool{}, []string(nil)
	inner := indent(text(place{file, loop}))
	for line := loop - 1; line > max(0, loop-500) && inner > 0; line-- {
		code := text(place{file, line})
		words := strings.TrimSpace(code)
		in := indent(code)
		if words == "" || in > inner {
			continue
		}
		if in == inner {
			targets, _ := assignment(code)
			since = append(since, targets...)
			continue
		}
		inner = in
		switch {
		case startsLoop(words):
			for _, n := range append(since, loopTargets(words)...) {
				names[n] = true
			}
			since = nil
		case strings.HasPrefix(words, "def "), strings.HasPrefix(words, "async def "), strings.HasPrefix(words, "class "):
			return names
		}
	}
	return names
}

// passes returns the names that a statement passes to calls, including names whose methods it calls.
func passes(code string) []string {
	code = withoutText(code)
	var out []string
	var open []bool // brackets around: of a call
	from, inCalls := 0, 0
	take := func(to int) {
		if inCalls > 0 {
			out = append(out, identifiers(code[from:to])...)
		}
		from = to
	}
	for i := 0; i < len(code); i++ {
		switch code[i] {
		case '(', '[', '{':
			take(i)
			name := calledBefore(code[:i])
			if open = append(open, code[i] == '(' && name != ""); open[len(open)-1] {
				inCalls++
			}
			if at := strings.LastIndexByte(name, '.'); code[i] == '(' && at >= 0 {
				out = append(out, identifiers(name[:at])...)
			}
			from = i + 1
		case ')', ']', '}':
			take(i)
			if n := len(open); n > 0 {
				if open[n-1] {
					inCalls--
				}
				open = open[:n-1]
			}
			from = i + 1
		}
	}
	return out
}

// calledBefore returns the dotted name at the end of code; "" if there is none.
func calledBefore(code string) string {
	i := len(code)
	for i > 0 && (letter(code[i-1]) || code[i-1] == '.' || code[i-1] >= '0' && code[i-1] <= '9' || code[i-1] == ')' || code[i-1] == ']') {
		i--
	}
	if name := code[i:]; !pythonWords[name] || name == "print" || name == "len" {
		return name
	}
	return ""
}

// firstCall is the name of the first function that a statement calls.
func firstCall(code string) string {
	code = withoutText(code)
	for i := range code {
		if code[i] == '(' {
			if name := calledBefore(code[:i]); name != "" {
				return name
			}
		}
	}
	return ""
}

// brackets returns the number of brackets that a line opens minus those that it closes.
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

// withoutText blanks the strings and the comment of a line of Python, as far as that is possible for a single line.
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

// assignment splits a statement into the names that it binds and the names that it uses.
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

// identifiers returns the names in a piece of code, without names after a dot and keywords. An attribute of the
// method's object is named with it: self.state.
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
		if name == "self" && j+1 < len(code) && code[j] == '.' && letter(code[j+1]) {
			for j++; j < len(code) && (letter(code[j]) || code[j] >= '0' && code[j] <= '9'); j++ {
			}
			name = code[i:j]
		}
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
