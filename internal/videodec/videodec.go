// Package videodec decodes video: H.264, HEVC, AV1, VP9 and others by libavcodec. The library is loaded on first use,
// so that one binary works on machines with and without it. Like cdec it is one of the few packages that import "C"
// or unsafe.
//
// A Decoder belongs to one goroutine and decodes in it: the library starts no threads.
package videodec

/*
#cgo CFLAGS: -O3 -Wall -Wextra -Werror -std=gnu11
#cgo noescape sv_rgb
#cgo nocallback sv_rgb
#cgo noescape sv_receive
#cgo nocallback sv_receive
#cgo noescape sv_send
#cgo nocallback sv_send
#include <stdlib.h>
#include "videodec.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"github.com/stokerdata/stoker/internal/video"
)

// decoders are the library's decoders of a codec, the best first, if their names differ from that of the codec.
var decoders = map[string][]string{video.AV1: {"libdav1d", "libaom-av1"}}

// maxPixels limits the size of frames that the library allocates.
const maxPixels = video.MaxSide * video.MaxSide / 4

// Decoder decodes one stream.
type Decoder struct {
	d     *C.sv_decoder
	codec string
	err   [128]C.char
	frame C.sv_frame
}

// find returns the library's decoder of a codec.
func find(codec string) (string, error) {
	if _, err := library.Load(); err != nil {
		return "", fmt.Errorf("it is encoded as %s: %w", codec, err)
	}
	codec, _, _ = (&video.Stream{Codec: codec}).Coding()
	names := decoders[codec]
	if names == nil {
		names = []string{codec}
	}
	for _, name := range names {
		c := C.CString(name)
		defer C.free(unsafe.Pointer(c))
		if C.sv_has(c) != 0 {
			return name, nil
		}
	}
	return "", fmt.Errorf("it is encoded as %s, which %s has no decoder for", codec, loaded())
}

// Has fails if there is no library, or none with the codec.
func Has(codec string) error {
	_, err := find(codec)
	return err
}

// New makes a decoder. It fails if there is no library, or none with the codec.
func New(s *video.Stream) (*Decoder, error) { return open(s, maxPixels, false) }

// NewStrict makes a decoder that fails at a damaged packet instead of concealing the damage. It also fails for frames
// that are larger than the stream's size.
func NewStrict(s *video.Stream) (*Decoder, error) {
	const more = 512 // the maximum rounding of frames in any part of any decoder
	return open(s, min(int64(s.Width+more)*int64(s.Height+more), maxPixels), true)
}

func open(s *video.Stream, most int64, strict bool) (*Decoder, error) {
	name, err := find(s.Codec)
	if err != nil {
		return nil, err
	}
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	d := &Decoder{codec: s.Codec}
	detect := C.int(0)
	if strict {
		detect = 1
	}
	_, tag, bits := s.Coding()
	width, height := 0, 0
	if strings.Contains(s.Codec, "/") {
		width, height = s.Width, s.Height
	}
	d.d = C.sv_open(c, C.int(int32(tag)), C.int(bits), C.int(width), C.int(height), (*C.uint8_t)(unsafe.SliceData(s.Config)), C.size_t(len(s.Config)), C.int64_t(most), detect, &d.err[0], C.size_t(len(d.err)))
	if d.d == nil {
		return nil, fmt.Errorf("the decoder %s does not start: %w", name, d.reason())
	}
	return d, nil
}

func (d *Decoder) reason() error { return errors.New(C.GoString(&d.err[0])) }

// Send passes a packet that is shown at pts to the decoder. With skip its frame is not needed, and it is not decoded
// if no other frame depends on it.
func (d *Decoder) Send(packet []byte, pts int64, skip bool) error {
	if len(packet) == 0 {
		return nil
	}
	s := C.int(0)
	if skip {
		s = 1
	}
	switch C.sv_send(d.d, (*C.uint8_t)(unsafe.SliceData(packet)), C.size_t(len(packet)), C.int64_t(pts), s, &d.err[0], C.size_t(len(d.err))) {
	case C.SV_OK:
		return nil
	case C.SV_ERROR:
		return d.reason()
	}
	return errors.New("the decoder takes no more before it has given what it has")
}

// End declares that no packet follows, so that the decoder outputs its remaining frames.
func (d *Decoder) End() error {
	if C.sv_send(d.d, nil, 0, 0, 0, &d.err[0], C.size_t(len(d.err))) == C.SV_ERROR {
		return d.reason()
	}
	return nil
}

// Receive returns the next frame. ok is false if more packets must be sent first, or if none is left. The frame is
// valid until the next call.
func (d *Decoder) Receive() (f Frame, ok bool, err error) {
	switch C.sv_receive(d.d, &d.frame, &d.err[0], C.size_t(len(d.err))) {
	case C.SV_OK:
	case C.SV_ERROR:
		return f, false, d.reason()
	default:
		return f, false, nil
	}
	f = Frame{
		Width: int(d.frame.width), Height: int(d.frame.height), PTS: int64(d.frame.pts),
		matrix: video.Matrix(d.frame.matrix), colours: video.Range(d.frame._range),
	}
	return f, true, f.planes(&d.frame)
}

// Flush makes the decoder ready for a key frame.
func (d *Decoder) Flush() { C.sv_flush(d.d) }

// Close frees the decoder.
func (d *Decoder) Close() {
	C.sv_close(d.d)
	d.d = nil
}
