package cdec

/*
#include <stdlib.h>
*/
import "C"

import (
	"fmt"
	"unsafe"
)

// Buffer is scratch memory outside the Go heap that grows as needed. The zero
// value is empty and ready for use by one goroutine.
type Buffer struct{ p []byte }

// Bytes returns n bytes, not zeroed, 64-byte aligned, valid until the next call of Bytes or Free. They are followed
// by 64 readable bytes.
func (b *Buffer) Bytes(n int) ([]byte, error) {
	if n > len(b.p)-64 {
		b.Free()
		size := (n + n/8 + 64 + 63) &^ 63
		p := C.aligned_alloc(64, C.size_t(size))
		if p == nil {
			return nil, &Error{Kind: ErrNoMemory, Msg: fmt.Sprintf("no memory for %d bytes of pixels", n)}
		}
		b.p = unsafe.Slice((*byte)(p), size)
	}
	return b.p[:n:n], nil
}

// Cap returns the size of the allocated memory.
func (b *Buffer) Cap() int { return len(b.p) }

// Free releases the memory. The buffer can be used again.
func (b *Buffer) Free() {
	C.free(unsafe.Pointer(unsafe.SliceData(b.p)))
	b.p = nil
}
