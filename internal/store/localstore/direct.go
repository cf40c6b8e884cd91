package localstore

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/proc"
)

const (
	// alignment is enough for direct reads on all common devices.
	alignment = 4096
	// bounceBytes is the size of reads through a buffer, when the memory or the offset is not aligned.
	bounceBytes = 256 << 10
)

var bounces = sync.Pool{New: func() any {
	b := arena.Aligned(bounceBytes, alignment)
	return &b
}}

// ReadDirect implements store.DirectReader. Parts that are aligned to 4 KiB, in the file and in memory, are read in
// place, others through a small buffer.
func (o *object) ReadDirect(ctx context.Context, p []byte, off int64) error {
	if err := o.inside(p, off); err != nil {
		return err
	}
	if len(p) == 0 {
		return nil
	}
	fd, err := o.directFD()
	if err != nil {
		return o.failedAt(p, off, err)
	}
	for at := 0; at < len(p); {
		if ctx.Err() != nil {
			return o.failedAt(p, off, context.Cause(ctx))
		}
		n, err := o.readDirect(fd, p[at:], off+int64(at))
		if err == unix.EINVAL && at == 0 {
			err = fmt.Errorf("%w: %w", errors.ErrUnsupported, err)
		}
		if err != nil {
			return o.failedAt(p, off, err)
		}
		at += n
	}
	return nil
}

// readDirect reads some of p, at least one byte.
func (o *object) readDirect(fd int, p []byte, off int64) (int, error) {
	if off%alignment == 0 && len(p) >= alignment && arena.IsAligned(p, alignment) {
		return o.preadOnce(fd, p[:min(len(p), piece)&^(alignment-1)], off)
	}
	buf := bounces.Get().(*[]byte)
	defer bounces.Put(buf)
	lo := off &^ (alignment - 1)
	skip := int(off - lo)
	want := min((skip+len(p)+alignment-1)&^(alignment-1), bounceBytes)
	n, err := o.preadOnce(fd, (*buf)[:want], lo)
	if err != nil {
		return 0, err
	}
	if n <= skip {
		return 0, errCut
	}
	return copy(p, (*buf)[skip:n]), nil
}

// preadOnce reads once. The end of the file is an error: the file was longer when it was opened.
func (o *object) preadOnce(fd int, b []byte, off int64) (n int, err error) {
	for {
		err = o.fresh(fd, unix.O_DIRECT, func() (err error) {
			n, err = unix.Pread(fd, b, off)
			return err
		})
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return 0, err
		case n == 0:
			return 0, errCut
		}
		return n, nil
	}
}

// directFD opens the same file again, for direct reads. A FUSE server does not learn that they are direct: it might open
// its own file in the same way, and then refuse reads that are not aligned.
func (o *object) directFD() (int, error) {
	if fd := o.direct.Load(); fd > 0 {
		return int(fd), nil
	}
	o.directMu.Lock()
	defer o.directMu.Unlock()
	if fd := o.direct.Load(); fd > 0 {
		return int(fd), nil
	} else if fd < 0 {
		return -1, errNotDirect
	}
	fd, fuse := -1, o.s.systemOf(o).fuse != nil
	flags := unix.O_DIRECT
	if fuse {
		flags = 0
	}
	err := o.fresh(o.fd, 0, func() (err error) {
		fd, err = unix.Open(proc.FDPath(o.fd), unix.O_RDONLY|unix.O_CLOEXEC|flags, 0)
		return err
	})
	if err == nil && fuse {
		if err = turnDirect(fd); err != nil {
			unix.Close(fd)
		}
	}
	switch {
	case err == nil:
		o.direct.Store(int32(fd))
		return fd, nil
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.EINTR):
		return -1, err
	}
	o.direct.Store(-1)
	return -1, errNotDirect
}

var errNotDirect = fmt.Errorf("direct reads: %w", errors.ErrUnsupported)
