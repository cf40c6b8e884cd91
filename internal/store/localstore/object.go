package localstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/store"
)

// piece is the maximum size of a read before the context is checked again.
const piece = 32 << 20

// object is an open file.
type object struct {
	s     *Store
	name  string
	fd    int
	size  int64
	mtime int64
	dev   uint64 // the file system

	stays atomic.Bool // open for many reads, in random order

	directMu sync.Mutex   // for opening
	direct   atomic.Int32 // descriptor for direct reads, 0 before the first, -1 if not supported
}

var (
	_ store.Mapper       = (*object)(nil)
	_ store.CachedReader = (*object)(nil)
	_ store.DirectReader = (*object)(nil)
	_ store.Adviser      = (*object)(nil)
	_ store.Starter      = (*object)(nil)
	_ store.Checker      = (*object)(nil)
)

// Open opens a file.
func (s *Store) Open(ctx context.Context, name string) (store.Object, error) {
	o, err := s.open(ctx, name)
	if err != nil {
		return nil, s.failed("open", name, err)
	}
	return o, nil
}

func (s *Store) open(ctx context.Context, name string) (*object, error) {
	if err := s.check(ctx, name); err != nil {
		return nil, err
	}
	fd := -1
	var st unix.Stat_t
	err := s.again(func() (err error) {
		// O_NONBLOCK: opening a pipe without a writer would block forever.
		if fd, err = unix.Open(s.Path(name), unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0); err != nil {
			return err
		}
		if err = s.sys(func() error { return unix.Fstat(fd, &st) }); err != nil {
			unix.Close(fd)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return &object{s: s, name: name, fd: fd, size: st.Size, mtime: st.Mtim.Nano(), dev: st.Dev}, nil
	case unix.S_IFDIR:
		err = unix.EISDIR
	default:
		err = store.ErrIrregular
	}
	unix.Close(fd)
	return nil, err
}

func (o *object) Size() int64 { return o.size }

func (o *object) Version() string {
	return version(o.size, o.mtime)
}

// Check implements store.Checker.
func (o *object) Check(context.Context) error {
	var st unix.Stat_t
	if err := o.fresh(o.fd, 0, func() error { return unix.Fstat(o.fd, &st) }); err != nil {
		return o.s.failed("look at", o.name, err)
	}
	if st.Size != o.size || st.Mtim.Nano() != o.mtime {
		return o.s.failed("read", o.name, store.ErrChanged)
	}
	return nil
}

func (o *object) ReadAt(ctx context.Context, p []byte, off int64) error {
	if err := o.inside(p, off); err != nil {
		return err
	}
	system := o.s.systemOf(o)
	for at := 0; at < len(p); at += piece {
		if ctx.Err() != nil {
			return o.failedAt(p, off, context.Cause(ctx))
		}
		var err error
		if b := p[at:min(at+piece, len(p))]; system.fuse != nil {
			err = o.preadFUSE(system.fuse, b, off+int64(at))
		} else {
			err = o.pread(o.fd, 0, b, off+int64(at))
		}
		if err != nil {
			return o.failedAt(p, off, err)
		}
	}
	return nil
}

// inside refuses reads after the end that the file had when it was opened.
func (o *object) inside(p []byte, off int64) error {
	if off < 0 || off > o.size || int64(len(p)) > o.size-off {
		return o.failedAt(p, off, fmt.Errorf("%w: it has %d bytes", store.ErrShort, o.size))
	}
	return nil
}

func (o *object) failedAt(p []byte, off int64, err error) error {
	return &store.Error{Op: "read", Path: o.s.Path(o.name), Off: off, Len: int64(len(p)), Err: explained(err)}
}

// errCut is the error of a file that became shorter while it was open.
var errCut = fmt.Errorf("%w: %w", store.ErrChanged, store.ErrShort)

// pread fills b from off of a descriptor that was opened with flags, or fails.
func (o *object) pread(fd, flags int, b []byte, off int64) error {
	for len(b) > 0 {
		var n int
		err := o.fresh(fd, flags, func() (err error) {
			n, err = unix.Pread(fd, b, off)
			return err
		})
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return err
		case n == 0:
			return errCut
		}
		b, off = b[n:], off+int64(n)
	}
	return nil
}

// ReadCached implements store.CachedReader.
func (o *object) ReadCached(p []byte, off int64) (int, error) {
	if err := o.inside(p, off); err != nil {
		return 0, err
	}
	if len(p) == 0 {
		return 0, nil
	}
	n, err := unix.Preadv2(o.fd, [][]byte{p}, off, unix.RWF_NOWAIT)
	n = max(n, 0)
	switch {
	case err == nil, err == unix.EAGAIN, err == unix.EINTR:
		return n, nil
	case err == unix.EOPNOTSUPP, err == unix.ENOSYS, err == unix.EINVAL:
		err = fmt.Errorf("%w: %w", errors.ErrUnsupported, err)
	}
	return n, o.failedAt(p, off, err)
}

// Advise implements store.Adviser.
func (o *object) Advise(off, n int64, a store.Advice) {
	switch a {
	case store.Random:
		o.stays.Store(true)
		_ = unix.Fadvise(o.fd, off, n, unix.FADV_RANDOM)
	case store.WillNeed:
		_ = unix.Fadvise(o.fd, off, n, unix.FADV_WILLNEED)
	case store.DontNeed:
		_ = unix.Fadvise(o.fd, off, n, unix.FADV_DONTNEED)
	}
}

// Start implements store.Starter.
func (o *object) Start(off, n int64) bool {
	return off >= 0 && n > 0 && o.s.systemOf(o).disk && unix.Fadvise(o.fd, off, n, unix.FADV_WILLNEED) == nil
}

// system is a file system, according to its type.
type system struct {
	disk bool  // on a disk of this machine
	fuse *fuse // nil for others
}

// systemOf returns the file system of a file.
func (s *Store) systemOf(o *object) *system {
	if is, ok := s.systems.Load(o.dev); ok {
		return is.(*system)
	}
	is := &system{}
	var st unix.Statfs_t
	if err := uninterrupted(func() error { return unix.Fstatfs(o.fd, &st) }); err != nil {
		return is
	}
	switch st.Type {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC, unix.OVERLAYFS_SUPER_MAGIC:
		is.disk = true
	case unix.FUSE_SUPER_MAGIC:
		is.fuse = newFUSE()
	}
	first, _ := s.systems.LoadOrStore(o.dev, is)
	return first.(*system)
}

// Map implements store.Mapper.
func (o *object) Map() (store.Mapping, error) {
	m, err := arena.MapFile(o.fd, o.size)
	if err != nil {
		return nil, o.s.failed("map", o.name, err)
	}
	return &mapping{m}, nil
}

type mapping struct{ m *arena.Mapping }

func (m *mapping) Bytes() []byte { return m.m.Bytes() }

func (m *mapping) Resident(off, n int64, now time.Time) bool {
	if n == 0 {
		return off >= 0 && off <= int64(len(m.m.Bytes()))
	}
	return m.m.Resident(off, off+n, now) != nil
}

func (m *mapping) Close() error { return m.m.Close() }

// Close closes the file.
func (o *object) Close() error {
	err := unix.Close(o.fd)
	o.fd = -1
	if fd := o.direct.Swap(-1); fd > 0 {
		if derr := unix.Close(int(fd)); err == nil {
			err = derr
		}
	}
	if err != nil {
		return o.s.failed("close", o.name, err)
	}
	return nil
}
