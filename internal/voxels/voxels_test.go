package voxels

import (
	"bytes"
	"testing"

	"github.com/stokerdata/stoker/source/driver"
)

func TestParts(t *testing.T) {
	for _, shape := range [][]int{{4, 5, 6}, {2, 3, 4, 5}, {2, 3, 20000}, {1, 1, 1}} {
		a := Of(shape, driver.Uint16)
		s := a.Sides
		all := make([]byte, a.Bytes(&driver.Box{Size: s}))
		for i := range all {
			all[i] = byte(i * 31 >> 3)
		}
		for _, box := range []driver.Box{
			{Size: s}, {At: [3]int{s[0] - 1, 0, 0}, Size: [3]int{1, s[1], s[2]}}, {Size: [3]int{s[0], 1, s[2]}},
			{At: [3]int{s[0] / 2, s[1] / 2, s[2] / 2}, Size: [3]int{(s[0] + 1) / 2, (s[1] + 1) / 2, (s[2] + 1) / 2}},
			{At: [3]int{s[0] / 3, s[1] / 3, s[2] / 3}, Size: [3]int{1, 1, 1}}, {Size: [3]int{1, s[1], (s[2] + 2) / 3}},
		} {
			if !a.Inside(&box) {
				t.Fatalf("%v is not in %v", box, s)
			}
			var want []byte
			for l := range int(a.Lead) {
				for z := range box.Size[0] {
					for y := range box.Size[1] {
						at := 2 * (((l*s[0]+box.At[0]+z)*s[1]+box.At[1]+y)*s[2] + box.At[2])
						want = append(want, all[at:at+2*box.Size[2]]...)
					}
				}
			}
			var runs [][]byte
			read, last := int64(0), int64(-1)
			a.Runs(&box, func(offset, size int64) {
				if offset <= last {
					t.Errorf("%v: byte %d again, or side by side", box, offset)
				}
				runs, read, last = append(runs, all[offset:offset+size]), read+size, offset+size
			})
			got := make([]byte, a.Bytes(&box))
			if err := a.Cut(got, &box, runs); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%v of %v: %v, or other voxels", box, s, err)
			}
			if whole := box.Size == s; whole && (len(runs) != 1 || read != int64(len(all))) {
				t.Errorf("all of %v is %d runs of %d bytes", s, len(runs), read)
			}
			if row := 2 * s[2]; row >= wideRow && 2*box.Size[2] <= s[2] && read != int64(len(want)) {
				t.Errorf("%v of %v: %d bytes are read for %d", box, s, read, len(want))
			}
			if err := a.Cut(got, &box, runs[:len(runs)-1]); err == nil {
				t.Errorf("%v of %v: less than all is enough", box, s)
			}
		}
		for _, box := range []driver.Box{{}, {Size: [3]int{1, 1, s[2] + 1}}, {At: [3]int{-1, 0, 0}, Size: [3]int{1, 1, 1}}, {At: s, Size: [3]int{1, 1, 1}}} {
			if a.Inside(&box) {
				t.Errorf("%v is in %v", box, s)
			}
		}
	}
}
