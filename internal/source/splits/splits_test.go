package splits

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestChoose(t *testing.T) {
	for _, c := range []struct{ url, have, want, get string }{
		{"DIR", "train", "", "train"}, {"DIR", "test train", "train", "train"}, {"DIR", "test train", "", "'DIR?split=test'"},
		{"DIR?x", "train test", "", "'DIR?x&split=train'"},
		{"http://host/dir", "train test", "", "'http://host/dir#?split=train'"}, {"DIR", "a b c", "d", "a, b and c"}, {"DIR", "Train Valid", "train", "Train"},
		{"DIR", "Training Valid", "val", "Valid"}, {"DIR", "dev valid", "val", `no split "val"`},
	} {
		got, err := Choose(c.url, strings.Fields(c.have), c.want)
		if text := fmt.Sprint(got, err); !strings.Contains(text, c.get) {
			t.Errorf("%+v: %s", c, text)
		}
	}
}

func TestNames(t *testing.T) {
	for name, want := range map[string]string{
		"x_train": "train x", "test_images": "test images", "Y-Val": "Val Y", "train": "train ", "trainer": " trainer", "x": " x", "a/test": "test a",
	} {
		if split, rest := Cut(name); split+" "+rest != want {
			t.Errorf("%s: %q and %q", name, split, rest)
		}
	}
	names := []string{"extra", "test", "val", "Training"}
	if Sort(names); !slices.Equal(names, []string{"Training", "val", "test", "extra"}) {
		t.Error(names)
	}
}
