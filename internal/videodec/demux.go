package videodec

/*
#include <stdlib.h>
#include "videodec.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"math"
	"runtime/cgo"
	"unsafe"
)

// The kinds of streams.
const (
	mediaVideo = 0
	mediaSound = 1
)

// reader reads from an input for C, in pieces that are cached, because the bytes are read twice.
type reader interface {
	read(p []byte, off int64) error
}

//export svRead
func svRead(handle C.uintptr_t, at C.int64_t, to *C.uint8_t, n C.int) C.int {
	r, ok := cgo.Handle(handle).Value().(reader)
	if !ok || r.read(unsafe.Slice((*byte)(unsafe.Pointer(to)), int(n)), int64(at)) != nil {
		return 1
	}
	return 0
}

// demuxer reads the packets of a stream.
type demuxer struct {
	d      *C.sv_demuxer
	handle cgo.Handle
	stream C.sv_stream
	packet C.sv_packet
	err    [128]C.char
}

// demux opens a file in memory of C, or one that r reads.
func demux(data unsafe.Pointer, r reader, size int64, media int) (*demuxer, error) {
	if err := LoadFormat(); err != nil {
		return nil, err
	}
	d := &demuxer{}
	if r != nil {
		d.handle = cgo.NewHandle(r)
	}
	d.d = C.sv_demux((*C.uint8_t)(data), C.uintptr_t(d.handle), C.int64_t(size), C.int(media), &d.stream, &d.err[0], C.size_t(len(d.err)))
	if d.d == nil {
		d.close()
		return nil, errors.New(C.GoString(&d.err[0]))
	}
	return d, nil
}

func (d *demuxer) close() {
	C.sv_demux_close(d.d)
	d.d = nil
	if d.handle != 0 {
		d.handle.Delete()
		d.handle = 0
	}
}

// next reads the next packet. ok is false at the end.
func (d *demuxer) next() (ok bool, err error) {
	switch C.sv_demux_next(d.d, &d.packet, &d.err[0], C.size_t(len(d.err))) {
	case C.SV_OK:
		return true, nil
	case C.SV_END:
		return false, nil
	}
	return false, errors.New(C.GoString(&d.err[0]))
}

// Sound is a file of sound that libavformat and libavcodec read. Close frees it.
type Sound struct {
	// Codec is the name of its decoder.
	Codec          string
	Rate, Channels int

	mem     unsafe.Pointer
	size    int
	d       *demuxer
	samples C.sv_samples
	at      int64 // sample at which samples begins
	left    bool  // samples are those of the current block
}

// NewSound opens a file. It copies the bytes, which may be those of a mapped file.
func NewSound(b []byte) (*Sound, error) {
	if err := LoadFormat(); err != nil {
		return nil, err
	}
	s := &Sound{mem: C.malloc(C.size_t(len(b) + 64)), size: len(b)}
	if s.mem == nil {
		return nil, fmt.Errorf("there is no memory for %d bytes", len(b))
	}
	copy(unsafe.Slice((*byte)(s.mem), len(b)), b)
	if err := s.Rewind(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Rewind goes back to the first sample.
func (s *Sound) Rewind() (err error) {
	if s.d != nil {
		s.d.close()
	}
	s.at, s.left = 0, false
	if s.d, err = demux(s.mem, nil, int64(s.size), mediaSound); err != nil {
		return err
	}
	s.Codec = C.GoString(&s.d.stream.codec[0])
	if C.sv_sound_begin(s.d.d, &s.d.err[0], C.size_t(len(s.d.err))) != C.SV_OK {
		return fmt.Errorf("the decoder %s does not start: %s", s.Codec, C.GoString(&s.d.err[0]))
	}
	s.left, err = s.block()
	return err
}

// block decodes the next samples. ok is false at the end.
func (s *Sound) block() (ok bool, err error) {
	switch C.sv_sound_next(s.d.d, &s.samples, &s.d.err[0], C.size_t(len(s.d.err))) {
	case C.SV_OK:
	case C.SV_END:
		return false, nil
	default:
		return false, fmt.Errorf("after %d samples: %s", s.at, C.GoString(&s.d.err[0]))
	}
	rate, channels := int(s.samples.rate), int(s.samples.channels)
	if s.Rate == 0 {
		s.Rate, s.Channels = rate, channels
	}
	if rate != s.Rate || channels != s.Channels || s.samples.samples < 0 {
		return false, fmt.Errorf("after %d samples the sound has %d Hz and %d channels, before %d Hz and %d", s.at, rate, channels, s.Rate, s.Channels)
	}
	return true, nil
}

// Skip goes to a later sample, or to the end, and returns its position.
func (s *Sound) Skip(to int64) (int64, error) {
	for s.left && s.at+int64(s.samples.samples) <= to {
		s.at += int64(s.samples.samples)
		var err error
		if s.left, err = s.block(); err != nil {
			return s.at, err
		}
	}
	return s.at, nil
}

// Count decodes all that is left and returns the number of samples of the file.
func (s *Sound) Count() (int64, error) { return s.Skip(math.MaxInt64 / 2) }

// Decode decodes samples [from, from+n), which must exist and must not be before those of an earlier call since
// Rewind.
func (s *Sound) Decode(dst []float32, stride int, from, n int64) error {
	for done := int64(0); done < n; {
		if _, err := s.Skip(from + done); err != nil {
			return err
		}
		if !s.left || s.at > from+done {
			return fmt.Errorf("there are %d of %d samples", s.at, from+n)
		}
		skip := from + done - s.at
		take := min(int64(s.samples.samples)-skip, n-done)
		_ = dst[int64((s.Channels-1)*stride)+done+take-1]
		if C.sv_sound_copy(s.d.d, &s.samples, C.int64_t(skip), C.int64_t(take), (*C.float)(&dst[done]), C.size_t(stride)) != C.SV_OK {
			return fmt.Errorf("its samples are %q, which are not read", C.GoString(&s.samples.format[0]))
		}
		done += take
	}
	return nil
}

// At returns the sample that is decoded next without going back.
func (s *Sound) At() int64 { return s.at }

// Close frees the memory of the libraries.
func (s *Sound) Close() {
	if s.d != nil {
		s.d.close()
		s.d = nil
	}
	C.free(s.mem)
	s.mem = nil
}
