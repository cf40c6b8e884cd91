package fixedrecords

import (
	"bytes"
	"fmt"
	"testing"
)

func TestInterleave(t *testing.T) {
	for _, c := range []struct {
		width, height, channels int
		columns                 bool
	}{{5, 3, 3, false}, {5, 3, 3, true}, {4, 7, 1, true}, {4, 7, 2, false}, {1, 1, 3, true}} {
		src := make([]byte, c.width*c.height*c.channels)
		for i := range src {
			src[i] = byte(i*7 + 1)
		}
		want := make([]byte, len(src))
		for y := range c.height {
			for x := range c.width {
				for k := range c.channels {
					at := k*c.width*c.height + y*c.width + x
					if c.columns {
						at = k*c.width*c.height + x*c.height + y
					}
					want[(y*c.width+x)*c.channels+k] = src[at]
				}
			}
		}
		got := make([]byte, len(src))
		interleave(got, src, c.width, c.height, c.channels, c.columns)
		if !bytes.Equal(got, want) {
			t.Errorf("%+v: %v, want %v", c, got, want)
		}
	}
}

func TestMemoryIsBounded(t *testing.T) {
	var m Memory
	defer m.Free()
	b, err := m.Take(1 << 20)
	if err != nil || len(b) != 1<<20 {
		t.Fatal(len(b), err)
	}
	for _, n := range []int64{MaxHeld, -1, 1 << 62} {
		if _, err := m.Take(n); err == nil {
			t.Errorf("%d bytes more are given", n)
		}
	}
}

func BenchmarkInterleave(b *testing.B) {
	for _, c := range []struct {
		side    int
		columns bool
	}{{32, false}, {32, true}, {96, true}} {
		b.Run(fmt.Sprintf("side=%d/columns=%v", c.side, c.columns), func(b *testing.B) {
			n := c.side * c.side * 3
			src, dst := make([]byte, n), make([]byte, n)
			b.SetBytes(int64(n))
			for range b.N {
				interleave(dst, src, c.side, c.side, 3, c.columns)
			}
		})
	}
}
