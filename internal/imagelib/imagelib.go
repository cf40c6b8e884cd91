// Package imagelib decodes JPEG XL, AVIF and JPEG 2000 by libjxl, libavif and libopenjp2. Package dynlib loads each
// library on the first image that needs it. Like cdec it is one of the few packages that import "C" or unsafe.
//
// The caller owns all memory. Encoded bytes may not be mapped files, which can lose pages while they are read.
package imagelib

/*
#cgo CFLAGS: -O2 -Wall -Wextra -Werror -std=gnu11
#include <stdlib.h>
#include "imagelib.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"github.com/stokerdata/stoker/internal/dynlib"
	"github.com/stokerdata/stoker/source/driver"
)

// Folders is the environment variable that names folders in which libraries are searched
// first, with colons between them.
const Folders = "STOKER_IMAGE_LIBRARIES"

// ErrMemory is wrapped by the error for an image that does not fit the memory.
var ErrMemory = fmt.Errorf("there is no memory to decode it: %w", syscall.ENOMEM)

var (
	libjxl = &dynlib.Library{
		Decodes: "JPEG XL", Name: "libjxl",
		Names: []string{
			"libjxl.so.0.12", "libjxl.so.0.11", "libjxl.so.0.10", "libjxl.so.0.9", "libjxl.so.0.8", "libjxl.so.0.7", "libjxl.so",
		},
		Patterns: []string{"libjxl.so*", "libjxl-*.so*"}, Folders: Folders,
		Install: []string{"apt-get install libjxl-tools", "pip install imagecodecs", "conda install -c conda-forge libjxl"},
		Bind:    bind(func(path, text *C.char, size C.size_t) C.int { return C.si_load_jxl(path, text, size) }),
	}
	libavif = &dynlib.Library{
		Decodes: "AVIF", Name: "libavif",
		Names:    []string{"libavif.so.16", "libavif.so.15", "libavif.so.14", "libavif.so.13", "libavif.so"},
		Patterns: []string{"libavif.so*", "libavif-*.so*"}, Folders: Folders,
		Install: []string{"apt-get install libavif-bin", "pip install pillow", "conda install -c conda-forge libavif"},
		Bind:    bind(func(path, text *C.char, size C.size_t) C.int { return C.si_load_avif(path, text, size) }),
	}
	libopenjp2 = &dynlib.Library{
		Decodes: "JPEG 2000", Name: "libopenjp2", Names: []string{"libopenjp2.so.7", "libopenjp2.so"},
		Patterns: []string{"libopenjp2.so*", "libopenjp2-*.so*"}, Folders: Folders,
		Install: []string{"apt-get install libopenjp2-7", "pip install pillow", "conda install -c conda-forge openjpeg"},
		Bind:    bind(func(path, text *C.char, size C.size_t) C.int { return C.si_load_openjp2(path, text, size) }),
	}
)

// Libraries are all libraries of this package.
func Libraries() []*dynlib.Library { return []*dynlib.Library{libjxl, libavif, libopenjp2} }

// bind makes a dynlib.Library's Bind of a C function.
func bind(load func(path, text *C.char, size C.size_t) C.int) func(string) (string, error) {
	return func(path string) (string, error) {
		c, text := C.CString(path), [256]C.char{}
		defer C.free(unsafe.Pointer(c))
		if load(c, &text[0], C.size_t(len(text))) != C.SI_OK {
			return "", errors.New(C.GoString(&text[0]))
		}
		return C.GoString(&text[0]), nil
	}
}

// Ready returns why images of a codec cannot be decoded here, nil when they can.
func Ready(codec driver.Codec) error {
	l := libavif
	if codec == driver.CodecJXL {
		l = libjxl
	}
	_, err := l.Load()
	return err
}

// Decode decodes an image of width x height pixels into pix, which must be large enough. Channels are 1, 3 or 4 for
// JPEG XL and 4 for AVIF, of 1 or 2 bytes each.
func Decode(codec driver.Codec, data []byte, width, height, channels, bytes int, pix []byte) error {
	if err := Ready(codec); err != nil {
		return err
	}
	if n := int64(width) * int64(height) * int64(channels) * int64(bytes); width < 1 || height < 1 || n < 1 || n > int64(len(pix)) || len(data) == 0 || codec == driver.CodecAVIF && channels != 4 || bytes < 1 || bytes > 2 {
		return fmt.Errorf("%d x %d pixels of %d x %d bytes in %d", width, height, channels, bytes, len(pix))
	}
	shape := C.si_shape{width: C.uint32_t(width), height: C.uint32_t(height), channels: C.int(channels), bytes: C.int(bytes)}
	var text [256]C.char
	src, to := (*C.uint8_t)(unsafe.SliceData(data)), (*C.uint8_t)(unsafe.SliceData(pix))
	rc := C.int(0)
	if codec == driver.CodecJXL {
		rc = C.si_jxl(src, C.size_t(len(data)), &shape, to, &text[0], C.size_t(len(text)))
	} else {
		rc = C.si_avif(src, C.size_t(len(data)), &shape, to, &text[0], C.size_t(len(text)))
	}
	return result(rc, &text)
}

func result(rc C.int, text *[256]C.char) error {
	switch rc {
	case C.SI_OK:
		return nil
	case C.SI_MEMORY:
		return ErrMemory
	}
	return errors.New(C.GoString(&text[0]))
}

// DecodeGray decodes the first rows of a JPEG 2000 of one component, width samples each, into pix, which must be large
// enough. Samples are not converted: they have 1 or 2 bytes, little-endian.
func DecodeGray(data []byte, width, rows, bytes int, pix []byte) error {
	if _, err := libopenjp2.Load(); err != nil {
		return err
	}
	if n := int64(width) * int64(rows) * int64(bytes); width < 1 || rows < 1 || n < 1 || n > int64(len(pix)) || len(data) == 0 || bytes < 1 || bytes > 2 {
		return fmt.Errorf("%d x %d samples of %d bytes in %d", width, rows, bytes, len(pix))
	}
	shape := C.si_shape{width: C.uint32_t(width), height: C.uint32_t(rows), channels: 1, bytes: C.int(bytes)}
	var text [256]C.char
	rc := C.si_j2k((*C.uint8_t)(unsafe.SliceData(data)), C.size_t(len(data)), &shape, (*C.uint8_t)(unsafe.SliceData(pix)), &text[0], C.size_t(len(text)))
	return result(rc, &text)
}
