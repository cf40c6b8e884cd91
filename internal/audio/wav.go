package audio

import (
	"encoding/binary"
	"fmt"
	"math"
)

// The numbers of formats in a fmt chunk.
const (
	wavePCM        = 1
	waveFloat      = 3
	waveALaw       = 6
	waveMuLaw      = 7
	waveExtensible = 0xfffe
)

// unknownSize is the size that writers store if they do not know the length yet.
const unknownSize = math.MaxUint32

// riff is the layout of a WAV file or of one of its relatives.
type riff struct {
	order  binary.ByteOrder
	wide64 bool // Wave64: names of 16 bytes, sizes of 8 that include the head, chunks at multiples of 8
	long   bool // RF64, BW64: the size of the data is in a chunk ds64
}

// wave64 are the last 12 bytes of the names of Wave64's chunks, and of its first one.
const (
	wave64      = "\xf3\xac\xd3\x11\x8c\xd1\x00\xc0\x4f\x8e\xdb\x8a"
	wave64First = "riff\x2e\x91\xcf\x11\xa5\xd6\x28\xdb\x04\xc1\x00\x00"
)

// chunk returns the chunk at an offset: its name, the offset of its body and its size according to the file.
func (f *riff) chunk(b []byte, at uint64) (id string, body, size uint64, ok bool) {
	if !f.wide64 {
		if at+8 > uint64(len(b)) {
			return "", 0, 0, false
		}
		return string(b[at : at+4]), at + 8, uint64(f.order.Uint32(b[at+4:])), true
	}
	if at+24 > uint64(len(b)) {
		return "", 0, 0, false
	}
	if size = f.order.Uint64(b[at+16:]); size >= 24 {
		size -= 24
	}
	return string(b[at : at+4]), at + 24, size, true
}

// next returns the offset of the chunk after one.
func (f *riff) next(body, size uint64) uint64 {
	if f.wide64 {
		return (body + size + 7) &^ 7
	}
	return body + size + size&1
}

func openWAV(b []byte) (Info, recording, error) {
	info := Info{Format: "wav"}
	f := riff{order: binary.LittleEndian}
	at := uint64(12)
	switch string(b[:4]) {
	case "RIFX":
		f.order = binary.BigEndian
	case "riff":
		f.wide64, at = true, 40
		info.Format = "w64"
	case "RF64", "BW64":
		f.long = true
	}
	r, err := f.open(b, at, &info)
	if err != nil {
		return info, nil, fmt.Errorf("%s: %w", info.Format, err)
	}
	return info, r, nil
}

// open reads the chunks from an offset on.
func (f *riff) open(b []byte, at uint64, info *Info) (recording, error) {
	var wide uint64 // size of the data of RF64
	var w *pcm
	for {
		id, body, size, ok := f.chunk(b, at)
		if !ok && w == nil {
			return nil, fmt.Errorf("there is no fmt chunk in %d bytes: the file is damaged or cut off", len(b))
		} else if !ok {
			return nil, fmt.Errorf("there is no data chunk in %d bytes: the file is cut off", len(b))
		}
		have := uint64(len(b)) - body
		if id == "data" {
			if w == nil {
				return nil, fmt.Errorf("the data at offset %d come before what says what they are: the file is damaged", at)
			}
			if f.long && size == unknownSize {
				size = wide
			}
			if size == unknownSize || f.wide64 && size > math.MaxInt64/2 || size == 0 && !f.long && !f.wide64 && have > 0 && f.order.Uint32(b[4:]) == 0 {
				size = have // written to a pipe
			}
			if size > have {
				return nil, fmt.Errorf("%d bytes of samples at offset %d, of which %d are there: the file is cut off", size, body, have)
			}
			return w.fill(info, b[body:body+size]), nil
		}
		if size > have {
			return nil, fmt.Errorf("the chunk %q at offset %d has %d bytes, of which %d are there: the file is damaged or cut off", id, at, size, have)
		}
		switch id {
		case "ds64":
			if size < 16 {
				return nil, fmt.Errorf("the chunk ds64 at offset %d is too short: %d bytes", at, size)
			}
			wide = f.order.Uint64(b[body+8:])
		case "fmt ":
			var err error
			if w, err = f.format(b[body:body+size], info); err != nil {
				return nil, fmt.Errorf("the chunk fmt at offset %d: %w", at, err)
			}
		}
		at = f.next(body, size)
	}
}

// format reads a fmt chunk.
func (f *riff) format(b []byte, info *Info) (*pcm, error) {
	if len(b) < 16 {
		return nil, fmt.Errorf("it has %d bytes, less than 16", len(b))
	}
	tag, bits := f.order.Uint16(b), int(f.order.Uint16(b[14:]))
	info.Channels, info.Rate = int(f.order.Uint16(b[2:])), int(f.order.Uint32(b[4:]))
	align := int(f.order.Uint16(b[12:]))
	if tag == waveExtensible {
		if len(b) < 40 {
			return nil, fmt.Errorf("it has %d bytes, less than the 40 of an extensible one", len(b))
		}
		tag = f.order.Uint16(b[24:])
	}
	// Samples of 20 bits fill 24, and so on.
	size := (bits + 7) / 8
	if align > 0 && info.Channels > 0 && align%info.Channels == 0 {
		size = align / info.Channels
	}
	w, err := newPCM(waveSample(tag, size), info)
	if err == errSample {
		return nil, fmt.Errorf("samples of format %d with %d bits: %w", tag, bits, errNotNative)
	} else if err != nil {
		return nil, err
	}
	w.swap = f.order == binary.BigEndian
	return w, nil
}

// waveSample returns the kind of samples of a fmt chunk.
func waveSample(tag uint16, size int) sample {
	switch {
	case tag == wavePCM && size == 1:
		return sampleU8
	case tag == wavePCM:
		return signed(size)
	case tag == waveFloat:
		return float(size)
	case tag == waveALaw && size == 1:
		return sampleALaw
	case tag == waveMuLaw && size == 1:
		return sampleMuLaw
	}
	return sampleUnknown
}

// aLaw and muLaw are the samples of G.711, by their byte.
var aLaw, muLaw = g711()

func g711() (a, mu [256]float32) {
	for i := range 256 {
		// A-law: every other bit is inverted, and the sign bit is set for positive values.
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
