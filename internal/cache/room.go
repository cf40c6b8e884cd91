package cache

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/store/disk"
)

// Chunks are in a folder of the data set, in subfolders named by the beginning of their names. Unfinished chunks are in
// a second folder with their final size, so that they are counted. A file stores the total size of all chunks, because
// listing all of them each time would be slow:
//
//	0   bytes     u64
//	8   busy      u64  not 0 during a change: a reader that finds this counts again
//	16  checksum  u64  XXH3 of the 16 bytes before
//
// The file is changed under the lock of the cache.
const (
	chunksName  = "chunks"
	fillingName = "filling"
	usedName    = "used"
	usedBytes   = 24
)

// used returns the size of all chunks. If the size is not stored and the caller holds the lock (locked), used counts
// the files.
func (d *Dir) used(locked bool) int64 {
	b := make([]byte, usedBytes)
	f, err := os.Open(filepath.Join(d.root, usedName))
	if err == nil {
		_, err = f.ReadAt(b, 0)
		_ = f.Close()
	}
	le := binary.LittleEndian
	n, busy := int64(le.Uint64(b)), le.Uint64(b[8:]) != 0
	whole := err == nil && le.Uint64(b[16:]) == xxh3.Hash(b[:16]) && n >= 0
	if whole && (!busy || !locked) {
		return n
	}
	if !locked {
		return d.countChunks()
	}
	n = d.countChunks()
	if n > 0 || err == nil {
		_ = d.setUsed(n, false)
	}
	return n
}

func (d *Dir) setUsed(n int64, busy bool) error {
	f, err := os.OpenFile(filepath.Join(d.root, usedName), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	var b [usedBytes]byte
	binary.LittleEndian.PutUint64(b[:], uint64(max(n, 0)))
	if busy {
		b[8] = 1
	}
	binary.LittleEndian.PutUint64(b[16:], xxh3.Hash(b[:16]))
	_, err = f.WriteAt(b[:], 0)
	return err
}

// change runs f, which creates or removes chunks and returns the change in bytes. The caller holds the lock. If the
// process is killed meanwhile, a mark is left and the next process counts again.
func (d *Dir) change(f func() int64) error {
	n := d.used(true)
	if err := d.setUsed(n, true); err != nil {
		return err
	}
	return d.setUsed(n+f(), false)
}

// countChunks returns the total size of all chunks.
func (d *Dir) countChunks() (n int64) {
	for _, id := range d.ids() {
		eachChunk(filepath.Join(d.root, id), func(_ string, _ disk.Key, size int64) { n += size })
	}
	return n
}

// eachChunk calls f for the files of a data set's chunks, with their sizes, including unfinished ones.
func eachChunk(set string, f func(path string, k disk.Key, size int64)) {
	eachFile(set, true, func(dir string, e fs.DirEntry, k disk.Key) {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			f(filepath.Join(dir, e.Name()), k, info.Size())
		}
	})
}

// eachFile calls f for the entries of a data set's chunk folders, and also for unfinished chunks if requested. It only
// looks at names.
func eachFile(set string, unfinished bool, f func(dir string, e fs.DirEntry, k disk.Key)) {
	each := func(dir string) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return
		}
		for _, e := range entries {
			if k, ok := disk.ParseKey(e.Name()); ok {
				f(dir, e, k)
			}
		}
	}
	if entries, err := os.ReadDir(filepath.Join(set, chunksName)); err == nil {
		for _, e := range entries {
			each(filepath.Join(set, chunksName, e.Name()))
		}
	}
	if unfinished {
		each(filepath.Join(set, fillingName))
	}
}

// filling reports whether a file that eachChunk found is unfinished.
func filling(path string) bool { return filepath.Base(filepath.Dir(path)) == fillingName }

// hasChunks reports whether a data set has chunks.
func hasChunks(set string) bool {
	for _, name := range []string{chunksName, fillingName} {
		if _, err := os.Stat(filepath.Join(set, name)); err == nil {
			return true
		}
	}
	return false
}

// sweepFilling removes unfinished chunks of killed processes. The caller holds the lock.
func (d *Dir) sweepFilling() {
	for _, id := range d.ids() {
		dir := filepath.Join(d.root, id, fillingName)
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if _, ok := disk.ParseKey(e.Name()); ok {
				d.sweepOne(filepath.Join(dir, e.Name()))
			}
		}
	}
}

func (d *Dir) sweepOne(path string) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return
	}
	defer f.Close()
	if flock(f, unix.LOCK_EX|unix.LOCK_NB) != nil {
		return // a process is filling it
	}
	_ = d.change(func() int64 { return -removeFile(path, f) })
}

// removeFile removes a file and returns its size, unless another file has its name by now. It truncates the file first,
// so that its space is free immediately even if a process has it open.
func removeFile(path string, f *os.File) int64 {
	mine, err := f.Stat()
	if err != nil {
		return 0
	}
	now, err := os.Lstat(path)
	if err != nil || !os.SameFile(mine, now) {
		return 0
	}
	size := now.Size()
	if os.Remove(path) != nil {
		return 0
	}
	return size
}

// freeSpace reports whether n more bytes fit the limit. If necessary, it first removes leftover files and data that
// no job uses. The caller holds the lock.
func (d *Dir) freeSpace(n int64, but string) bool {
	limit, _ := d.Limit()
	if limit-d.size() >= n {
		return true
	}
	d.recoverAll()
	d.sweepFilling()
	for limit-d.size() < n {
		if !d.evict(but) {
			return false
		}
	}
	return true
}

// removeAll removes a data set and counts its chunks. The lock is held.
func (d *Dir) removeAll(dir string) error {
	if !hasChunks(dir) {
		return os.RemoveAll(dir)
	}
	var err error
	cerr := d.change(func() (n int64) {
		count := func(sign int64) {
			eachChunk(dir, func(_ string, _ disk.Key, size int64) { n += sign * size })
		}
		count(-1)
		if err = os.RemoveAll(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			count(1) // the rest
		}
		return n
	})
	if err == nil {
		err = cerr
	}
	return err
}

// of is the name of the folder of a chunk.
func folderOf(name string) string { return name[strings.IndexByte(name, '-')+1:][:2] }
