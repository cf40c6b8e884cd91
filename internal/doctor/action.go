package doctor

import (
	"fmt"
	"github.com/stokerdata/stoker/internal/units"
	"strings"
)

// An Action is a command to type or a line of code to change, as a value. Tests pass the commands to the real command
// tree and the options to the real signatures.
type Action struct {
	kind  actionKind
	words []string // of a command
	call  string   // of a call: the function
	args  []argument
	first []string // before the options of a call; after words: the job's command
	text  string
}

type actionKind uint8

const (
	noAction   actionKind = iota
	runStoker             // a command of this program
	callPython            // options of a Python function
	startWith             // words before the job's own command
	shellText             // a command of another program
)

// An argument is an option of a Python call.
type argument struct {
	name  string
	value any
}

// stoker is a command of this program.
func stoker(words ...string) Action { return Action{kind: runStoker, words: words} }

// dataLoader returns the action for torch's DataLoader with other options.
func dataLoader(args ...argument) Action {
	return Action{kind: callPython, call: "DataLoader", first: []string{"..."}, args: args}
}

// stokerLoader is Stoker's on a source.
func stokerLoader(source string, args ...argument) Action {
	return Action{kind: callPython, call: "stoker.Loader", first: []string{quotePython(source)}, args: args}
}

// before returns an action that puts words before the job's command, to limit its threads or give it cores.
func before(command []string, words ...string) Action {
	return Action{kind: startWith, words: words, first: command}
}

// other returns an action outside Stoker: a command of another program, or code.
func other(text string) Action { return Action{kind: shellText, text: text} }

func option(name string, value any) argument { return argument{name, value} }

// then adds text after a command: a comment or a second command.
func (a Action) then(text string) Action {
	a.text = text
	return a
}

// String returns the printed form of the action.
func (a Action) String() string {
	switch a.kind {
	case runStoker:
		return strings.TrimSpace("stoker " + quoteWords(a.words) + " " + a.text)
	case startWith:
		return quoteWords(a.words) + " " + quoteWords(a.first)
	case callPython:
		parts := append([]string{}, a.first...)
		for _, x := range a.args {
			parts = append(parts, x.name+"="+python(x.value))
		}
		return a.call + "(" + strings.Join(parts, ", ") + ")"
	}
	return a.text
}

// options returns the options of torch's DataLoader that the action sets, which --verify can try. It is nil for other
// actions.
func (a Action) options() map[string]any {
	if a.kind != callPython || a.call != "DataLoader" {
		return nil
	}
	out := map[string]any{}
	for _, x := range a.args {
		out[x.name] = x.value
	}
	return out
}

// prefix returns the words before the job's command, nil for other actions.
func (a Action) prefix() []string {
	if a.kind != startWith {
		return nil
	}
	return a.words
}

func python(v any) string {
	switch v := v.(type) {
	case code:
		return string(v)
	case bool:
		if v {
			return "True"
		}
		return "False"
	case string:
		return quotePython(v)
	}
	return fmt.Sprint(v)
}

func quotePython(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(printable(s)) + `"`
}

func quoteWords(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = units.Shell(printable(w))
	}
	return strings.Join(quoted, " ")
}

// code is a Python expression as the value of an option.
type code string
