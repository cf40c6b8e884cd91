package dynvalue

import (
	"context"
	"slices"

	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/store"
)

// View is a record of which only the requested parts are read.
type View struct {
	Size int
	b    []byte // available bytes, from offset at
	at   int
	// read reads bytes of the record. It is nil if b has all of them.
	read func(p []byte, off int) error
	buf  []byte
}

// All sets the record to b.
func (v *View) All(b []byte) { v.Size, v.b, v.at, v.read = len(b), b, 0, nil }

// Whole returns the record if all of it is available, otherwise nil.
func (v *View) Whole() []byte {
	if v.read != nil {
		return nil
	}
	return v.b
}

// Some sets the record to size bytes that read reads on request.
func (v *View) Some(size int, read func(p []byte, off int) error) {
	v.Size, v.b, v.at, v.read = size, nil, 0, read
}

// Get returns n bytes at off, which must be in the record. They are valid until the next call.
func (v *View) Get(off, n int) ([]byte, error) {
	if i := off - v.at; i >= 0 && i <= len(v.b) && n <= len(v.b)-i {
		return v.b[i : i+n : i+n], nil
	}
	m := min(max(n, column.HeadBytes), v.Size-off)
	if cap(v.buf) < m {
		v.buf = make([]byte, m)
	}
	v.b, v.at = v.buf[:m], off
	if err := v.read(v.b, off); err != nil {
		v.b = nil
		return nil, &ReadError{err}
	}
	return v.b[:n:n], nil
}

// ReadError is a failure to read a record. It does not mean that the record is damaged.
type ReadError struct{ Err error }

func (e *ReadError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *ReadError) Unwrap() error { return e.Err }

const (
	// window is the size of a read that covers several short records. Records of more than farApart
	// bytes are read only in the requested parts.
	window   = 256 << 10
	farApart = 32 << 10
)

// Look calls look for each of n records of an object, with the record in v. The records are in
// ascending order. extent returns their positions.
func Look(ctx context.Context, o store.Object, n int, extent func(k int) (off, size int64), v *View, look func(k int) error) error {
	var buf []byte
	for k := 0; k < n; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		begin, size := extent(k)
		if size > farApart {
			v.Some(int(size), func(p []byte, off int) error { return o.ReadAt(ctx, p, begin+int64(off)) })
			if err := look(k); err != nil {
				return err
			}
			k++
			continue
		}
		last, end := k+1, begin+size // records before last are read together
		for last < n {
			off, size := extent(last)
			if off+size-begin > window {
				break
			}
			last, end = last+1, off+size
		}
		buf = slices.Grow(buf[:0], int(end-begin))[:end-begin]
		if err := o.ReadAt(ctx, buf, begin); err != nil {
			return err
		}
		for ; k < last; k++ {
			off, size := extent(k)
			v.All(buf[off-begin:][:size:size])
			if err := look(k); err != nil {
				return err
			}
		}
	}
	return store.Check(ctx, o)
}
