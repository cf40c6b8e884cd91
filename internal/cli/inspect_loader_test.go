package cli

import (
	"testing"

	"github.com/stokerdata/stoker/source/driver"
)

// The line of code that inspect prints has batches that fit into memory.
func TestLoaderText(t *testing.T) {
	volume := driver.Field{Name: "scan", Kind: driver.KindVolume, DType: driver.Float32, Shape: []int{160, 160, 128}}
	for want, info := range map[string]*driver.Info{
		`stoker.open("x").loader(batch_size=16, shuffle=True)`:                  {Len: 1000, Fields: []driver.Field{volume}},
		`stoker.open("x").loader(batch_size=256, shuffle=True)`:                 {Len: 1000, Fields: []driver.Field{{Name: "n", Kind: driver.KindInt}}},
		`stoker.open("x").sequences(1024).loader(batch_size=256, shuffle=True)`: {Len: 1, Fields: []driver.Field{{Name: "tokens", Kind: driver.KindTokens}}},
		`stoker.open("x").loader(batch_size=4, shuffle=True)`:                   {Len: 1000, Fields: []driver.Field{{Name: "image", Kind: driver.KindImage, Width: 5000, Height: 4000}}},
	} {
		if got := loaderText("x", info); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	volume.Mask = true
	if doesWith(&volume) == does[driver.KindVolume] {
		t.Error("class numbers of volumes have no intensities")
	}
}

func TestClassNames(t *testing.T) {
	all := make([]string, 30)
	for i := range all {
		all[i] = string(rune('a' + i%26))
	}
	if got := classNames(all); got != "a, b, c, d, e, f, g, h, i, j, k, l and 18 more" {
		t.Error(got)
	}
	if got := classNames([]string{"", "x\x1b[2J"}); got != `"", x?[2J` {
		t.Errorf("%q", got)
	}
}
