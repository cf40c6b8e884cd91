package phash

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/stokerdata/stoker/internal/source/sourcetest"
	"github.com/stokerdata/stoker/source/driver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// plain is the definition, in floating point.
func plain(gray []byte) (h uint64, c [64]float64) {
	for v := range 8 {
		for u := range 8 {
			for y := range Side {
				for x := range Side {
					c[8*v+u] += float64(gray[Side*y+x]) * math.Cos(math.Pi*float64((2*x+1)*u)/64) * math.Cos(math.Pi*float64((2*y+1)*v)/64)
				}
			}
		}
	}
	sorted := slices.Clone(c[:])
	slices.Sort(sorted)
	median := (sorted[31] + sorted[32]) / 2
	for i, n := range c {
		if n > median {
			h |= 1 << (63 - i)
		}
	}
	return h, c
}

func TestHash(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		gray := make([]byte, Side*Side)
		for i := range gray {
			gray[i] = byte(rng.IntN(256))
		}
		want, _ := plain(gray)
		if got := Hash(gray); bits.OnesCount64(got^want) > 2 { // the two that are next to the median may be close
			t.Errorf("%016x, want %016x", got, want)
		}
	}
	// In an image of one colour only the mean is not 0.
	flat := slices.Repeat([]byte{77}, Side*Side)
	if got := Hash(flat); got != 1<<63 {
		t.Errorf("an image of one colour has %016x", got)
	}
	if got := Hash(make([]byte, Side*Side)); got != 0 {
		t.Errorf("a black image has %016x", got)
	}
	// The hash must never change: caches and users store it.
	ramp := make([]byte, Side*Side)
	for i := range ramp {
		ramp[i] = byte(i%Side*5 + i/Side*i%7)
	}
	if got := Hash(ramp); got != rampHash {
		t.Errorf("the ramp has %#016x", got)
	}
}

const rampHash = 0x802a572a7f2a7f2a

// hashes are random ones, and copies of them with some bits changed.
func hashes(rng *rand.Rand, n int) (ids []int64, all []uint64) {
	for i := range n {
		h := rng.Uint64()
		if i > 0 && rng.IntN(3) > 0 {
			h = all[rng.IntN(i)]
			for range rng.IntN(9) {
				h ^= 1 << rng.IntN(64)
			}
		}
		all = append(all, h)
		ids = append(ids, int64(3*i))
	}
	return ids, all
}

// Find gives the same pairs as comparing each image with each, except that images with equal hashes count as one.
func TestFind(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, distance := range []int{0, 1, 3, 4, 6, 7, 8, MaxDistance} {
		ids, all := hashes(rng, 600)
		var want []Pair
		late := map[int64]bool{}
		first := map[uint64]int64{}
		for i, h := range all {
			if f, ok := first[h]; ok {
				want = append(want, Pair{f, ids[i], 0})
				late[ids[i]] = true
				continue
			}
			for o, f := range first {
				if d := bits.OnesCount64(o ^ h); d <= distance {
					want = append(want, Pair{f, ids[i], d})
					late[ids[i]] = true
				}
			}
			first[h] = ids[i]
		}
		slices.SortFunc(want, func(a, b Pair) int {
			return cmp.Or(cmp.Compare(a.Distance, b.Distance), cmp.Compare(a.First, b.First), cmp.Compare(a.Second, b.Second))
		})
		for _, most := range []int{10, len(want) + 1} {
			f, err := Find(t.Context(), ids, all, distance, most)
			if err != nil {
				t.Fatal(err)
			}
			if f.Total != int64(len(want)) || f.Records != int64(len(late)) || f.Images != 600 {
				t.Fatalf("distance %d: %d pairs and %d records, want %d and %d", distance, f.Total, f.Records, len(want), len(late))
			}
			if !slices.Equal(f.Pairs, want[:min(most, len(want))]) {
				t.Fatalf("distance %d: the nearest %d pairs are others", distance, most)
			}
		}
		// The remaining images are all different, and each removed image resembles a remaining one.
		gone := map[int64]bool{}
		for _, id := range repeats(t, ids, all, distance) {
			gone[id] = true
		}
		for i := range ids {
			near := false
			for k := range i {
				near = near || !gone[ids[k]] && bits.OnesCount64(all[i]^all[k]) <= distance
			}
			if near != gone[ids[i]] {
				t.Fatalf("distance %d: record %d is left out: %v, and near one that stays: %v", distance, ids[i], gone[ids[i]], near)
			}
		}
	}
}

// A great many equal images do not take a great many comparisons, nor much memory.
func TestFindManyEqual(t *testing.T) {
	const n = 300_000
	ids, all := make([]int64, n), make([]uint64, n)
	for i := range ids {
		ids[i], all[i] = int64(i), uint64(i%3)
	}
	f, err := Find(t.Context(), ids, all, 6, 50)
	if err != nil || f.Total != n || f.Records != n-1 || len(f.Pairs) != 50 {
		t.Errorf("%d pairs, %d records, %d kept", f.Total, f.Records, len(f.Pairs))
	}
	if got := len(repeats(t, ids, all, 6)); got != n-1 {
		t.Errorf("%d are left out", got)
	}
}

func repeats(t *testing.T, ids []int64, all []uint64, distance int) []int64 {
	t.Helper()
	out, err := Repeats(t.Context(), ids, all, distance)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Every way to divide hashes finds the same, and among many the wide bands are taken.
func TestLayouts(t *testing.T) {
	if len(layout(1_000, 6)) != 4 || len(layout(20_000_000, 6)) != 3 {
		t.Errorf("%d bands for few, %d for many", len(layout(1_000, 6)), len(layout(20_000_000, 6)))
	}
	rng := rand.New(rand.NewPCG(5, 6))
	ids, all := hashes(rng, 2_000)
	defer func(l [][]band) { layouts = l }(layouts)
	var want *Found
	for _, l := range slices.Clone(layouts) {
		for b := range l {
			if n := len(near(nil, 0, l[b].bits, 2)); n != ball(l[b].bits, 2) {
				t.Errorf("%d numbers near one of %d bits, not %d", n, l[b].bits, ball(l[b].bits, 2))
			}
		}
		layouts = [][]band{l}
		f, err := Find(t.Context(), ids, all, 8, 100)
		if err != nil {
			t.Fatal(err)
		}
		if want == nil {
			want = f
		}
		if f.Total != want.Total || f.Records != want.Records || !slices.Equal(f.Pairs, want.Pairs) {
			t.Errorf("%d bands find %d pairs and %d records, others %d and %d", len(l), f.Total, f.Records, want.Total, want.Records)
		}
	}
}

// A cancelled search returns without waiting for its result.
func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ids, all := hashes(rand.New(rand.NewPCG(5, 6)), 5_000)
	if _, err := Find(ctx, ids, all, 6, 10); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := Repeats(ctx, ids, all, 6); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// BenchmarkMillion measures a million images, a third of which have copies.
func BenchmarkMillion(b *testing.B) {
	ids, all := make([]int64, 1_000_000), make([]uint64, 1_000_000)
	rng := rand.New(rand.NewPCG(7, 8))
	for i := range all {
		ids[i], all[i] = int64(i), rng.Uint64()
		if i > 0 && i%3 == 0 {
			all[i] = all[rng.IntN(i)]
			for range rng.IntN(5) {
				all[i] ^= 1 << rng.IntN(64)
			}
		}
	}
	for _, distance := range []int{DefaultDistance, MaxDistance} {
		b.Run(fmt.Sprintf("find %d", distance), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Find(b.Context(), ids, all, distance, 100_000); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("repeats %d", distance), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Repeats(b.Context(), ids, all, distance); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestHashes(t *testing.T) {
	src := sourcetest.NewMemory(130, []driver.Field{{Name: "label", Kind: driver.KindLabel}, {Name: "image", Kind: driver.KindImage}},
		func(id int64, v []driver.Value) error {
			w := 40 + int(id%5)*20 // the same picture in five sizes
			pix := make([]byte, 3*w*w)
			for i := range pix {
				x, y := float64(i/3%w)/float64(w), float64(i/3/w)/float64(w)
				pix[i] = byte(128 + 60*math.Sin(float64(id/5)*3+9*x) + 50*math.Cos(float64(id/5)*5+11*y*x))
			}
			v[1] = driver.Value{Bytes: pix, Codec: driver.CodecRaw, Width: int32(w), Height: int32(w), Channels: 3, Orientation: 1}
			if id == 7 {
				v[1] = driver.Value{Bytes: []byte("no image")}
			}
			return nil
		})
	defer src.Close()
	field, distance, err := Parse("image:6", src.Info())
	if err != nil || field != 1 || distance != 6 {
		t.Fatal(field, distance, err)
	}
	ids, all, err := Hashes(t.Context(), src, &Request{Field: field, Threads: 3, Within: func(id int64) bool { return id != 9 }})
	if err != nil || len(ids) != 128 || slices.Contains(ids, 7) || slices.Contains(ids, 9) || !slices.IsSorted(ids) {
		t.Fatal(len(ids), err)
	}
	for i := 1; i < len(ids); i++ {
		if d := bits.OnesCount64(all[i] ^ all[i-1]); ids[i]/5 == ids[i-1]/5 && d > 6 {
			t.Errorf("records %d and %d are %d bits apart", ids[i-1], ids[i], d)
		}
	}
}

func TestParse(t *testing.T) {
	info := &driver.Info{URL: "data", Fields: []driver.Field{{Name: "depth", Kind: driver.KindImage, DType: driver.Uint16}, {Name: "left", Kind: driver.KindImage}, {Name: "right", Kind: driver.KindImage}}}
	for text, want := range map[string][2]int{"": {1, 6}, "4": {1, 4}, "right": {2, 6}, "right:0": {2, 0}, "left:11": {1, 11}} {
		if f, d, err := Parse(text, info); err != nil || [2]int{f, d} != want {
			t.Errorf("%q: %d, %d, %v", text, f, d, err)
		}
	}
	for _, text := range []string{"depth", "12", "-1", "left:", "left:x", "nothing:3"} {
		if _, _, err := Parse(text, info); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
	if _, _, err := Parse("", &driver.Info{}); err == nil {
		t.Error("no images were accepted")
	}
}
