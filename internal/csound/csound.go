// Package csound processes sound in C: frames of FLAC, samples of files as floats, resampling and spectra. Like cdec
// it is one of the few packages that import "C" or unsafe. Package audio reads the containers around the samples.
//
// Input memory belongs to the caller. Encoded bytes may not be mapped files, which can lose pages while they are
// read.
package csound

/*
#cgo CFLAGS: -O3 -Wall -Wextra -Werror -std=gnu11
#cgo LDFLAGS: -l:libvorbis.a -l:libogg.a -l:libopus.a -lm
#cgo amd64 LDFLAGS: -Wl,--wrap=opus_select_arch
#cgo noescape ss_pcm
#cgo nocallback ss_pcm
#cgo noescape ss_flac_header
#cgo nocallback ss_flac_header
#cgo noescape ss_flac_find
#cgo nocallback ss_flac_find
#cgo noescape ss_flac_decode
#cgo nocallback ss_flac_decode
#cgo noescape ss_log
#cgo nocallback ss_log
#cgo noescape ss_resample
#cgo nocallback ss_resample
#cgo noescape ss_spectra
#cgo nocallback ss_spectra
#include "csound.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"github.com/stokerdata/stoker/internal/cdec"
)

// The errors of decoding.
var (
	ErrDamaged     = errors.New("it is damaged")
	ErrChecksum    = errors.New("its checksum differs: it is damaged")
	ErrCut         = errors.New("it ends too early: the file is cut off")
	ErrUnsupported = errors.New("it is stored in a way that is not supported")
	ErrMemory      = fmt.Errorf("there is no memory to decode it: %w", syscall.ENOMEM)
)

func failure(code C.int) error {
	switch code {
	case C.SS_OK:
		return nil
	case C.SS_CHECKSUM:
		return ErrChecksum
	case C.SS_CUT:
		return ErrCut
	case C.SS_UNSUPPORTED:
		return ErrUnsupported
	case C.SS_MEMORY:
		return ErrMemory
	}
	return ErrDamaged
}

// PCM is the format of a stored sample.
type PCM int

// The kinds of samples; Table is a byte for which Samples has a table.
const (
	U8    PCM = C.SS_PCM_U8
	S16   PCM = C.SS_PCM_S16
	S24   PCM = C.SS_PCM_S24
	S32   PCM = C.SS_PCM_S32
	F32   PCM = C.SS_PCM_F32
	F64   PCM = C.SS_PCM_F64
	Table PCM = C.SS_PCM_TABLE
)

// Size returns the size of a sample in bytes.
func (p PCM) Size() int { return [...]int{1, 2, 3, 4, 4, 8, 1}[p] }

// Samples makes n floats per channel of src, in which channels are interleaved;
// channel c of dst begins at c*stride.
func Samples(p PCM, src []byte, dst []float32, stride, channels, n int, table *[256]float32) {
	if n == 0 {
		return
	}
	_, _ = src[n*channels*p.Size()-1], dst[(channels-1)*stride+n-1]
	var t *C.float
	if table != nil {
		t = (*C.float)(&table[0])
	}
	C.ss_pcm(C.int(p), (*C.uint8_t)(&src[0]), (*C.float)(&dst[0]), C.size_t(stride), C.size_t(channels), C.size_t(n), t)
}

// FLAC has the common properties of the frames of a FLAC file.
type FLAC struct {
	Channels, Bits, Rate, MaxBlock int
	// Unit is the number of samples that the number of a frame counts, in files whose frames all have the same size.
	Unit int
}

// First returns the samples and the bits of the frame whose header begins at data, which may
// contradict MaxBlock and Bits. The bits are 0 if the header leaves them to STREAMINFO.
func (f *FLAC) First(data []byte) (block, bits int, variable, ok bool) {
	s := f.c()
	s.bits, s.max_block = 0, MaxBlock
	ok = len(data) > 0 && C.ss_flac_header(&s, (*C.uint8_t)(unsafe.SliceData(data)), C.size_t(len(data))) == C.SS_OK
	return int(s.block), int(s.bits), s.variable != 0, ok
}

// MaxBlock is the largest number of samples that a frame of FLAC has in each channel.
const MaxBlock = 65535

func (f *FLAC) c() C.ss_flac {
	return C.ss_flac{channels: C.int(f.Channels), bits: C.int(f.Bits), rate: C.int(f.Rate), max_block: C.int(f.MaxBlock), unit: C.int(f.Unit)}
}

// Find returns the position of the next frame header in data, from at on, and the number of the frame's first sample
// and its length. It returns false if there is none.
func (f *FLAC) Find(data []byte, at int) (place int, sample, block int64, ok bool) {
	if at < 0 || at >= len(data) {
		return 0, 0, 0, false
	}
	s, p := f.c(), C.size_t(at)
	if C.ss_flac_find(&s, (*C.uint8_t)(unsafe.SliceData(data)), C.size_t(len(data)), &p) != C.SS_OK {
		return 0, 0, 0, false
	}
	return int(p), int64(s.sample), int64(s.block), true
}

// Decode decodes the frames of data from at on until samples [from, from+n) are in dst, whose channels begin at
// multiples of stride. It returns the number of samples and the offset of the last frame. room has space for
// Channels*MaxBlock numbers.
func (f *FLAC) Decode(data []byte, at int, room []int32, from, n int64, dst []float32, stride int) (done int64, place int, err error) {
	if n == 0 || at >= len(data) {
		return 0, at, nil
	}
	_, _ = room[f.Channels*f.MaxBlock-1], dst[int64((f.Channels-1)*stride)+n-1]
	s, p, d := f.c(), C.size_t(at), C.int64_t(0)
	code := C.ss_flac_decode(&s, (*C.uint8_t)(unsafe.SliceData(data)), C.size_t(len(data)), &p, (*C.int32_t)(&room[0]),
		C.int64_t(from), C.int64_t(n), (*C.float)(&dst[0]), C.size_t(stride), &d)
	return int64(d), int(p), failure(code)
}

// Floats returns the same bytes as floats: b is 4-byte aligned.
func Floats(b []byte) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}

// Bytes returns floats as bytes.
func Bytes(f []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(f))), 4*len(f))
}

// Aligned reports whether the address of b is aligned for floats.
func Aligned(b []byte) bool { return uintptr(unsafe.Pointer(unsafe.SliceData(b)))%4 == 0 }

// Log makes each value scale*ln(max(v, floor) + add).
func Log(x []float32, floor, add, scale float32) {
	if len(x) > 0 {
		C.ss_log(C.int(cdec.SoundKernels()), (*C.float)(&x[0]), C.size_t(len(x)), C.float(floor), C.float(add), C.float(scale))
	}
}
