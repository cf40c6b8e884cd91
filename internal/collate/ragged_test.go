package collate

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stokerdata/stoker/internal/item"
)

// gaps returns rows with gaps between them, some of them stored separately, in order or shuffled. It also returns the
// expected result without gaps.
func gaps(rng *rand.Rand, shuffled bool) (memory []byte, at, size []int64, beside map[int][]byte, want []byte) {
	n := 1 + rng.IntN(120)
	at, size, beside = make([]int64, n), make([]int64, n), map[int][]byte{}
	rows := make([]int, n)
	for k := range rows {
		rows[k] = k
		size[k] = int64(rng.IntN(3) * rng.IntN(30))
		want = append(want, bytes.Repeat([]byte{byte(k + 1)}, int(size[k]))...)
	}
	if shuffled { // in pieces
		for range 1 + rng.IntN(20) {
			cut := rng.IntN(n)
			slices.Reverse(rows[cut:min(cut+rng.IntN(9), n)])
		}
	}
	memory = make([]byte, 20000)
	place := int64(0)
	for _, k := range rows {
		v := bytes.Repeat([]byte{byte(k + 1)}, int(size[k]))
		if rng.IntN(9) == 0 {
			at[k], beside[k] = -1, v
			continue
		}
		place += int64(rng.IntN(3) * rng.IntN(20) * rng.IntN(2))
		at[k] = place
		place += int64(copy(memory[place:], v))
	}
	return memory, at, size, beside, want
}

func TestCloseGaps(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 4000 {
		memory, at, size, beside, want := gaps(rng, i%2 == 1)
		if i%2 == 1 {
			order(memory, at, size)
		}
		closeGaps(memory, at, size, beside)
		if !bytes.Equal(memory[:len(want)], want) {
			t.Fatalf("got %v, want %v", memory[:len(want)], want)
		}
	}
}

func TestRotate(t *testing.T) {
	for n := range 40 {
		for by := range n + 1 {
			b := make([]byte, n)
			for i := range b {
				b[i] = byte(i)
			}
			want := append(slices.Clone(b[by:]), b[:by]...)
			if rotate(b, int64(by)); !bytes.Equal(b, want) {
				t.Fatalf("%d by %d: %v", n, by, b)
			}
		}
	}
}

// Several goroutines put rows concurrently and in groups, some into requested positions and some twice. The rows end up
// in order.
func TestRowsPutByMany(t *testing.T) {
	const rows = 400
	l, err := New(rows, []Column{{Name: "a", DType: item.U8, Ragged: true, MaxRow: 3000, Capacity: 2 * rows * 1500}, {Name: "b", DType: item.U16, Ragged: true, MaxRow: 64, Capacity: 33 * rows}})
	if err != nil {
		t.Fatal(err)
	}
	slot, b := make([]byte, l.Bytes), l.NewBatch()
	for round := range 30 {
		rng := rand.New(rand.NewPCG(uint64(round), 5))
		b.Begin(slot, rows)
		value := func(a, k int) []byte {
			n := (k*7919 + round*31) % 3001 / (1 + 5*(k%2))
			if a == 1 {
				n = (k*31 + round) % 33 * 2 // together up to the capacity and not more
			}
			return bytes.Repeat([]byte{byte(k + a + round)}, n)
		}
		var groups []int
		for k := 0; k < rows; k += 8 {
			groups = append(groups, k)
		}
		rng.Shuffle(len(groups), func(i, j int) { groups[i], groups[j] = groups[j], groups[i] })
		work := make(chan int, len(groups))
		for _, g := range groups {
			work <- g
		}
		close(work)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for first := range work {
					for a := range 2 {
						values, errs := make([][]byte, 8), make([]error, 8)
						for i := range values {
							k := first + i
							v := value(a, k)
							if k%11 == 3 { // another value was put before
								if err := b.Put(a, k, []byte("xxxx")); err != nil {
									t.Error(err)
								}
							}
							if k%5 == 0 { // read into its place
								if at, ok := b.Place(a, k, int64(len(v))); ok {
									copy(slot[at:], v)
									v = slot[at : at+int64(len(v))]
								}
							}
							values[i] = v
						}
						if b.PutRows(a, first, values, errs); slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
							t.Error(errs)
						}
					}
				}
			})
		}
		wg.Wait()
		if err := b.Finish(); err != nil {
			t.Fatal(err)
		}
		for a := range 2 {
			ends := offsets(b, slot, a)
			size := b.Array(a).ElementBytes()
			for k := range rows {
				got := slot[b.Array(a).Offset+ends[k]*size : b.Array(a).Offset+ends[k+1]*size]
				if !bytes.Equal(got, value(a, k)) {
					t.Fatalf("round %d: row %d of array %d is %v and not %v", round, k, a, got, value(a, k))
				}
			}
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

// Rows of 2 x 3 int32 elements, put in any order, are stored in order, with offsets in elements. Rows that do not fit
// are refused.
func TestRaggedElements(t *testing.T) {
	const rows, element = 5, 2 * 3 * 4
	counts := []int{2, 0, 1, 4, 3}
	for _, known := range []bool{false, true} {
		t.Run(fmt.Sprint("known=", known), func(t *testing.T) {
			col := Column{Name: "boxes", DType: item.I32, Shape: []int{2, 3}, Ragged: true, Capacity: 10 * element, MaxRow: 4 * element}
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
				err := b.Sizes(1, func(sizes []int64) bool {
					for k := range sizes {
						sizes[k] = int64(counts[k]) * element
					}
					return known
				})
				if err != nil {
					t.Fatal(err)
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
			if err := b.Put(1, 0, make([]byte, 5*element)); err == nil || !strings.Contains(err.Error(), "120 bytes, more than the 96 that the source spoke of") {
				t.Errorf("%v", err)
			}
			for k := range 3 {
				if err := b.Put(1, k, make([]byte, 4*element)); err != nil {
					t.Error(err)
				}
			}
			if err := b.Finish(); err == nil || !strings.Contains(err.Error(), "288 bytes, more than the 240 there is room for") {
				t.Errorf("%v", err)
			}
			if _, ok := b.Place(1, 0, -1); ok {
				t.Error("a place for less than nothing")
			}
		})
	}
}

// Sizes that do not fit are refused.
func TestSizesRefused(t *testing.T) {
	l, err := New(3, []Column{{Name: "a", DType: item.U8, Ragged: true, Capacity: 10, MaxRow: 10}})
	if err != nil {
		t.Fatal(err)
	}
	for _, sizes := range [][]int64{{5, 5, 1}, {-1, 2, 3}, {1 << 62, 1 << 62, 1 << 62}} {
		b := l.NewBatch()
		b.Begin(make([]byte, l.Bytes), 3)
		if err := b.Sizes(0, func(s []int64) bool { copy(s, sizes); return true }); err == nil || !strings.Contains(err.Error(), "more than the 10 bytes that the source spoke of") {
			t.Errorf("%v: %v", sizes, err)
		}
	}
}
