// Package pieces cuts objects into pieces that are kept as a whole or not at all. The caches in memory and on a
// disk use it.
package pieces

import (
	"cmp"
	"hash/fnv"
	"slices"
)

// Piece is a range of an object that is kept as a whole or not at all.
type Piece struct {
	// Path is the object's path, as in store.Store.Path.
	Path      string
	Off, Size int64
}

// Hash returns a hash of a piece, the same on all machines.
func Hash(p Piece) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(p.Path))
	var b [8]byte
	for i := range b {
		b[i] = byte(p.Off >> (8 * i))
	}
	_, _ = h.Write(b[:])
	return Mix(h.Sum64()) // the upper bits of FNV differ little for similar offsets
}

// Mix makes each bit of a hash depend on all bits.
func Mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// ByObject groups pieces by object and sorts those of an object by offset.
func ByObject(list []Piece) map[string][]Piece {
	slices.SortFunc(list, func(a, b Piece) int { return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Off, b.Off)) })
	of := map[string][]Piece{}
	for i := 0; i < len(list); {
		j := i
		for j < len(list) && list[j].Path == list[i].Path {
			j++
		}
		of[list[i].Path] = list[i:j:j]
		i = j
	}
	return of
}

// Cut calls f for the parts of the range of n bytes from off on: parts of piece i, and with i = -1 parts that are
// in no piece. There are count pieces, ordered by offset and without overlap, and at returns the range of one. It
// stops at an error of f.
func Cut(count int, at func(i int) (off, size int64), off, n int64, f func(i int, off, n int64) error) error {
	i, lo := 0, count // the first piece that ends after off
	for i < lo {
		m := int(uint(i+lo) >> 1)
		if o, size := at(m); o+size > off {
			lo = m
		} else {
			i = m + 1
		}
	}
	for n > 0 {
		which, k := -1, n
		if i < count {
			switch o, size := at(i); {
			case o <= off:
				which, k = i, min(n, o+size-off)
				i++
			default:
				k = min(n, o-off)
			}
		}
		if k > 0 {
			if err := f(which, off, k); err != nil {
				return err
			}
		}
		off, n = off+k, n-k
	}
	return nil
}
