package audio

import (
	"encoding/binary"
	"fmt"

	"github.com/stokerdata/stoker/internal/csound"
)

// opus is an Opus stream in Ogg (RFC 7845).
type opus struct {
	s    *stream
	o    csound.OpusOptions
	skip int64
}

// opusRate is the rate at which Opus counts.
const opusRate = 48000

func (o *opus) open(at int, info *Info) error {
	h, err := o.s.headers(at, 2)
	if err != nil {
		return err
	}
	b := h[0]
	if len(b) < 19 || b[8]>>4 != 0 {
		return fmt.Errorf("its header: %w", csound.ErrDamaged)
	}
	c := int(b[9])
	o.o.Channels, o.o.Gain = c, int(int16(binary.LittleEndian.Uint16(b[16:])))
	family := b[18]
	switch {
	case family == 0 && (c == 1 || c == 2):
		o.o.Streams, o.o.Coupled = 1, c-1
		o.o.Mapping[1] = 1
	case family > 0 && c > 0 && len(b) >= 21+c:
		o.o.Streams, o.o.Coupled = int(b[19]), int(b[20])
		copy(o.o.Mapping[:], b[21:21+c])
	default:
		return fmt.Errorf("%d channels of mapping %d: %w", c, family, csound.ErrDamaged)
	}
	// Opus decodes at any of five rates: the original rate if it is one of them, or the next higher one.
	o.o.Rate = opusRate
	was := int(binary.LittleEndian.Uint32(b[12:]))
	for _, rate := range []int{24000, 16000, 12000, 8000} {
		if was > 0 && was <= rate {
			o.o.Rate = rate
		}
	}
	info.Channels, info.Rate = c, o.o.Rate
	first, granule, only, err := o.s.firstPage()
	if err != nil {
		return err
	}
	factor := int64(opusRate / o.o.Rate)
	skip, n := bounds(csound.OpusSamples(&first, opusRate), granule, o.s.lastGranule(), only)
	early := int64(binary.LittleEndian.Uint16(b[10:])) // samples that the encoder added at the start
	o.skip, info.Frames = (skip+early)/factor, max(n-early, 0)/factor
	return nil
}

func (o *opus) decode(d *Decoder, dst []float32, stride int, from, n int64) error {
	if d.opus == nil || d.opus.Options() != o.o {
		if d.opus != nil {
			d.opus.Close()
			d.opus = nil
		}
		lib, err := csound.NewOpus(&o.o)
		if err != nil {
			return err
		}
		d.opus = lib
	}
	p, err := o.s.all(d)
	if err != nil {
		return err
	}
	// A packet depends on all packets before it, so they are also decoded.
	done, err := d.opus.Decode(&p, from+o.skip, n, dst, stride)
	if err == nil && done < n {
		err = fmt.Errorf("there are %d of %d samples: %w", from+done, from+n, csound.ErrCut)
	}
	return err
}
