package cache

import (
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/store/disk"
)

// view is a chunk in the system's cache. Its bytes are used without a copy and without a read. Such a read takes a good
// part of the time that decoding takes.
type view struct {
	fd  int // reads through the system's cache
	mem *arena.Mapping
}

// StartLending switches to reads through the system's cache. Bytes that are needed again are then lent from that cache.
// The caller makes sure that there is memory for it.
func (c *Chunks) StartLending() { c.lending.Store(true) }

// lentFile is the open file of a chunk that is lent, nil for none.
func (c *Chunks) lentFile(k disk.Key) *chunkFile {
	if !c.lending.Load() {
		return nil
	}
	c.lentMu.RLock()
	defer c.lentMu.RUnlock()
	return c.lent[k]
}

// lendFile marks a chunk as lent, if the limit of files allows. The file then stays open and mapped until Close,
// because the users of its bytes are not counted.
func (c *Chunks) lendFile(f *handle[disk.Key, *chunkFile]) {
	if !c.mayLend(f) {
		return
	}
	// The whole file is needed soon, and reading it in one piece is cheapest.
	_ = unix.Fadvise(f.f.view.Load().fd, 0, 0, unix.FADV_WILLNEED)
}

func (c *Chunks) mayLend(f *handle[disk.Key, *chunkFile]) bool {
	c.lentMu.Lock()
	defer c.lentMu.Unlock()
	// Another goroutine may already hold its file, or hold it from before the file was replaced.
	if c.lent[f.name] != nil || f.f.view.Load() != nil || len(c.views) >= c.open.most/2 {
		return false
	}
	if f.f.openView(c.file(f.name)) != nil {
		return false // it is read as before
	}
	if c.lent == nil {
		c.lent = map[disk.Key]*chunkFile{}
	}
	c.lent[f.name] = f.f
	c.open.hold(f)
	c.views = append(c.views, f)
	return true
}

// unlend stops lending a chunk, because its file was replaced.
func (c *Chunks) unlend(k disk.Key) {
	c.lentMu.Lock()
	defer c.lentMu.Unlock()
	delete(c.lent, k)
}

// endLending closes the lent files when their bytes are not in use any more.
func (c *Chunks) endLending() {
	c.lentMu.Lock()
	defer c.lentMu.Unlock()
	for _, f := range c.views {
		c.open.giveBack(f)
	}
	c.lent, c.views = nil, nil
}

// Lend implements disk.Lender.
func (c *Chunks) Lend(k disk.Key, off, n, tail int64, now time.Time) []byte {
	if f := c.lentFile(k); f != nil {
		return f.lend(off, n, tail, now)
	}
	return nil
}

// openView opens a chunk's file a second time, to be read through the system's cache.
func (f *chunkFile) openView(name string) error {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	var mine, its unix.Stat_t
	if err = unix.Fstat(f.fd, &mine); err == nil {
		err = unix.Fstat(fd, &its)
	}
	if err == nil && (mine.Ino != its.Ino || mine.Dev != its.Dev) {
		err = os.ErrNotExist // another one has taken the name
	}
	var m *arena.Mapping
	if err == nil {
		m, err = arena.MapFile(fd, fileSize(f.end))
	}
	if err != nil {
		_ = unix.Close(fd)
		return err
	}
	f.view.Store(&view{fd, m})
	return nil
}

func (v *view) close() {
	_ = v.mem.Close()
	_ = unix.Close(v.fd)
}

// lend returns bytes of the chunk in the system's cache. It returns nil if they are not in that cache or not verified,
// or if the file was touched since.
func (f *chunkFile) lend(off, n, tail int64, now time.Time) []byte {
	if off < 0 || n <= 0 || off > f.key.Size || n > f.key.Size-off || f.changed.Load() {
		return nil
	}
	at := f.lead + off
	if !f.known(at, n) {
		return nil
	}
	b := f.view.Load().mem.Resident(at, at+n+tail, now)
	if b == nil {
		return nil
	}
	if !f.untouched() {
		f.changed.Store(true)
		return nil
	}
	return b[:n:n]
}
