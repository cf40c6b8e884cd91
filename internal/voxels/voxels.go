// Package voxels locates the parts of a volume that is stored unencoded in one piece, and copies them from the bytes
// read.
package voxels

import (
	"errors"

	"github.com/stokerdata/stoker/source/driver"
)

// Array is a volume in C order: Lead volumes, one after the other, with the sides z, y and x in Sides and Size bytes
// per voxel.
type Array struct {
	Lead  int64
	Sides [3]int
	Size  int64
}

// Of describes a volume of a shape, whose last three axes are z, y and x.
func Of(shape []int, t driver.DType) Array {
	n := len(shape) - 3
	a := Array{Lead: 1, Sides: [3]int(shape[n:]), Size: int64(t.Size())}
	for _, side := range shape[:n] {
		a.Lead *= int64(side)
	}
	return a
}

// wideRow is the minimum size in bytes of rows of which only the requested part is read. A disk does not read less
// than that.
const wideRow = 16 << 10

// piece is the data of one read: rows of a slice, stride bytes apart, size bytes from offset on.
type piece struct{ offset, size, stride, rows int64 }

// Bytes returns the size of a part.
func (a *Array) Bytes(box *driver.Box) int64 {
	return a.Lead * a.Size * int64(box.Size[0]) * int64(box.Size[1]) * int64(box.Size[2])
}

// Inside reports whether a part is inside of the volume and not empty.
func (a *Array) Inside(box *driver.Box) bool {
	for i, side := range a.Sides {
		if box.At[i] < 0 || box.Size[i] < 1 || box.At[i] > side-box.Size[i] {
			return false
		}
	}
	return true
}

// each calls f for all pieces of a part.
func (a *Array) each(box *driver.Box, f func(p piece)) {
	row, want := int64(a.Sides[2])*a.Size, int64(box.Size[2])*a.Size
	rows := int64(box.Size[1])
	narrow := row >= wideRow && 2*want <= row
	for l := range a.Lead {
		for z := range int64(box.Size[0]) {
			at := ((l*int64(a.Sides[0])+int64(box.At[0])+z)*int64(a.Sides[1])+int64(box.At[1]))*row + int64(box.At[2])*a.Size
			if !narrow {
				f(piece{at, (rows-1)*row + want, row, rows})
				continue
			}
			for y := range rows {
				f(piece{at + y*row, want, row, 1})
			}
		}
	}
}

// Runs calls f for the bytes of the volume that a part takes, from the beginning. Adjacent bytes are one run.
func (a *Array) Runs(box *driver.Box, f func(offset, size int64)) {
	from, to := int64(-1), int64(-1)
	a.each(box, func(p piece) {
		if p.offset == to {
			to += p.size
			return
		}
		if from >= 0 {
			f(from, to-from)
		}
		from, to = p.offset, p.offset+p.size
	})
	f(from, to-from)
}

var errShort = errors.New("internal error: less was read of it than was asked for")

// Cut puts the voxels of a part together, of its Runs.
func (a *Array) Cut(dst []byte, box *driver.Box, runs [][]byte) (err error) {
	want := int64(box.Size[2]) * a.Size
	var rest []byte
	a.each(box, func(p piece) {
		if err != nil {
			return
		}
		if len(rest) == 0 && len(runs) > 0 {
			rest, runs = runs[0], runs[1:]
		}
		if int64(len(rest)) < p.size || int64(len(dst)) < p.rows*want {
			err = errShort
			return
		}
		from := rest[:p.size]
		rest = rest[p.size:]
		for range p.rows - 1 {
			copy(dst, from[:want])
			dst, from = dst[want:], from[p.stride:]
		}
		dst = dst[copy(dst, from[:want]):]
	})
	return err
}
