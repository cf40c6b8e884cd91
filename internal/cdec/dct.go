package cdec

/*
#cgo noescape dct_from_jpeg
#cgo nocallback dct_from_jpeg
#cgo noescape dct_check
#cgo nocallback dct_check
#cgo noescape dct_to_jpeg
#cgo nocallback dct_to_jpeg
#include <stdlib.h>
#include "dct.h"
*/
import "C"

import (
	"bytes"
	"fmt"
	"unsafe"
)

// NotDCT is the error for a JPEG that the dct codec cannot store: the codec does not cover its kind, or it may be
// incomplete. Its bytes are kept unchanged.
type NotDCT struct {
	Reason DCTReason
	// Detail describes the problem.
	Detail string
}

func (e *NotDCT) Error() string {
	if e.Detail == "" {
		return "no dct form: " + string(e.Reason)
	}
	return "no dct form: " + string(e.Reason) + ": " + e.Detail
}

// DCTReason is a closed set, to be counted and shown.
type DCTReason string

// The reasons of a NotDCT.
const (
	NotDCTJPEG       DCTReason = "not a readable JPEG"
	NotDCTColor      DCTReason = "colour space"
	NotDCTArithmetic DCTReason = "arithmetic coding"
	NotDCTPrecision  DCTReason = "not 8 bits per sample"
	NotDCTSampling   DCTReason = "sampling"
	NotDCTIncomplete DCTReason = "incomplete or damaged"
	NotDCTTooLarge   DCTReason = "too large"
	NotDCTLossless   DCTReason = "lossless or hierarchical"
)

var dctReasons = map[C.int]DCTReason{
	C.DCT_NOT_JPEG:   NotDCTJPEG,
	C.DCT_COLOR:      NotDCTColor,
	C.DCT_ARITHMETIC: NotDCTArithmetic,
	C.DCT_PRECISION:  NotDCTPrecision,
	C.DCT_SAMPLING:   NotDCTSampling,
	C.DCT_INCOMPLETE: NotDCTIncomplete,
	C.DCT_TOO_LARGE:  NotDCTTooLarge,
	C.DCT_LOSSLESS:   NotDCTLossless,
}

// exifMark precedes EXIF data in an APP1 segment.
const exifMark = "Exif\x00\x00"

// DCTEncoder makes the dct form of JPEGs. It is used by one goroutine at a time, and
// keeps memory from image to image.
type DCTEncoder struct {
	e   *C.dct_encoder
	out C.dct_bytes
}

// NewDCTEncoder returns an encoder, to be closed after use.
func NewDCTEncoder() (*DCTEncoder, error) {
	e := C.dct_encoder_new()
	if e == nil {
		return nil, &Error{Kind: ErrNoMemory, Msg: "no memory for an encoder"}
	}
	return &DCTEncoder{e: e}, nil
}

// Close frees the encoder. It may be called again.
func (e *DCTEncoder) Close() {
	C.dct_encoder_free(e.e)
	C.free(unsafe.Pointer(e.out.p))
	*e = DCTEncoder{}
}

// encodedKeep is the maximum size of the result buffer that is kept for reuse.
const encodedKeep = 16 << 20

// Encode returns the dct form of a JPEG: its coefficients without the entropy code. Decoding it gives the pixels of
// the JPEG, bit for bit. The error is a *NotDCT if the JPEG has no such form. The result is valid until the next
// call.
func (e *DCTEncoder) Encode(jpeg []byte) ([]byte, error) { return e.encode(jpeg, 0, byRows) }

// EncodeRows is Encode for JPEGs that can be encoded row by row, in little memory: all valid baseline ones. Others
// return a NotDCT.
func (e *DCTEncoder) EncodeRows(jpeg []byte) ([]byte, error) { return e.encode(jpeg, 0, rowsOnly) }

// The ways to read JPEGs: row by row with libjpeg as the alternative, only by libjpeg, or only row by row.
const (
	byRows   = 0
	plain    = 1
	rowsOnly = C.DCT_ROWS_ONLY
)

// encode is Encode with tiles of the given width in MCUs, 0 for the usual width.
func (e *DCTEncoder) encode(jpeg []byte, tile, how int) ([]byte, error) {
	if e.out.cap > encodedKeep {
		C.free(unsafe.Pointer(e.out.p))
		e.out = C.dct_bytes{}
	}
	var message [C.SK_MESSAGE]C.char
	code := C.dct_from_jpeg(e.e, &e.out, (*C.uint8_t)(unsafe.SliceData(jpeg)), C.size_t(len(jpeg)), C.int(tile), C.int(how), &message[0])
	switch code {
	case C.DCT_OK:
		return unsafe.Slice((*byte)(e.out.p), int(e.out.len)), nil
	case C.DCT_MEMORY:
		return nil, &Error{Kind: ErrNoMemory, Msg: "no memory for the coefficients of a JPEG"}
	}
	return nil, &NotDCT{Reason: dctReasons[code], Detail: C.GoString(&message[0])}
}

// DCTImage is the content of the header of dct bytes.
type DCTImage struct {
	Width, Height int
	// Components is 1 (gray) or 3 (YCbCr).
	Components int
	// Sampling holds the factors across and down of each component.
	Sampling [3][2]int
	// TileWidth is in pixels; TilesPerRow and TileRows count the tiles.
	TileWidth, TilesPerRow, TileRows int
	// HeaderBytes is the size of header and tile table.
	HeaderBytes int
}

// DCTInfo reads the header of dct bytes.
func DCTInfo(src []byte) (DCTImage, error) {
	var im C.dct_facts
	if wrong := C.dct_read_facts(&im, (*C.uint8_t)(unsafe.SliceData(src)), C.size_t(len(src))); wrong != nil {
		return DCTImage{}, &Error{Kind: ErrCorrupt, Msg: "dct: " + C.GoString(wrong)}
	}
	if err := CheckSize(int64(im.w), int64(im.h)); err != nil {
		return DCTImage{}, err
	}
	info := DCTImage{
		Width: int(im.w), Height: int(im.h), Components: int(im.ncomp),
		TileWidth: int(im.tile_width), TilesPerRow: int(im.tcols), TileRows: int(im.trows),
		HeaderBytes: int(im.header),
	}
	for c := range info.Components {
		info.Sampling[c] = [2]int{int(im.sampling[c][0]), int(im.sampling[c][1])}
	}
	return info, nil
}

// CheckDCT unpacks every tile of dct bytes and returns the number of blocks of 8x8 coefficients, or an error that
// describes the damage.
func CheckDCT(src []byte) (blocks int64, err error) {
	if _, err := DCTInfo(src); err != nil {
		return 0, err
	}
	var n C.int64_t
	if wrong := C.dct_check((*C.uint8_t)(unsafe.SliceData(src)), C.size_t(len(src)), &n); wrong != nil {
		return 0, &Error{Kind: ErrCorrupt, Msg: "dct: " + C.GoString(wrong)}
	}
	return int64(n), nil
}

// DCTToJPEG writes a JPEG with the coefficients and tables of src, and therefore with the same pixels. exif is EXIF
// data, with or without the "Exif\x00\x00" that precedes it in a JPEG. icc is a colour profile. Both may be empty.
func DCTToJPEG(dst, src, exif, icc []byte) ([]byte, error) {
	if len(exif) > 0 && !bytes.HasPrefix(exif, []byte(exifMark)) {
		exif = append([]byte(exifMark), exif...)
	}
	if len(exif) > 65533 {
		return dst, fmt.Errorf("dct: %d bytes of EXIF: a segment holds 65533", len(exif))
	}
	var (
		out     C.dct_bytes
		message [C.SK_MESSAGE]C.char
	)
	span := func(b []byte) (*C.uint8_t, C.size_t) {
		return (*C.uint8_t)(unsafe.SliceData(b)), C.size_t(len(b))
	}
	s, sn := span(src)
	e, en := span(exif)
	i, in := span(icc)
	code := C.dct_to_jpeg(&out, s, sn, e, en, i, in, &message[0])
	defer C.free(unsafe.Pointer(out.p))
	if code != C.DCT_OK {
		return dst, &Error{Kind: ErrCorrupt, Msg: C.GoString(&message[0])}
	}
	return append(dst, unsafe.Slice((*byte)(out.p), int(out.len))...), nil
}
