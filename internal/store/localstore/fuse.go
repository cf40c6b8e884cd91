package localstore

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// The kernel sends a read through its page cache to a FUSE server in the background. It has at most max_background of
// those under way: 12, unless the server asks for more. From 3/4 of that on it skips readahead, and a reader then waits
// for one page after the other. Most servers have no such limit for direct reads. So a few reads at a time go through
// the page cache and fill it, and the others are direct.

const (
	// mostThrough is the number of reads at a time that go through the page cache: less than 3/4 of 12.
	mostThrough = 8
	// slowFUSE is the mean time of these reads from which on the others are direct. A server on this machine is faster.
	slowFUSE = time.Millisecond
	// firstFUSE is the mean before the first read. A fast server is known after 40 reads.
	firstFUSE = 8 * slowFUSE
	// meanOf is the number of reads that the mean covers.
	meanOf = 16
)

// fuse counts the reads through the page cache of a FUSE file system.
type fuse struct {
	through atomic.Int32 // under way
	mean    atomic.Int64 // of their nanoseconds, a moving average
	refused atomic.Bool  // direct reads do not work
}

func newFUSE() *fuse {
	m := &fuse{}
	m.mean.Store(int64(firstFUSE))
	return m
}

// The ways to read from a FUSE file system.
type way int

const (
	ahead  way = iota // through the page cache, with readahead
	exact             // through the page cache, without readahead, which the kernel might skip
	around            // direct
)

// enter chooses the way of a read. All but direct reads must leave. cached reports whether the bytes are in the page
// cache.
func (m *fuse) enter(cached func() bool) way {
	n := m.through.Add(1)
	switch {
	case n == 1 || m.mean.Load() < int64(slowFUSE):
		return ahead
	case n <= mostThrough || m.refused.Load() || cached():
		return exact
	}
	m.through.Add(-1)
	return around
}

// leave registers the end of a read through the page cache. Two that end at the same time may count as one.
func (m *fuse) leave(took time.Duration) {
	m.through.Add(-1)
	mean := m.mean.Load()
	m.mean.Store(mean + (int64(took)-mean)/meanOf)
}

// preadFUSE is pread for a file of a FUSE file system.
func (o *object) preadFUSE(m *fuse, b []byte, off int64) error {
	how := m.enter(func() bool { return o.inCache(off, len(b)) })
	if how == around {
		if fd := o.around(); fd >= 0 {
			err := o.pread(fd, 0, b, off)
			if err != unix.EINVAL {
				return err
			}
			m.refused.Store(true)
		}
		m.through.Add(1)
	}
	if how != ahead && !o.stays.Load() {
		_ = unix.Fadvise(o.fd, off, int64(len(b)), unix.FADV_RANDOM)
	}
	start := time.Now()
	err := o.pread(o.fd, 0, b, off)
	m.leave(time.Since(start))
	return err
}

// around returns a descriptor for direct reads, -1 if there is none. FUSE accepts them with any alignment. A file that
// stays open has a second descriptor for them, since other reads of it go through the cache. A file that is read once
// has none: to open it again costs a round trip.
func (o *object) around() int {
	if o.stays.Load() {
		if fd, err := o.directFD(); err == nil {
			return fd
		}
		return -1
	}
	if turnDirect(o.fd) != nil {
		return -1
	}
	return o.fd
}

// turnDirect makes all reads of a descriptor direct. The server is not told.
func turnDirect(fd int) error {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, unix.O_DIRECT|unix.O_NONBLOCK)
	return err
}

// inCache reports whether n bytes are in the page cache, false if the system does not know.
func (o *object) inCache(off int64, n int) bool {
	page := int64(unix.Getpagesize())
	lo, hi := off/page, (off+int64(n)+page-1)/page
	var st unix.Cachestat_t
	err := unix.Cachestat(uint(o.fd), &unix.CachestatRange{Off: uint64(off), Len: uint64(n)}, &st, 0)
	return err == nil && st.Cache >= uint64(hi-lo)
}
