package augment

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/stokerdata/stoker/internal/audio"
	"github.com/stokerdata/stoker/internal/collate"
	"github.com/stokerdata/stoker/internal/item"
	"github.com/stokerdata/stoker/internal/transform"
	"github.com/stokerdata/stoker/source/driver"
)

// The formats of packed samples.
const (
	// Float is float32: a loader gets the same samples as from the original recording.
	Float = "f32"
	// Sixteen is 16-bit PCM. Samples are rounded.
	Sixteen = "i16"
)

// sound is a field of recordings. They are packed as WAV files, which every loader reads.
type sound struct {
	rate, channels int
	planes         bool // rows store one channel after the other
	sixteen        bool
}

// soundOf returns how the rows of an array of samples are packed. It returns nil for spectrograms,
// which are arrays.
func (s *Source) soundOf(c *collate.Column) (*sound, error) {
	if c.DType != item.F32 {
		return nil, fmt.Errorf("field %q: sound is packed as float32 or 16 bit; leave ToDtype to the loader", c.Name)
	}
	if s.spectral(c.Name) {
		return nil, nil
	}
	a := &sound{rate: s.set.Rates()[c.Name], channels: 1, planes: !c.Ragged, sixteen: s.opt.Audio == Sixteen}
	if len(c.Shape) > 0 {
		a.channels = c.Shape[0]
	}
	if a.rate == 0 {
		return nil, fmt.Errorf("field %q: the recordings have different sample rates: use Resample (--audio-rate)", c.Name)
	}
	return a, nil
}

// spectral reports whether an array has spectrograms.
func (s *Source) spectral(array string) bool {
	for i := range s.opt.Outputs {
		if o := &s.opt.Outputs[i]; o.Name == array {
			return slices.ContainsFunc(o.Ops, func(op json.RawMessage) bool {
				name, _, _ := strings.Cut(transform.OpText(op), "(")
				return strings.HasSuffix(name, "Spectrogram")
			})
		}
	}
	return false
}

// describe fills in f, the field of the recordings.
func (a *sound) describe(f *driver.Field) {
	f.Kind, f.DType, f.Shape = driver.KindAudio, "", nil
	f.MaxBytes = a.bytes(f.MaxBytes)
}

// bytes returns the size of the file for a row of n bytes.
func (a *sound) bytes(n int64) int64 {
	return audio.WAVBytes(a.channels, n/4/int64(a.channels), a.sixteen)
}

func (a *sound) put(dst, row []byte) { audio.PutWAV(dst, row, a.rate, a.channels, a.planes, a.sixteen) }
