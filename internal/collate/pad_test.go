package collate

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/stokerdata/stoker/internal/item"
)

// Rows that come in any order, some at known positions, are padded to one length like in a plain loop.
func TestPad(t *testing.T) {
	const rows = 60
	for round := range 300 {
		rng := rand.New(rand.NewPCG(uint64(round), 9))
		shape, inner := []int{}, 1
		if round%3 == 1 {
			shape, inner = []int{2, 3}, 6
		}
		pad := Pad{Value: float64(rng.IntN(300)), Mask: round%2 == 0}
		longest := int64(40)
		switch rng.IntN(3) {
		case 0:
			pad.Multiple = int64(1 + rng.IntN(9))
		case 1:
			pad.Length, pad.Truncate = int64(1+rng.IntN(30)), true
		case 2:
			pad.Length = longest + int64(rng.IntN(3))
		}
		element := int64(4 * inner)
		col := Column{Name: "x", DType: item.I32, Shape: shape, Ragged: true, MaxRow: longest * element, Capacity: rows * longest * element, Pad: &pad}
		l, err := New(rows, []Column{col, {Name: "index", DType: item.I64}})
		if err != nil {
			t.Fatal(err)
		}
		slot, b := make([]byte, l.Bytes), l.NewBatch()
		for i := range slot {
			slot[i] = 0xAA
		}
		have := rows
		if round%5 == 0 {
			have = rng.IntN(rows)
		}
		counts := make([]int64, have)
		for k := range counts {
			counts[k] = int64(rng.IntN(3)) * int64(rng.IntN(int(longest)/2+1))
		}
		value := func(k int) []byte {
			var v []byte
			for i := range counts[k] * int64(inner) {
				v = binary.LittleEndian.AppendUint32(v, uint32(1000*k)+uint32(i))
			}
			return v
		}
		b.Begin(slot, have)
		err = b.Sizes(0, func(sizes []int64) bool {
			for k := range sizes {
				sizes[k] = counts[k] * element
			}
			return round%4 == 0
		})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		order := rng.Perm((have + 6) / 7)
		for w := range 2 {
			wg.Go(func() {
				for _, g := range order {
					if g%2 != w {
						continue
					}
					var values [][]byte
					first := g * 7
					for k := first; k < min(first+7, have); k++ {
						v := value(k)
						if at, ok := b.Place(0, k, int64(len(v))); ok && k%3 == 0 {
							copy(slot[at:], v)
							v = slot[at : at+int64(len(v))]
						}
						values = append(values, v)
					}
					errs := make([]error, len(values))
					b.PutRows(0, first, values, errs)
					for _, err := range errs {
						if err != nil {
							t.Error(err)
						}
					}
				}
			})
		}
		wg.Wait()
		if err := b.Finish(); err != nil {
			t.Fatal(err)
		}
		// The plain way.
		length := int64(0)
		for _, n := range counts {
			length = max(length, n)
		}
		if pad.Length > 0 {
			length = pad.Length
		} else if m := max(pad.Multiple, 1); true {
			length = (length + m - 1) / m * m
		}
		arr := l.Arrays[0]
		if got := int64(binary.LittleEndian.Uint64(slot[arr.LengthAt:])); got != length {
			t.Fatalf("round %d: a length of %d and not %d", round, got, length)
		}
		at := arr.Offset
		for k := range have {
			v := value(k)
			own := min(counts[k], length)
			for i := range length * int64(inner) {
				want := uint32(int32(pad.Value))
				if i < own*int64(inner) {
					want = binary.LittleEndian.Uint32(v[4*i:])
				}
				if got := binary.LittleEndian.Uint32(slot[at:]); got != want {
					t.Fatalf("round %d: element %d of row %d is %d and not %d", round, i, k, got, want)
				}
				at += 4
			}
			if got := binary.LittleEndian.Uint64(slot[l.Arrays[2].Offset+8*int64(k):]); int64(got) != own || l.Arrays[2].Name != "x_length" {
				t.Fatalf("round %d: row %d is said to have %d elements, not %d", round, k, got, own)
			}
			if pad.Mask {
				for i := range length {
					if got := slot[l.Arrays[3].Offset+int64(k)*length+i]; got != byte(bool01(i < own)) {
						t.Fatalf("round %d: mask of element %d of row %d is %d", round, i, k, got)
					}
				}
			}
		}
	}
}

func bool01(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestPadRefused(t *testing.T) {
	for _, c := range []struct {
		dtype item.DType
		pad   Pad
		want  string
	}{
		{item.U8, Pad{Value: 256}, "the value 256 does not fit elements of uint8"},
		{item.U16, Pad{Value: -100}, "does not fit elements of uint16"},
		{item.I32, Pad{Value: 0.5}, "does not fit elements of int32"},
		{item.Bool, Pad{Value: 2}, "does not fit elements of bool"},
		{item.I64, Pad{Length: 3, Multiple: 8}, "only one of them"},
		{item.I64, Pad{Truncate: true}, "there is none"},
		{item.I64, Pad{Length: -1}, "out of range"},
		{item.I64, Pad{Length: 1 << 39}, "do not fit a batch of a terabyte"},
		{item.I64, Pad{Value: -100, Length: 7}, ""},
		{item.F32, Pad{Value: 0.3}, ""},
	} {
		_, err := New(8, []Column{{Name: "x", DType: c.dtype, Ragged: true, MaxRow: 64, Capacity: 512, Pad: &c.pad}})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s %+v: %v", c.dtype, c.pad, err)
		}
	}
	l, err := New(8, []Column{{Name: "x", DType: item.U8, Ragged: true, MaxRow: 64, Capacity: 512, Pad: &Pad{Length: 5}}})
	if err != nil {
		t.Fatal(err)
	}
	b := l.NewBatch()
	b.Begin(make([]byte, l.Bytes), 8)
	if err := b.Put(0, 1, make([]byte, 6)); err == nil || !strings.Contains(fmt.Sprint(err), `"x" has 6 elements, more than the length of 5`) {
		t.Error(err)
	}
}
