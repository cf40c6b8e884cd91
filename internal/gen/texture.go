package gen

import "sync"

// Textures are square tiles that repeat. They are made once, from fixed seeds,
// and shared by all images, which read them at random places, angles and scales.
const (
	tileBits = 9
	tileSize = 1 << tileBits
	tileMask = tileSize - 1
)

type tile [tileSize * tileSize]int8

// tiles are the textures of the generator.
type tiles struct {
	cloud tile // 1/f noise, the same in all directions
	fibre tile // 1/f noise drawn out along x: bark, fur, brushed metal
	// grain is close to Gaussian noise of standard deviation 16: the sensor.
	grain [1 << 16]int8
}

// sharedTiles makes the textures when the first generator needs them.
var sharedTiles = sync.OnceValue(newTiles)

func newTiles() *tiles {
	t := &tiles{}
	addNoise(&t.cloud, 1, 1)
	addNoise(&t.fibre, 2, 8)
	s := newStream(3, 0)
	for i := range t.grain {
		sum := 0
		for range 4 {
			sum += s.between(-14, 14)
		}
		t.grain[i] = int8(sum)
	}
	return t
}

// addNoise fills a tile with octaves of value noise of equal strength, so that the amplitude falls as 1/f. Cells are
// stretch times as wide as high.
func addNoise(t *tile, seed uint64, stretch int) {
	sum := make([]int, len(t))
	s := newStream(seed, 0)
	for cell := 1; cell <= 128; cell *= 2 {
		cw := min(cell*stretch, tileSize)
		nx, ny := tileSize/cw, tileSize/cell
		lattice := make([]int, nx*ny)
		for i := range lattice {
			lattice[i] = s.bell(1200)
		}
		for y := range tileSize {
			y0, fy := y/cell, smooth(y%cell*one/cell)
			y1 := (y0 + 1) % ny
			for x := range tileSize {
				x0, fx := x/cw, smooth(x%cw*one/cw)
				x1 := (x0 + 1) % nx
				top := lattice[y0*nx+x0]*(one-fx) + lattice[y0*nx+x1]*fx
				bottom := lattice[y1*nx+x0]*(one-fx) + lattice[y1*nx+x1]*fx
				sum[y*tileSize+x] += (top>>oneBits*(one-fy) + bottom>>oneBits*fy) >> oneBits
			}
		}
	}
	// The octaves' sum has a standard deviation near 900; the tile's is near 36.
	for i, v := range sum {
		t[i] = int8(min(max(v/25, -127), 127))
	}
}

// smooth is 3x^2 - 2x^3: it has no kink at the borders of cells.
func smooth(x int) int {
	return x * x >> oneBits * (3*one - 2*x) >> oneBits
}
