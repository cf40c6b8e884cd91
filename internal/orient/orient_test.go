package orient

import (
	"bytes"
	"slices"
	"testing"
)

// shown are the pixels of an image of 3 x 2, 123 above 456, as each orientation shows them.
var shown = [][]string{2: {"321", "654"}, 3: {"654", "321"}, 4: {"456", "123"}, 5: {"14", "25", "36"}, 6: {"41", "52", "63"}, 7: {"63", "52", "41"}, 8: {"36", "25", "14"}}

// Pixels, boxes and points go the same way, and Inverse leads back.
func TestOrientations(t *testing.T) {
	stored := []byte("123456")
	for o := int32(2); o <= 8; o++ {
		want := []byte{}
		for _, row := range shown[o] {
			want = append(want, row...)
		}
		w, h := Size(o, 3, 2)
		got, back := make([]byte, 6), make([]byte, 6)
		if Pixels(got, stored, 3, 2, 1, o); !bytes.Equal(got, want) || int(w) != len(shown[o][0]) || int(h) != len(shown[o]) {
			t.Errorf("orientation %d: %q of %d x %d, want %q", o, got, w, h, want)
		}
		if Pixels(back, got, int(w), int(h), 1, Inverse(o)); !bytes.Equal(back, stored) {
			t.Errorf("orientation %d: back %q", o, back)
		}
		box := Box(o, 3, 2, [4]float32{1, 0, 2, 1}) // around the 2
		if at := int(box[1])*int(w) + int(box[0]); got[at] != '2' || box[2]-box[0] != 1 || box[3]-box[1] != 1 {
			t.Errorf("orientation %d: box %v", o, box)
		}
		p := Point(o, 3, 2, [2]float32{2, 1})
		if got[int(p[1])*int(w)+int(p[0])] != '6' || Point(Inverse(o), float32(w), float32(h), p) != [2]float32{2, 1} {
			t.Errorf("orientation %d: point %v", o, p)
		}
		wide := make([]byte, 12)
		if Pixels(wide, []byte("1a2b3c4d5e6f"), 3, 2, 2, o); !slices.Equal(wide[:1], want[:1]) || wide[1] != "abcdef"[want[0]-'1'] {
			t.Errorf("orientation %d: pixels of two bytes: %q", o, wide)
		}
	}
	if Box(1, 3, 2, [4]float32{1, 0, 2, 1}) != [4]float32{1, 0, 2, 1} || Inverse(0) != 0 || Inverse(6) != 8 {
		t.Error("no orientation changes something")
	}
}
