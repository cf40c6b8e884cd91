// Package stream decompresses objects that are one stream: gzip, zstd or uncompressed. Memory is limited by the
// window size, and the output by a ratio that real data does not exceed.
//
// A stream may consist of several members (gzip) or frames (zstd). Decompression can start at each of them.
package stream

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/stokerdata/stoker/store"
)

// Format is the compression of a stream.
type Format uint8

// The formats.
const (
	Plain Format = iota
	Gzip
	Zstd
)

// HeadBytes is the number of bytes that Detect needs.
const HeadBytes = 4

// Detect returns the compression of a stream from its first bytes.
func Detect(head []byte) Format {
	switch {
	case len(head) >= 3 && head[0] == 0x1F && head[1] == 0x8B && head[2] == 8:
		return Gzip
	case len(head) >= 4 && (isFrame(head) || isSkippable(head)):
		return Zstd
	}
	return Plain
}

const (
	// MaxWindow is the largest zstd window. It is the default limit of the zstd program.
	MaxWindow = 128 << 20
	// A stream that yields more than bombFrom bytes and more than bombRatio times its own size is an attack on
	// memory or time, not data: gzip cannot reach that ratio, zstd only by repeating a byte.
	bombFrom  = 4 << 30
	bombRatio = 2000

	bufferBytes = 64 << 10
)

// Memory returns about how much memory a Reader needs for streams with this window size.
func Memory(window int64) int64 { return ahead*chunkBytes + 1<<20 + 2*window }

// Reader decompresses streams, one after the other. It is not safe for concurrent use.
type Reader struct {
	in     input
	br     *bufio.Reader
	format Format
	gz     *gzip.Reader
	zs     *zstd.Decoder
	frame  frame

	open          bool // whether a member is open
	began         bool // whether there was a member
	member, start int64
	pos           int64
	reads         int
	window        int64
	err           error
}

// Open starts to decompress an object of size bytes at an offset: 0, or one that Member returned.
func (r *Reader) Open(ctx context.Context, read ReadFunc, size int64, f Format, at int64) {
	r.in.open(ctx, read, size, at)
	if r.br == nil {
		r.br = bufio.NewReaderSize(&r.in, bufferBytes)
	}
	r.br.Reset(&r.in)
	r.format, r.open, r.began, r.member, r.start, r.pos, r.err = f, false, false, at, 0, 0, nil
}

// Close stops reading and frees the decoder. Open may follow.
func (r *Reader) Close() {
	r.in.close()
	if r.zs != nil {
		r.zs.Close()
		r.zs = nil
	}
}

// Pos returns the number of bytes that Read returned since Open.
func (r *Reader) Pos() int64 { return r.pos }

// Member returns the start of the member that the last bytes of Read came from: the offset in the object, and the
// Pos. An uncompressed stream has a new member at each Read.
func (r *Reader) Member() (offset, pos int64) { return r.member, r.start }

// Window returns the largest window so far.
func (r *Reader) Window() int64 { return r.window }

// offset returns the position of the decoder in the object.
func (r *Reader) offset() int64 { return r.in.given - int64(r.br.Buffered()) }

// Read implements io.Reader. The bytes of one call come from one member. Errors give the offset in the object.
// Errors of the store also name the object.
func (r *Reader) Read(p []byte) (int, error) {
	if r.err != nil || len(p) == 0 {
		return 0, r.err
	}
	if r.reads++; r.reads%64 == 0 && r.in.ctx.Err() != nil {
		return 0, r.fail(context.Cause(r.in.ctx))
	}
	for {
		if !r.open {
			if err := r.next(); err != nil {
				return 0, r.fail(err)
			}
		}
		if r.format == Plain {
			r.member, r.start = r.offset(), r.pos
		}
		n, err := r.decoder().Read(p)
		r.pos += int64(n)
		if r.pos > bombFrom && r.pos/bombRatio > r.in.size {
			return 0, r.fail(&ownError{fmt.Sprintf("it decompresses to more than %d times its size: this cannot be data", bombRatio)})
		}
		switch {
		case err == io.EOF:
			r.open = false
		case err != nil:
			r.err = r.explain(err)
			if n == 0 {
				return 0, r.err
			}
		}
		if n > 0 {
			return n, nil
		}
	}
}

func (r *Reader) decoder() io.Reader {
	switch r.format {
	case Gzip:
		return r.gz
	case Zstd:
		return r.zs
	}
	return r.br
}

// fail sets the error of all further reads.
func (r *Reader) fail(err error) error {
	if r.err = err; err != io.EOF {
		r.err = r.explain(err)
	}
	return r.err
}

// next starts the next member, or returns io.EOF after the last one.
func (r *Reader) next() error {
	for {
		head, err := r.br.Peek(HeadBytes)
		if len(head) == 0 {
			if err == io.EOF && !r.began && r.format != Plain {
				return io.ErrUnexpectedEOF
			}
			return err
		}
		if r.in.err != nil {
			return r.in.err
		}
		if r.format != Plain && Detect(head) != r.format {
			return &ownError{"unknown bytes after the compressed data"}
		}
		at := r.offset()
		data, err := r.begin()
		if err != nil {
			return noEOF(err)
		}
		r.began = true
		if data {
			r.open, r.member, r.start = true, at, r.pos
			return nil
		}
	}
}

// begin prepares the decoder for the member at this position. It returns false for a member without data, which it
// has skipped.
func (r *Reader) begin() (bool, error) {
	switch r.format {
	case Gzip:
		if r.gz == nil {
			r.gz = new(gzip.Reader)
		}
		if err := r.gz.Reset(r.br); err != nil {
			return false, err
		}
		r.gz.Multistream(false)
	case Zstd:
		skipped, err := r.frame.begin(r.br)
		if err != nil || skipped {
			return false, err
		}
		r.window = max(r.window, r.frame.window)
		if r.zs == nil {
			// Decode in the calling goroutine.
			r.zs, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
				zstd.WithDecoderMaxWindow(MaxWindow), zstd.WithDecoderMaxMemory(1<<62))
			if err != nil {
				return false, err
			}
		}
		return true, r.zs.Reset(&r.frame)
	}
	return true, nil
}

// noEOF turns io.EOF into io.ErrUnexpectedEOF.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// explain returns an error for users from a decoder's error.
func (r *Reader) explain(err error) error {
	if r.in.err != nil {
		return r.in.err // the cause of the decoder's error
	}
	if r.in.ctx.Err() != nil {
		return context.Cause(r.in.ctx)
	}
	var corrupt flate.CorruptInputError
	var internal flate.InternalError // flate returns it for some damage
	var named *store.Error
	switch {
	case errors.As(err, &named):
		return err
	case errors.Is(err, io.ErrUnexpectedEOF):
		err = errors.New("the compressed data ends before its end: it is cut off")
	case errors.Is(err, gzip.ErrChecksum), errors.Is(err, zstd.ErrCRCMismatch):
		err = errors.New("the compressed data is damaged: its checksum is wrong")
	case errors.Is(err, gzip.ErrHeader):
		err = errors.New("the compressed data is damaged: the header of a member is wrong")
	case errors.As(err, &corrupt), errors.As(err, &internal):
		err = errors.New("the compressed data is damaged")
	case r.format == Zstd && !errors.As(err, new(*ownError)):
		err = fmt.Errorf("the compressed data is damaged: %w", err)
	}
	return &Error{At: r.offset(), Err: err}
}

// Error is the error of a stream.
type Error struct {
	// At is the approximate offset in the object. Decoders read slightly ahead.
	At  int64
	Err error
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("%v (at byte %d of the file)", e.Err, e.At) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// frame passes one frame of zstd to the decoder. Without it the decoder would continue with the next frame.
type frame struct {
	br     *bufio.Reader
	window int64
	sum    bool // a checksum follows

	mem  [20]byte
	pend []byte // to pass first
	left int    // bytes left of the block
	last bool   // the block is the last one
	over bool
}

// ownError is an error of this package that explain leaves unchanged.
type ownError struct{ text string }

func (e *ownError) Error() string { return e.text }

func isFrame(b []byte) bool { return bytes.HasPrefix(b, []byte{0x28, 0xB5, 0x2F, 0xFD}) }

func isSkippable(b []byte) bool {
	return b[0]&0xF0 == 0x50 && bytes.HasPrefix(b[1:], []byte{0x2A, 0x4D, 0x18})
}

// begin reads the header of a frame (RFC 8878, 3.1.1), or skips a skippable frame.
func (f *frame) begin(br *bufio.Reader) (skipped bool, err error) {
	*f = frame{br: br}
	h := f.mem[:5]
	if _, err := io.ReadFull(br, h); err != nil {
		return false, err
	}
	if isSkippable(h) {
		if _, err := io.ReadFull(br, f.mem[5:8]); err != nil {
			return false, err
		}
		n := int64(binary.LittleEndian.Uint32(f.mem[4:]))
		for n > 0 {
			d, err := br.Discard(int(min(n, 1<<20)))
			if n -= int64(d); err != nil {
				return false, noEOF(err)
			}
		}
		return true, nil
	}
	desc := h[4]
	single := desc&0x20 != 0
	f.sum = desc&4 != 0
	if desc&3 != 0 {
		return false, &ownError{"the data needs a zstd dictionary, which is not supported: compress it without one"}
	}
	n := [4]int{0, 2, 4, 8}[desc>>6]
	if single && n == 0 {
		n = 1
	}
	content := 5
	if !single {
		content++
	}
	h = f.mem[:content+n]
	if _, err := io.ReadFull(br, h[5:]); err != nil {
		return false, noEOF(err)
	}
	if single {
		var size [8]byte
		copy(size[:], h[content:])
		w := binary.LittleEndian.Uint64(size[:])
		if n == 2 {
			w += 256
		}
		f.window = int64(min(w, 1<<62))
	} else {
		base := int64(1) << (10 + h[5]>>3)
		f.window = base + base/8*int64(h[5]&7)
	}
	if f.window > MaxWindow {
		return false, &ownError{fmt.Sprintf("decompressing it needs a window of %d MiB, the limit is %d MiB: compress it without --long", f.window>>20, MaxWindow>>20)}
	}
	f.pend = h
	return false, nil
}

// Read implements io.Reader.
func (f *frame) Read(p []byte) (int, error) {
	for {
		switch {
		case len(f.pend) > 0:
			n := copy(p, f.pend)
			f.pend = f.pend[n:]
			return n, nil
		case f.left > 0:
			n, err := f.br.Read(p[:min(len(p), f.left)])
			f.left -= n
			if n > 0 {
				err = nil
			}
			return n, noEOF(err)
		case f.over:
			return 0, io.EOF
		case f.last:
			f.over = true
			if f.sum {
				if _, err := io.ReadFull(f.br, f.mem[:4]); err != nil {
					return 0, noEOF(err)
				}
				f.pend = f.mem[:4]
			}
		default:
			h := f.mem[:3]
			if _, err := io.ReadFull(f.br, h); err != nil {
				return 0, noEOF(err)
			}
			v := int(h[0]) | int(h[1])<<8 | int(h[2])<<16
			f.last = v&1 != 0
			if f.left = v >> 3; v>>1&3 == 1 { // one byte, repeated
				f.left = 1
			}
			f.pend = h
		}
	}
}
