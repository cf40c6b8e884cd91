package sampler

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"testing"
)

// randomShares returns n shares, at least one of them positive.
func randomShares(rng *rand.Rand, n int) []int64 {
	all := make([]int64, n)
	most := []int64{1, 3, 7, 1000}[rng.IntN(4)]
	for i := range all {
		all[i] = rng.Int64N(most + 1)
	}
	all[rng.IntN(n)] = 1 + rng.Int64N(most)
	return all
}

func mustMix(t testing.TB, sizes []int64, stages []MixStage, length int64) *Mix {
	t.Helper()
	m, err := NewMix(sizes, stages, length)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// After any number of positions of a stage, each part had its share within less than one. Each record of a part comes
// once in each round of the part.
func TestMix(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 40 {
		n := 1 + rng.IntN(9)
		sizes := make([]int64, n)
		for i := range sizes {
			sizes[i] = 1 + rng.Int64N(40)
		}
		stages := []MixStage{{Shares: randomShares(rng, n)}}
		for range rng.IntN(3) {
			last := stages[len(stages)-1].From
			stages = append(stages, MixStage{From: last + 1 + rng.Int64N(900), Shares: randomShares(rng, n)})
		}
		length := 1 + rng.Int64N(700)
		m := mustMix(t, sizes, stages, length)
		seen := map[[2]int64]bool{} // by record and round
		drawn := make([]int64, n)
		inStage := make([]int64, n)
		stage := 0
		for epoch := range 3000/length + 1 {
			s := &Split{Len: length, Batch: 1, World: 1}
			e := m.NewEpoch(s, round%2 == 0, 7, epoch, m.Turns)
			for pos := range length {
				at := epoch*length + pos
				if stage+1 < len(stages) && at == stages[stage+1].From {
					stage++
					clear(inStage)
				}
				record, again := e.mix.at(pos)
				part := m.Part(record)
				if record < m.first[part] || record >= m.first[part+1] || again != drawn[part]/sizes[part] || seen[[2]int64{record, again}] {
					t.Fatalf("%v: position %d is record %d of part %d in round %d", sizes, at, record, part, again)
				}
				if round%2 == 1 && record != m.first[part]+drawn[part]%sizes[part] {
					t.Fatalf("%v: position %d is record %d without shuffle, after %d", sizes, at, record, drawn[part])
				}
				seen[[2]int64{record, again}] = true
				drawn[part]++
				inStage[part]++
				shares := m.stages[stage].shares
				total := m.stages[stage].round
				length := at + 1 - stages[stage].From
				for k, share := range shares {
					// |drawn - length x share / total| < 1, in whole numbers
					if d := inStage[k]*total - length*share; d >= total || d <= -total {
						t.Fatalf("%v, %v: part %d came %d times in the first %d positions", sizes, shares, k, inStage[k], length)
					}
				}
			}
		}
	}
}

// Any number of ranks with the same global batch gets the same records, also from the middle of an epoch.
func TestMixIsElastic(t *testing.T) {
	stages := []MixStage{{Shares: []int64{6, 2, 1}}, {From: 500, Shares: []int64{1, 1, 7}}}
	const length, whole = 777, 24
	epochs := map[int][][]int64{}
	for _, world := range []int{1, 2, 3, 4, 8} {
		for epoch := range int64(2) {
			for row := int64(0); row < length; row += whole {
				var all []int64
				for rank := range world { // each with a mixture of its own
					m := mustMix(t, []int64{100, 7, 40}, stages, length)
					s := &Split{Len: length, Batch: whole / world, Rank: rank, World: world}
					e := m.NewEpoch(s, true, 3, epoch, m.Turns)
					p, ok := e.At(row)
					if !ok {
						t.Fatal("no batch")
					}
					ids := make([]int64, p.Rows())
					e.Fill(ids, &p, 0)
					all = append(all, ids...)
				}
				epochs[world] = append(epochs[world], all)
			}
		}
	}
	for world, got := range epochs {
		if !slices.EqualFunc(got, epochs[1], slices.Equal) {
			t.Errorf("%d ranks get other records than one", world)
		}
	}
}

// A thousand parts in the longest round.
func TestMixTurns(t *testing.T) {
	s := manyShares()
	turns, had := s.turns(), make([]int64, len(s.shares))
	for at, k := range turns.part {
		had[k]++
		if d := had[k]*s.round - int64(at+1)*s.shares[k]; d >= s.round || d <= -s.round {
			t.Fatalf("part %d came %d times in %d positions", k, had[k], at+1)
		}
	}
	if !slices.Equal(had, s.shares) {
		t.Error("a round does not have the shares")
	}
}

// manyShares is a stage with a thousand parts.
func manyShares() *stage {
	s := &stage{round: MaxTurns}
	left := int64(MaxTurns)
	for i := range int64(999) {
		s.shares = append(s.shares, 100_000/(i+1))
		left -= 100_000 / (i + 1)
	}
	s.shares = append(s.shares, left)
	return s
}

func TestMixRefuses(t *testing.T) {
	one := []MixStage{{Shares: []int64{1, 1}}}
	for want, f := range map[string]func() (*Mix, error){
		"no parts":    func() (*Mix, error) { return NewMix(nil, one, 1) },
		"no records":  func() (*Mix, error) { return NewMix([]int64{1, 0}, one, 1) },
		"no length":   func() (*Mix, error) { return NewMix([]int64{1, 1}, one, 0) },
		"no stage":    func() (*Mix, error) { return NewMix([]int64{1, 1}, nil, 1) },
		"later":       func() (*Mix, error) { return NewMix([]int64{1, 1}, []MixStage{{From: 1, Shares: []int64{1, 1}}}, 1) },
		"same":        func() (*Mix, error) { return NewMix([]int64{1, 1}, []MixStage{one[0], one[0]}, 1) },
		"all 0":       func() (*Mix, error) { return NewMix([]int64{1, 1}, []MixStage{{Shares: []int64{0, 0}}}, 1) },
		"negative":    func() (*Mix, error) { return NewMix([]int64{1, 1}, []MixStage{{Shares: []int64{2, -1}}}, 1) },
		"one missing": func() (*Mix, error) { return NewMix([]int64{1, 1}, []MixStage{{Shares: []int64{2}}}, 1) },
	} {
		if _, err := f(); err == nil {
			t.Errorf("%s: not refused", want)
		}
	}
}

func TestMixAfter(t *testing.T) {
	m := mustMix(t, []int64{3, 2}, []MixStage{{Shares: []int64{1, 1}}}, 5)
	for _, c := range [][3]int64{{0, 1, 1}, {2, 1, 0}, {1, 2, 0}, {3, 1, 4}, {4, 1, 3}} {
		if got, ok := m.After(c[0], c[1]); got != c[2] || !ok {
			t.Errorf("%d records after %d is %d, want %d", c[1], c[0], got, c[2])
		}
	}
	if _, ok := m.After(4, 2); ok {
		t.Error("a record was its own replacement")
	}
}

// The order is the same on every machine and in every version, because states have positions in it.
func TestMixIsForever(t *testing.T) {
	m := mustMix(t, []int64{10, 4, 7}, []MixStage{{Shares: []int64{3, 1, 2}}, {From: 40, Shares: []int64{129460, 1048576 - 129460, 0}}}, 12)
	h := fnv.New64a()
	for epoch := range int64(6) {
		e := m.NewEpoch(&Split{Len: 12, Batch: 12, World: 1}, true, 5, epoch, m.Turns)
		p, _ := e.At(0)
		ids := make([]int64, 12)
		e.Fill(ids, &p, 0)
		_, _ = fmt.Fprintln(h, ids)
		if epoch == 0 {
			if want := []int64{9, 15, 0, 12, 5, 19, 1, 14, 2, 11, 8, 17}; !slices.Equal(ids, want) {
				t.Errorf("%v", ids)
			}
		}
	}
	if h.Sum64() != 0x242cf64af117a381 {
		t.Errorf("%#x", h.Sum64())
	}
}

// An epoch far away has positions, too.
func TestMixFarEpochs(t *testing.T) {
	m := mustMix(t, []int64{10, 4}, []MixStage{{Shares: []int64{3, 1}}}, MaxLen)
	for _, epoch := range []int64{1, mixEpochs - 1, mixEpochs, 1<<62 + 5} {
		e := m.NewEpoch(&Split{Len: MaxLen, Batch: 1, World: 1}, true, 5, epoch, m.Turns)
		if record, round := e.mix.at(MaxLen - 1); record < 0 || record >= 14 || round < 0 {
			t.Errorf("epoch %d: record %d in round %d", epoch, record, round)
		}
	}
}

func BenchmarkMixTurns(b *testing.B) {
	s := manyShares()
	for b.Loop() {
		s.turns()
	}
}
