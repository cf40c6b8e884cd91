package dynvalue

import (
	"context"
	"slices"

	"github.com/stokerdata/stoker/internal/source/column"
	"github.com/stokerdata/stoker/store"
)

// View is a record that is read as far as it is looked at.
type View struct {
	Size int
	b    []byte // what is there of it, from byte at on
	at   int
	// read reads more of it; nil when all is there.
	read func(p []byte, off int) error
	buf  []byte
}

// All makes b the record.
func (v *View) All(b []byte) { v.Size, v.b, v.at, v.read = len(b), b, 0, nil }

// Whole is the record where all of it is there, else nil.
func (v *View) Whole() []byte {
	if v.read != nil {
		return nil
	}
	return v.b
}

// Some makes what read reads the record, of size bytes.
func (v *View) Some(size int, read func(p []byte, off int) error) {
	v.Size, v.b, v.at, v.read = size, nil, 0, read
}

// Get returns n bytes from off on, which lie in the record. They are valid until it
// is called again.
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

// ReadError is the failure to read a record, which says nothing of its content.
type ReadError struct{ Err error }

func (e *ReadError) Error() string { return e.Err.Error() }

// Unwrap is the cause.
func (e *ReadError) Unwrap() error { return e.Err }

const (
	// window is how much is read at once while short records are looked at; those of
	// more than farApart are read as far as they are looked at.
	window   = 256 << 10
	farApart = 32 << 10
)

// Look looks at n records of an object, which lie in it in ascending order, where
// extent says: it gives each of them to look, as v.
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
		last, end := k+1, begin+size // records up to it are read at once
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
