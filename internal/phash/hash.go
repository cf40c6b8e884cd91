// Package phash finds images that look alike though their bytes differ: the same
// photograph in another size, quality or format.
//
// Each image has a hash of 64 bits, and the distance of two images is the number of bits in which their hashes differ.
// The hash is that of the library imagehash (phash), except for the filter of the thumbnail and for integer arithmetic,
// which makes it the same on every machine:
//
//  1. the image in gray, in its stored orientation, resized to 32 x 32 pixels, bilinear with
//     antialias, as Pillow does it;
//  2. its discrete cosine transform, of which the 8 x 8 lowest frequencies stay:
//     c[v][u] = sum over y, x of pixel[y][x] cos(pi (2x+1) u / 64) cos(pi (2y+1) v / 64);
//  3. bit 63 - (8v + u) is 1 if c[v][u] is above the median of all 64.
//
// Two unrelated images differ in about 32 bits. Resized or recompressed copies differ in a few.
package phash

import (
	"math"
	"slices"
)

const (
	// Side is that of thumbnails.
	Side = 32
	low  = 8 // frequencies along an axis
)

// cosines are cos(pi (2x+1) u / 64), times 2^14. Those that cancel each other do so
// exactly.
var cosines = func() (t [low][Side]int64) {
	for u := range t {
		for x := range t[u] {
			t[u][x] = int64(math.Round((1 << 14) * math.Cos(math.Pi*float64((2*x+1)*u%(4*Side))/(2*Side))))
		}
	}
	return t
}()

// Hash is the hash of a thumbnail: Side x Side pixels, row by row.
func Hash(gray []byte) uint64 {
	var rows [Side][low]int64
	for y := range rows {
		line := gray[y*Side : (y+1)*Side]
		for u := range low {
			sum := int64(0)
			for x, p := range line {
				sum += int64(p) * cosines[u][x]
			}
			rows[y][u] = sum
		}
	}
	var c, sorted [low * low]int64
	for v := range low {
		for u := range low {
			sum := int64(0)
			for y := range rows {
				sum += rows[y][u] * cosines[v][y]
			}
			c[low*v+u] = sum
		}
	}
	sorted = c
	slices.Sort(sorted[:])
	// Twice the median: the mean of the two in the middle.
	median := sorted[low*low/2-1] + sorted[low*low/2]
	h := uint64(0)
	for i, n := range c {
		if 2*n > median {
			h |= 1 << (63 - i)
		}
	}
	return h
}
