package pipeline

import (
	"encoding/json"
	"fmt"
	"math/big"
	"slices"

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

// MixChange has the weights from a position on.
type MixChange struct {
	From    int64         `json:"from"`
	Weights []json.Number `json:"weights"`
}

// MixKeys are the keys of a Mix in JSON.
func MixKeys() []string { return []string{"weights", "schedule", "changes", "length"} }

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
		stage := sampler.MixStage{From: s.From}
		for _, w := range s.Weights {
			if len(w) > 64 {
				return fmt.Errorf("mix: the weight %.64s... is too long", w)
			}
			r, ok := new(big.Rat).SetString(string(w))
			if !ok {
				return fmt.Errorf("mix: the weight %s is not a number", w)
			}
			stage.Weights = append(stage.Weights, r)
		}
		info.From = append(info.From, s.From)
		stages = append(stages, stage)
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
	p.mix, p.info.Mix = mix, info
	p.mixed = make([]int64, len(urls))
	return nil
}

// mixSettings are the settings that positions depend on. Changes by hand are in states.
func (p *Pipeline) mixSettings() string {
	c := *p.cfg.Mix
	c.Changes, c.Length = nil, p.mix.Len()
	return text(c)
}

// mixedNow returns the records that were handed out, by dataset.
func (p *Pipeline) mixedNow() []int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.mixed)
}

// countMixed counts the records of a batch by their dataset.
func (p *Pipeline) countMixed(ids []int64) {
	for _, id := range ids {
		_, record := driver.OfEpoch(id)
		p.mixed[p.mix.Part(record)]++
	}
}
