package audio

import (
	"fmt"

	"github.com/stokerdata/stoker/internal/videodec"
)

// ffmpeg is a recording that FFmpeg's libraries decode.
type ffmpeg struct {
	s *videodec.Sound
	// held are the samples of all channels, one channel after another, of a short recording.
	held   []float32
	frames int64
}

// heldSamples is the largest number of samples that are held from counting to decoding.
const heldSamples = 8 << 20

// openFFmpeg opens a file that this package does not read on its own; why is the reason. A file does not contain its
// exact length, so it is decoded once to count its samples.
func openFFmpeg(d *Decoder, b []byte, why error) (Info, recording, error) {
	info := Info{}
	s, err := videodec.NewSound(b)
	if err != nil {
		if lacks := videodec.LoadFormat(); lacks != nil {
			return info, nil, fmt.Errorf("%w, and %w; or convert it: ffmpeg -i IN OUT.flac", why, lacks)
		}
		return info, nil, fmt.Errorf("%w (FFmpeg: %w)", why, err)
	}
	d.forgetFFmpeg()
	d.ffmpeg = s
	info.Format, info.Rate, info.Channels = s.Codec, s.Rate, s.Channels
	if info.Channels < 1 || info.Channels > MaxChannels {
		return info, nil, fmt.Errorf("%s: %d channels are out of range: 1 to %d", info.Format, info.Channels, MaxChannels)
	}
	r := &ffmpeg{s: s}
	if r.frames, err = s.Count(); err == nil {
		err = r.hold()
	}
	info.Frames = r.frames
	if err != nil {
		return info, nil, fmt.Errorf("%s: %w", info.Format, err)
	}
	return info, r, nil
}

// hold decodes a short recording.
func (r *ffmpeg) hold() error {
	if r.frames*int64(r.s.Channels) > heldSamples {
		return nil
	}
	if err := r.s.Rewind(); err != nil {
		return err
	}
	held := make([]float32, r.frames*int64(r.s.Channels))
	if err := r.s.Decode(held, int(r.frames), 0, r.frames); err != nil {
		return err
	}
	r.held = held
	return nil
}

func (r *ffmpeg) decode(_ *Decoder, dst []float32, stride int, from, n int64) error {
	if r.held != nil {
		for c := range r.s.Channels {
			copy(dst[int64(c*stride):int64(c*stride)+n], r.held[int64(c)*r.frames+from:])
		}
		return nil
	}
	if r.s.At() > from || r.s.At() == r.frames {
		if err := r.s.Rewind(); err != nil {
			return err
		}
	}
	return r.s.Decode(dst, stride, from, n)
}

// forgetFFmpeg frees FFmpeg's state for the last file.
func (d *Decoder) forgetFFmpeg() {
	if d.ffmpeg != nil {
		d.ffmpeg.Close()
		d.ffmpeg = nil
	}
}
