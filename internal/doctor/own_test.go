package doctor

import (
	"math"
	"testing"
)

// A loop of train.py: line 10 asks for a batch.
var testLoop = loopAt{place{"train.py", 10}, "main"}

func ownSamples(rows ...[4]float64) (out ownCounts) {
	for _, r := range rows { // line of the loop, samples, steps among them, other running samples
		out.put(ownKey{testLoop, int(r[0]), place{"leaf.py", int(r[0])}}, ownStat{all: r[1], step: r[2], ran: r[3]})
	}
	return out
}

// The code that prepares a batch is found by its position in the loop, not by names.
func TestPreparing(t *testing.T) {
	for _, c := range []struct {
		name   string
		own    ownCounts
		text   map[int]string
		copies bool
		want   []int
	}{
		{"before the model", ownSamples([4]float64{11, 30, 0, 30}, [4]float64{12, 20, 19, 1}, [4]float64{13, 5, 0, 5}), nil, false, []int{11}},
		{"the model first", ownSamples([4]float64{11, 30, 29, 1}, [4]float64{12, 20, 0, 20}), nil, false, nil},
		{"nothing but an unknown step", ownSamples([4]float64{11, 30, 0, 30}), nil, false, nil},
		{"waiting is not making ready", ownSamples([4]float64{11, 30, 0, 0}, [4]float64{12, 20, 20, 0}), nil, false, nil},
		{"a step that only its line tells of", ownSamples([4]float64{11, 30, 0, 30}, [4]float64{12, 20, 0, 20}), map[int]string{12: "  step(images)"}, false, []int{11}},
		{"a counter of steps after the step", ownSamples([4]float64{11, 30, 0, 30}, [4]float64{12, 40, 0, 40}, [4]float64{13, 1, 1, 0}), map[int]string{11: "  x = unroll(batch)", 12: "  step(x)", 13: "  progress.step()"}, false, []int{11}},
		{"a counter of steps alone after the step", ownSamples([4]float64{12, 40, 0, 40}, [4]float64{13, 1, 1, 0}), map[int]string{12: "  step(x)", 13: "  progress.step()"}, false, nil},
		{"a counter of steps after an unknown step", ownSamples([4]float64{12, 40, 0, 40}, [4]float64{13, 1, 1, 0}), nil, false, nil},
		{"a step of making ready", ownSamples([4]float64{11, 30, 0, 30}, [4]float64{12, 40, 40, 0}), map[int]string{11: "  x = preprocess_step(batch)"}, false, []int{11}},
		{"in the statement that asks", ownSamples([4]float64{10, 30, 0, 30}, [4]float64{12, 20, 20, 0}), nil, false, []int{10}},
		{"a while loop that asks at its end", ownSamples([4]float64{8, 30, 0, 30}, [4]float64{9, 20, 20, 0}), nil, false, []int{8}},
		{"a generator: the step is elsewhere", ownSamples([4]float64{11, 30, 0, 30}, [4]float64{0, 20, 20, 0}), nil, false, []int{11}},
		{"copying to an accelerator waits for it", ownSamples([4]float64{11, 30, 0, 30}, [4]float64{12, 20, 20, 0}), map[int]string{11: "x = x.cuda()"}, true, nil},
		{"copying without one is work", ownSamples([4]float64{11, 30, 0, 30}, [4]float64{12, 20, 20, 0}), map[int]string{11: "x = x.to(kind)"}, false, []int{11}},
	} {
		got := c.own.preparing(func(p place) string { return c.text[p.line] }, c.copies)
		if len(got) != len(c.want) {
			t.Errorf("%s: %v, want lines %v", c.name, got, c.want)
		}
		for _, line := range c.want {
			if !got[ownKey{testLoop, line, place{"leaf.py", line}}] {
				t.Errorf("%s: line %d is not found", c.name, line)
			}
		}
	}
}

// If only the function is known, it must have a loop around the sampled lines.
func TestLoopFound(t *testing.T) {
	source := map[int]string{1: "def main():", 2: "    for batch in loader:", 3: "        x = unroll(batch)", 4: "        go(x)", 6: "def go(x):", 7: "    x = x.float()", 8: "    model(x)"}
	text := func(p place) string { return source[p.line] }
	for _, c := range []struct {
		lines []int
		want  int
	}{{[]int{4, 3}, 2}, {[]int{8, 7}, 0}, {[]int{40}, 0}} {
		at := loopAt{place{"train.py", 0}, "f"}
		var keys []ownKey
		for _, line := range c.lines {
			keys = append(keys, ownKey{at, line, place{"x.py", 1}})
		}
		if got, ok := at.found(keys, text); got.line != c.want || ok != (c.want > 0) {
			t.Errorf("lines %v: the loop is in line %d (%v), want %d", c.lines, got.line, ok, c.want)
		}
	}
}

func TestSettle(t *testing.T) {
	c := &collector{}
	b := bin{trainerCounts: trainerCounts{own: ownSamples([4]float64{11, 30, 0, 25}, [4]float64{12, 20, 20, 0})}}
	b.trainer[causeStep], b.trainerRan[causeStep] = 50, 40
	l := timeline{bins: []bin{b}}
	got := c.settle(l).bins[0]
	if got.trainer[causeStep] != 25 || got.trainer[causeHandoff] != 25 || got.trainerRan[causeStep] != 15 || got.trainerParts[partPrepare] != 25 {
		t.Errorf("%+v", got)
	}
	if l.bins[0].trainer[causeStep] != 50 {
		t.Error("the timeline itself was changed")
	}
}

func TestOwnIsBounded(t *testing.T) {
	var o ownCounts
	for i := range 10000 {
		o.note(ownKey{testLoop, i % 500, place{"x.py", i}}, false, false, true)
	}
	if len(o) > 2*maxOwn {
		t.Errorf("%d places", len(o))
	}
}

func TestAskedBy(t *testing.T) {
	for _, c := range []struct {
		name string
		at   loopAt
		want string
	}{
		{"a progress bar", askedBy(stack(site+"/tqdm/std.py", "__iter__", "/home/u/train.py", "main")), "main"},
		{"a framework alone", askedBy(stack(site+"/frame/work.py", "fit", lib+"/runpy.py", "run")), "fit"},
		{"the loop", askedBy(stack("/home/u/train.py", "main", "/home/u/train.py", "<module>")), "main"},
	} {
		if c.at.fn != c.want {
			t.Errorf("%s: %q asks, want %q", c.name, c.at.fn, c.want)
		}
	}
	frames := stack("/home/u/model.py", "run", "/home/u/train.py", "main")
	frames[1].Line = 14
	if got := (loopAt{place{"/home/u/train.py", 9}, "main"}).lineIn(frames); got != 14 {
		t.Errorf("line %d", got)
	}
	if got := (loopAt{place{"/home/u/train.py", 9}, "other"}).lineIn(frames); got != 0 {
		t.Errorf("line %d of a function that is not there", got)
	}
}

// A loader that is never seen at work: the loop is in the innermost function that
// all moments share.
func TestCommon(t *testing.T) {
	var chain []loopAt
	for _, s := range [][]string{
		{"/home/u/data.py", "<listcomp>", "/home/u/data.py", "unroll", "/home/u/train.py", "main", "/home/u/train.py", "<module>"},
		{"/home/u/net.py", "spin", "/home/u/train.py", "main", "/home/u/train.py", "<module>", lib + "/runpy.py", "run"},
	} {
		chain = common(chain, stack(s...))
	}
	if n := len(chain); n != 2 || chain[n-1] != (loopAt{place{"/home/u/train.py", 0}, "main"}) {
		t.Errorf("%v", chain)
	}
	if chain = common(chain, stack("/home/u/other.py", "main")); len(chain) != 0 {
		t.Errorf("%v", chain)
	}
	if chain = common(chain, stack("/home/u/train.py", "main")); len(chain) != 0 {
		t.Errorf("what is not shared comes back: %v", chain)
	}
}

// A stack that was read while it changed does not make the loop unknown.
func TestChainSurvivesOddStacks(t *testing.T) {
	s := &trainerState{}
	step := stack("/home/u/train.py", "train_step", "/home/u/train.py", "main", "/home/u/train.py", "<module>")
	batch := stack("/home/u/train.py", "<listcomp>", "/home/u/train.py", "batches", "/home/u/train.py", "main", "/home/u/train.py", "<module>")
	s.follow(stack(lib+"/threading.py", "run"))
	for n := range 300 {
		switch {
		case n%70 == 69:
			s.follow(stack("/home/u/train.py", "<listcomp>"))
		case n%3 == 0:
			s.follow(batch)
		default:
			s.follow(step)
		}
		if n > 30 && (len(s.chain) != 2 || s.chain[1].fn != "main") {
			t.Fatalf("after %d: %v", n, s.chain)
		}
	}
	for range 40 { // another loop begins
		s.follow(stack("/home/u/train.py", "train_step", "/home/u/train.py", "fit", "/home/u/train.py", "<module>"))
	}
	if len(s.chain) != 1 {
		t.Errorf("of another loop: %v", s.chain)
	}
}

// The share of samples that ran becomes the exact one; how they divide stays.
func TestStratified(t *testing.T) {
	all, ran := use(map[cause]float64{causeStep: 40, causeHandoff: 20, causeWait: 40}), use(map[cause]float64{causeStep: 20, causeHandoff: 20})
	a, r := stratified(all, ran, 0.6)
	want := map[cause]float64{causeStep: 30 + 20*40/60.0, causeHandoff: 30, causeWait: 40 * 40 / 60.0}
	for x, w := range want {
		if math.Abs(a[x]-w) > 1e-9 {
			t.Errorf("cause %d: %.2f, want %.2f", x, a[x], w)
		}
	}
	if math.Abs(r[causeStep]-30) > 1e-9 || math.Abs(a[causeStep]+a[causeHandoff]+a[causeWait]-100) > 1e-9 {
		t.Errorf("%v %v", a, r)
	}
}
