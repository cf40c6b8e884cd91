package cdec

import (
	"encoding/binary"
	"os"
	"testing"

	"github.com/stokerdata/stoker/internal/item"
)

// goldenSource returns the image of source() in testdata/pillow_resize.py.
func goldenSource(w, h int) []byte {
	state := 12345
	pix := make([]byte, 0, w*h*3)
	for y := range h {
		for x := range w {
			for c := range 3 {
				state = (state*1103515245 + 12345) & 0x7fffffff
				v := (x*(3+c) + y*5 + (state>>16)%64) & 255
				if (x/7+y/5+c)%3 == 0 {
					v = 255 - v
				}
				if (x/11+y/13)%5 == 0 {
					v = 255
					if (x+y)%2 == 1 {
						v = 0
					}
				}
				pix = append(pix, byte(v))
			}
		}
	}
	return pix
}

// TestPillowResize compares with Pillow's results for the same boxes: within one level for the filters, equal for
// nearest.
func TestPillowResize(t *testing.T) {
	golden, err := os.ReadFile("testdata/pillow_resize.bin")
	if err != nil {
		t.Fatal(err)
	}
	d := newDecoder(t)
	withKernels(t, func(t *testing.T) {
		for data := golden; len(data) > 0; {
			var v [9]int
			for i := range v {
				v[i] = int(binary.LittleEndian.Uint32(data[4*i:]))
			}
			filter, w, h, rw, rh := item.Filter(v[0]), v[1], v[2], v[7], v[8]
			want := data[36 : 36+rw*rh*3]
			data = data[36+rw*rh*3:]
			g := cut(v[3], v[4], v[5], v[6])
			g.Filter, g.ResizeW, g.ResizeH = filter, int32(rw), int32(rh)
			g.Window = item.Rect{W: int32(rw), H: int32(rh)}
			got := make([]byte, rw*rh*3)
			jobs := []Job{{Format: FormatRGB, Src: goldenSource(w, h), Width: int32(w), Height: int32(h), Geom: g, Store: plainStore, Dst: got}}
			d.Run(jobs)
			if jobs[0].Err != nil {
				t.Fatal(jobs[0].Err)
			}
			differ, worst := 0, 0
			for i := range got {
				if n := int(got[i]) - int(want[i]); n != 0 {
					differ++
					worst = max(worst, n, -n)
				}
			}
			if worst > 1 || filter == item.Nearest && differ > 0 {
				t.Errorf("filter %d, box %v of %dx%d to %dx%d: %d of %d bytes differ, by up to %d", filter, v[3:7], w, h, rw, rh, differ, len(got), worst)
			}
		}
	})
}
