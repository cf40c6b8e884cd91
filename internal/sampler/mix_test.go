package sampler

import (
	"fmt"
	"hash/fnv"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
)

// rats returns weights.
func rats(weights ...string) (all []*big.Rat) {
	for _, w := range weights {
		r, ok := new(big.Rat).SetString(w)
		if !ok {
			panic(w)
		}
		all = append(all, r)
	}
	return all
}

// randomWeights returns n weights of one of several forms, at least one of them positive.
func randomWeights(rng *rand.Rand, n int) (all []*big.Rat) {
	form := rng.IntN(12)
	for range n {
		switch w := new(big.Rat); form {
		case 0, 3, 4, 5, 6: // small whole numbers
			all = append(all, w.SetInt64(1+rng.Int64N(5)))
		case 1: // decimals
			all = append(all, w.SetFrac64(1+rng.Int64N(1000), 1000))
		case 2, 7, 8, 9, 10: // some are 0
			all = append(all, w.SetInt64(rng.Int64N(3)))
		default: // any
			w, _ = w.SetString(fmt.Sprint(rng.ExpFloat64()))
			all = append(all, w)
		}
	}
	all[rng.IntN(n)] = big.NewRat(1, 1)
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
		stages := []MixStage{{Weights: randomWeights(rng, n)}}
		for range rng.IntN(3) {
			last := stages[len(stages)-1].From
			stages = append(stages, MixStage{From: last + 1 + rng.Int64N(900), Weights: randomWeights(rng, n)})
		}
		length := 1 + rng.Int64N(700)
		m := mustMix(t, sizes, stages, length)
		seen := map[[2]int64]bool{} // by record and round
		drawn := make([]int64, n)
		inStage := make([]int64, n)
		stage := 0
		for epoch := range 3000/length + 1 {
			s := &Split{Len: length, Batch: 1, World: 1}
			e := m.NewEpoch(s, round%2 == 0, 7, epoch)
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
	stages := []MixStage{{Weights: rats("3", "1", "0.5")}, {From: 500, Weights: rats("1", "1", "7")}}
	const length, whole = 777, 24
	epochs := map[int][][]int64{}
	for _, world := range []int{1, 2, 3, 4, 8} {
		for epoch := range int64(2) {
			for row := int64(0); row < length; row += whole {
				var all []int64
				for rank := range world { // each with a mixture of its own
					m := mustMix(t, []int64{100, 7, 40}, stages, length)
					s := &Split{Len: length, Batch: whole / world, Rank: rank, World: world}
					e := m.NewEpoch(s, true, 3, epoch)
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

func TestMixShares(t *testing.T) {
	for _, c := range []struct {
		weights []string
		want    []int64
	}{
		{[]string{"3", "1"}, []int64{3, 1}},
		{[]string{"0.7", "0.3"}, []int64{7, 3}},
		{[]string{"6", "0", "4"}, []int64{3, 0, 2}},
		{[]string{"1e-9", "1"}, []int64{1, MaxTurns - 1}},
		{[]string{"1e300", "1e-300", "1e300"}, []int64{MaxTurns / 2, 1, MaxTurns/2 - 1}},
	} {
		got, err := sharesOf(rats(c.weights...), len(c.weights))
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, %v; want %v", c.weights, got, err, c.want)
		}
	}
	many := make([]*big.Rat, 1000)
	for i := range many {
		many[i], _ = new(big.Rat).SetString(fmt.Sprint(1 / float64(i+3)))
	}
	shares, err := sharesOf(many, len(many))
	if err != nil {
		t.Fatal(err)
	}
	s := stage{shares: shares}
	for _, n := range shares {
		s.round += n
	}
	turns, had := s.turns(), make([]int64, len(shares))
	for at, k := range turns.part {
		had[k]++
		if d := had[k]*s.round - int64(at+1)*shares[k]; d >= s.round || d <= -s.round {
			t.Fatalf("part %d came %d times in %d positions", k, had[k], at+1)
		}
	}
	if !slices.Equal(had, shares) || s.round != MaxTurns {
		t.Errorf("a round of %d positions does not have the shares", s.round)
	}
}

func TestMixRefuses(t *testing.T) {
	one := []MixStage{{Weights: rats("1", "1")}}
	for want, f := range map[string]func() (*Mix, error){
		"no parts":    func() (*Mix, error) { return NewMix(nil, one, 1) },
		"no records":  func() (*Mix, error) { return NewMix([]int64{1, 0}, one, 1) },
		"no length":   func() (*Mix, error) { return NewMix([]int64{1, 1}, one, 0) },
		"no stage":    func() (*Mix, error) { return NewMix([]int64{1, 1}, nil, 1) },
		"later":       func() (*Mix, error) { return NewMix([]int64{1, 1}, []MixStage{{From: 1, Weights: rats("1", "1")}}, 1) },
		"same":        func() (*Mix, error) { return NewMix([]int64{1, 1}, []MixStage{one[0], one[0]}, 1) },
		"all 0":       func() (*Mix, error) { return NewMix([]int64{1, 1}, []MixStage{{Weights: rats("0", "0")}}, 1) },
		"negative":    func() (*Mix, error) { return NewMix([]int64{1, 1}, []MixStage{{Weights: rats("2", "-1")}}, 1) },
		"one missing": func() (*Mix, error) { return NewMix([]int64{1, 1}, []MixStage{{Weights: rats("2")}}, 1) },
	} {
		if _, err := f(); err == nil {
			t.Errorf("%s: not refused", want)
		}
	}
}

func TestMixAfter(t *testing.T) {
	m := mustMix(t, []int64{3, 2}, []MixStage{{Weights: rats("1", "1")}}, 5)
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
	m := mustMix(t, []int64{10, 4, 7}, []MixStage{{Weights: rats("3", "1", "2")}, {From: 40, Weights: rats("0.123456789", "1", "0")}}, 12)
	h := fnv.New64a()
	for epoch := range int64(6) {
		e := m.NewEpoch(&Split{Len: 12, Batch: 12, World: 1}, true, 5, epoch)
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
	if h.Sum64() != 0x9d386dc8f60c23b8 {
		t.Errorf("%#x", h.Sum64())
	}
}

// An epoch far away has positions, too.
func TestMixFarEpochs(t *testing.T) {
	m := mustMix(t, []int64{10, 4}, []MixStage{{Weights: rats("3", "1")}}, MaxLen)
	for _, epoch := range []int64{1, mixEpochs - 1, mixEpochs, 1<<62 + 5} {
		e := m.NewEpoch(&Split{Len: MaxLen, Batch: 1, World: 1}, true, 5, epoch)
		if record, round := e.mix.at(MaxLen - 1); record < 0 || record >= 14 || round < 0 {
			t.Errorf("epoch %d: record %d in round %d", epoch, record, round)
		}
	}
}

func BenchmarkMixTurns(b *testing.B) {
	weights := make([]*big.Rat, 1000)
	for i := range weights {
		weights[i], _ = new(big.Rat).SetString(fmt.Sprint(1 / float64(i+3)))
	}
	shares, err := sharesOf(weights, len(weights))
	if err != nil {
		b.Fatal(err)
	}
	s := stage{shares: shares, round: MaxTurns}
	for b.Loop() {
		s.turns()
	}
}
