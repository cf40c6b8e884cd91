package doctor

import (
	"maps"
	"strings"
	"testing"
)

// TestFlow distinguishes statements that make a batch, statements that prepare it, and those of the previous step.
func TestFlow(t *testing.T) {
	for _, c := range []struct {
		name, source string
		step         int
		want         map[int]flowUse
	}{
		{"a batch that is fetched", "while True:\n    batch = fetch(rng)\n    loss = train_step(batch)", 3, map[int]flowUse{2: useProduces, 3: useNone}},
		{"a batch that is made ready", "for x, y in loader:\n    x = x.float()\n    loss = model(x)", 3, map[int]flowUse{2: usePrepares, 3: useNone}},
		{"metrics at the head", "for x in loader:\n    metrics.update(loss)\n    writer.log(metrics.compute())\n    loss = model(x)", 4, map[int]flowUse{2: useNone, 3: useNone, 4: useNone}},
		{"fetched, then made ready", "for i in range(100):\n    rows = table.read(i)\n    x = unroll(\n        rows,\n    )\n    step(x)", 6, map[int]flowUse{2: useProduces, 3: usePrepares, 4: usePrepares, 5: usePrepares, 6: useNone}},
		{"the number of the batch", "for i, x in enumerate(loader):\n    if i % 10 == 0: save(i)\n    step(x)", 3, map[int]flowUse{2: useNone, 3: useNone}},
	} {
		lines := strings.Split(c.source, "\n")
		got, ok := flow("train.py", 1, c.step, func(p place) string { return lines[p.line-1] })
		if !ok || !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	if _, ok := flow("train.py", 1, 3, func(place) string { return "" }); ok {
		t.Error("no source tells something")
	}
}

func FuzzAssignment(f *testing.F) {
	f.Add("x, y = f(a=1, b='=')  # c = d")
	f.Add("a += b == c")
	f.Add("'\\")
	f.Fuzz(func(t *testing.T, code string) {
		assignment(code)
		loopTargets("for " + code + " in x")
		brackets(code)
		passes(code)
		firstCall(code)
		carries("t.py", 1, func(p place) string {
			lines := strings.Split(code, "\n")
			if p.line < 1 || p.line > len(lines) {
				return ""
			}
			return lines[p.line-1]
		})
	})
}

// Values that a loop carries from one batch to the next show where its step begins.
func TestCarries(t *testing.T) {
	for _, c := range []struct {
		name  string
		lines string
		loop  int
		want  int
	}{
		{"several steps of a batch", "for x in batches():\n    for _ in range(20):\n        w = update(w, x)\n    w.block_until_ready()", 1, 3},
		{"the same, of which the inner loop alone was seen", "for x in batches():\n    for _ in range(20):\n        w = update(w, x)\n    w.block_until_ready()", 2, 3},
		{"state and loss", "while True:\n    batch = ready.get()\n    batch = prepare(batch)\n    params, opt, loss = train(params, opt, batch)\n    total += float(loss)", 1, 4},
		{"gradients first", "for x, y in loader:\n    x = scale(x)\n    grads = grad(params, x, y)\n    updates, opt = optimizer.update(grads, opt, params)\n    params = apply(params, updates)", 1, 3},
		{"over lines", "for x in loader:\n    state, metrics = update(\n        state,\n        x,\n    )", 1, 2},
		{"a method", "for x in loader:\n    x = x.astype(float)\n    g = grad(state.params, x)\n    state = state.apply_gradients(grads=g)", 1, 3},
		{"after the statement that asks", "while True:\n    x = next(it)\n    x = scale(x)\n    w = update(w, x)", 2, 4},
		{"numbers that a batch is drawn with", "while True:\n    key, sub = split(key)\n    x = draw(sub, data)\n    w = update(w, x)", 1, 4},
		{"a batch that is changed", "for x in loader:\n    x = augment(x)\n    model(x)", 1, 0},
		{"a batch that is put together", "for x in loader:\n    rows = np.concatenate([rows, x])\n    model(rows)", 1, 0},
		{"a counter", "for x in loader:\n    seen = seen + len(x)\n    total += x.sum()\n    model(x)", 1, 0},
		{"a source with a state", "for _ in range(9):\n    key, x = make_batch(key, data)\n    model(x)", 1, 0},
		{"figures of the data", "for x in loader:\n    average = running_mean(average, x)\n    x = x - average\n    model(x)", 1, 0},
		{"the end of the loop", "for x in loader:\n    model(x)\nw = update(w, x)", 1, 0},
		{"state of an object", "for x in data:\n    x = scale(x)\n    self.params, loss = self.update(self.params, x)", 1, 3},
		{"state of an object and a method of its own", "for x in data:\n    grads = self.grad(self.state.params, x)\n    self.state = self.state.apply_gradients(grads=grads)", 1, 2},
		{"state of another object", "for batch in data:\n    batch = scale(batch)\n    run.params, run.opt = step(run.params, run.opt, batch)", 1, 3},
		{"a batch of an object", "while True:\n    self.batch = self.next(self.source)\n    self.batch = self.scale(self.batch)\n    self.w = self.update(self.w, self.batch)", 1, 4},
		{"a source of an object with a state", "for _ in range(9):\n    self.key, x = self.draw(self.key, self.data)\n    self.model(x)", 1, 0},
		{"a counter of an object", "for x in loader:\n    self.seen = self.seen + len(x)\n    self.model(x)", 1, 0},
		{"figures of an object", "for x in loader:\n    self.average = running_mean(self.average, x)\n    self.model(x - self.average)", 1, 0},
		{"other things of the same object", "for x in loader:\n    self.out = self.model(self.scale, x)", 1, 0},
		{"no source", "", 1, 0},
	} {
		lines := strings.Split(c.lines, "\n")
		got := carries("t.py", c.loop, func(p place) string {
			if p.line < 1 || p.line > len(lines) {
				return ""
			}
			return lines[p.line-1]
		})
		if got != c.want {
			t.Errorf("%s: line %d, want %d", c.name, got, c.want)
		}
	}
}

// A loop of JAX whose steps use only carried values does not load data there.
func TestStepsThatCarry(t *testing.T) {
	lines := []string{"", "def main():", "    for x in batches():", "        for _ in range(20):", "            w = update(w, x)", "        w.block_until_ready()", "        tick()"}
	text := func(p place) string {
		if p.line < len(lines) {
			return lines[p.line]
		}
		return ""
	}
	at := loopAt{place{"t.py", 0}, "main"}
	for _, seen := range [][]int{{4, 5, 6}, {5, 6}, {3, 5, 6}} {
		own := ownCounts{}
		for _, line := range seen {
			own.put(ownKey{at, line, place{"t.py", line}}, ownStat{all: 10, ran: 10})
		}
		for _, line := range []int{5, 6} {
			k := ownKey{at, line, place{"t.py", line}}
			if own.making(text)[k] || own.preparing(text, false)[k] {
				t.Errorf("lines %v: line %d is no step", seen, line)
			}
		}
		if !own.shown(text) {
			t.Errorf("lines %v: it does not show that it trains", seen)
		}
	}
}
