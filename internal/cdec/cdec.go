// Package cdec decodes images and resizes them, in C: JPEG through libjpeg-turbo, the dct codec, and raw pixels, straight
// into the rows of a batch. It is one of the few packages that import "C" or unsafe. docs/internals/c-code.md explains the
// names of the C code.
//
// A Decoder belongs to one goroutine. Its Run does many jobs in one call into C; nothing is allocated per job. A job
// specifies an item.Geometry (which pixels) and an item.Store (how they are written).
package cdec

/*
#cgo CFLAGS: -O3 -Wall -Wextra -Werror -std=gnu11
#cgo LDFLAGS: -l:libjpeg.a -lm
#cgo noescape sk_run
#cgo nocallback sk_run
#cgo noescape sk_gather
#cgo nocallback sk_gather
#cgo noescape sk_copy_crc32c
#cgo nocallback sk_copy_crc32c
#cgo noescape sk_jpeg_decode_full
#cgo nocallback sk_jpeg_decode_full
#cgo noescape sk_jpeg_decode_samples
#cgo nocallback sk_jpeg_decode_samples
#include <stdlib.h>
#include "cdec.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"hash/crc32"
	"runtime"
	"sync"
	"syscall"
	"unsafe"

	"github.com/stokerdata/stoker/internal/item"
)

// Format is the encoding of the bytes of a Job.
type Format uint8

// The formats that Run decodes. Other image formats are package decode's.
const (
	FormatJPEG Format = C.SK_FORMAT_JPEG
	// FormatDCT is a JPEG without its entropy code (docs/reference/pack-format.md).
	FormatDCT Format = C.SK_FORMAT_DCT
	// FormatRGB is raw u8 pixels, 3 bytes each, in Job.Width x Job.Height.
	FormatRGB Format = C.SK_FORMAT_RGB
	// FormatGray is raw u8 pixels of 1 byte.
	FormatGray Format = C.SK_FORMAT_GRAY
	// FormatRGBX is raw u8 pixels of 4 bytes, of which the last is ignored.
	FormatRGBX Format = C.SK_FORMAT_RGBX
	// FormatPixels is raw pixels of the type Job.Pixels, little-endian; they are
	// stored with the channels they have.
	FormatPixels Format = C.SK_FORMAT_PIXELS
)

// MaxSide and MaxPixels are the limits on the size of an image. The second is
// the one at which Pillow suspects a decompression bomb.
const (
	MaxSide   = C.SK_MAX_SIDE
	MaxPixels = C.SK_MAX_PIXELS
)

// A Job decodes one image: Src is cropped, resized and flipped as Geom specifies, and written to Dst as Store
// specifies.
type Job struct {
	Format Format
	Src    []byte
	// Pixels is the type of the pixels of FormatPixels.
	Pixels item.PixelType
	// Width and Height are the size of the image; only raw formats need them.
	Width, Height int32
	// Stride is the distance of rows in bytes in raw formats; 0 means that
	// there is no gap between them.
	Stride int
	Geom   item.Geometry
	Store  item.Store
	Dst    []byte
	// Err is the result: nil, or an *Error.
	Err error
}

// The reasons for which decoding fails, for errors.Is.
var (
	// ErrCorrupt is the error for bytes that are damaged or end too early.
	ErrCorrupt = errors.New("damaged image")
	// ErrUnsupported is the error for a kind of image that is not decoded here.
	ErrUnsupported = errors.New("unsupported image")
	// ErrArgument is the error for a job that contradicts itself or the image.
	ErrArgument = errors.New("bad request")
	// ErrMemory is the error if decoding needs more memory than SetMaxMemory allows.
	ErrMemory = errors.New("out of memory")
	// ErrNoMemory is an ErrMemory for which the system is to blame: it has no memory.
	ErrNoMemory = fmt.Errorf("%w: %w", ErrMemory, syscall.ENOMEM)
	// ErrLimit is the error for an image that exceeds the limits.
	ErrLimit = errors.New("image too large")
	// ErrUnreadable is the error if a page of a mapped file could not be read.
	ErrUnreadable = errors.New("unreadable")
)

// Error is why an image was not decoded.
type Error struct {
	// Kind is one of the Err values of this package.
	Kind error
	// Msg describes the problem.
	Msg string
}

func (e *Error) Error() string { return e.Msg }

// Unwrap returns the kind.
func (e *Error) Unwrap() error { return e.Kind }

// CheckSize refuses impossible image sizes and those above the limits of this package, before memory is allocated for
// them.
func CheckSize(width, height int64) error {
	switch {
	case width < 1 || height < 1:
		return &Error{Kind: ErrCorrupt, Msg: fmt.Sprintf("the image is %d x %d pixels", width, height)}
	case width > MaxSide || height > MaxSide:
		return &Error{Kind: ErrLimit, Msg: fmt.Sprintf("the image is %d x %d pixels; at most %d per side are supported", width, height, MaxSide)}
	case width*height > MaxPixels:
		return &Error{Kind: ErrLimit, Msg: fmt.Sprintf("the image is %d x %d pixels; at most %d in all are supported", width, height, MaxPixels)}
	}
	return nil
}

func newError(code C.int32_t, msg *C.char) *Error {
	e := &Error{Kind: ErrCorrupt, Msg: C.GoString(msg)}
	switch code {
	case C.SK_UNSUPPORTED:
		e.Kind = ErrUnsupported
	case C.SK_BAD_ARGUMENT:
		e.Kind = ErrArgument
	case C.SK_NO_MEMORY:
		e.Kind = ErrNoMemory
	case C.SK_OVER_MEMORY:
		e.Kind = ErrMemory
	case C.SK_LIMIT:
		e.Kind = ErrLimit
	case C.SK_UNREADABLE:
		e.Kind = ErrUnreadable
	}
	return e
}

// Unreadable is the message of errors of the kind ErrUnreadable.
const Unreadable = "a page of its file cannot be read: the file has become shorter, or the disk has failed"

var errUnreadable = &Error{Kind: ErrUnreadable, Msg: Unreadable}

func init() { C.sk_guard_install() }

// jobsPerCall is the maximum number of jobs in one call, more than a group of the pipeline has.
const jobsPerCall = 32

// Decoder decodes images. It is used by one goroutine at a time.
type Decoder struct {
	c    *C.sk_dec
	jobs []C.sk_job // in C memory
	pins runtime.Pinner
}

// NewDecoder returns a decoder, to be closed after use.
func NewDecoder() (*Decoder, error) {
	c := C.sk_dec_new()
	p := (*C.sk_job)(C.calloc(jobsPerCall, C.sizeof_sk_job))
	if c == nil || p == nil {
		C.sk_dec_free(c)
		C.free(unsafe.Pointer(p))
		return nil, &Error{Kind: ErrNoMemory, Msg: "no memory for a decoder"}
	}
	return &Decoder{c: c, jobs: unsafe.Slice(p, jobsPerCall)}, nil
}

// Close frees the decoder. It may be called again.
func (d *Decoder) Close() {
	if d.c == nil {
		return
	}
	C.sk_dec_free(d.c)
	C.free(unsafe.Pointer(unsafe.SliceData(d.jobs)))
	d.c, d.jobs = nil, nil
}

// SetMaxPixels makes the decoder refuse images of more than n pixels. The limit
// is MaxPixels at first, and never higher.
func (d *Decoder) SetMaxPixels(n int64) { C.sk_set_max_pixels(d.c, C.int64_t(n)) }

// SetMaxMemory makes the decoder refuse JPEGs for which libjpeg would take more
// than n bytes, with ErrMemory; 0 means that nothing is refused.
func (d *Decoder) SetMaxMemory(n int64) { C.sk_set_max_memory(d.c, C.int64_t(n)) }

// ReturnMemory makes the C library return blocks of more than a few MiB to the system when they are freed, for the
// whole process.
func ReturnMemory() { C.sk_return_memory() }

// setPlain makes the decoder use libjpeg's own entropy decoder, for comparison.
func (d *Decoder) setPlain(plain bool) { C.sk_set_plain(d.c, C.int(flag(plain))) }

// retries counts the JPEGs that were decoded a second time with libjpeg's own
// entropy decoder, because something was out of the ordinary.
func (d *Decoder) retries() int { return int(C.sk_retries(d.c)) }

// Run does the jobs and sets the Err of each. A failed job leaves its Dst in
// an undefined state and does not affect the others.
func (d *Decoder) Run(jobs []Job) {
	for len(jobs) > 0 {
		n := min(len(jobs), jobsPerCall)
		d.run(jobs[:n])
		jobs = jobs[n:]
	}
}

func (d *Decoder) run(jobs []Job) {
	for i := range jobs {
		d.fill(&d.jobs[i], &jobs[i])
	}
	C.sk_run(d.c, &d.jobs[0], C.int(len(jobs)))
	d.pins.Unpin()
	runtime.KeepAlive(jobs)
	for i := range jobs {
		jobs[i].Err = nil
		if c := &d.jobs[i]; c.code != C.SK_OK {
			jobs[i].Err = newError(c.code, &c.message[0])
		}
	}
}

// fill copies j to its C twin. Memory of the Go heap is pinned for the call;
// memory outside of it, the usual case, costs nothing here.
func (d *Decoder) fill(c *C.sk_job, j *Job) {
	src, dst := unsafe.SliceData(j.Src), unsafe.SliceData(j.Dst)
	if len(j.Src) > 0 {
		d.pins.Pin(src)
	}
	if len(j.Dst) > 0 {
		d.pins.Pin(dst)
	}
	// Stored as numbers: when a pointer is stored, the collector sees the previous value, which may be the address of
	// a freed slice (write barrier).
	*(*uintptr)(unsafe.Pointer(&c.src)) = uintptr(unsafe.Pointer(src))
	*(*uintptr)(unsafe.Pointer(&c.dst)) = uintptr(unsafe.Pointer(dst))
	c.src_len, c.dst_len = C.size_t(len(j.Src)), C.size_t(len(j.Dst))
	c.format = C.int32_t(j.Format)
	c.elem, c.channels = C.int32_t(j.Pixels.DType), C.int32_t(j.Pixels.Channels)
	c.width, c.height = C.int32_t(j.Width), C.int32_t(j.Height)
	c.stride = C.int64_t(j.Stride)
	if j.Stride == 0 {
		c.stride = C.int64_t(j.Width) * C.int64_t(j.pixelBytes())
	}
	g := &j.Geom
	c.geom = C.sk_geom{
		box_x: C.int32_t(g.Box.X), box_y: C.int32_t(g.Box.Y), box_w: C.int32_t(g.Box.W), box_h: C.int32_t(g.Box.H),
		resize_w: C.int32_t(g.ResizeW), resize_h: C.int32_t(g.ResizeH),
		win_x: C.int32_t(g.Window.X), win_y: C.int32_t(g.Window.Y), win_w: C.int32_t(g.Window.W), win_h: C.int32_t(g.Window.H),
		flip_h: flag(g.FlipH), flip_v: flag(g.FlipV),
		filter: C.int32_t(g.Filter),
	}
	s := &j.Store
	c.store.dtype, c.store.layout, c.store.channels = C.int32_t(s.DType), C.int32_t(s.Layout), C.int32_t(s.Channels)
	for i := range s.Scale {
		c.store.scale[i], c.store.bias[i] = C.float(s.Scale[i]), C.float(s.Bias[i])
	}
}

func flag(b bool) C.int32_t {
	if b {
		return 1
	}
	return 0
}

func (j *Job) pixelBytes() int {
	switch j.Format {
	case FormatPixels:
		return j.Pixels.Size()
	case FormatRGB:
		return 3
	case FormatRGBX:
		return 4
	}
	return 1
}

// DecodeFull decodes a whole JPEG to u8 RGB, HWC, with libjpeg's defaults: the
// reference for Run. dst must hold width*height*3 bytes.
func (d *Decoder) DecodeFull(src, dst []byte) (width, height int, err error) {
	var w, h C.int
	if len(src) == 0 {
		return 0, 0, &Error{Kind: ErrCorrupt, Msg: "the image is empty"}
	}
	code := C.sk_jpeg_decode_full(d.c, (*C.uint8_t)(unsafe.SliceData(src)), C.size_t(len(src)),
		(*C.uint8_t)(unsafe.SliceData(dst)), C.size_t(len(dst)), &w, &h)
	if code != C.SK_OK {
		err = newError(C.int32_t(code), C.sk_message(d.c))
	}
	return int(w), int(h), err
}

// DecodeSamples decodes a whole JPEG to its stored samples of u8, HWC. YCbCr is converted to RGB. dst must have space
// for width*height*channels bytes. src may not be a mapped file.
func (d *Decoder) DecodeSamples(src, dst []byte) (width, height, channels int, err error) {
	var w, h, n C.int
	if len(src) == 0 {
		return 0, 0, 0, &Error{Kind: ErrCorrupt, Msg: "the image is empty"}
	}
	code := C.sk_jpeg_decode_samples(d.c, (*C.uint8_t)(unsafe.SliceData(src)), C.size_t(len(src)),
		(*C.uint8_t)(unsafe.SliceData(dst)), C.size_t(len(dst)), &w, &h, &n)
	if code != C.SK_OK {
		err = newError(C.int32_t(code), C.sk_message(d.c))
	}
	return int(w), int(h), int(n), err
}

// StorePixels writes u8 RGB pixels (HWC, 3 bytes each) to dst as st specifies, for pixels that were augmented after
// decoding.
func (d *Decoder) StorePixels(src []byte, width, height int, st item.Store, dst []byte) error {
	w, h := int32(width), int32(height)
	job := [1]Job{{
		Format: FormatRGB, Src: src, Width: w, Height: h, Store: st, Dst: dst,
		Geom: item.Geometry{
			Box: item.Rect{W: w, H: h}, ResizeW: w, ResizeH: h, Window: item.Rect{W: w, H: h}, Filter: item.Bilinear,
		},
	}}
	d.run(job[:])
	return job[0].Err
}

// gatherPerCall limits the table of addresses.
const gatherPerCall = 512

// Gather copies the first rowBytes of each src to consecutive positions in dst, past the caches. It is for a dst that
// is written once, read by another process, and part of more memory than the caches hold. It panics if a slice is too
// short, like copy loops of Go. It panics with an *Error of ErrUnreadable if a slice is part of a mapped file that
// cannot be read.
func Gather(dst []byte, src [][]byte, rowBytes int) { gather(dst, src, rowBytes, 1) }

// GatherNear is Gather with ordinary stores, for a small dst that is read soon.
func GatherNear(dst []byte, src [][]byte, rowBytes int) { gather(dst, src, rowBytes, 0) }

func gather(dst []byte, src [][]byte, rowBytes int, pastCaches C.int) {
	if rowBytes <= 0 {
		return
	}
	g := gatherTables.Get().(*gatherTable)
	defer gatherTables.Put(g)
	for len(src) > 0 {
		n := min(len(src), gatherPerCall)
		out := dst[:n*rowBytes]
		for i, s := range src[:n] {
			_ = s[rowBytes-1]
			p := unsafe.SliceData(s)
			g.pins.Pin(p)
			g.addresses[i] = C.uintptr_t(uintptr(unsafe.Pointer(p)))
		}
		code := C.sk_gather(pastCaches, (*C.uint8_t)(unsafe.SliceData(out)), &g.addresses[0], C.int(n), C.size_t(rowBytes))
		g.pins.Unpin()
		if code != C.SK_OK {
			panic(errUnreadable)
		}
		dst, src = dst[n*rowBytes:], src[n:]
	}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CopyCRC32C copies src to dst, past the caches, and is crc32.Update(crc, Castagnoli,
// src): one way through the memory for both. It panics as Gather does.
func CopyCRC32C(dst, src []byte, crc uint32) uint32 {
	dst = dst[:len(src)]
	state := C.uint32_t(^crc)
	switch C.sk_copy_crc32c((*C.uint8_t)(unsafe.SliceData(dst)), (*C.uint8_t)(unsafe.SliceData(src)), C.size_t(len(src)), &state) {
	case C.SK_OK:
		return ^uint32(state)
	case C.SK_UNREADABLE:
		panic(errUnreadable)
	}
	copy(dst, src)
	return crc32.Update(crc, castagnoli, src)
}

// gatherTable is used again and again, so that a gather allocates nothing.
type gatherTable struct {
	addresses [gatherPerCall]C.uintptr_t
	pins      runtime.Pinner
}

var gatherTables = sync.Pool{New: func() any { return new(gatherTable) }}
