package cdec

/*
#cgo noescape sk_inflate
#cgo nocallback sk_inflate
#cgo noescape sk_adler32
#cgo nocallback sk_adler32
#cgo noescape sk_unshuffle
#cgo nocallback sk_unshuffle
#include "cdec.h"
#include "inflate.h"
*/
import "C"

import (
	"errors"
	"unsafe"
)

// Errors of deflate data.
var (
	ErrDeflate      = errors.New("deflate data is damaged")
	ErrDeflateShort = errors.New("deflate data is cut off")
	ErrDeflateSize  = errors.New("deflate data has another size than it should have")
)

// Inflate writes deflate data (RFC 1951) to dst. It returns the number of bytes written and the number of bytes of
// src used. If dst is too small, it fails with ErrDeflateSize. It panics like Gather if src is part of a mapped file
// that cannot be read.
func Inflate(dst, src []byte) (n, used int, err error) {
	var made, took C.size_t
	code := C.sk_inflate((*C.uint8_t)(unsafe.SliceData(dst)), C.size_t(len(dst)),
		(*C.uint8_t)(unsafe.SliceData(src)), C.size_t(len(src)), &made, &took)
	switch code {
	case C.SK_OK:
	case C.SK_UNREADABLE:
		panic(errUnreadable)
	case C.SK_INFLATE_SHORT:
		err = ErrDeflateShort
	case C.SK_INFLATE_SIZE:
		err = ErrDeflateSize
	default:
		err = ErrDeflate
	}
	return int(made), int(took), err
}

// Adler32 returns the checksum of zlib (RFC 1950).
func Adler32(p []byte) uint32 {
	return uint32(C.sk_adler32((*C.uint8_t)(unsafe.SliceData(p)), C.size_t(len(p))))
}

// Unshuffle fills dst, as long as src, with numbers of the given size. src has all first bytes, then all second
// bytes, and so on. Bytes left over at the end are copied. It panics like Gather.
func Unshuffle(dst, src []byte, size int) {
	dst = dst[:len(src)]
	if size < 1 {
		panic("cdec: a size below 1")
	}
	code := C.sk_unshuffle((*C.uint8_t)(unsafe.SliceData(dst)), (*C.uint8_t)(unsafe.SliceData(src)), C.size_t(len(src)), C.int(size))
	if code != C.SK_OK {
		panic(errUnreadable)
	}
}
