// Package audio reads sound files: WAV, AIFF, AU, CAF, Wave64, FLAC, Ogg Vorbis, Opus and MP3. Probe reads only
// headers. A Decoder returns a part of a recording as float32 samples from -1 to 1. For WAV, FLAC and mostly for Ogg
// it does so without decoding the samples before. Package csound has the decoders written in C.
package audio

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/stokerdata/stoker/internal/csound"
	"github.com/stokerdata/stoker/internal/videodec"
)

// Info describes a recording.
type Info struct {
	// Format is "wav", "w64", "aiff", "au", "caf", "flac", "vorbis", "opus" or "mp3".
	Format string
	// Rate is the number of samples per second of each of Channels.
	Rate, Channels int
	// Encoding is the format of stored samples, for messages: "16 bit", "float 32 bit", "mu-law"; "" if that adds no
	// information.
	Encoding string
	// FrameBytes is the number of bytes of one sample of all channels, 0 if it varies.
	FrameBytes int
	// Frames is the number of samples of a channel.
	Frames int64
}

// Seconds returns the duration.
func (i *Info) Seconds() float64 { return float64(i.Frames) / float64(i.Rate) }

// String describes it in a few words.
func (i *Info) String() string {
	channels := "mono"
	if i.Channels == 2 {
		channels = "stereo"
	} else if i.Channels > 2 {
		channels = fmt.Sprintf("%d channels", i.Channels)
	}
	s := fmt.Sprintf("%s, %d Hz, %s", i.Format, i.Rate, channels)
	if i.Encoding != "" {
		s += ", " + i.Encoding
	}
	return s
}

// Limits for the values in headers.
const (
	MaxChannels = 64
	MaxRate     = 10_000_000
	MaxFrames   = 1 << 40
)

// ErrFormat is the error for bytes in an unknown format of sound.
var ErrFormat = errors.New("it is not sound of a format that is read")

// errNotNative is the error of sound that this package leaves to FFmpeg. It is an ErrFormat.
var errNotNative error = notNative{}

type notNative struct{}

func (notNative) Error() string { return "only FFmpeg may read it" }

func (notNative) Is(target error) bool { return target == ErrFormat }

// Detect returns the format of the sound whose first bytes are b, "" if unknown.
func Detect(b []byte) string {
	if f := magic(b); f != "" {
		return f
	}
	if bytes.HasPrefix(b[tags(b):], []byte("fLaC")) {
		return "flac"
	}
	if _, ok := mp3Begin(b); ok {
		return "mp3"
	}
	return ""
}

// HasMagic reports whether bytes begin like a sound file, in one of the formats that do not begin with a frame.
func HasMagic(b []byte) bool { return magic(b) != "" }

func magic(b []byte) string {
	has := func(at int, s string) bool { return len(b) >= at+len(s) && string(b[at:at+len(s)]) == s }
	switch {
	case (has(0, "RIFF") || has(0, "RIFX") || has(0, "RF64") || has(0, "BW64")) && has(8, "WAVE"):
		return "wav"
	case has(0, wave64First) && len(b) >= 40:
		return "w64"
	case has(0, "FORM") && (has(8, "AIFF") || has(8, "AIFC")):
		return "aiff"
	case has(0, ".snd"), has(0, "dns."):
		return "au"
	case has(0, "caff"):
		return "caf"
	case has(0, "OggS"):
		return "ogg"
	case has(0, "fLaC"):
		return "flac"
	}
	return ""
}

// tags returns the size of the ID3 tags at the beginning.
func tags(b []byte) (at int) {
	for len(b)-at >= 10 && string(b[at:at+3]) == "ID3" {
		size := 10
		for i, v := range b[at+6 : at+10] {
			size += int(v&0x7f) << (21 - 7*i)
		}
		if b[at+5]&0x10 != 0 {
			size += 10 // a footer
		}
		if size > len(b)-at {
			return at
		}
		at += size
	}
	return at
}

// Extensions are the file extensions of sound, lower case. Native are those of formats that are read without FFmpeg.
var (
	Native     = []string{".wav", ".wave", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aif", ".aiff", ".aifc", ".caf", ".au", ".snd", ".w64"}
	Extensions = append(slices.Clip(Native), ".m4a", ".m4b", ".aac", ".wma", ".amr", ".ape", ".wv", ".mka", ".ac3", ".eac3", ".dts", ".mp2", ".mp1", ".mpc",
		".tta", ".gsm", ".spx", ".3ga", ".voc", ".sph", ".nist", ".ircam", ".8svx", ".rf64", ".bwf", ".tak", ".ra", ".adts", ".weba")
)

// recording is an open file of one format.
type recording interface {
	// decode makes samples [from, from+n), which there are, of all channels: channel
	// c begins at dst[c*stride].
	decode(d *Decoder, dst []float32, stride int, from, n int64) error
}

// Probe reads the headers of a whole file.
func Probe(b []byte) (Info, error) {
	var d Decoder
	defer d.Close()
	info, _, err := open(&d, b)
	return info, err
}

func open(d *Decoder, b []byte) (info Info, r recording, err error) {
	switch Detect(b) {
	case "wav", "w64":
		info, r, err = openWAV(b)
	case "aiff":
		info, r, err = openAIFF(b)
	case "au":
		info, r, err = openAU(b)
	case "caf":
		info, r, err = openCAF(b)
	case "flac":
		info, r, err = openFLAC(b)
	case "ogg":
		info, r, err = openOgg(d, b)
	case "mp3":
		info, r, err = openMP3(d, b)
	default:
		err = ErrFormat
	}
	if errors.Is(err, ErrFormat) {
		info, r, err = openFFmpeg(d, b, err)
	}
	switch {
	case err != nil:
		return info, nil, err
	case info.Channels < 1 || info.Channels > MaxChannels:
		return info, nil, fmt.Errorf("%s: %d channels are out of range: 1 to %d", info.Format, info.Channels, MaxChannels)
	case info.Rate < 1 || info.Rate > MaxRate:
		return info, nil, fmt.Errorf("%s: %d samples per second are out of range: 1 to %d", info.Format, info.Rate, MaxRate)
	case info.Frames < 0 || info.Frames > MaxFrames:
		return info, nil, fmt.Errorf("%s: %d samples are out of range", info.Format, info.Frames)
	}
	return info, r, nil
}

// Decoder decodes, one recording after another. It belongs to one goroutine. Its
// zero value is ready; Close ends it.
type Decoder struct {
	Info
	r recording

	room  []int32 // a frame of FLAC
	block []byte  // encoded bytes on their way to C
	sizes []int32 // of packets

	// The libraries' state for the last stream that each decoded.
	vorbis                *csound.Vorbis
	vorbisID, vorbisSetup []byte
	opus                  *csound.Opus
	mp3                   *csound.MP3
	ffmpeg                *videodec.Sound

	places []int     // of frames of MP3
	wave   []float32 // one of them
}

// keepRoom is the size of buffers, in bytes, that are kept from one recording to the
// next.
const keepRoom = 4 << 20

// Open reads the headers of a file. b is used until the next Open.
func (d *Decoder) Open(b []byte) (err error) {
	d.Info, d.r, err = open(d, b)
	return err
}

// Close frees the memory of libraries.
func (d *Decoder) Close() {
	if d.vorbis != nil {
		d.vorbis.Close()
		d.vorbis = nil
	}
	if d.opus != nil {
		d.opus.Close()
		d.opus = nil
	}
	if d.mp3 != nil {
		d.mp3.Close()
		d.mp3 = nil
	}
	d.forgetFFmpeg()
}

// Forget forgets the file and releases large buffers.
func (d *Decoder) Forget() {
	d.r = nil
	d.forgetFFmpeg()
	if 4*cap(d.room) > keepRoom {
		d.room = nil
	}
	if cap(d.block) > keepRoom {
		d.block = nil
	}
}

// Decode makes samples [from, from+n) of all channels: channel c begins at
// dst[c*stride]. Samples that are outside of the recording are zeros.
func (d *Decoder) Decode(dst []float32, stride int, from, n int64) error {
	lo, hi := min(max(from, 0), d.Frames), min(max(from+n, 0), d.Frames)
	if hi <= lo {
		lo, hi = from, from
	}
	for c := range d.Channels {
		row := dst[int64(c*stride) : int64(c*stride)+n]
		clear(row[:lo-from])
		clear(row[hi-from:])
	}
	if hi == lo {
		return nil
	}
	if err := d.r.decode(d, dst[lo-from:], stride, lo, hi-lo); err != nil {
		return fmt.Errorf("%s: %w", d.Format, err)
	}
	return nil
}

// copied returns a copy of encoded bytes in the decoder's own memory, which C may read. The bytes themselves may be
// those of a mapped file.
func (d *Decoder) copied(b []byte) []byte {
	d.block = append(slices.Grow(d.block[:0], len(b)+csoundTail), b...)
	return d.block
}

// csoundTail is the number of readable bytes after copies.
const csoundTail = 16

func (d *Decoder) ints(n int) []int32 {
	if cap(d.room) < n {
		d.room = make([]int32, n)
	}
	return d.room[:n]
}
