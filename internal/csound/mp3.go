package csound

/*
#cgo noescape ss_mp3_header
#cgo nocallback ss_mp3_header
#cgo noescape ss_mp3_decode
#cgo nocallback ss_mp3_decode
#include "csound.h"
*/
import "C"

import "unsafe"

// MP3Frame is the header of a frame.
type MP3Frame struct {
	c C.ss_mp3_frame
}

// Rate returns the number of samples per second.
func (f *MP3Frame) Rate() int { return int(f.c.rate) }

// Channels returns 1 or 2.
func (f *MP3Frame) Channels() int { return int(f.c.channels) }

// Samples returns the number of samples of each channel.
func (f *MP3Frame) Samples() int { return int(f.c.samples) }

// Bytes returns the size of the frame.
func (f *MP3Frame) Bytes() int { return int(f.c.bytes) }

// Tag returns the position of the encoder's information about the file, in a frame that has it instead of sound.
func (f *MP3Frame) Tag() int { return 4 + 2*int(f.c.crc) + int(f.c.side) }

// ParseMP3 reads a header. ok reports whether it is a valid one.
func ParseMP3(b []byte) (f MP3Frame, ok bool) {
	if len(b) < 4 || b[0] != 0xff {
		return f, false
	}
	head := [4]byte(b)
	return f, C.ss_mp3_header((*C.uint8_t)(&head[0]), &f.c) == C.SS_OK
}

// MP3 decodes frames one after another. Close frees it.
type MP3 struct{ c *C.ss_mp3 }

// NewMP3 returns a decoder.
func NewMP3() (*MP3, error) {
	d := &MP3{C.ss_mp3_new()}
	if d.c == nil {
		return nil, ErrMemory
	}
	return d, nil
}

// Close frees its memory.
func (d *MP3) Close() {
	C.ss_mp3_free(d.c)
	d.c = nil
}

// Reset forgets all frames.
func (d *MP3) Reset() { C.ss_mp3_reset(d.c) }

// Decode decodes the frame b to f.Samples of each channel. The channels begin in dst at multiples of stride. Without
// dst it keeps only the state for later frames.
func (d *MP3) Decode(b []byte, f *MP3Frame, dst []float32, stride int) error {
	_ = b[f.Bytes()-1]
	var out *C.float
	if dst != nil {
		_ = dst[(f.Channels()-1)*stride+f.Samples()-1]
		out = (*C.float)(&dst[0])
	}
	return failure(C.ss_mp3_decode(d.c, (*C.uint8_t)(unsafe.SliceData(b)), &f.c, out, C.size_t(stride)))
}
