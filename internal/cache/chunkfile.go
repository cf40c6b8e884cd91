package cache

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/pread"
	"github.com/stokerdata/stoker/store/disk"
)

// A chunk is a file of its own: its bytes, filled up to a multiple of page; then a
// head, the checksums of its blocks, and zeros up to a multiple of page again. The name
// of the file says which chunk it is. Numbers are little-endian:
//
//	0    magic      u32
//	4    name       u32  the length of what it is of, for messages
//	8    object     u64
//	16   version    16 bytes
//	32   offset     u64
//	40   size       u64
//	48   checksum   u64  XXH3 of the checksums of the blocks
//	64   name       184 bytes, the end of a longer one
//	248  checksum   u64  XXH3 of the 248 bytes before
//	256  checksums  u64 each  XXH3 of a block, the last of which may be short
const (
	chunkMagic = 0x31435453 // "STC1"
	chunkHead  = 256
	chunkName  = 184
	// blockBytes is what has a checksum of its own: reads are of whole blocks.
	blockBytes = 16 << 10
	// page suits direct reads and writes of all common devices.
	page = 4096
	// bounceBytes is read or written at once where memory or place do not suit.
	bounceBytes = 256 << 10
)

var bounces = sync.Pool{New: func() any {
	b := arena.Aligned(bounceBytes, page)
	return &b
}}

func up(n, to int64) int64 { return (n + to - 1) &^ (to - 1) }

// chunkBlocks is how many blocks a chunk has, tailBytes what stands behind its bytes,
// and fileBytes how large its file is.
func chunkBlocks(size int64) int64 { return (size + blockBytes - 1) / blockBytes }
func tailBytes(size int64) int64   { return up(chunkHead+8*chunkBlocks(size), page) }
func fileBytes(size int64) int64   { return up(size, page) + tailBytes(size) }

// chunkFile is an open chunk. It does not change.
type chunkFile struct {
	key    disk.Key
	fd     int
	direct bool // past the system's cache
	sums   []uint64
	what   string
}

func (f *chunkFile) close() { _ = unix.Close(f.fd) }

var errChunk = errors.New("damaged: it is not what was written")

// openPast opens a file past the system's cache, or else as it can be.
func openPast(name string, flags int) (fd int, direct bool, err error) {
	for {
		fd, err = unix.Open(name, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_DIRECT, 0o600)
		if err == unix.EINVAL || err == unix.EOPNOTSUPP {
			fd, err = unix.Open(name, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
			if err == nil {
				_ = unix.Fadvise(fd, 0, 0, unix.FADV_RANDOM)
			}
			return fd, false, err
		}
		if err != unix.EINTR {
			return fd, err == nil, err
		}
	}
}

// openChunk opens the file of a chunk, and reads the checksums.
func openChunk(name string, k disk.Key) (*chunkFile, error) {
	fd, direct, err := openPast(name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	f := &chunkFile{key: k, fd: fd, direct: direct}
	if err := f.readTail(); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return f, nil
}

func (f *chunkFile) readTail() error {
	var st unix.Stat_t
	if err := unix.Fstat(f.fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || f.key.Size < 0 || f.key.Size > disk.MaxChunk || st.Size != fileBytes(f.key.Size) {
		return errChunk
	}
	b := arena.Aligned(int(tailBytes(f.key.Size)), page)
	if err := readFull(f.fd, b, up(f.key.Size, page)); err != nil {
		return err
	}
	f.drop(up(f.key.Size, page), int64(len(b)))
	le := binary.LittleEndian
	sums := b[chunkHead : chunkHead+8*chunkBlocks(f.key.Size)]
	name := le.Uint32(b[4:])
	k := disk.Key{Object: le.Uint64(b[8:]), Off: int64(le.Uint64(b[32:])), Size: int64(le.Uint64(b[40:]))}
	copy(k.Version[:], b[16:32])
	if le.Uint32(b) != chunkMagic || name > chunkName || k != f.key || le.Uint64(b[248:]) != xxh3.Hash(b[:248]) || le.Uint64(b[48:]) != xxh3.Hash(sums) {
		return errChunk
	}
	f.what = string(b[64 : 64+name])
	f.sums = make([]uint64, len(sums)/8)
	for i := range f.sums {
		f.sums[i] = le.Uint64(sums[8*i:])
	}
	return nil
}

// drop takes bytes that were read out of the system's cache, where they went there.
func (f *chunkFile) drop(off, n int64) {
	if !f.direct {
		_ = unix.Fadvise(f.fd, off, n, unix.FADV_DONTNEED)
	}
}

// readFull fills b. The end of the file is an error.
func readFull(fd int, b []byte, off int64) error {
	err := pread.Full(fd, b, off)
	if err == io.ErrUnexpectedEOF {
		return errChunk
	}
	return err
}

// read fills p from an offset of the chunk, and looks at the checksum of each block.
func (f *chunkFile) read(p []byte, off int64) error {
	if off < 0 || off > f.key.Size || int64(len(p)) > f.key.Size-off {
		return errChunk
	}
	bounce := bounces.Get().(*[]byte)
	defer bounces.Put(bounce)
	for len(p) > 0 {
		lo := off &^ (blockBytes - 1)
		if lo == off && len(p) >= blockBytes && arena.IsAligned(p, page) { // where it belongs
			n := min(int64(len(p))&^(blockBytes-1), 4<<20)
			if err := f.blocks(p[:n], lo); err != nil {
				return err
			}
			p, off = p[n:], off+n
			continue
		}
		hi := min(up(off+int64(len(p)), blockBytes), lo+bounceBytes, up(f.key.Size, page))
		b := (*bounce)[:hi-lo]
		if err := f.blocks(b, lo); err != nil {
			return err
		}
		n := int64(copy(p, b[off-lo:]))
		p, off = p[n:], off+n
	}
	return nil
}

// blocks reads whole blocks.
func (f *chunkFile) blocks(b []byte, off int64) error {
	if err := readFull(f.fd, b, off); err != nil {
		return err
	}
	f.drop(off, int64(len(b)))
	for at := int64(0); at < int64(len(b)) && off+at < f.key.Size; at += blockBytes {
		n := min(blockBytes, f.key.Size-off-at, int64(len(b))-at)
		if xxh3.Hash(b[at:at+n]) != f.sums[(off+at)/blockBytes] {
			return errChunk
		}
	}
	return nil
}

// writeChunk writes the bytes of a chunk and what stands behind them to a file that has
// its size.
func writeChunk(fd int, direct bool, k disk.Key, what string, b []byte) error {
	if int64(len(b)) != k.Size {
		return fmt.Errorf("a chunk of %d bytes is given %d", k.Size, len(b))
	}
	bounce := bounces.Get().(*[]byte)
	defer bounces.Put(bounce)
	tail := arena.Aligned(int(tailBytes(k.Size)), page)
	le := binary.LittleEndian
	sums := tail[chunkHead : chunkHead+8*chunkBlocks(k.Size)]
	for at := 0; at < len(b); at += bounceBytes {
		part := b[at:min(at+bounceBytes, len(b))]
		for i := 0; i < len(part); i += blockBytes {
			le.PutUint64(sums[8*((at+i)/blockBytes):], xxh3.Hash(part[i:min(i+blockBytes, len(part))]))
		}
		if len(part)%page != 0 || !arena.IsAligned(part, page) {
			n := copy(*bounce, part)
			clear((*bounce)[n:up(int64(n), page)])
			part = (*bounce)[:up(int64(n), page)]
		}
		if err := writeFull(fd, part, int64(at)); err != nil {
			return err
		}
	}
	what = what[max(len(what)-chunkName, 0):]
	le.PutUint32(tail, chunkMagic)
	le.PutUint32(tail[4:], uint32(len(what)))
	le.PutUint64(tail[8:], k.Object)
	copy(tail[16:], k.Version[:])
	le.PutUint64(tail[32:], uint64(k.Off))
	le.PutUint64(tail[40:], uint64(k.Size))
	le.PutUint64(tail[48:], xxh3.Hash(sums))
	copy(tail[64:], what)
	le.PutUint64(tail[248:], xxh3.Hash(tail[:248]))
	if err := writeFull(fd, tail, up(k.Size, page)); err != nil {
		return err
	}
	if !direct { // what is not written yet cannot be dropped
		_ = unix.SyncFileRange(fd, 0, 0, unix.SYNC_FILE_RANGE_WAIT_BEFORE|unix.SYNC_FILE_RANGE_WRITE|unix.SYNC_FILE_RANGE_WAIT_AFTER)
		_ = unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED)
	}
	return nil
}

func writeFull(fd int, b []byte, off int64) error {
	for len(b) > 0 {
		n, err := unix.Pwrite(fd, b, off)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return &os.PathError{Op: "write", Path: "a chunk of the cache", Err: err}
		}
		b, off = b[n:], off+int64(n)
	}
	return nil
}

// readChunk reads all of a chunk, and says what it is of.
func readChunk(path string, k disk.Key) (what string, err error) {
	f, err := openChunk(path, k)
	if err != nil {
		return "", err
	}
	defer f.close()
	bounce := bounces.Get().(*[]byte)
	defer bounces.Put(bounce)
	for off := int64(0); off < k.Size; off += bounceBytes {
		if err := f.blocks((*bounce)[:min(bounceBytes, up(k.Size-off, page))], off); err != nil {
			return f.what, err
		}
	}
	return f.what, nil
}
