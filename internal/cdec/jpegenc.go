package cdec

// #include "jpegenc.h"
// #include <stdlib.h>
import "C"

import (
	"fmt"
	"runtime"
	"unsafe"
)

// EncodeOptions sets how EncodeJPEG writes a file. The zero value means quality 90, 4:4:4, baseline.
type EncodeOptions struct {
	Quality     int // 1 to 100; 0 means 90
	HSamp       int // luma over chroma samples, across; 0 means 1
	VSamp       int // and down; 2, 2 is 4:2:0
	Progressive bool
	Optimize    bool // Huffman tables made for this image
	// RestartMCUs is the number of MCUs between restart markers; 0 for none.
	RestartMCUs int
	RGB         bool   // store RGB instead of YCbCr
	EXIF        []byte // an APP1 segment, "Exif\x00\x00" first
	ICC         []byte // a colour profile, cut into APP2 segments
}

// EncodeJPEG encodes pixels, rows without gaps of 1 (gray), 3 (RGB) or 4 (CMYK,
// stored as given) bytes per pixel. The result is the same on every machine.
func EncodeJPEG(pixels []byte, width, height, channels int, opts EncodeOptions) ([]byte, error) {
	if width < 1 || height < 1 || width > 65500 || height > 65500 {
		return nil, fmt.Errorf("encode JPEG: %d x %d pixels: each side must be 1 to 65500", width, height)
	}
	if channels != 1 && channels != 3 && channels != 4 {
		return nil, fmt.Errorf("encode JPEG: %d channels: want 1, 3 or 4", channels)
	}
	if len(pixels) != width*height*channels {
		return nil, fmt.Errorf("encode JPEG: %d bytes of pixels for %d x %d x %d", len(pixels), width, height, channels)
	}
	if len(opts.EXIF) > 65533 {
		return nil, fmt.Errorf("encode JPEG: %d bytes of EXIF: a segment holds 65533", len(opts.EXIF))
	}
	or := func(v, otherwise int) C.int32_t {
		if v == 0 {
			v = otherwise
		}
		return C.int32_t(v)
	}
	flag := func(v bool) C.int32_t {
		if v {
			return 1
		}
		return 0
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	params := C.sk_enc_params{
		width:        C.int32_t(width),
		height:       C.int32_t(height),
		components:   C.int32_t(channels),
		quality:      or(opts.Quality, 90),
		h_samp:       or(opts.HSamp, 1),
		v_samp:       or(opts.VSamp, 1),
		progressive:  flag(opts.Progressive),
		optimize:     flag(opts.Optimize),
		restart_mcus: C.int32_t(opts.RestartMCUs),
		rgb:          flag(opts.RGB),
		cmyk:         flag(channels == 4),
	}
	if n := len(opts.EXIF); n > 0 {
		pin.Pin(&opts.EXIF[0])
		params.exif, params.exif_len = (*C.uint8_t)(&opts.EXIF[0]), C.size_t(n)
	}
	if n := len(opts.ICC); n > 0 {
		pin.Pin(&opts.ICC[0])
		params.icc, params.icc_len = (*C.uint8_t)(&opts.ICC[0]), C.size_t(n)
	}
	var (
		out     *C.uint8_t
		outLen  C.size_t
		message [200]C.char
	)
	failed := C.sk_jpeg_encode(&params, (*C.uint8_t)(&pixels[0]), &out, &outLen, &message[0], C.size_t(len(message)))
	if failed != 0 {
		return nil, fmt.Errorf("encode JPEG: %s", C.GoString(&message[0]))
	}
	defer C.sk_jpeg_free(out)
	return C.GoBytes(unsafe.Pointer(out), C.int(outLen)), nil
}
