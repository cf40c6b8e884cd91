package sampler

import (
	"fmt"
	"slices"
)

// Mix is the order of a mixture: several parts of a source take turns by weight. Position p of the mixture counts over
// all epochs. The part at a position and the number of its earlier positions are arithmetic, so a mixture starts at any
// position. Each part has an order of its own: its records come once, in an order for its first round, then once in an
// order for its second round, and so on.
//
// The turns of a stage are a schedule with deadlines. The part with share w has its k-th turn (from 0) at a position in
// [k/w, (k+1)/w), rounded to whole positions. So after any number of positions each part had its share of them, within
// less than one.
type Mix struct {
	first  []int64 // the first record of each part, and the number of records
	length int64   // positions of an epoch
	stages []stage
}

// MixStage has the shares of the parts from a position of the mixture on: whole numbers, whose sum is 1 to MaxTurns.
type MixStage struct {
	From   int64
	Shares []int64
}

// Limits of mixtures. A schedule of turns has MaxTurns positions and then repeats.
const (
	MaxParts  = 1 << 16
	MaxStages = 1 << 12
	MaxTurns  = 1 << 20
	// mixEpochs bounds the number of epochs, so that positions do not overflow. Later epochs are those before again.
	mixEpochs = 1 << 22
)

// stage is a part of the order with the same weights.
type stage struct {
	from   int64
	drawn  []int64 // positions of each part before the stage
	shares []int64
	round  int64 // the sum of the shares
}

// Turns is one round of a stage. It does not change.
type Turns struct {
	part []uint16
	nth  []uint32 // the number of the part's earlier turns in the round
}

// NewMix returns a mixture of parts with the given numbers of records. An epoch has length positions.
func NewMix(sizes []int64, stages []MixStage, length int64) (*Mix, error) {
	switch {
	case len(sizes) == 0 || len(sizes) > MaxParts:
		return nil, fmt.Errorf("%d parts; there must be 1 to %d", len(sizes), MaxParts)
	case length < 1 || length > MaxLen:
		return nil, fmt.Errorf("an epoch has %d records; there must be 1 to %d", length, int64(MaxLen))
	case len(stages) == 0 || len(stages) > MaxStages || stages[0].From != 0:
		return nil, fmt.Errorf("the weights change %d times; there must be weights from record 0 on, and at most %d changes", len(stages)-1, MaxStages)
	}
	m := &Mix{first: make([]int64, 1, len(sizes)+1), length: length}
	for i, n := range sizes {
		if n < 1 {
			return nil, fmt.Errorf("part %d has no records", i)
		}
		m.first = append(m.first, m.first[i]+n)
	}
	drawn := make([]int64, len(sizes))
	for i := range stages {
		shares := stages[i].Shares
		s := stage{from: stages[i].From, drawn: slices.Clone(drawn), shares: shares}
		for _, n := range shares {
			s.round += max(n, 0)
		}
		if len(shares) != len(sizes) || slices.Min(shares) < 0 || s.round < 1 || s.round > MaxTurns {
			return nil, fmt.Errorf("%d shares with a sum of %d for %d parts, from record %d on; they must be 0 or more, with a sum of 1 to %d",
				len(shares), s.round, len(sizes), s.from, MaxTurns)
		}
		m.stages = append(m.stages, s)
		if i+1 == len(stages) {
			break
		}
		n := stages[i+1].From - s.from
		if n <= 0 {
			return nil, fmt.Errorf("the weights change at record %d and then at record %d; the positions must rise", s.from, stages[i+1].From)
		}
		for k, share := range shares {
			drawn[k] += n / s.round * share
		}
		if rest := n % s.round; rest > 0 {
			t := s.turns()
			for _, k := range t.part[:rest] {
				drawn[k]++
			}
		}
	}
	return m, nil
}

// dues is a heap of the next turns of parts, the earliest deadline first. Each is deadline * MaxParts + part.
type dues []int64

func (d *dues) push(deadline int64, part int32) {
	h := append(*d, deadline*MaxParts+int64(part))
	for i := len(h) - 1; i > 0 && h[i] < h[(i-1)/2]; i = (i - 1) / 2 {
		h[i], h[(i-1)/2] = h[(i-1)/2], h[i]
	}
	*d = h
}

func (d *dues) pop() (part int) {
	h := *d
	first, last := h[0], len(h)-1
	h[0] = h[last]
	h = h[:last]
	for i := 0; ; {
		k := 2*i + 1
		if k+1 < last && h[k+1] < h[k] {
			k++
		}
		if k >= last || h[i] <= h[k] {
			break
		}
		h[i], h[k] = h[k], h[i]
		i = k
	}
	*d = h
	return int(first % MaxParts)
}

// turns computes a round. At each position, the part with the earliest deadline has its turn, among the parts whose next
// turn may come. That finds a schedule whenever there is one (Horn 1974), and the shares themselves prove that there
// is.
func (s *stage) turns() *Turns {
	t := &Turns{part: make([]uint16, s.round), nth: make([]uint32, s.round)}
	// begins has the parts whose next turn may come from a position on, as lists: the first part, and the next one.
	begins, next := make([]int32, s.round), make([]int32, len(s.shares))
	for i := range begins {
		begins[i] = -1
	}
	had := make([]int64, len(s.shares))
	begin := func(part int) int64 { return had[part] * s.round / s.shares[part] }
	deadline := func(part int32) int64 { return ((had[part]+1)*s.round + s.shares[part] - 1) / s.shares[part] }
	wait := func(part int) { // until its next turn may come
		if had[part] < s.shares[part] {
			at := begin(part)
			next[part], begins[at] = begins[at], int32(part)
		}
	}
	for part := len(s.shares) - 1; part >= 0; part-- {
		wait(part)
	}
	var ready dues
	for at := range s.round {
		for part := begins[at]; part >= 0; part = next[part] {
			ready.push(deadline(part), part)
		}
		part := ready.pop()
		t.part[at], t.nth[at] = uint16(part), uint32(had[part])
		had[part]++
		if had[part] < s.shares[part] && begin(part) <= at {
			ready.push(deadline(int32(part)), int32(part))
		} else {
			wait(part)
		}
	}
	return t
}

// Turns computes one round of a stage, of 6 bytes per turn.
func (m *Mix) Turns(stage int) *Turns { return m.stages[stage].turns() }

// Len is the number of positions of an epoch.
func (m *Mix) Len() int64 { return m.length }

// Share returns the share of a part at a position of the mixture.
func (m *Mix) Share(pos int64, part int) float64 {
	s := &m.stages[m.stage(pos)]
	return float64(s.shares[part]) / float64(s.round)
}

func (m *Mix) stage(pos int64) int {
	i, found := slices.BinarySearchFunc(m.stages, pos, func(s stage, pos int64) int { return int(min(max(s.from-pos, -1), 1)) })
	if !found {
		i--
	}
	return i
}

// Part returns the part of a record.
func (m *Mix) Part(record int64) int {
	i, found := slices.BinarySearch(m.first, record)
	if !found {
		i--
	}
	return i
}

// After returns the record that comes n records after another one in its part, from the end of the part on to its
// beginning. It returns false if that is the same record.
func (m *Mix) After(record, n int64) (int64, bool) {
	k := m.Part(record)
	size := m.first[k+1] - m.first[k]
	return m.first[k] + (record-m.first[k]+n)%size, n%size != 0
}

// mixEpoch is the order of an epoch of a mixture, for one goroutine.
type mixEpoch struct {
	m       *Mix
	from    int64 // its first position of the mixture
	shuffle bool
	seed    uint64
	turnsOf func(stage int) *Turns
	stage   int
	turns   *Turns
	// orders are the orders of the parts in the rounds that were used last.
	orders []Order
	rounds []int64
}

// NewEpoch is an epoch of the mixture, cut as s says, for one goroutine. turnsOf is m.Turns, or returns earlier results of
// it.
func (m *Mix) NewEpoch(s *Split, shuffle bool, seed uint64, epoch int64, turnsOf func(stage int) *Turns) *Epoch {
	e := &mixEpoch{m: m, turnsOf: turnsOf, from: epoch % mixEpochs * m.length, shuffle: shuffle, seed: seed, stage: -1}
	e.orders, e.rounds = make([]Order, len(m.first)-1), make([]int64, len(m.first)-1)
	for i := range e.rounds {
		e.rounds[i] = -1
	}
	return &Epoch{split: s, mix: e}
}

// turn returns the part at a position of the epoch and the number of its earlier positions in the mixture.
func (e *mixEpoch) turn(pos int64) (part int, n int64) {
	m := e.m
	pos += e.from
	if k := e.stage; k < 0 || pos < m.stages[k].from || k+1 < len(m.stages) && pos >= m.stages[k+1].from {
		e.stage = m.stage(pos)
		e.turns = e.turnsOf(e.stage)
	}
	s := &m.stages[e.stage]
	at := pos - s.from
	r := at % s.round
	part = int(e.turns.part[r])
	return part, s.drawn[part] + at/s.round*s.shares[part] + int64(e.turns.nth[r])
}

// at returns the record at a position of the epoch, and the round of its part.
func (e *mixEpoch) at(pos int64) (record, round int64) {
	part, n := e.turn(pos)
	first := e.m.first[part]
	size := e.m.first[part+1] - first
	if round = n / size; e.rounds[part] != round {
		e.orders[part] = NewOrder(size, e.shuffle, mix64(e.seed+uint64(part+1)*golden), round)
		e.rounds[part] = round
	}
	return first + e.orders[part].At(n%size), round
}

// Mixed returns the record of row k of a part of an epoch of a mixture, and how often all records of its part of the
// mixture came before.
func (e *Epoch) Mixed(p *Part, k int) (record, round int64) {
	return e.mix.at((p.Lo + int64(k)) % e.mix.m.length)
}
