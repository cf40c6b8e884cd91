package doctor

import (
	"maps"
	"strings"
	"testing"
)

// TestFlow tells what makes a batch from what makes it ready and from what belongs
// to the step before.
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
	})
}
