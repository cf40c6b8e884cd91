package sharsource

import (
	"fmt"
	"math"
	"slices"

	"github.com/stokerdata/stoker/internal/audio"
)

// manifest is Lhotse's description of a recording, of features or of an array, as far as it is read.
type manifest struct {
	Rate     float64  `json:"sampling_rate"`
	Samples  int64    `json:"num_samples"`
	Channels channels `json:"channel_ids"`

	Start  float64 `json:"start"`
	Shift  float64 `json:"frame_shift"`
	Frames int64   `json:"num_frames"`
	Axis   int     `json:"temporal_dim"`
	Array  *struct {
		Shape []int64 `json:"shape"`
	} `json:"array"`
	Shape []int64 `json:"shape"`
}

// known reports whether m describes a value at all. A custom value can be any object.
func (m *manifest) known() bool { return m.Rate > 0 || m.Shift > 0 || m.Array != nil || m.Shape != nil }

// part is the part of a stored value that belongs to the cut. SharWriter stores only this part, but cuts can be
// changed later.
type part struct {
	// start and duration are in seconds, for sound. most is the largest number of bytes of the part as WAV.
	start, duration float64
	most            int64
	// channels are the positions of the channels, nil for all.
	channels []int
	// from and rows are in the first axis of an array.
	from, rows int64
}

// part returns the part that a cut has of a value, nil if it has all of it. main is set for the recording of the cut,
// again if sound may have been stored with another rate than that of its description.
func (m *manifest) part(c *cut, of class, main, again bool) (*part, error) {
	switch {
	case of == sound && m.Rate > 0:
		return m.sound(c, main, again)
	case of == array && m.Shift > 0:
		return m.array(c)
	}
	return nil, nil
}

func (m *manifest) sound(c *cut, main, again bool) (*part, error) {
	from, n := samples(c.Start, m.Rate), samples(c.Duration, m.Rate)
	p := &part{start: c.Start, duration: c.Duration}
	if main && c.Channel != nil && m.Channels != nil && !slices.Equal(c.Channel, m.Channels) {
		for i, id := range m.Channels {
			if slices.Contains(c.Channel, id) {
				p.channels = append(p.channels, i)
			}
		}
		if len(p.channels) == 0 {
			return nil, fmt.Errorf("the recording has the channels %v, and the cut %v", m.Channels, c.Channel)
		}
	}
	if from == 0 && n >= m.Samples && p.channels == nil {
		return nil, nil
	}
	if from >= m.Samples {
		return nil, fmt.Errorf("the recording has %d samples, and the cut begins at sample %d", m.Samples, from)
	}
	count := max(len(p.channels), len(m.Channels), 1)
	if p.channels == nil && m.Channels == nil {
		count = audio.MaxChannels
	}
	rate := m.Rate
	if again {
		rate = max(rate, 48000) // that of Opus
	}
	p.most = audio.WAVBytes(count, samples(c.Duration, rate)+1, false)
	return p, nil
}

func (m *manifest) array(c *cut) (*part, error) {
	frames := func(seconds float64) int64 { return halfUp(seconds / m.Shift) }
	rows := m.Frames
	if m.Rate > 0 { // features: their length is counted in samples
		hop := max(halfUp(m.Shift*m.Rate), 1)
		frames = func(seconds float64) int64 { return (samples(seconds, m.Rate) + hop/2) / hop }
	} else if m.Array != nil && m.Axis >= 0 && m.Axis < len(m.Array.Shape) {
		rows = m.Array.Shape[m.Axis]
	}
	p := &part{from: frames(max(c.Start-m.Start, 0)), rows: frames(c.Duration)}
	switch {
	case p.from == 0 && p.rows >= rows:
		return nil, nil
	case m.Axis != 0 && m.Array != nil:
		return nil, fmt.Errorf("the cut has a part of the array, and axis %d of it is time: only the first axis can be cut", m.Axis)
	}
	p.rows = max(min(p.rows, rows-p.from), 0)
	return p, nil
}

// samples returns the number of samples in some seconds, as Lhotse counts them.
func samples(seconds, rate float64) int64 { return halfUp(seconds * rate) }

func halfUp(v float64) int64 {
	const most = 1 << 40
	return int64(min(math.Floor(math.Round(v*1e8)/1e8+0.5), most))
}
