package audio

import (
	"encoding/binary"
	"math"
)

// WAVHeader is the number of bytes before the samples in the output of PutWAV. Samples are aligned at this offset.
const WAVHeader = 56

// WAVBytes returns the size of a WAV file of frames samples of each channel: float32, or 16 bit.
func WAVBytes(channels int, frames int64, sixteen bool) int64 {
	size := int64(4)
	if sixteen {
		size = 2
	}
	return WAVHeader + size*int64(channels)*frames
}

// PutWAV writes a WAV file of samples into dst, which has WAVBytes and is smaller than 4 GiB. src has little-endian
// float32 samples. They are interleaved, or with planes in one block per channel.
func PutWAV(dst, src []byte, rate, channels int, planes, sixteen bool) {
	n := len(src) / 4
	size, format := 4, uint16(waveFloat)
	if sixteen {
		size, format = 2, wavePCM
	}
	le := binary.LittleEndian
	copy(dst, "RIFF")
	le.PutUint32(dst[4:], uint32(len(dst)-8))
	copy(dst[8:], "WAVEfmt ")
	le.PutUint32(dst[16:], 16)
	le.PutUint16(dst[20:], format)
	le.PutUint16(dst[22:], uint16(channels))
	le.PutUint32(dst[24:], uint32(rate))
	le.PutUint32(dst[28:], uint32(rate*channels*size))
	le.PutUint16(dst[32:], uint16(channels*size))
	le.PutUint16(dst[34:], uint16(8*size))
	copy(dst[36:], "fact")
	le.PutUint32(dst[40:], 4)
	le.PutUint32(dst[44:], uint32(n/channels))
	copy(dst[48:], "data")
	le.PutUint32(dst[52:], uint32(n*size))
	out := dst[WAVHeader:]
	frames := n / channels
	for i := range n {
		from := i
		if planes {
			from = i%channels*frames + i/channels
		}
		bits := le.Uint32(src[4*from:])
		if sixteen {
			le.PutUint16(out[2*i:], uint16(toPCM(math.Float32frombits(bits))))
		} else {
			le.PutUint32(out[4*i:], bits)
		}
	}
}

// toPCM returns the nearest of the 65,536 levels, half to even. Louder values get the loudest level.
func toPCM(v float32) int16 {
	x := math.RoundToEven(float64(v) * 32768)
	if x != x {
		return 0
	}
	return int16(min(max(x, -32768), 32767))
}
