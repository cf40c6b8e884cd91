package collate

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/item"
)

func TestCloseGaps(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		n := 1 + rng.IntN(12)
		at, size := make([]int64, n), make([]int64, n)
		extra := map[int][]byte{}
		var want []byte
		memory := make([]byte, 4000)
		place := int64(0)
		for k := range n {
			place += int64(rng.IntN(3) * rng.IntN(20))
			at[k] = place
			v := bytes.Repeat([]byte{byte(k + 1)}, rng.IntN(30))
			size[k] = int64(len(v))
			want = append(want, v...)
			if rng.IntN(3) == 0 {
				extra[k] = v
				place += int64(rng.IntN(30)) // what was planned for
				continue
			}
			copy(memory[place:], v)
			place += size[k]
		}
		closeGaps(memory, at, size, extra)
		if !bytes.Equal(memory[:len(want)], want) {
			t.Fatalf("got %v, want %v", memory[:len(want)], want)
		}
	}
}

// offsets reads the offsets of array a of a batch.
func offsets(b *Batch, slot []byte, a int) (all []int64) {
	for i := range b.l.Rows + 1 {
		all = append(all, int64(binary.LittleEndian.Uint64(slot[b.Array(a).Offsets+8*int64(i):])))
	}
	return all
}

// Rows of 2 x 3 int32 elements, put in any order, come out one behind the other,
// with offsets in elements, and what does not fit is refused.
func TestRaggedElements(t *testing.T) {
	const rows, element = 5, 2 * 3 * 4
	counts := []int{2, 0, 1, 4, 3}
	for _, known := range []bool{false, true} {
		t.Run(fmt.Sprint("known=", known), func(t *testing.T) {
			col := Column{Name: "boxes", DType: item.I32, Shape: []int{2, 3}, Ragged: true, Capacity: 10 * element, RowRoom: 4 * element}
			if known {
				col.RowRoom = SizesKnown
			} else {
				col.Capacity = rows * 4 * element
			}
			l, err := New(rows, []Column{{Name: "index", DType: item.I64}, col})
			if err != nil {
				t.Fatal(err)
			}
			if a := l.Arrays[1]; a.ElementBytes() != element || a.RowBytes != 0 || a.Offset%Align != 0 || a.Offsets%8 != 0 {
				t.Errorf("%+v", a)
			}
			slot, b := make([]byte, l.Bytes), l.NewBatch()
			for _, have := range []int{rows, 3} {
				b.Begin(slot, have)
				if known {
					err := b.Sizes(1, func(sizes []int64) {
						for k := range sizes {
							sizes[k] = int64(counts[k]) * element
						}
					})
					if err != nil {
						t.Fatal(err)
					}
				}
				var want []byte
				for k := range have {
					want = append(want, bytes.Repeat([]byte{byte(k + 1)}, counts[k]*element)...)
				}
				for _, k := range []int{2, 0, 1, 4, 3} {
					if k >= have {
						continue
					}
					v := bytes.Repeat([]byte{byte(k + 1)}, counts[k]*element)
					if at, ok := b.Place(1, k, int64(len(v))); ok && k%2 == 0 { // read into its place
						copy(slot[at:], v)
						v = slot[at : at+int64(len(v))]
					}
					if err := b.Put(1, k, v); err != nil {
						t.Fatal(err)
					}
				}
				if err := b.Finish(); err != nil {
					t.Fatal(err)
				}
				at := offsets(b, slot, 1)
				ends := []int64{0, 2, 2, 3, 7, 10}
				for k := have; k <= rows; k++ {
					ends[k] = ends[have]
				}
				if !slices.Equal(at, ends) {
					t.Errorf("offsets are %v, want %v", at, ends)
				}
				if got := slot[l.Arrays[1].Offset:][:len(want)]; !bytes.Equal(got, want) {
					t.Errorf("values are %v, want %v", got, want)
				}
			}
			if err := b.Put(1, 0, make([]byte, element+1)); err == nil || !strings.Contains(err.Error(), "25 bytes, which is not a number of elements of 24 bytes each") {
				t.Errorf("%v", err)
			}
			err = b.Put(1, 0, make([]byte, 5*element))
			if known {
				for k := range 3 {
					err = b.Put(1, k, make([]byte, 5*element))
				}
				if err == nil {
					err = b.Finish()
				}
			}
			if err == nil || !strings.Contains(err.Error(), "more than the") {
				t.Errorf("%v", err)
			}
			if _, ok := b.Place(1, 0, -1); ok {
				t.Error("a place for less than nothing")
			}
		})
	}
}

// Sizes that do not fit are refused, and leave no place.
func TestSizesRefused(t *testing.T) {
	l, err := New(3, []Column{{Name: "a", DType: item.U8, Ragged: true, Capacity: 10, RowRoom: SizesKnown}})
	if err != nil {
		t.Fatal(err)
	}
	for _, sizes := range [][]int64{{5, 5, 1}, {-1, 2, 3}, {1 << 62, 1 << 62, 1 << 62}} {
		b := l.NewBatch()
		b.Begin(make([]byte, l.Bytes), 3)
		if err := b.Sizes(0, func(s []int64) { copy(s, sizes) }); err == nil || !strings.Contains(err.Error(), "more than the 10 bytes that the source spoke of") {
			t.Errorf("%v: %v", sizes, err)
		}
		if _, ok := b.Place(0, 0, sizes[0]); ok {
			t.Errorf("%v: there is a place", sizes)
		}
	}
}
