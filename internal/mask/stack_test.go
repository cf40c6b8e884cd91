package mask

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/source/driver"
)

// The masks of a stack equal the original ones, and take no more memory than announced.
func TestStack(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var stack []byte
	var all []*Mask
	for i := range 9 {
		m := blobs(rng, 61, 47, 1, 2)
		if i%4 == 3 {
			m = noise(rng, 61, 47, 1)
		}
		before := len(stack)
		stack = AppendToStack(stack, m)
		if n := int64(len(stack) - before); n > MaxStacked(61*47) {
			t.Errorf("mask %d takes %d bytes, at most %d were expected", i, n, MaxStacked(61*47))
		}
		all = append(all, m)
	}
	masks, w, h, err := Stack(stack, nil)
	if err != nil || len(masks) != len(all) || w != 61 || h != 47 || Stacked(stack) != int64(len(all)) {
		t.Fatal(len(masks), w, h, err)
	}
	for i, runs := range masks {
		got := make([]byte, w*h)
		v := driver.Value{Bytes: runs, Codec: driver.CodecRuns, Width: int32(w), Height: int32(h)}
		if err := Box(got, 1, &v, item.Rect{W: int32(w), H: int32(h)}); err != nil || !bytes.Equal(got, all[i].Pix) {
			t.Errorf("mask %d: %v", i, err)
		}
	}
	for n := 1; n < len(stack); n += 1 + len(stack)/50 {
		if _, _, _, err := Stack(stack[:n], nil); err == nil && Stacked(stack[:n]) == int64(len(all)) {
			t.Fatalf("cut off at %d of %d: all masks are there", n, len(stack))
		}
	}
	if masks, _, _, err := Stack(nil, nil); err != nil || len(masks) != 0 {
		t.Error(masks, err)
	}
	if _, _, _, err := Stack(AppendToStack(stack, blobs(rng, 60, 47, 1, 2)), nil); err == nil {
		t.Error("masks of different sizes are taken")
	}
}

func FuzzStack(f *testing.F) {
	rng := rand.New(rand.NewPCG(5, 6))
	f.Add(AppendToStack(AppendToStack(nil, blobs(rng, 20, 9, 1, 2)), blobs(rng, 20, 9, 1, 2)))
	f.Add([]byte{1, 0, 0, 0, 7})
	f.Fuzz(func(t *testing.T, b []byte) {
		n := Stacked(b)
		masks, w, h, err := Stack(b, nil)
		if err == nil && (int64(len(masks)) != n || n > 0 && (w < 1 || h < 1)) {
			t.Errorf("%d masks, %d counted, %d x %d", len(masks), n, w, h)
		}
	})
}
