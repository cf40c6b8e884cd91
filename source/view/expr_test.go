package view

import (
	"testing"

	"github.com/stokerdata/stoker/source/driver"
)

// FuzzExpression checks that String returns text that parses to the same expression.
func FuzzExpression(f *testing.F) {
	for _, s := range []string{
		"label < 10 and width >= 224", "not (a == 'x' or b in (1, 2.5, \"y\",))", "0 <= x < 10", "`odd name` != -1e3", "'cat' in labels",
		"a not in [1]", "image.width > 3", "((((a == 1))))", "a = 1", "'\\'' == x", "1_000 > y", "a.b.c == .5",
	} {
		f.Add(s)
	}
	info := &driver.Info{URL: "x", Format: "x", Len: 3, Fields: []driver.Field{
		{Name: "a", Kind: driver.KindInt}, {Name: "b", Kind: driver.KindText}, {Name: "x", Kind: driver.KindLabel, Classes: []string{"cat", "dog"}},
		{Name: "image", Kind: driver.KindImage}, {Name: "labels", Kind: driver.KindMultiLabel, Classes: []string{"cat"}},
	}}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := parse(text)
		if err != nil {
			if err.Error() == "" {
				t.Error("an error without words")
			}
			return
		}
		c := &columns{info: info}
		_, first := c.bind(text, e)
		once := e.String()
		again, err := parse(once)
		if err != nil {
			t.Fatalf("%q is written as %q: %v", text, once, err)
		}
		if twice := again.String(); twice != once {
			t.Fatalf("%q is written as %q, then as %q", text, once, twice)
		}
		if _, second := c.bind(once, again); (first == nil) != (second == nil) {
			t.Fatalf("%q: %v, and as %q: %v", text, first, once, second)
		}
	})
}

// FuzzURL cuts views off URLs and adds them again.
func FuzzURL(f *testing.F) {
	for _, s := range []string{"a#where=b<1", "a#split=a:90%,b:10%&part=a#select=x,y", "#rename=a:b", "x#kinds=a:b,c%3A:d", "x#y"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		_, specs, err := CutURL(text)
		if err != nil {
			return
		}
		url := "base"
		for i := range specs {
			url += Fragment(&specs[i])
		}
		_, again, err := CutURL(url)
		if err != nil {
			t.Fatalf("%q became %q: %v", text, url, err)
		}
		for i := range again {
			if canonical(&again[i]) == "" {
				t.Error("no text for a view")
			}
		}
	})
}

// A set finds its records, and the number of records before one.
func TestSet(t *testing.T) {
	for _, n := range []int64{1, 63, 64, 65, 511, 512, 513, 5000} {
		for _, step := range []int64{1, 2, 7, 700} {
			s := newSet(n)
			var want []int64
			for id := int64(0); id < n; id += step {
				s.add(id)
				want = append(want, id)
			}
			s.index()
			if s.len() != int64(len(want)) {
				t.Fatalf("%d of %d", s.len(), len(want))
			}
			for k, id := range want {
				if s.at(int64(k)) != id || s.rank(id) != int64(k) || s.rank(id+1) != int64(k)+1 || !s.has(id) {
					t.Fatalf("n %d, step %d: record %d is %d, rank %d", n, step, k, s.at(int64(k)), s.rank(id))
				}
			}
			if same, ok := setOf(n, s.bytes()); !ok || same.len() != s.len() {
				t.Error("not read back")
			}
			if _, ok := setOf(n+64, s.bytes()); ok {
				t.Error("of another size")
			}
		}
	}
}
