package boxes

import (
	"encoding/binary"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/source/driver"
)

// shape is the format of scripts/fixtures/polygons.py.
type shape struct {
	W, H       int
	Polygons   [][]float64
	Compressed string
	Runs       []int64
}

func shapes(t testing.TB) (out []shape) {
	t.Helper()
	b, err := os.ReadFile("testdata/polygons.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// runsOf returns the run lengths of a canvas by columns.
func (c *Canvas) runsOf(t *testing.T) []int64 {
	t.Helper()
	rows := make([]byte, len(c.pix))
	c.Rows(rows)
	out, last := []int64{0}, 0
	for x := range c.W {
		for y := range c.H {
			v := int(rows[(y*c.W+x)*c.size])
			if c.size == 2 {
				v = int(binary.LittleEndian.Uint16(rows[2*(y*c.W+x):]))
			}
			if v != last {
				out, last = append(out, 0), v
			}
			out[len(out)-1]++
		}
	}
	return out
}

// Shapes equal those of pycocotools in every pixel, in all three encodings.
func TestShapes(t *testing.T) {
	for i, s := range shapes(t) {
		for size, dtype := range []driver.DType{driver.Uint8, driver.Uint16} {
			for _, form := range []string{"polygons", "runs", "compressed"} {
				var c Canvas
				if err := c.Begin(s.W, s.H, dtype); err != nil {
					t.Fatal(err)
				}
				c.Color([]int{7, 700}[size])
				var err error
				r := c.Runs()
				switch form {
				case "polygons":
					for _, p := range s.Polygons {
						if len(p) == 4 {
							err = c.Box(p[0], p[1], p[2], p[3])
						} else {
							err = c.Polygon(p)
						}
					}
				case "runs":
					for _, n := range s.Runs {
						if err == nil {
							err = r.Add(n)
						}
					}
				default:
					err = r.Compressed([]byte(s.Compressed))
				}
				if form != "polygons" && err == nil {
					err = r.End()
				}
				if got := c.runsOf(t); err != nil || !slices.Equal(got, s.Runs) {
					t.Errorf("shape %d from its %s: %v, not %v (%v)", i, form, got, s.Runs, err)
				}
			}
		}
	}
}

func TestBadShapes(t *testing.T) {
	var c Canvas
	for _, size := range [][2]int{{0, 5}, {5, -1}, {1 << 20, 1 << 20}} {
		if err := c.Begin(size[0], size[1], driver.Uint8); err == nil {
			t.Errorf("a mask of %v", size)
		}
	}
	if err := c.Begin(4, 3, driver.Uint8); err != nil {
		t.Fatal(err)
	}
	for want, do := range map[string]func() error{
		"far outside":                  func() error { return c.Polygon([]float64{0, 0, 1e9, 0, 0, 1}) },
		"more points than":             func() error { return c.Polygon(slices.Repeat([]float64{0, 0, 1e6, 1e6}, 1000)) },
		"a run of 13 pixels at 0":      func() error { r := c.Runs(); return r.Add(13) },
		"a run of -1 pixels":           func() error { r := c.Runs(); return r.Add(-1) },
		"the runs end after 0":         func() error { r := c.Runs(); return r.End() },
		"the compressed runs are cut":  func() error { r := c.Runs(); return r.Compressed([]byte("o")) },
		"the compressed runs have the": func() error { r := c.Runs(); return r.Compressed([]byte{200}) },
	} {
		if err := do(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestOrder(t *testing.T) {
	first, order := Order(4, []int32{2, 0, -1, 2, 3, 2})
	if !slices.Equal(first, []int64{0, 1, 1, 4, 5}) || !slices.Equal(order, []int32{1, 0, 3, 5, 4}) {
		t.Errorf("%v, %v", first, order)
	}
	if got := Pick([]byte("aabbccddeeff"), 2, order); string(got) != "bbaaddffee" {
		t.Errorf("%s", got)
	}
}

func FuzzPaint(f *testing.F) {
	f.Add([]byte{10, 20, 30, 40, 50, 60, 70, 80}, "a2b3", uint8(9), uint8(8))
	f.Fuzz(func(t *testing.T, corners []byte, text string, w, h uint8) {
		var c Canvas
		if c.Begin(int(w), int(h), driver.Uint16) != nil {
			return
		}
		var xy []float64
		for i := 0; i+1 < len(corners)&^1; i += 2 {
			xy = append(xy, float64(int8(corners[i]))/3, float64(int8(corners[i+1]))/3)
		}
		c.Color(3)
		if err := c.Polygon(xy); err != nil && len(xy) < 1000 {
			t.Fatal(err)
		}
		r := c.Runs()
		_ = r.Compressed([]byte(text))
		c.Rows(make([]byte, 2*int(w)*int(h)))
	})
}
