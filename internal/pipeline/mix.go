package pipeline

import (
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"sync"

	"github.com/stokerdata/stoker/internal/sampler"
	"github.com/stokerdata/stoker/internal/source/wrap/joined"
	"github.com/stokerdata/stoker/source/driver"
)

// This file makes a mixture of the datasets of a list: its order, and what is known about it.

// Mix sets the weights of the datasets of a concat: URL.
type Mix struct {
	// Weights are the weights of the datasets. Numbers are exact as written: 0.7 is seven tenths.
	Weights []json.Number `json:"weights"`
	// Schedule has other weights from a position on. Positions count the records of all ranks and epochs. Changes were
	// made by hand, while the loader was in use; they replace the schedule from their position on.
	Schedule []MixChange `json:"schedule"`
	Changes  []MixChange `json:"changes"`
	// Length is the number of records of an epoch, 0 for the records of all datasets.
	Length int64 `json:"length"`
}

// mixedFiles is the number of files that stay open. A mixture may have a thousand datasets, with few records of each in a
// batch, and processes may often have no more than 1,024 files.
const mixedFiles = 128

// mixedReads limits the concurrent reads of files that are not open. Opening a file blocks a thread.
const mixedReads = 16

// MixChange has the weights from a position on.
type MixChange struct {
	From    int64         `json:"from"`
	Weights []json.Number `json:"weights"`
}

// MixPart describes a dataset of a mixture.
type MixPart struct {
	URL     string `json:"url"`
	Records int64  `json:"records"`
	// Shares are its shares of the records, by position from which on they hold (Info.Mix).
	Shares []float64 `json:"shares"`
}

// MixInfo describes a mixture.
type MixInfo struct {
	// From has the positions at which the weights change, the first one 0.
	From  []int64   `json:"from"`
	Parts []MixPart `json:"parts"`
}

// stages returns the weights by position.
func (m *Mix) stages() (all []MixChange) {
	all = append([]MixChange{{0, m.Weights}}, m.Schedule...)
	for _, c := range m.Changes {
		i := slices.IndexFunc(all, func(s MixChange) bool { return s.From >= c.From })
		if i >= 0 {
			all = all[:i]
		}
		all = append(all, c)
	}
	return all
}

// planMix makes the order of a mixture, if one is requested.
func (p *Pipeline) planMix() error {
	c := p.cfg.Mix
	if c == nil {
		return nil
	}
	starts := joined.Parts(p.src)
	if starts == nil {
		return fmt.Errorf("mix: %s is not a list of datasets: write concat:a,b", p.src.Info().URL)
	}
	urls := p.src.(*joined.Source).URLs()
	sizes := make([]int64, len(urls))
	for i := range urls {
		if sizes[i] = starts[i+1] - starts[i]; sizes[i] == 0 {
			return fmt.Errorf("mix: %s holds no records", urls[i])
		}
	}
	info := &MixInfo{}
	var stages []sampler.MixStage
	for _, s := range c.stages() {
		var weights []*big.Rat
		for _, w := range s.Weights {
			if len(w) > 64 {
				return fmt.Errorf("mix: the weight %.64s... is too long", w)
			}
			r, ok := new(big.Rat).SetString(string(w))
			if !ok {
				return fmt.Errorf("mix: the weight %s is not a number", w)
			}
			weights = append(weights, r)
		}
		shares, err := sharesOf(weights, len(urls))
		if err != nil {
			return fmt.Errorf("mix: the weights from record %d on: %w", s.From, err)
		}
		info.From = append(info.From, s.From)
		stages = append(stages, sampler.MixStage{From: s.From, Shares: shares})
	}
	length := c.Length
	if length == 0 {
		length = starts[len(urls)]
	}
	mix, err := sampler.NewMix(sizes, stages, length)
	if err != nil {
		return fmt.Errorf("mix: %w", err)
	}
	for i := range urls {
		part := MixPart{URL: urls[i], Records: sizes[i]}
		for _, from := range info.From {
			part.Shares = append(part.Shares, mix.Share(from, i))
		}
		info.Parts = append(info.Parts, part)
	}
	p.order.mix, p.info.Mix = &mixing{Mix: mix}, info
	p.order.mixed = make([]int64, len(urls))
	return nil
}

// sharesOf returns whole numbers in proportion to weights. The sum is at most sampler.MaxTurns. If the weights have no such
// numbers, the shares are rounded to parts of sampler.MaxTurns, and each positive weight gets one at least.
func sharesOf(weights []*big.Rat, parts int) ([]int64, error) {
	if len(weights) != parts {
		return nil, fmt.Errorf("%d weights for %d parts", len(weights), parts)
	}
	lcm, sum := big.NewInt(1), new(big.Rat)
	for i, w := range weights {
		if w.Sign() < 0 {
			return nil, fmt.Errorf("weight %d is negative", i)
		}
		sum.Add(sum, w)
		if lcm.BitLen() < 256 { // larger ones are rounded in any case
			gcd := new(big.Int).GCD(nil, nil, lcm, w.Denom())
			lcm.Mul(lcm, new(big.Int).Quo(w.Denom(), gcd))
		}
	}
	if sum.Sign() == 0 {
		return nil, fmt.Errorf("all weights are 0")
	}
	shares := make([]int64, parts)
	if whole := new(big.Rat).Mul(sum, new(big.Rat).SetInt(lcm)); lcm.BitLen() < 256 && whole.IsInt() {
		numbers, gcd := make([]*big.Int, parts), new(big.Int)
		for i, w := range weights {
			numbers[i] = new(big.Rat).Mul(w, new(big.Rat).SetInt(lcm)).Num()
			gcd.GCD(nil, nil, gcd, numbers[i])
		}
		if n := new(big.Int).Quo(whole.Num(), gcd); n.IsInt64() && n.Int64() <= sampler.MaxTurns {
			for i := range numbers {
				shares[i] = new(big.Int).Quo(numbers[i], gcd).Int64()
			}
			return shares, nil
		}
	}
	// The largest remainders are rounded up.
	left := int64(sampler.MaxTurns)
	rest := make([]*big.Rat, parts)
	for i, w := range weights {
		exact := new(big.Rat).Mul(new(big.Rat).Quo(w, sum), big.NewRat(sampler.MaxTurns, 1))
		n := new(big.Int).Quo(exact.Num(), exact.Denom()).Int64()
		if n == 0 && w.Sign() > 0 {
			n = 1
		}
		shares[i] = n
		left -= n
		rest[i] = exact.Sub(exact, new(big.Rat).SetInt64(n))
	}
	order := make([]int, parts)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return rest[b].Cmp(rest[a]) })
	for at := 0; left > 0; at = (at + 1) % parts {
		if weights[order[at]].Sign() > 0 {
			shares[order[at]]++
			left--
		}
	}
	for at := parts - 1; left < 0; at = (at + parts - 1) % parts { // after rounding up small ones
		if shares[order[at]] > 1 {
			shares[order[at]]--
			left++
		}
	}
	return shares, nil
}

// mixing is the order of a mixture. It remembers the turns of the stages that were used last: the planner and a reader
// may be in two stages at a time.
type mixing struct {
	*sampler.Mix
	mu   sync.Mutex
	last [2]struct {
		stage int
		*sampler.Turns
	}
}

// turns returns the turns of a stage.
func (m *mixing) turns(stage int) *sampler.Turns {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.last {
		if l := &m.last[i]; l.Turns != nil && l.stage == stage {
			return l.Turns
		}
	}
	t := m.Turns(stage)
	m.last[1] = m.last[0]
	m.last[0].stage, m.last[0].Turns = stage, t
	return t
}

// mixSettings are the settings that positions depend on. Changes by hand are in states.
func (p *Pipeline) mixSettings() string {
	c := *p.cfg.Mix
	c.Changes, c.Length = nil, p.order.mix.Len()
	return text(c)
}

// mixedNow returns the records that were handed out, by dataset.
func (p *Pipeline) mixedNow() []int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.order.mixed)
}

// countMixed counts the records of a batch by their dataset.
func (p *Pipeline) countMixed(ids []int64) {
	for _, id := range ids {
		_, record := driver.OfEpoch(id)
		p.order.mixed[p.order.mix.Part(record)]++
	}
}
