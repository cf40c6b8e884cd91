// Package imagelib decodes JPEG XL, AVIF and JPEG 2000 by libjxl, libavif and libopenjp2,
// each of which is loaded when the first such image is met, so that one binary works on
// machines with and without them. Like cdec it is one of the few packages that import "C" or unsafe.
//
// What is given to it is the caller's memory. Encoded bytes may not be mapped files,
// which can lose pages while they are read.
package imagelib

/*
#cgo CFLAGS: -O2 -Wall -Wextra -Werror -std=gnu11
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "imagelib.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/stokerdata/stoker/source/driver"
)

// Folders is the environment variable that names folders in which libraries are looked
// for first, with colons between them.
const Folders = "STOKER_IMAGE_LIBRARIES"

// ErrMissing is in the error of an image whose library is not there, ErrMemory in that of
// one for which there is no memory.
var (
	ErrMissing = errors.New("its library is not there")
	ErrMemory  = errors.New("there is no memory to decode it")
)

// library is one that is loaded once.
type library struct {
	what    string // decoded by it
	name    string
	names   []string // as systems call it, the newest first
	pattern []string // as wheels do
	advice  string
	load    func(path *C.char, err *C.char, size C.size_t) C.int
	once    sync.Once
	err     error
}

var (
	libjxl = &library{
		what: "JPEG XL", name: "libjxl", names: []string{"libjxl.so.0.12", "libjxl.so.0.11", "libjxl.so.0.10", "libjxl.so.0.9", "libjxl.so.0.8", "libjxl.so.0.7", "libjxl.so"},
		pattern: []string{"libjxl.so*", "libjxl-*.so*"}, advice: "apt-get install libjxl0.7 (or a later one), or pip install imagecodecs beside stoker",
		load: func(path, err *C.char, size C.size_t) C.int { return C.si_load_jxl(path, err, size) },
	}
	libavif = &library{
		what: "AVIF", name: "libavif", names: []string{"libavif.so.16", "libavif.so.15", "libavif.so.14", "libavif.so.13", "libavif.so"},
		pattern: []string{"libavif.so*", "libavif-*.so*"}, advice: "apt-get install libavif15 (or a later one), or pip install pillow beside stoker",
		load: func(path, err *C.char, size C.size_t) C.int { return C.si_load_avif(path, err, size) },
	}
	libopenjp2 = &library{
		what: "JPEG 2000", name: "libopenjp2", names: []string{"libopenjp2.so.7", "libopenjp2.so"},
		pattern: []string{"libopenjp2.so*", "libopenjp2-*.so*"}, advice: "apt-get install libopenjp2-7, or pip install pillow beside stoker",
		load: func(path, err *C.char, size C.size_t) C.int { return C.si_load_openjp2(path, err, size) },
	}
)

// ready loads the library. What it finds the first time stays.
func (l *library) ready() error {
	l.once.Do(func() { l.err = l.find(filepath.SplitList(os.Getenv(Folders))) })
	return l.err
}

func (l *library) find(folders []string) error {
	if C.si_can_load() == 0 {
		return fmt.Errorf("%s is decoded by %s, and this program is linked statically and cannot load it (%w); build it by make build, and name it in STOKER_BINARY",
			l.what, l.name, ErrMissing)
	}
	var paths, why []string
	for _, folder := range folders {
		for _, pattern := range l.pattern {
			found, _ := filepath.Glob(filepath.Join(folder, pattern))
			slices.Sort(found)
			slices.Reverse(found)
			paths = append(paths, found...)
		}
	}
	for _, path := range append(paths, l.names...) {
		c, text := C.CString(path), [256]C.char{}
		rc := l.load(c, &text[0], C.size_t(len(text)))
		C.free(unsafe.Pointer(c))
		if rc == C.SI_OK {
			return nil
		}
		// One that is there and cannot be used is worth a word, also when what it needs is not there.
		if reason := C.GoString(&text[0]); !strings.HasPrefix(reason, path+": cannot open shared object file: No such file") {
			why = append(why, path+": "+reason)
		}
	}
	if len(why) > 0 {
		return fmt.Errorf("%s is decoded by %s, which cannot be used (%s; %w): %s, or name its folder in %s", l.what, l.name, strings.Join(why, "; "), ErrMissing, l.advice, Folders)
	}
	return fmt.Errorf("%s is decoded by %s (%w): %s, or name its folder in %s", l.what, l.name, ErrMissing, l.advice, Folders)
}

func of(codec driver.Codec) *library {
	if codec == driver.CodecJXL {
		return libjxl
	}
	return libavif
}

// Ready says why images of a codec cannot be decoded here, nil when they can.
func Ready(codec driver.Codec) error { return of(codec).ready() }

// Decode decodes an image of width x height pixels to channels of some bytes each, which
// pix has room for: for JPEG XL 1, 3 or 4 channels, for AVIF 4, each of 1 or 2 bytes.
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

// DecodeGray decodes the first rows of a JPEG 2000 of one component, width samples each, to
// pix, which has room for them: samples as they are, of 1 or 2 bytes, little-endian.
func DecodeGray(data []byte, width, rows, bytes int, pix []byte) error {
	if err := libopenjp2.ready(); err != nil {
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
