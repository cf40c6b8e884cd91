package stream

import (
	"context"
	"io"
	"sync"
)

const (
	// chunkBytes is the size of a read, ahead the maximum number of chunks in flight: enough for 100 MB/s at 20 ms
	// per read.
	chunkBytes = 256 << 10
	ahead      = 8
)

// ReadFunc fills p from an offset of an object, or fails.
type ReadFunc func(ctx context.Context, p []byte, off int64) error

// input reads an object as a stream of bytes. It reads ahead, further the longer it is read.
type input struct {
	ctx    context.Context
	cancel context.CancelFunc
	read   ReadFunc
	next   int64 // offset of the next chunk to request
	size   int64

	chunks  [ahead]chunk
	head, n int // chunks in flight
	limit   int // of n
	rest    []byte
	given   int64 // offset after the bytes that Read returned
	err     error // read error, not EOF
	wg      sync.WaitGroup
}

type chunk struct {
	mem  []byte
	n    int
	done chan error
}

// open starts at an offset.
func (in *input) open(ctx context.Context, read ReadFunc, size, at int64) {
	in.close()
	in.ctx, in.cancel = context.WithCancel(ctx)
	in.read, in.size, in.next, in.given = read, size, at, at
	in.head, in.n, in.limit, in.rest, in.err = 0, 0, 1, nil, nil
}

// close cancels all reads and waits for them.
func (in *input) close() {
	if in.cancel == nil {
		return
	}
	in.cancel()
	in.wg.Wait()
	in.cancel = nil
}

// Read implements io.Reader.
func (in *input) Read(p []byte) (int, error) {
	if in.err != nil {
		return 0, in.err
	}
	if len(in.rest) == 0 {
		in.fill()
		if in.n == 0 {
			return 0, io.EOF
		}
		c := &in.chunks[in.head]
		if in.err = <-c.done; in.err != nil {
			if in.ctx.Err() != nil {
				in.err = context.Cause(in.ctx)
			}
			in.n--
			return 0, in.err
		}
		// This chunk's memory is in use until the next chunk is current, so fill must not take it.
		in.rest = c.mem[:c.n]
		in.head, in.n = (in.head+1)%ahead, in.n-1
		in.limit = min(2*in.limit, ahead-1)
		in.fill()
	}
	n := copy(p, in.rest)
	in.rest = in.rest[n:]
	in.given += int64(n)
	return n, nil
}

// fill requests as many chunks as may be in flight.
func (in *input) fill() {
	for in.n < in.limit && in.next < in.size {
		c := &in.chunks[(in.head+in.n)%ahead]
		if c.mem == nil {
			c.mem = make([]byte, chunkBytes)
		}
		c.n = int(min(chunkBytes, in.size-in.next))
		c.done = make(chan error, 1)
		p, at, done := c.mem[:c.n], in.next, c.done
		in.wg.Go(func() { done <- in.read(in.ctx, p, at) })
		in.next += int64(c.n)
		in.n++
	}
}
