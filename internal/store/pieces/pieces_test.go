package pieces

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
)

// The parts of a range cover it in order, each with the right piece.
func TestCut(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		var list []Piece
		for off := int64(0); off < 100; {
			off += rng.Int64N(2) * rng.Int64N(10) // a gap, or none
			size := rng.Int64N(20)
			list = append(list, Piece{Off: off, Size: size})
			off += size
		}
		of := func(at int64) int {
			for i, p := range list {
				if p.Off <= at && at < p.Off+p.Size {
					return i
				}
			}
			return -1
		}
		off := rng.Int64N(100)
		n := rng.Int64N(150 - off)
		at := off
		err := Cut(len(list), func(i int) (int64, int64) { return list[i].Off, list[i].Size }, off, n, func(i int, o, k int64) error {
			if o != at || k <= 0 {
				return fmt.Errorf("%d bytes from %d on come at %d", k, o, at)
			}
			for b := o; b < o+k; b++ {
				if of(b) != i {
					return fmt.Errorf("byte %d is said to be of piece %d, and is of %d", b, i, of(b))
				}
			}
			at += k
			return nil
		})
		if err != nil || at != off+n {
			t.Fatalf("%v, %d to %d of %v: ends at %d", err, off, off+n, list, at)
		}
	}
	stop := errors.New("stop")
	if err := Cut(0, nil, 0, 5, func(int, int64, int64) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("%v", err)
	}
}
