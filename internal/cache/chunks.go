package cache

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/ioqueue"
	"github.com/stokerdata/stoker/internal/store/disk"
)

const (
	// maxOpen is the number of files that stay open, if the process may have eight times as many. Opening a chunk is
	// expensive: it reads the checksums and compares each again.
	maxOpen = 4096
	// patience is the maximum wait for another process that is filling a chunk.
	patience = 30 * time.Second
	// firstLook and lastLook are the first and the longest interval between checks of that chunk.
	firstLook, lastLook = time.Millisecond, 50 * time.Millisecond
)

// Chunks are the cached chunks of a data set: pieces of objects in a remote store. All processes that have opened the
// same data set share them. Methods may be called concurrently, except Close, which is called last.
type Chunks struct {
	dir  *Dir
	id   string
	path string
	say  func(string)
	use  func() // ends the use

	claims claims
	job    job
	orders orders
	open   handles[disk.Key, *chunkFile]
	queue  func() *ioqueue.Queue // made when it is needed
	queued atomic.Pointer[ioqueue.Queue]

	lending atomic.Bool
	lentMu  sync.RWMutex
	lent    map[disk.Key]*chunkFile
	views   []*handle[disk.Key, *chunkFile] // all that were lent, also those that are not any more

	until                            atomic.Int64 // nothing is cached before that time, in nanoseconds
	dead                             atomic.Bool  // caching has failed for good
	said                             sync.Once
	kept, keptBytes, badChunks, gone atomic.Int64
}

// OpenChunks opens the cached chunks of the data of origin, such as the URL of a bucket. say is called once when
// nothing can be cached.
func OpenChunks(dir *Dir, origin string, say func(string)) (*Chunks, error) {
	c := &Chunks{dir: dir, id: ID(origin), say: say}
	c.queue = sync.OnceValue(func() *ioqueue.Queue {
		q := ioqueue.New()
		c.queued.Store(q)
		return q
	})
	c.open.most = mostOpen()
	var err error
	if c.path, c.use, err = dir.begin(origin); err != nil {
		return nil, err
	}
	for _, name := range []string{chunksName, fillingName} {
		if err = os.MkdirAll(filepath.Join(c.path, name), 0o700); err != nil {
			break
		}
	}
	if err == nil {
		err = c.join()
	}
	if err != nil {
		c.use()
		return nil, err
	}
	return c, nil
}

func mostOpen() int {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return 1
	}
	return int(min(maxOpen, files.Cur/8))
}

// Path is the folder of the data set.
func (c *Chunks) Path() string { return c.path }

func (c *Chunks) file(k disk.Key) string {
	name := k.String()
	return filepath.Join(c.path, chunksName, folderOf(name), name)
}

func (c *Chunks) fillFile(k disk.Key) string { return filepath.Join(c.path, fillingName, k.String()) }

// Read implements disk.Shelf.
func (c *Chunks) Read(k disk.Key, p []byte, off int64) bool {
	if f := c.lentFile(k); f != nil {
		// Include the tail that readers may touch, so that it is in memory the next time.
		_ = unix.Fadvise(f.view.Load().fd, f.lead+off, int64(len(p))+arena.Tail, unix.FADV_WILLNEED)
		if f.read(p, off) == nil {
			return true
		}
		c.drop(k)
		return false
	}
	f, err := c.open.take(k, func() (*chunkFile, error) {
		f, err := openChunk(c.file(k), k)
		if err == nil && f.direct {
			f.queue = c.queue()
		}
		return f, err
	})
	if err == nil {
		if c.lending.Load() {
			c.lendFile(f)
		}
		err = f.f.read(p, off)
		c.open.giveBack(f)
	}
	if err == nil {
		return true
	}
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.EMFILE) && !errors.Is(err, unix.ENFILE) && !errors.Is(err, unix.EACCES) {
		c.drop(k)
	}
	return false
}

// Has reports whether a chunk is cached.
func (c *Chunks) Has(k disk.Key) bool {
	_, err := os.Lstat(c.file(k))
	return err == nil
}

// drop removes a chunk that is damaged.
func (c *Chunks) drop(k disk.Key) { c.remove(k, false) }

// Drop implements disk.Shelf.
func (c *Chunks) Drop(k disk.Key) { c.remove(k, true) }

func (c *Chunks) remove(k disk.Key, whole bool) {
	c.unlend(k)
	c.open.forget(k)
	if c.dir.dropChunk(c.file(k), k, whole) {
		c.badChunks.Add(1)
	}
}

// dropChunk removes a damaged chunk, unless another process has written it again. With whole, it also removes a chunk
// that is not damaged. It reports whether it removed the chunk.
func (d *Dir) dropChunk(path string, k disk.Key, whole bool) bool {
	unlock, err := lock(filepath.Join(d.root, lockName), unix.LOCK_EX)
	if err != nil {
		return false
	}
	defer unlock()
	if _, err := readChunk(path, k); err == nil && !whole {
		return false
	}
	n := int64(0)
	_ = d.change(func() int64 {
		n = unlink(path)
		return -n
	})
	return n > 0
}

// unlink removes a file and returns its size. It truncates the file first, so that processes that have the file open do
// not hold its space.
func unlink(path string) int64 {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() {
		return 0
	}
	if err := os.Truncate(path, 0); err != nil && !errors.Is(err, fs.ErrPermission) {
		return 0
	}
	if os.Remove(path) != nil {
		return 0
	}
	return info.Size()
}

// chunkFill is a chunk that this process fills.
type chunkFill struct {
	c      *Chunks
	k      disk.Key
	what   string
	f      *os.File // holds the lock of the file
	direct bool
}

// Begin implements disk.Shelf.
func (c *Chunks) Begin(ctx context.Context, k disk.Key, what string) (disk.Fill, bool, error) {
	if c.dead.Load() || k.Size <= 0 || k.Size > disk.MaxChunk || time.Now().UnixNano() < c.until.Load() {
		return nil, c.Has(k), nil
	}
	if mine, there, err := c.claims.begin(ctx, k, c.Has); !mine {
		return nil, there, err
	}
	f, there, err := c.claimed(ctx, k, what)
	if f == nil {
		c.claims.end(k)
		return nil, there, err
	}
	return f, false, nil
}

// claimed claims a chunk, or waits while another process has.
func (c *Chunks) claimed(ctx context.Context, k disk.Key, what string) (*chunkFill, bool, error) {
	look := firstLook
	for waited := time.Duration(0); ; waited += look {
		f, there, other, err := c.claim(k, what)
		if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
			return nil, false, nil // that passes
		}
		if err != nil {
			c.failed(err)
			return nil, false, nil
		}
		if f != nil || there || !other || waited > patience {
			return f, there, nil
		}
		look = min(look*2, lastLook)
		t := time.NewTimer(look)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, false, context.Cause(ctx)
		}
	}
}

// claim creates the file of a chunk with its final size and charges it to the limit. The file tells other processes
// that the chunk is being filled. other reports that another process is filling it.
func (c *Chunks) claim(k disk.Key, what string) (f *chunkFill, there, other bool, err error) {
	name := c.fillFile(k)
	file, _, err := claimFile(name, 0)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, false, true, nil
	}
	if err == nil {
		_ = file.Close() // its process has exited: see below
	}
	unlock, err := lock(filepath.Join(c.dir.root, lockName), unix.LOCK_EX)
	if err != nil {
		return nil, false, false, err
	}
	defer unlock()
	size := fileBytes(k)
	file, direct, err := claimFile(name, 0)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil, false, true, nil
	case err == nil: // the process that filled it was killed; its space is counted
		if info, serr := file.Stat(); serr == nil && info.Size() == size {
			return &chunkFill{c, k, what, file, direct}, false, false, nil
		}
		err = c.dir.change(func() int64 { return -removeFile(name, file) })
		_ = file.Close()
	case errors.Is(err, fs.ErrNotExist):
		err = nil
	}
	if err != nil {
		return nil, false, false, err
	}
	if c.Has(k) {
		return nil, true, false, nil
	}
	room, several := c.dir.freeSpace(size, c.id), false
	if !room {
		room, several = c.giveWay(k, size)
	}
	if !room && several { // the next chunk may be needed sooner
		return nil, false, false, nil
	}
	if !room {
		c.until.Store(time.Now().Add(c.wait()).UnixNano())
		return nil, false, false, nil
	}
	cerr := c.dir.change(func() int64 {
		if file, direct, err = claimFile(name, unix.O_CREAT|unix.O_EXCL); err != nil {
			return 0
		}
		// Allocate the space now, so that a full disk fails before anything is read.
		if err = unix.Fallocate(int(file.Fd()), 0, 0, size); err == unix.EOPNOTSUPP || err == unix.ENOSYS {
			err = file.Truncate(size)
		}
		if err != nil {
			removeFile(name, file)
			_ = file.Close()
			return 0
		}
		return size
	})
	if err == nil {
		err = cerr
	}
	if err != nil {
		return nil, false, false, err
	}
	return &chunkFill{c, k, what, file, direct}, false, false, nil
}

// claimFile opens and locks a file that is being filled. A new file is locked immediately: a process that only checks
// the lock releases it.
func claimFile(name string, flags int) (*os.File, bool, error) {
	fd, direct, err := openPast(name, unix.O_RDWR|flags)
	if err != nil {
		return nil, false, err
	}
	f := os.NewFile(uintptr(fd), name)
	how := unix.LOCK_EX | unix.LOCK_NB
	if flags&unix.O_CREAT != 0 {
		how = unix.LOCK_EX
	}
	if err := flock(f, how); err != nil {
		_ = f.Close()
		return nil, false, err
	}
	// It may have been finished, or removed, since it was opened.
	mine, err := f.Stat()
	if err == nil {
		var now os.FileInfo
		if now, err = os.Lstat(name); err == nil && !os.SameFile(mine, now) {
			err = fs.ErrNotExist
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, false, err
	}
	return f, direct, nil
}

// Keep implements disk.Fill.
func (f *chunkFill) Keep(b []byte) {
	defer f.c.claims.end(f.k)
	err := writeChunk(int(f.f.Fd()), f.direct, f.k, f.what, b)
	to := f.c.file(f.k)
	if err == nil {
		if err = os.Rename(f.f.Name(), to); errors.Is(err, fs.ErrNotExist) {
			if err = os.Mkdir(filepath.Dir(to), 0o700); err == nil || errors.Is(err, fs.ErrExist) {
				err = os.Rename(f.f.Name(), to)
			}
		}
	}
	if err != nil {
		f.remove()
		f.c.failed(err)
		return
	}
	_ = f.f.Close()
	f.c.kept.Add(1)
	f.c.keptBytes.Add(int64(len(b)))
}

// Drop implements disk.Fill.
func (f *chunkFill) Drop() {
	defer f.c.claims.end(f.k)
	f.remove()
}

func (f *chunkFill) remove() {
	defer f.f.Close()
	unlock, err := lock(filepath.Join(f.c.dir.root, lockName), unix.LOCK_EX)
	if err != nil {
		return // another claim will remove it
	}
	defer unlock()
	_ = f.c.dir.change(func() int64 { return -removeFile(f.f.Name(), f.f) })
}

// failed reports why nothing is cached any more, and turns the cache off.
func (c *Chunks) failed(err error) {
	c.dead.Store(true)
	c.said.Do(func() { c.say(whyNot(err, c.path)) })
}

// Forget removes the chunks of other versions of some objects. version has the valid versions by object.
func (c *Chunks) Forget(version map[uint64][16]byte) error {
	unlock, err := lock(filepath.Join(c.dir.root, lockName), unix.LOCK_EX)
	if err != nil {
		return err
	}
	defer unlock()
	var old []string
	eachFile(c.path, false, func(dir string, e fs.DirEntry, k disk.Key) {
		if v, ok := version[k.Object]; ok && v != k.Version {
			old = append(old, filepath.Join(dir, e.Name()))
		}
	})
	if len(old) == 0 {
		return nil
	}
	return c.dir.change(func() (n int64) {
		for _, path := range old {
			n -= unlink(path)
		}
		return n
	})
}

// ChunkStats are statistics of a data set's cached chunks.
type ChunkStats struct {
	// Chunks and Bytes are cached now. Kept and KeptBytes were added by this process, and Damaged of them were damaged.
	Chunks    int64 `json:"chunks"`
	Bytes     int64 `json:"bytes"`
	Kept      int64 `json:"kept"`
	KeptBytes int64 `json:"kept_bytes"`
	Damaged   int64 `json:"damaged"`
	// Gone counts chunks that were removed for others that some job needs sooner.
	Gone   int64  `json:"gone"`
	Folder string `json:"folder"`
}

// Stats returns the statistics of the cached chunks.
func (c *Chunks) Stats() ChunkStats {
	s := ChunkStats{Kept: c.kept.Load(), KeptBytes: c.keptBytes.Load(), Damaged: c.badChunks.Load(), Gone: c.gone.Load(), Folder: c.path}
	eachFile(c.path, false, func(_ string, _ fs.DirEntry, k disk.Key) {
		s.Chunks++
		s.Bytes += k.Size
	})
	return s
}

// Close ends all use of the cache.
func (c *Chunks) Close() error {
	c.endLending()
	c.open.close()
	if q := c.queued.Load(); q != nil {
		q.Close()
	}
	c.leave()
	c.use()
	return nil
}

// whyNot returns the reason why nothing can be cached in a folder.
func whyNot(err error, path string) string {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return "there is no space left for " + path
	}
	return err.Error()
}

var (
	_ disk.Shelf  = (*Chunks)(nil)
	_ disk.Lender = (*Chunks)(nil)
)

// Any reports whether any chunk is cached.
func (c *Chunks) Any() bool {
	entries, err := os.ReadDir(filepath.Join(c.path, chunksName))
	return err == nil && len(entries) > 0
}
