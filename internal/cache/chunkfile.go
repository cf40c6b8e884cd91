package cache

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/arena"
	"github.com/stokerdata/stoker/internal/ioqueue"
	"github.com/stokerdata/stoker/internal/pread"
	"github.com/stokerdata/stoker/internal/store/disk"
)

// Each chunk has a file. It begins with lead zeros and the bytes of the chunk, padded to a multiple of page. Then come
// a head and the checksums of the blocks, padded in the same way. The number of zeros is the chunk's offset in its
// object modulo page. Direct reads into memory with the same offset then need no copy. The file name identifies the
// chunk. Numbers are little-endian:
//
//	0    magic      u32
//	4    name       u32  the length of the object's name, for messages
//	8    object     u64
//	16   version    16 bytes
//	32   offset     u64
//	40   size       u64
//	48   checksum   u64  XXH3 of the checksums of the blocks
//	56   lead       u64  the zeros at the beginning, 0 in older files
//	64   name       184 bytes, the end of a longer one
//	248  checksum   u64  XXH3 of the 248 bytes before
//	256  checksums  u64 each  XXH3 of a block of the file, the last of which may be short
const (
	chunkMagic = 0x31435453 // "STC1"
	chunkHead  = 256
	chunkName  = 184
	// blockBytes is the size of a block with its own checksum. A block is read as a whole until its checksum was
	// compared.
	blockBytes = 16 << 10
	// page suits direct reads and writes of all common devices.
	page = 4096
	// bounceBytes is the size of a read or write if memory or position are not aligned.
	bounceBytes = 256 << 10
)

var bounces = sync.Pool{New: func() any {
	b := arena.Aligned(bounceBytes, page)
	return &b
}}

func up(n, to int64) int64 { return (n + to - 1) &^ (to - 1) }

// leadOf returns the number of zeros at the beginning of a chunk's file. fileBytes returns the size of the file.
func leadOf(k disk.Key) int64    { return k.Off & (page - 1) }
func fileBytes(k disk.Key) int64 { return fileSize(leadOf(k) + k.Size) }

// chunkBlocks returns the number of blocks in the zeros and bytes of a chunk. tailBytes returns the size of the part
// after them, and fileSize the size of the file.
func chunkBlocks(end int64) int64 { return (end + blockBytes - 1) / blockBytes }
func tailBytes(end int64) int64   { return up(chunkHead+8*chunkBlocks(end), page) }
func fileSize(end int64) int64    { return up(end, page) + tailBytes(end) }

// chunkFile is an open chunk. Apart from the record of verified blocks, it does not change.
type chunkFile struct {
	key       disk.Key
	lead, end int64 // the range of its bytes in the file
	fd        int
	direct    bool           // past the system's cache
	queue     *ioqueue.Queue // for repeated reads, nil for none
	sums      []uint64
	seen      []atomic.Uint64 // a bit for each block whose checksum was compared
	since     unix.Timespec   // when the file had changed last then
	changed   atomic.Bool     // since then: checksums are compared at each read
	what      string
	view      atomic.Pointer[view] // of a chunk that is lent, which is read through it
}

func (f *chunkFile) close() {
	if v := f.view.Load(); v != nil {
		v.close()
	}
	_ = unix.Close(f.fd)
}

// reader returns the descriptor for reads, and whether its reads bypass the system's cache.
func (f *chunkFile) reader() (fd int, direct bool) {
	if v := f.view.Load(); v != nil {
		return v.fd, false
	}
	return f.fd, f.direct
}

var errChunk = errors.New("damaged: it is not what was written")

// openPast opens a file for direct I/O if possible.
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

// readTail reads and checks the part after the bytes, and determines the number of zeros before them.
func (f *chunkFile) readTail() error {
	var st unix.Stat_t
	if err := unix.Fstat(f.fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || f.key.Size < 0 || f.key.Size > disk.MaxChunk {
		return errChunk
	}
	f.since = st.Ctim
	err := errChunk
	for _, f.lead = range [...]int64{leadOf(f.key), 0} {
		if f.end = f.lead + f.key.Size; st.Size != fileSize(f.end) {
			continue
		}
		if err = f.readTailAt(f.end); err == nil {
			return nil
		}
	}
	return err
}

// readTailAt is readTail for a file whose bytes end at a given offset.
func (f *chunkFile) readTailAt(end int64) error {
	b := arena.Aligned(int(tailBytes(end)), page)
	if err := readFull(f.fd, b, up(end, page)); err != nil {
		return err
	}
	f.drop(up(end, page), int64(len(b)))
	le := binary.LittleEndian
	sums := b[chunkHead : chunkHead+8*chunkBlocks(end)]
	name := le.Uint32(b[4:])
	k := disk.Key{Object: le.Uint64(b[8:]), Off: int64(le.Uint64(b[32:])), Size: int64(le.Uint64(b[40:]))}
	copy(k.Version[:], b[16:32])
	if le.Uint32(b) != chunkMagic || name > chunkName || k != f.key || int64(le.Uint64(b[56:])) != f.lead ||
		le.Uint64(b[248:]) != xxh3.Hash(b[:248]) || le.Uint64(b[48:]) != xxh3.Hash(sums) {
		return errChunk
	}
	f.what = string(b[64 : 64+name])
	f.sums, f.seen = make([]uint64, len(sums)/8), make([]atomic.Uint64, len(sums)/8/64+1)
	for i := range f.sums {
		f.sums[i] = le.Uint64(sums[8*i:])
	}
	return nil
}

// drop removes bytes from the system's cache after a read, unless they should stay there.
func (f *chunkFile) drop(off, n int64) {
	if !f.direct && f.view.Load() == nil {
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

// read fills p from an offset of the chunk. The checksum of a block is compared when the open file is first read there,
// and on each read after another process has touched the file.
func (f *chunkFile) read(p []byte, off int64) error {
	if off < 0 || off > f.key.Size || int64(len(p)) > f.key.Size-off {
		return errChunk
	}
	at := f.lead + off
	if !f.changed.Load() && f.known(at, int64(len(p))) {
		if err := f.place(p, at); err == nil && f.untouched() {
			return nil
		}
		f.changed.Store(true)
	}
	bounce := bounces.Get().(*[]byte)
	defer bounces.Put(bounce)
	for len(p) > 0 {
		lo := at &^ (blockBytes - 1)
		if lo == at && len(p) >= blockBytes && arena.IsAligned(p, page) { // straight to its destination
			n := min(int64(len(p))&^(blockBytes-1), 4<<20)
			if err := f.blocks(p[:n], lo); err != nil {
				return err
			}
			p, at = p[n:], at+n
			continue
		}
		hi := min(up(at+int64(len(p)), blockBytes), lo+bounceBytes, up(f.end, page))
		b := (*bounce)[:hi-lo]
		if err := f.blocks(b, lo); err != nil {
			return err
		}
		n := int64(copy(p, b[at-lo:]))
		p, at = p[n:], at+n
	}
	return nil
}

// known reports whether the checksums of all blocks in n bytes from an offset of the file were compared.
func (f *chunkFile) known(at, n int64) bool {
	for i := at / blockBytes; i*blockBytes < at+n; i++ {
		if f.seen[i/64].Load()&(1<<(i%64)) == 0 {
			return false
		}
	}
	return true
}

// untouched reports whether the file is the one whose checksums were compared. File times are coarse, so a file that
// was truncated right after it was opened may have the same time. The size is therefore also compared.
func (f *chunkFile) untouched() bool {
	var st unix.Stat_t
	return unix.Fstat(f.fd, &st) == nil && st.Ctim == f.since && st.Size == fileSize(f.end)
}

// place reads bytes that were verified before. If memory and file have the same alignment, it reads straight into p,
// except the first and the last page, which p only partly covers.
func (f *chunkFile) place(p []byte, at int64) error {
	if fd, direct := f.reader(); !direct {
		defer f.drop(at, int64(len(p)))
		return readFull(fd, p, at)
	}
	bounce := bounces.Get().(*[]byte)
	defer bounces.Put(bounce)
	first, last := (*bounce)[:page], (*bounce)[page:2*page]
	head := min(up(at, page)-at, int64(len(p)))
	mid := p[head:][:(int64(len(p))-head)&^(page-1)]
	tail := p[head+int64(len(mid)):]
	if len(mid) > 0 && arena.IsAligned(mid, page) {
		var parts [3][]byte
		to, want := parts[:0], len(mid)
		if head > 0 {
			to, want = append(to, first), want+page
		}
		to = append(to, mid)
		if len(tail) > 0 {
			to, want = append(to, last), want+page
		}
		n, err := f.into(to, at&^(page-1))
		if err != nil {
			return err
		}
		if n == want {
			copy(p[:head], first[at&(page-1):])
			copy(tail, last)
			return nil
		}
	}
	for len(p) > 0 {
		lo := at &^ (page - 1)
		b := (*bounce)[:min(up(at+int64(len(p)), page)-lo, bounceBytes)]
		if n, err := f.into([][]byte{b}, lo); err != nil || n < len(b) {
			return cmp.Or(err, errChunk)
		}
		n := int64(copy(p, b[at-lo:]))
		p, at = p[n:], at+n
	}
	return nil
}

// into reads into consecutive pieces of memory.
func (f *chunkFile) into(to [][]byte, off int64) (int, error) {
	if f.queue != nil {
		if n, ok := f.queue.Read(f.fd, to, off); ok {
			return n, nil
		}
	}
	return pread.Into(f.fd, to, off)
}

// blocks reads whole blocks.
func (f *chunkFile) blocks(b []byte, off int64) error {
	fd, _ := f.reader()
	if err := readFull(fd, b, off); err != nil {
		return err
	}
	f.drop(off, int64(len(b)))
	for at := int64(0); at < int64(len(b)) && off+at < f.end; at += blockBytes {
		n := min(blockBytes, f.end-off-at, int64(len(b))-at)
		i := (off + at) / blockBytes
		if xxh3.Hash(b[at:at+n]) != f.sums[i] {
			return errChunk
		}
		f.seen[i/64].Or(1 << (i % 64))
	}
	return nil
}

// writeChunk writes the bytes of a chunk with its head and tail to a file of the right size.
func writeChunk(fd int, direct bool, k disk.Key, what string, b []byte) error {
	if int64(len(b)) != k.Size {
		return fmt.Errorf("a chunk of %d bytes is given %d", k.Size, len(b))
	}
	bounce := bounces.Get().(*[]byte)
	defer bounces.Put(bounce)
	lead := leadOf(k)
	end := lead + k.Size
	tail := arena.Aligned(int(tailBytes(end)), page)
	le := binary.LittleEndian
	sums := tail[chunkHead : chunkHead+8*chunkBlocks(end)]
	for at := int64(0); at < end; at += bounceBytes {
		n := min(bounceBytes, end-at)
		var part []byte
		if at >= lead {
			part = b[at-lead:][:n]
		}
		if n%page != 0 || part == nil || !arena.IsAligned(part, page) {
			zeros := max(lead-at, 0)
			part = (*bounce)[:up(n, page)]
			clear(part[:zeros])
			copy(part[zeros:n], b[at+zeros-lead:])
			clear(part[n:])
		}
		for i := int64(0); i < n; i += blockBytes {
			le.PutUint64(sums[8*((at+i)/blockBytes):], xxh3.Hash(part[i:min(i+blockBytes, n)]))
		}
		if err := writeFull(fd, part, at); err != nil {
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
	le.PutUint64(tail[56:], uint64(lead))
	copy(tail[64:], what)
	le.PutUint64(tail[248:], xxh3.Hash(tail[:248]))
	if err := writeFull(fd, tail, up(end, page)); err != nil {
		return err
	}
	if !direct { // unwritten bytes cannot be dropped
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

// readChunk reads and verifies a whole chunk, and returns the name of its object.
func readChunk(path string, k disk.Key) (what string, err error) {
	f, err := openChunk(path, k)
	if err != nil {
		return "", err
	}
	defer f.close()
	bounce := bounces.Get().(*[]byte)
	defer bounces.Put(bounce)
	for off := int64(0); off < f.end; off += bounceBytes {
		if err := f.blocks((*bounce)[:min(bounceBytes, up(f.end-off, page))], off); err != nil {
			return f.what, err
		}
	}
	return f.what, nil
}
