package pack

import (
	"context"
	"errors"

	"github.com/stokerdata/stoker/internal/audio"
	"github.com/stokerdata/stoker/internal/cdec"
	"github.com/stokerdata/stoker/internal/csound"
	"github.com/stokerdata/stoker/internal/dynlib"
	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/source/driver"
)

// soundPiece is the number of samples of a recording that are decoded at a time, over all channels.
const soundPiece = 2 << 20

// checkValue checks a value of a source before it is stored and returns the problem. By default it checks only the
// header. Images and masks are checked during encoding.
func (w *worker) checkValue(ctx context.Context, src *driver.Value, f *Field) error {
	all := w.opt.Check == CheckDecode
	var err error
	switch {
	case f.Kind == driver.KindAudio:
		err = w.enc.trySound(src.Bytes, all)
	case f.Kind == driver.KindFrames && all:
		stored := Value{Field: f}
		stored.Bytes = src.Bytes
		err = (&verifier{}).decodeClip(ctx, &stored, w)
	}
	if none := new(noDecoder); err == nil || errors.As(err, &none) || context.Cause(ctx) != nil {
		return err
	}
	return bad("%v", err)
}

// trySound opens a recording, and with all also decodes it, to see whether that works.
func (e *encoder) trySound(b []byte, all bool) error {
	d := &e.sound
	defer d.Forget()
	if err := d.Open(b); err != nil || !all {
		return err
	}
	piece := soundFrames(&d.Info)
	samples := make([]float32, piece*int64(d.Channels))
	from := int64(0)
	if d.Format == "opus" { // its last samples need all that are before them
		from = d.Frames - piece
	}
	for ; from < d.Frames; from += piece {
		if err := d.Decode(samples, int(piece), from, min(piece, d.Frames-from)); err != nil {
			return err
		}
	}
	return nil
}

// soundFrames returns the number of samples per channel that are decoded at a time.
func soundFrames(info *audio.Info) int64 {
	return min(max(soundPiece/int64(info.Channels), 1), info.Frames)
}

// soundMemory returns the maximum memory for decoding a recording with trySound, 0 if its header is invalid.
func soundMemory(b []byte) int64 {
	info, err := audio.Probe(b)
	if err != nil {
		return 0
	}
	return 4*int64(info.Channels)*soundFrames(&info) + 2*int64(len(b)) // Ogg is copied
}

// unsupported reports whether an error of decoding is about a file that may be intact, but is not
// read by this version or on this machine.
func unsupported(err error) bool {
	for _, target := range []error{
		cdec.ErrUnsupported, imagefile.ErrUnsupported, csound.ErrUnsupported, audio.ErrFormat, dynlib.ErrMissing,
	} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}
