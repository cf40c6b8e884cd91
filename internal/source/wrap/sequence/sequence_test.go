package sequence

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stokerdata/stoker/internal/recordread"
	"github.com/stokerdata/stoker/internal/source/packsource"
	"github.com/stokerdata/stoker/internal/source/sourcetest"
	"github.com/stokerdata/stoker/internal/source/tokensource"
	"github.com/stokerdata/stoker/internal/store/localstore"
	"github.com/stokerdata/stoker/pack"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/drivertest"
	"github.com/stokerdata/stoker/store"
)

// corpus writes documents of the given lengths as a pair of Megatron files. Token number i of the
// corpus is i + 1, so all tokens differ.
func corpus(t testing.TB, lengths []int) string {
	t.Helper()
	dir := t.TempDir()
	idx := append([]byte("MMIDIDX\x00\x00"), 1, 0, 0, 0, 0, 0, 0, 0, 4)
	idx = binary.LittleEndian.AppendUint64(idx, uint64(len(lengths)))
	idx = binary.LittleEndian.AppendUint64(idx, uint64(len(lengths)+1))
	var bin, at []byte
	n := 0
	for _, l := range lengths {
		idx = binary.LittleEndian.AppendUint32(idx, uint32(l))
		at = binary.LittleEndian.AppendUint64(at, uint64(4*n))
		for range l {
			n++
			bin = binary.LittleEndian.AppendUint32(bin, uint32(n))
		}
	}
	idx = append(idx, at...)
	for i := range len(lengths) + 1 {
		idx = binary.LittleEndian.AppendUint64(idx, uint64(i))
	}
	for name, b := range map[string][]byte{"c.bin": bin, "c.idx": idx} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// lengths returns n document lengths. Some are 0, some are longer than most sequences.
func lengths(n int, seed uint64) []int {
	rng := rand.New(rand.NewPCG(seed, 1))
	out := make([]int, n)
	for i := range out {
		if out[i] = rng.IntN(30); i%7 == 0 {
			out[i] = rng.IntN(200)
		}
	}
	return out
}

func megatron(ctx context.Context, dir string) (driver.Source, error) {
	return tokensource.OpenMegatron(ctx, dir, localstore.New(dir), nil)
}

// packed writes the same corpus as a pack. Some chunks have their tokens in the index, others do
// not.
func packed(t testing.TB, dir string) string {
	t.Helper()
	s, err := megatron(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	out := filepath.Join(t.TempDir(), "pack")
	if _, err := pack.WriteSource(t.Context(), s, out, &pack.Options{ChunkBytes: 64 << 10, ShardBytes: 128 << 10}); err != nil {
		t.Fatal(err)
	}
	return out
}

func open(t testing.TB, base driver.Source, err error, o Options) *Source {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), base, &o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestConformance(t *testing.T) {
	dir := corpus(t, lengths(200, 1))
	packed := packed(t, dir)
	for _, way := range Packings() {
		for name, from := range map[string]func(ctx context.Context) (driver.Source, error){
			"megatron": func(ctx context.Context) (driver.Source, error) { return megatron(ctx, dir) },
			"pack": func(ctx context.Context) (driver.Source, error) {
				return packsource.Open(ctx, packed, localstore.New(packed), nil)
			},
		} {
			t.Run(way+"/"+name, func(t *testing.T) {
				drivertest.Run(t, drivertest.Opener(func(ctx context.Context) (driver.Source, error) {
					base, err := from(ctx)
					if err != nil {
						return nil, err
					}
					return Open(ctx, base, &Options{Length: 32, Packing: way, Fields: Extras(), Shuffle: true, Seed: 5})
				}))
			})
		}
	}
}

func TestFaults(t *testing.T) {
	dir := corpus(t, lengths(200, 1))
	drivertest.Faults(t, localstore.New(dir), false, func(ctx context.Context, st store.Store) (driver.Source, error) {
		base, err := tokensource.OpenMegatron(ctx, "test", st, nil)
		if err != nil {
			return nil, err
		}
		return Open(ctx, base, &Options{Length: 32, Shuffle: true})
	})
}

// numbers decodes a value with elements of size bytes.
func numbers(b []byte, size int) []int {
	out := make([]int, 0, len(b)/size)
	for ; len(b) > 0; b = b[size:] {
		switch size {
		case 1:
			out = append(out, int(b[0]))
		case 4:
			out = append(out, int(int32(binary.LittleEndian.Uint32(b))))
		default:
			out = append(out, int(binary.LittleEndian.Uint64(b)))
		}
	}
	return out
}

// epoch reads all sequences of an epoch, by field.
func epoch(t testing.TB, s *Source, epoch int64) map[string][][]int {
	t.Helper()
	obj := recordread.NewObjects(s, nil)
	defer obj.Close()
	r := recordread.NewDirect(s, obj)
	out := map[string][][]int{}
	for id := range s.Info().Len {
		recs, err := r.Read(t.Context(), []int64{driver.InEpoch(epoch, id)})
		if err != nil || recs[0].Err != nil {
			t.Fatal(err, recs[0].Err)
		}
		for i, f := range s.Info().Fields {
			out[f.Name] = append(out[f.Name], numbers(recs[0].Values[i].Bytes, f.DType.Size()))
		}
	}
	return out
}

// docOf returns, for each token, its document and its position there.
func docOf(lengths []int) (doc, place, left []int) {
	doc, place, left = []int{-1}, []int{0}, []int{0}
	for i, n := range lengths {
		for k := range n {
			doc, place, left = append(doc, i), append(place, k), append(left, n-1-k)
		}
	}
	return doc, place, left
}

func TestSequences(t *testing.T) {
	ls := lengths(150, 7)
	dir := corpus(t, ls)
	total := 0
	for _, n := range ls {
		total += n
	}
	packed := packed(t, dir)
	for _, way := range Packings() {
		for _, shuffle := range []bool{false, true} {
			for _, length := range []int{1, 2, 17, 64, 1000} {
				for _, unshifted := range []bool{false, true} {
					for _, dtype := range []driver.DType{"", driver.Int64} {
						o := Options{Length: int64(length), Packing: way, Fields: Extras(), NoShift: unshifted, DType: dtype, Shuffle: shuffle, Seed: 3}
						name := fmt.Sprintf("%s/shuffle=%v/%d/%v/%s", way, shuffle, length, unshifted, dtype)
						base, err := megatron(t.Context(), dir)
						s := open(t, base, err, o)
						got := epoch(t, s, 4)
						check(t, name, s, got, ls, total)
						if !shuffle || length > 64 {
							continue
						}
						if same := fmt.Sprint(got) == fmt.Sprint(epoch(t, s, 5)); same {
							t.Errorf("%s: epochs 4 and 5 are the same", name)
						}
						check(t, name, s, epoch(t, s, 0), ls, total)
						// The same sequences come from a pack, whose documents are at other
						// offsets.
						base, err = packsource.Open(t.Context(), packed, localstore.New(packed), nil)
						if p := open(t, base, err, o); fmt.Sprint(epoch(t, p, 4)) != fmt.Sprint(got) {
							t.Errorf("%s: not the same from a pack", name)
						}
					}
				}
			}
		}
	}
}

// check verifies the sequences of an epoch against the options.
func check(t *testing.T, name string, s *Source, got map[string][][]int, ls []int, total int) {
	t.Helper()
	doc, place, left := docOf(ls)
	plan, o, length := s.Plan(), &s.opt, int(s.opt.Length)
	input := got["input"]
	if o.NoShift {
		input = got["tokens"]
	}
	if n := int64(len(input)); n != plan.Sequences || n*int64(length) != plan.Tokens-plan.Dropped+plan.Padding || plan.Tokens != int64(total) || plan.Documents != int64(len(ls)) {
		t.Fatalf("%s: %d sequences, %+v", name, n, plan)
	}
	seen := map[int]bool{}
	var stream []int
	for i, in := range input {
		// The other fields follow from where documents start.
		var positions, ids, mask []int
		bounds := []int{}
		for k, v := range in {
			if v == 0 { // padding
				if o.Packing == Stream || slices.Max(in[k:]) > 0 {
					t.Fatalf("%s: sequence %d has padding at %d: %v", name, i, k, in)
				}
				if k == 0 || in[k-1] > 0 {
					bounds = append(bounds, k)
				}
				positions, ids, mask = append(positions, 0), append(ids, -1), append(mask, 0)
				continue
			}
			if seen[v] {
				t.Fatalf("%s: token %d comes twice", name, v)
			}
			seen[v] = true
			stream = append(stream, v)
			begins := k == 0 || doc[v] != doc[in[k-1]]
			if begins {
				bounds = append(bounds, k)
				positions, ids = append(positions, 0), append(ids, len(bounds)-1)
				if k > 0 && o.Packing == Stream && place[v] != 0 {
					t.Fatalf("%s: sequence %d: document %d begins at %d", name, i, doc[v], place[v])
				}
			} else {
				positions, ids = append(positions, positions[k-1]+1), append(ids, ids[k-1])
				if v != in[k-1]+1 {
					t.Fatalf("%s: sequence %d: %d follows %d", name, i, v, in[k-1])
				}
			}
			follows := left[v] > 0
			if o.NoShift {
				follows = !begins
			}
			mask = append(mask, map[bool]int{true: 1}[follows])
			whole := ls[doc[v]] <= length
			if o.Packing == BestFit && whole && begins && (place[v] != 0 || k+ls[doc[v]] > length) {
				t.Fatalf("%s: document %d of %d tokens was cut", name, doc[v], ls[doc[v]])
			}
		}
		bounds = append(bounds, length)
		for field, want := range map[string][]int{PositionIDs: positions, DocumentIDs: ids, LossMask: mask, CuSeqlens: bounds} {
			if !slices.Equal(got[field][i], want) {
				t.Fatalf("%s: %s of sequence %d is %v, want %v: %v", name, field, i, got[field][i], want, in)
			}
		}
		if o.NoShift {
			continue
		}
		for k, v := range got["target"][i] {
			switch {
			case mask[k] == 1 && v != in[k]+1:
				t.Fatalf("%s: the target of %d is %d", name, in[k], v)
			case o.Packing == BestFit && mask[k] == 0 && v != 0:
				t.Fatalf("%s: the target of %d is %d, want padding", name, in[k], v)
			case o.Packing == Stream && k+1 < length && v != in[k+1], o.Packing == Stream && k+1 == length && i+1 < len(input) && v != input[i+1][0]:
				t.Fatalf("%s: the target of %d is %d, which does not come next", name, in[k], v)
			}
		}
	}
	if int64(len(seen)) != plan.Tokens-plan.Dropped || o.Packing == BestFit && plan.Dropped != 0 || plan.Dropped > int64(length) {
		t.Errorf("%s: %d tokens were given, %+v", name, len(seen), plan)
	}
	if o.Packing == Stream {
		if !o.Shuffle && (stream[0] != 1 || stream[len(stream)-1] != len(stream)) {
			t.Errorf("%s: from %d to %d", name, stream[0], stream[len(stream)-1])
		}
		for k := 1; k < len(stream); k++ { // across sequences
			if v, before := stream[k], stream[k-1]; v != before+1 && (place[v] != 0 || left[before] != 0) {
				t.Fatalf("%s: %d follows %d", name, v, before)
			}
		}
	}
}

// TestBestFitIsBestFit compares with a direct implementation of best-fit decreasing.
func TestBestFitIsBestFit(t *testing.T) {
	ls := lengths(2000, 11)
	const length = 50
	var rests []int
	full := 0
	for _, n := range ls {
		for ; n > length; n -= length {
			full++
		}
		if n > 0 {
			rests = append(rests, n)
		}
	}
	slices.SortFunc(rests, func(a, b int) int { return b - a })
	var room []int
	for _, n := range rests {
		best := -1
		for i, r := range room {
			if r >= n && (best < 0 || r < room[best]) {
				best = i
			}
		}
		if best < 0 {
			best, room = len(room), append(room, length)
		}
		room[best] -= n
	}
	base, err := megatron(t.Context(), corpus(t, ls))
	if s := open(t, base, err, Options{Length: length, Packing: BestFit}); s.Plan().Sequences != int64(full+len(room)) {
		t.Errorf("%d sequences, want %d", s.Plan().Sequences, full+len(room))
	}
}

func TestRefused(t *testing.T) {
	dir := corpus(t, []int{5, 6})
	for want, o := range map[string]Options{
		"a length is 1 to":                    {},
		"has 11 tokens, less than one":        {Length: 11},
		"use stream or best-fit":              {Length: 2, Packing: "greedy"},
		`sequences have no field "x"`:         {Length: 2, Fields: []string{"x"}},
		"use int32 or int64":                  {Length: 2, DType: driver.Uint8},
		"the padding token -1 does not fit":   {Length: 2, Pad: -1},
		"a sequence of 16777217 tokens: a le": {Length: MaxLength + 1},
	} {
		base, err := megatron(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Open(t.Context(), base, &o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		base.Close()
	}
	if _, err := tokensOf(&driver.Info{URL: "U", Fields: []driver.Field{{Name: "a", Kind: driver.KindText}, {Name: "b", Kind: driver.KindRagged, DType: driver.Float32}}}); err == nil ||
		!strings.Contains(err.Error(), "U has no field of tokens") || !strings.Contains(err.Error(), "a (text), b (ragged of float32)") {
		t.Error(err)
	}
}

// A token that does not fit is an error of its sequence, with the name of the document.
func TestDoesNotFit(t *testing.T) {
	dir := t.TempDir()
	b := make([]byte, 400)
	binary.LittleEndian.PutUint32(b[100:], 1<<31)
	if err := os.WriteFile(filepath.Join(dir, "x.bin"), b, 0o644); err != nil {
		t.Fatal(err)
	}
	o := tokensource.New()
	o.DType = driver.Uint32
	base, err := tokensource.Open(t.Context(), dir, localstore.New(dir), o)
	s := open(t, base, err, Options{Length: 10, DType: driver.Int32})
	recs := drivertest.Records(t, s, 0, 2)
	if recs[0].Err != nil || recs[1].Err == nil || !strings.Contains(recs[1].Err.Error(), "x.bin, document 0 (byte 0) has a token that does not fit int32") {
		t.Errorf("%v, %v", recs[0].Err, recs[1].Err)
	}
}

func BenchmarkStream(b *testing.B) {
	dir := corpus(b, lengths(200_000, 3))
	for _, way := range Packings() {
		for _, dtype := range []driver.DType{"", driver.Int64} {
			b.Run(way+string(dtype), func(b *testing.B) {
				drivertest.Bench(b, drivertest.Opener(func(ctx context.Context) (driver.Source, error) {
					base, err := megatron(ctx, dir)
					if err != nil {
						return nil, err
					}
					return Open(ctx, base, &Options{Length: 2048, Shuffle: true, Packing: way, DType: dtype})
				}))
			})
		}
	}
}

func TestWrapped(t *testing.T) {
	own := "sequences are not records of the base"
	drivertest.Wrapped(t, drivertest.Wrapping{
		Open: func(testing.TB) driver.Source { return sourcetest.Mixed(60).Copied() },
		Wrap: func(t testing.TB, base driver.Source) driver.Source {
			s, err := Open(t.Context(), base, &Options{Length: 8})
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		Lacks: map[string]string{"Sizer": own, "Shaper": own, "Pather": own, "Finder": own, "Cutter": own, "Varied": own, "Chunker": own},
	})
}
