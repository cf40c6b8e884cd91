package video

import (
	"context"
	"encoding/binary"
	"fmt"
)

// file reads parts of a file. The last part read stays in memory, so that adjacent headers cost one read.
type file struct {
	ctx  context.Context
	in   Input
	size int64

	buf []byte
	at  int64 // offset of buf
}

// ahead is the minimum size of a read.
const ahead = 64 << 10

// bytes returns n bytes from an offset on, valid until the next call.
func (f *file) bytes(off, n int64) ([]byte, error) {
	if off < 0 || n < 0 || off > f.size-n {
		return nil, fmt.Errorf("%d bytes are missing at byte %d: the file has %d, it is cut off", n, off, f.size)
	}
	if n > maxIndexBytes {
		return nil, fmt.Errorf("a part of its index has %d bytes, more than the limit of %d", n, int64(maxIndexBytes))
	}
	if off < f.at || off+n > f.at+int64(len(f.buf)) {
		size := min(max(n, ahead), f.size-off)
		if int64(cap(f.buf)) < size {
			f.buf = make([]byte, size)
		}
		f.buf, f.at = f.buf[:size], off
		if err := f.in.ReadAt(f.ctx, f.buf, off); err != nil {
			f.buf = f.buf[:0]
			return nil, err
		}
	}
	return f.buf[off-f.at:][:n], nil
}

// copied returns a copy of bytes, which stays valid.
func (f *file) copied(off, n int64) ([]byte, error) {
	b, err := f.bytes(off, n)
	if err != nil {
		return nil, err
	}
	return append([]byte(nil), b...), nil
}

var (
	be = binary.BigEndian
	le = binary.LittleEndian
)

// tooMany refuses more frames than there may be.
func tooMany(n int64) error {
	return fmt.Errorf("its index says %d frames, more than the limit of %d", n, MaxFrames)
}
