package audio

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/stokerdata/stoker/internal/csound"
)

// wav is a RIFF, RF64 or BW64 file of PCM.
type wav struct {
	pcm      csound.PCM
	channels int
	data     []byte
	table    *[256]float32
}

// The numbers of formats in a fmt chunk.
const (
	wavePCM        = 1
	waveFloat      = 3
	waveALaw       = 6
	waveMuLaw      = 7
	waveExtensible = 0xfffe
)

// unknownSize is what writers put where they did not know yet how much would come.
const unknownSize = math.MaxUint32

func openWAV(b []byte) (Info, recording, error) {
	info := Info{Format: "wav"}
	long := string(b[:4]) != "RIFF"
	var wide uint64 // size of the data of RF64
	var w *wav
	for at := uint64(12); ; {
		if at+8 > uint64(len(b)) {
			if w == nil {
				return info, nil, fmt.Errorf("wav: there is no fmt chunk in %d bytes: the file is damaged or cut off", len(b))
			}
			return info, nil, fmt.Errorf("wav: there is no data chunk in %d bytes: the file is cut off", len(b))
		}
		id, size := string(b[at:at+4]), uint64(binary.LittleEndian.Uint32(b[at+4:]))
		body := b[at+8:]
		have := uint64(len(body))
		if id == "data" {
			if w == nil {
				return info, nil, fmt.Errorf("wav: the data at offset %d come before what says what they are: the file is damaged", at)
			}
			if long && size == unknownSize {
				size = wide
			}
			if size == unknownSize || size == 0 && !long && at+8 < uint64(len(b)) && binary.LittleEndian.Uint32(b[4:]) == 0 {
				size = have // written to a pipe
			}
			if size > have {
				return info, nil, fmt.Errorf("wav: %d bytes of samples at offset %d, of which %d are there: the file is cut off", size, at+8, have)
			}
			frame := uint64(w.pcm.Size() * w.channels)
			info.Frames, info.FrameBytes = int64(size/frame), int(frame)
			w.data = body[:size/frame*frame]
			return info, w, nil
		}
		if size > have {
			return info, nil, fmt.Errorf("wav: the chunk %q at offset %d has %d bytes, of which %d are there: the file is damaged or cut off", id, at, size, have)
		}
		switch id {
		case "ds64":
			if size < 16 {
				return info, nil, fmt.Errorf("wav: the chunk ds64 at offset %d has %d bytes, too few", at, size)
			}
			wide = binary.LittleEndian.Uint64(body[8:])
		case "fmt ":
			var err error
			if w, err = waveFormat(body[:size], &info); err != nil {
				return info, nil, fmt.Errorf("wav: the chunk fmt at offset %d: %w", at, err)
			}
		}
		at += 8 + size + size&1
	}
}

// waveFormat reads a fmt chunk.
func waveFormat(b []byte, info *Info) (*wav, error) {
	if len(b) < 16 {
		return nil, fmt.Errorf("it has %d bytes, less than 16", len(b))
	}
	tag, bits := binary.LittleEndian.Uint16(b), int(binary.LittleEndian.Uint16(b[14:]))
	info.Channels, info.Rate = int(binary.LittleEndian.Uint16(b[2:])), int(binary.LittleEndian.Uint32(b[4:]))
	align := int(binary.LittleEndian.Uint16(b[12:]))
	if tag == waveExtensible {
		if len(b) < 40 {
			return nil, fmt.Errorf("it has %d bytes, less than the 40 of an extensible one", len(b))
		}
		tag = binary.LittleEndian.Uint16(b[24:])
	}
	if info.Channels < 1 || info.Channels > MaxChannels {
		return nil, fmt.Errorf("%d channels are out of range: 1 to %d", info.Channels, MaxChannels)
	}
	w := &wav{channels: info.Channels}
	// Samples of 20 bits fill 24, and so on.
	size := (bits + 7) / 8
	if align > 0 && align%info.Channels == 0 {
		size = align / info.Channels
	}
	known := true
	switch {
	case tag == wavePCM && size == 1:
		w.pcm = csound.U8
	case tag == wavePCM && size == 2:
		w.pcm = csound.S16
	case tag == wavePCM && size == 3:
		w.pcm = csound.S24
	case tag == wavePCM && size == 4:
		w.pcm = csound.S32
	case tag == waveFloat && size == 4:
		w.pcm = csound.F32
	case tag == waveFloat && size == 8:
		w.pcm = csound.F64
	case tag == waveALaw && size == 1:
		w.pcm, w.table = csound.Table, &aLaw
	case tag == waveMuLaw && size == 1:
		w.pcm, w.table = csound.Table, &muLaw
	default:
		known = false
	}
	switch {
	case !known:
		return nil, fmt.Errorf("samples of format %d with %d bits are not supported: PCM of 8 to 32 bits, float of 32 and 64, A-law and mu-law are", tag, bits)
	case tag == waveALaw:
		info.Encoding = "A-law"
	case tag == waveMuLaw:
		info.Encoding = "mu-law"
	case tag == waveFloat:
		info.Encoding = fmt.Sprintf("float %d bit", 8*size)
	default:
		info.Encoding = fmt.Sprintf("%d bit", 8*size)
	}
	return w, nil
}

var errShort = errors.New("it ends too early: the file is cut off")

func (w *wav) decode(d *Decoder, dst []float32, stride int, from, n int64) error {
	frame := int64(w.pcm.Size() * w.channels)
	if (from+n)*frame > int64(len(w.data)) {
		return errShort
	}
	d.pcm(w.pcm, w.data[from*frame:(from+n)*frame], dst, stride, w.channels, int(n), w.table)
	return nil
}

// aLaw and muLaw are the samples of G.711, by their byte.
var aLaw, muLaw = g711()

func g711() (a, mu [256]float32) {
	for i := range 256 {
		// A-law: every other bit is turned over, the sign is set for what is positive.
		v := i ^ 0x55
		m, e := v&15, v>>4&7
		s := m<<4 + 8
		if e > 0 {
			s = (s + 0x100) << (e - 1)
		}
		if v&0x80 == 0 {
			s = -s
		}
		a[i] = float32(s) / 32768
		// mu-law: all bits are.
		v = ^i & 0xff
		s = ((v&15)<<3+0x84)<<(v>>4&7) - 0x84
		if v&0x80 != 0 {
			s = -s
		}
		mu[i] = float32(s) / 32768
	}
	return a, mu
}
