package doctor

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/internal/doctor/pystack"
)

// A training loop may work on a batch between its arrival and the step. That work belongs to the hand-off and has no
// mark, so its position in the loop identifies it. A loop requests a batch in one line. The step begins at the first
// later line that runs a model or an optimizer, or waits for the accelerator. Computation in the lines between prepares
// the batch.

// loopAt is the statement of a training loop that asks for a batch.
type loopAt struct {
	place
	fn string // the function that holds it
}

// lineIn returns the current line of the loop in a stack, leaf first; 0 if the stack is not within the loop.
func (l loopAt) lineIn(frames []pystack.Frame) int {
	if l.fn == "" {
		return 0
	}
	for i := len(frames) - 1; i >= 0; i-- {
		if f := &frames[i]; f.Qual == l.fn && f.File == l.file {
			return f.Line
		}
	}
	return 0
}

// askedBy returns the statement that requests a batch, from the frames that called a loader. It is the user's own
// statement, and not that of a progress bar or framework in between.
func askedBy(frames []pystack.Frame) loopAt {
	at := &frames[0]
	for i := range frames {
		if f := &frames[i]; !installed(f.File) {
			at = f
			break
		}
	}
	return loopAt{place{at.File, at.Line}, at.Qual}
}

// common returns the part of a chain of functions, outermost first, that it shares with a stack, leaf first. If a
// loader is so fast that it is never sampled, the innermost shared function of all other samples has the loop.
func common(chain []loopAt, frames []pystack.Frame) []loopAt {
	if chain == nil {
		chain = make([]loopAt, 0, len(frames))
		for i := len(frames) - 1; i >= 0; i-- {
			if f := &frames[i]; !installed(f.File) {
				chain = append(chain, loopAt{place{f.File, 0}, f.Qual})
			}
		}
		return chain
	}
	n := 0
	for i := len(frames) - 1; i >= 0 && n < len(chain); i-- {
		f := &frames[i]
		if installed(f.File) {
			continue
		}
		if f.Qual != chain[n].fn || f.File != chain[n].file {
			break
		}
		n++
	}
	return chain[:n]
}

// inLoop describes the loops around a line.
type inLoop struct {
	trains bool // one of them trains, by its source
	steps  bool // and the line begins its step
}

// maxLoops bounds how many lines are remembered.
const maxLoops = 1024

// trainsAt returns the function on a stack, leaf first, whose loop trains according to its source, and the zero value
// if there is none. That finds a loop that is seldom sampled outside the code that makes its batches. It is the
// outermost such function, because code that makes batches may also carry values on. But functions of a step may have
// loops of their own, such as one for each epoch.
func (c *collector) trainsAt(frames []pystack.Frame) loopAt {
	var found loopAt
	for i := len(frames) - 1; i >= 0; i-- {
		f := &frames[i]
		if installed(f.File) {
			continue
		}
		at := place{f.File, f.Line}
		in, ok := c.loops[at]
		if !ok {
			in = loopsAround(at, c.sourceLine)
			if c.loops == nil || len(c.loops) >= maxLoops {
				c.loops = map[place]inLoop{}
			}
			c.loops[at] = in
		}
		if !in.trains {
			continue
		}
		if found = (loopAt{place{f.File, 0}, f.Qual}); !in.steps {
			break
		}
	}
	return found
}

// loopsAround reports whether a loop around a line trains.
func loopsAround(at place, text func(place) string) inLoop {
	code := text(at)
	if code == "" {
		return inLoop{}
	}
	for line := range outward(at, indent(code)+1, text) { // the line may begin a loop itself
		if step := carries(at.file, line, text); step > 0 {
			s := statementAt(at.file, step, step+maxFlow, text)
			return inLoop{true, slices.Contains(s.lines, at.line)}
		}
	}
	return inLoop{}
}

// outward yields the lines of the loops around a line, the innermost first, within its function. They are indented by
// less than inner.
func outward(at place, inner int, text func(place) string) iter.Seq[int] {
	return func(yield func(int) bool) {
		for line := at.line; line > max(0, at.line-500) && inner > 0; line-- {
			s := text(place{at.file, line})
			words := strings.TrimSpace(s)
			if words == "" || indent(s) >= inner {
				continue
			}
			inner = indent(s)
			switch {
			case startsLoop(words):
				if !yield(line) {
					return
				}
			case strings.HasPrefix(words, "def "), strings.HasPrefix(words, "async def "):
				return
			}
		}
	}
}

// A function is removed from a chain when fewStacks stacks, and one of moreStacks, lack it. A stack that was read while
// it changed may lack any function.
const fewStacks, moreStacks = 3, 20

// follow reduces the trainer's chain to the functions that it shares with a stack.
func (s *trainerState) follow(frames []pystack.Frame) {
	s.stacks++
	shared := common(s.chain, frames)
	if len(shared) < len(s.chain) {
		if s.lacking++; s.lacking < fewStacks || s.lacking*moreStacks < s.stacks {
			return
		}
	}
	if s.chain == nil && len(shared) == 0 {
		return // it is in no function of the user's own
	}
	if len(shared) != len(s.chain) {
		s.chain, s.lacking, s.stacks = shared, 0, 0
	}
}

// installed reports whether a file belongs to Python or to a package.
func installed(file string) bool {
	return strings.HasPrefix(file, "<") || strings.Contains(file, "/site-packages/") ||
		strings.Contains(file, "/dist-packages/") || strings.Contains(file, "/lib/python3")
}

// stepFiles are parts of packages that only compute training steps.
var stepFiles = []string{
	"/torch/nn/modules/", "/torch/nn/parallel/", "/torch/optim/", "/torch/autograd/", "/torch/_dynamo/", "/torch/_inductor/",
	"/torch/distributed/", "/torch/amp/", "/torch/cuda/", "/torch/_compile.py", "/jax/", "/flax/", "/optax/", "/haiku/", "/equinox/",
	"/tensorflow/python/eager/", "/keras/", "/deepspeed/", "/apex/", "/xformers/", "/timm/models/", "/transformers/models/", "/mxnet/",
}

// launcherFiles start ranks and do not train themselves.
var launcherFiles = []string{"/torch/distributed/elastic/", "/torch/distributed/launcher/", "/torch/distributed/run.py", "/torch/distributed/launch.py"}

// steps reports whether a training step is on a stack outside any loader: a model, an optimizer, or a function with
// such a name. Functions that it calls belong to the step, whatever their names.
func steps(frames []pystack.Frame) bool {
	for i := range frames {
		if containsAny(frames[i].File, launcherFiles) {
			return false
		}
		if containsAny(frames[i].File, stepFiles) && !strings.Contains(frames[i].File, "/utils/data/") {
			return true
		}
		name := strings.ToLower(frames[i].Func)
		if containsAny(name, []string{"step", "forward", "backward", "_call_impl", "zero_grad", "evaluate", "validate"}) {
			return true
		}
	}
	return false
}

// saves reports whether a model or other data is being written, by a package for it or by a function with such a name.
func saves(frames []pystack.Frame) bool {
	for i := range frames {
		name := strings.ToLower(frames[i].Func)
		switch {
		case strings.HasPrefix(name, "save_"), name == "save", name == "_save", name == "dump", strings.Contains(name, "checkpoint") && !strings.Contains(name, "load"):
			return true
		case strings.Contains(frames[i].File, "/orbax/"), strings.Contains(frames[i].File, "/torch/utils/tensorboard/"), strings.HasSuffix(frames[i].File, "/logging/__init__.py"):
			return true
		}
	}
	return false
}

// ownWords are common words in names of functions that prepare batches: a hint if the position is not conclusive.
var ownWords = []struct {
	in   string
	part part
}{

	{"prepare", partPrepare}, {"preprocess", partPrepare}, {"collate", partPrepare}, {"batchify", partPrepare},

	{"get_batch", partFetch}, {"next_batch", partFetch}, {"load_batch", partFetch}, {"read_batch", partFetch},

	{"fetch_batch", partFetch}, {"load_image", partFetch}, {"read_image", partFetch}, {"decode_image", partFetch}, {"tokenize", partFetch},
}

// ownPart returns the part that a thread outside any loader and step is in, from the names of its functions, outermost
// first. Without such a name, it is the step.
func ownPart(frames []pystack.Frame) part {
	for i := len(frames) - 1; i >= 0; i-- {
		name := strings.ToLower(frames[i].Func)
		for _, w := range ownWords {
			if strings.Contains(name, w.in) {
				return w.part
			}
		}
	}
	return partStep
}

// An ownKey is the position of a trainer outside any loader. It has the place that requests a batch (perhaps only its
// function), the current line of that function, and the innermost line.
type ownKey struct {
	loop loopAt
	body int // 0: not within that function
	leaf place
}

// ownStat counts samples of one position.
type ownStat struct {
	all, step float64 // step: those that were a training step without doubt
	ran       float64 // other running samples
	faults    float64 // in addition to all: samples that waited for a page of a mapped file
	slept     float64 // the part of step that only slept: a timer may belong to the step or to the batch
	waited    float64 // those that waited for other threads or processes
	side      counts  // the activity of the other threads of the process meanwhile
}

type ownCounts map[ownKey]ownStat

// maxOwn limits the number of distinct positions in a bin.
const maxOwn = 96

func (o *ownCounts) note(k ownKey, step, slept, ran bool) {
	x := ownStat{all: 1}
	switch {
	case step:
		x.step = 1
	case slept:
		x.step, x.slept = 1, 1
	case ran:
		x.ran = 1
	}
	o.put(k, x)
}

func (o *ownCounts) put(k ownKey, x ownStat) {
	if *o == nil {
		*o = ownCounts{}
	}
	if _, ok := (*o)[k]; !ok && len(*o) >= maxOwn {
		k.leaf = place{}
		if _, ok := (*o)[k]; !ok && len(*o) >= 2*maxOwn {
			return
		}
	}
	old := (*o)[k]
	(*o)[k] = old.plus(x)
}

func (x ownStat) plus(y ownStat) ownStat {
	x.side.add(y.side)
	return ownStat{x.all + y.all, x.step + y.step, x.ran + y.ran, x.faults + y.faults, x.slept + y.slept, x.waited + y.waited, x.side}
}

func (o *ownCounts) add(other ownCounts) {
	for k, x := range other {
		o.put(k, x)
	}
}

// preparing returns the positions in which a batch is prepared. The function text returns the source of a line, "" if
// it cannot be read. The flag copies reports that there is an accelerator, for which the copying of a batch waits.
func (o ownCounts) preparing(text func(place) string, copies bool) map[ownKey]bool {
	loops := map[loopAt][]ownKey{}
	for k := range o {
		loops[k.loop] = append(loops[k.loop], k)
	}
	out := map[ownKey]bool{}
	for loop, keys := range loops {
		loop, ok := loop.found(keys, text)
		if !ok {
			continue
		}
		first := o.firstStep(loop, keys, text)
		uses, read := map[int]flowUse(nil), false
		if first < 1<<30 {
			uses, read = flow(loop.file, loop.line, loop.line+first, text)
		}
		for _, k := range keys {
			if read && k.body > loop.line && uses[k.body] == useNone {
				continue // metrics and the like, of the step before
			}
			if k.body == 0 || loop.order(k.body) >= first || o[k].ran == 0 {
				continue
			}
			if copies && containsAny(text(k.leaf), copyTexts) {
				continue
			}
			out[k] = true
		}
	}
	return out
}

// making returns the positions in which a loop without a known loader makes its batches. They are in the statement over
// which it loops, and in statements before the step whose results the step uses.
func (o ownCounts) making(text func(place) string) map[ownKey]bool {
	loops := map[loopAt][]ownKey{}
	for k := range o {
		if k.loop.line == 0 { // else a loader was asked
			loops[k.loop] = append(loops[k.loop], k)
		}
	}
	out := map[ownKey]bool{}
	for loop, keys := range loops {
		loop, ok := loop.found(keys, text)
		if !ok {
			continue
		}
		step := o.sureStep(loop, keys, text)
		uses, ok := flow(loop.file, loop.line, step, text)
		if !ok {
			continue
		}
		for _, k := range keys {
			x := o[k]
			if x.ran+x.slept+x.waited > 0 && x.step == x.slept && (k.body == loop.line || k.body < step && uses[k.body] == useProduces) {
				out[k] = true
			}
		}
	}
	return out
}

// shown reports whether the source of a loop shows that it trains: it carries learned values on, or goes backward
// through a model.
func (o ownCounts) shown(text func(place) string) bool {
	loops := map[loopAt][]ownKey{}
	for k := range o {
		if k.body > 0 {
			loops[k.loop] = append(loops[k.loop], k)
		}
	}
	for loop, keys := range loops {
		loop, ok := loop.found(keys, text)
		if ok && (carries(loop.file, loop.line, text) > 0 || slices.ContainsFunc(keys, func(k ownKey) bool {
			return strings.Contains(text(place{loop.file, k.body}), ".backward(")
		})) {
			return true
		}
	}
	return false
}

// sureStep returns the line of a loop in which its step begins. It is the first line that ran a model or an optimizer
// or has a telling text, otherwise the last that slept. The result is 0 if that is unknown.
func (o ownCounts) sureStep(loop loopAt, keys []ownKey, text func(place) string) int {
	sure, slept := 0, 0
	for _, k := range keys {
		if k.body <= loop.line {
			continue
		}
		x := o[k]
		if (x.step > x.slept && x.step-x.slept >= 0.2*x.all || saysStep(text(place{loop.file, k.body}))) && (sure == 0 || k.body < sure) {
			sure = k.body
		}
		if x.slept > 0 && k.body > slept {
			slept = k.body
		}
	}
	if line := carries(loop.file, loop.line, text); line > 0 && (sure == 0 || line < sure) {
		sure = line
	}
	if sure > 0 {
		return sure
	}
	return slept
}

// found adds the line of the loop if only its function is known: the statement around the sampled lines. A function
// without one belongs to the step.
func (l loopAt) found(keys []ownKey, text func(place) string) (loopAt, bool) {
	if l.line > 0 {
		return l, true
	}
	top := 0
	for _, k := range keys {
		if k.body > 0 && (top == 0 || k.body < top) {
			top = k.body
		}
	}
	inner := indent(text(place{l.file, top}))
	if words := strings.TrimSpace(text(place{l.file, top})); startsLoop(words) {
		// It was sampled in the statement that it loops over if it was also sampled in statements below.
		for _, k := range keys {
			if k.body > top && indent(text(place{l.file, k.body})) > inner {
				l.line = top
				return l, true
			}
		}
	}
	for line := range outward(place{l.file, top}, inner, text) {
		l.line = line
		return l, true
	}
	return l, false
}

func indent(s string) int { return len(s) - len(strings.TrimLeft(s, " \t")) }

// order numbers the lines of a loop in the order of execution: lines before the statement that requests a batch come
// after the lines that follow it.
func (l loopAt) order(line int) int {
	if line >= l.line {
		return line - l.line
	}
	return 1<<30 + line
}

// stepTexts are parts of source lines that run a step. The list copyTexts has parts of lines that wait for the
// accelerator while they copy, and toDeviceTexts those of lines that copy to it.
var (
	stepTexts = []string{".backward(", "step(", "forward(", "model(", "net(", "criterion(", "train_on_batch(", "train(", "synchronize(", "block_until_ready(", "sleep("}
	copyTexts = []string{".to(", ".cuda(", "non_blocking", "device_put", ".item(", ".cpu(", "synchronize(", "block_until_ready"}

	toDeviceTexts = []string{".to(", ".cuda(", "device_put("}
)

// firstStep returns the position, in the order of a loop's lines, at which its step begins; 0 if that is unknown.
func (o ownCounts) firstStep(loop loopAt, keys []ownKey, text func(place) string) int {
	first := o.firstSeen(loop, keys, text)
	if line := carries(loop.file, loop.line, text); line > 0 && (first == 0 || loop.order(line) < first) {
		return loop.order(line)
	}
	return first
}

// firstSeen is firstStep based on the samples of the lines and on their text.
func (o ownCounts) firstSeen(loop loopAt, keys []ownKey, text func(place) string) int {
	lines := map[int]ownStat{}
	all, outside := 0.0, 0.0
	for _, k := range keys {
		x := o[k]
		all += x.all
		if k.body == 0 {
			outside += x.all
			continue
		}
		y := lines[k.body]
		lines[k.body] = y.plus(x)
	}
	ordered := make([]int, 0, len(lines))
	for line := range lines {
		ordered = append(ordered, line)
	}
	slices.SortFunc(ordered, func(a, b int) int { return cmp.Compare(loop.order(a), loop.order(b)) })
	// A name like a step may be a counter of steps, which takes a moment of each step. If such a line was sampled, an
	// earlier line with a text like a step is as good.
	says := func(line int) bool {
		return line != loop.line && saysStep(text(place{loop.file, line}))
	}
	seen := func(line int) bool {
		x := lines[line]
		return x.step > 0 && x.step >= max(0.2*x.all, 0.03*all)
	}
	if slices.ContainsFunc(ordered, seen) {
		for _, line := range ordered {
			if seen(line) || says(line) {
				return loop.order(line)
			}
		}
	}
	if outside >= 0.1*all && outside > 2 {
		// The function that asks is not on the stack during the step: a generator,
		// or one that returns a batch. All that it does is for the batch.
		return 1<<31 - 1
	}
	for _, line := range ordered {
		if says(line) {
			return loop.order(line)
		}
	}
	return 0
}

// saysStep reports whether a source line runs a step by its words.
func saysStep(line string) bool {
	for _, w := range ownWords {
		if strings.Contains(line, w.in) {
			return false // preprocess_step(batch)
		}
	}
	return containsAny(line, stepTexts)
}
