package audio

import (
	"errors"
	"fmt"
	"slices"

	"github.com/stokerdata/stoker/internal/csound"
)

// pcm is a recording with uncompressed samples.
type pcm struct {
	kind     csound.PCM
	channels int
	data     []byte
	table    *[256]float32
	swap     bool // big-endian
	signed8  bool // bytes with a sign
}

// sample is the format of a stored sample.
type sample int

const (
	sampleUnknown sample = iota
	sampleU8
	sampleS8
	sampleS16
	sampleS24
	sampleS32
	sampleF32
	sampleF64
	sampleALaw
	sampleMuLaw
)

// signed returns the whole numbers of a size in bytes.
func signed(size int) sample {
	if size < 1 || size > 4 {
		return sampleUnknown
	}
	return []sample{sampleS8, sampleS16, sampleS24, sampleS32}[size-1]
}

// float returns the floating-point numbers of a size in bytes.
func float(size int) sample {
	switch size {
	case 4:
		return sampleF32
	case 8:
		return sampleF64
	}
	return sampleUnknown
}

// errSample is the error of newPCM for sampleUnknown.
var errSample = errors.New("unknown samples")

// newPCM returns a recording without data, and sets Info.Encoding.
func newPCM(s sample, info *Info) (*pcm, error) {
	if info.Channels < 1 || info.Channels > MaxChannels {
		return nil, fmt.Errorf("%d channels are out of range: 1 to %d", info.Channels, MaxChannels)
	}
	p := &pcm{channels: info.Channels}
	switch s {
	case sampleUnknown:
		return nil, errSample
	case sampleALaw:
		p.kind, p.table, info.Encoding = csound.Table, &aLaw, "A-law"
		return p, nil
	case sampleMuLaw:
		p.kind, p.table, info.Encoding = csound.Table, &muLaw, "mu-law"
		return p, nil
	}
	p.kind = [...]csound.PCM{sampleU8: csound.U8, sampleS8: csound.U8, sampleS16: csound.S16, sampleS24: csound.S24, sampleS32: csound.S32, sampleF32: csound.F32, sampleF64: csound.F64}[s]
	p.signed8 = s == sampleS8
	info.Encoding = fmt.Sprintf("%d bit", 8*p.kind.Size())
	if s == sampleF32 || s == sampleF64 {
		info.Encoding = "float " + info.Encoding
	}
	return p, nil
}

// fill sets the samples. An incomplete frame at the end is left out.
func (p *pcm) fill(info *Info, data []byte) *pcm {
	frame := p.kind.Size() * p.channels
	info.Frames, info.FrameBytes = int64(len(data)/frame), frame
	p.data = data[:len(data)/frame*frame]
	return p
}

var errShort = errors.New("it ends too early: the file is cut off")

func (p *pcm) decode(d *Decoder, dst []float32, stride int, from, n int64) error {
	frame := int64(p.kind.Size() * p.channels)
	if (from+n)*frame > int64(len(p.data)) {
		return errShort
	}
	// In pieces that stay in the first cache.
	per := max(16<<10/frame, 1)
	for at := int64(0); at < n; at += per {
		m := min(per, n-at)
		src := d.copied(p.data[(from+at)*frame : (from+at+m)*frame])
		p.order(src)
		csound.Samples(p.kind, src, dst[at:], stride, p.channels, int(m), p.table)
	}
	return nil
}

// order converts the bytes of samples to those of a WAV file.
func (p *pcm) order(b []byte) {
	if p.signed8 {
		for i := range b {
			b[i] ^= 0x80
		}
	}
	if size := p.kind.Size(); p.swap && size > 1 {
		for i := 0; i < len(b); i += size {
			slices.Reverse(b[i : i+size])
		}
	}
}
