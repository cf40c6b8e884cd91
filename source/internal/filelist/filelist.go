// Package filelist is what sources that read ordinary files share: the sorted
// list of the files, with their sizes and times of change, and reads that notice
// when a file is no longer the one that was listed.
package filelist

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/source/foldersource"
)

// ErrChanged is in the errors of files that are not what they were when they
// were listed: changed, shortened or gone.
var ErrChanged = foldersource.ErrChanged

// maxDepth bounds the nesting of folders.
const maxDepth = 64

// List is a list of files sorted by their path, byte by byte. It holds no
// pointer per file.
type List struct {
	// Root is the folder, or the folder of the one file.
	Root string

	names []byte
	ends  []uint64
	size  []int64
	mtime []int64
	total int64
	most  int64
}

type found struct {
	path        string
	size, mtime int64
}

// Scan lists the files below root whose path keep accepts (nil for all), in all
// folders that are not hidden. When root is a file, it is the only one. A file or
// folder that cannot be looked at is an error: a training run must not lose data
// without a word.
func Scan(ctx context.Context, root string, keep func(path string) bool) (*List, error) {
	st, err := os.Stat(root)
	if err != nil {
		return nil, fmt.Errorf("cannot open %s: %w", root, plain(err))
	}
	var files []found
	l := &List{Root: root}
	if !st.IsDir() {
		if !st.Mode().IsRegular() {
			return nil, fmt.Errorf("cannot open %s: not a regular file", root)
		}
		l.Root = filepath.Dir(root)
		files = append(files, found{filepath.Base(root), st.Size(), st.ModTime().UnixNano()})
	} else if files, err = scan(ctx, root, "", keep, nil, nil); err != nil {
		return nil, err
	}
	slices.SortFunc(files, func(a, b found) int { return strings.Compare(a.path, b.path) })
	for _, f := range files {
		l.names = append(l.names, f.path...)
		l.ends = append(l.ends, uint64(len(l.names)))
		l.size = append(l.size, f.size)
		l.mtime = append(l.mtime, f.mtime)
		l.total += f.size
		l.most = max(l.most, f.size)
	}
	return l, nil
}

func scan(ctx context.Context, root, rel string, keep func(string) bool, parents []os.FileInfo, out []found) ([]found, error) {
	dir := filepath.Join(root, rel)
	st, err := os.Stat(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot list %s: %w", dir, plain(err))
	}
	for _, p := range parents {
		if os.SameFile(p, st) {
			return out, nil // a link back to a parent: its files are listed there
		}
	}
	if len(parents) > maxDepth {
		return nil, fmt.Errorf("cannot list %s: folders are nested more than %d deep", dir, maxDepth)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot list %s: %w", dir, plain(err))
	}
	for i, e := range entries {
		if i%1024 == 0 && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		name := path.Join(rel, e.Name())
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		info, err := e.Info()
		if err == nil && info.Mode()&fs.ModeSymlink != 0 {
			info, err = os.Stat(filepath.Join(root, name))
		}
		switch {
		case err != nil:
			return nil, fmt.Errorf("cannot look at %s: %w", filepath.Join(root, name), plain(err))
		case info.IsDir():
			if out, err = scan(ctx, root, name, keep, append(parents, st), out); err != nil {
				return nil, err
			}
		case keep != nil && !keep(name):
		case !info.Mode().IsRegular():
			return nil, fmt.Errorf("cannot read %s: not a regular file", filepath.Join(root, name))
		default:
			out = append(out, found{name, info.Size(), info.ModTime().UnixNano()})
		}
	}
	return out, nil
}

// Len is the number of files.
func (l *List) Len() int { return len(l.ends) }

// Path is the path of file i below Root, with slashes.
func (l *List) Path(i int) string {
	from := uint64(0)
	if i > 0 {
		from = l.ends[i-1]
	}
	return string(l.names[from:l.ends[i]])
}

// FullPath is the path of file i with Root.
func (l *List) FullPath(i int) string { return filepath.Join(l.Root, l.Path(i)) }

// Size is the size of file i when it was listed.
func (l *List) Size(i int) int64 { return l.size[i] }

// Bytes is the size of all files together, and of the largest one.
func (l *List) Bytes() (total, largest int64) { return l.total, l.most }

// Fingerprint identifies the files by names, sizes and times of change, and
// whatever else decides about the records. It has 32 characters.
func (l *List) Fingerprint(also ...string) string {
	h := xxh3.New()
	_, _ = h.Write(l.names)
	var num [24]byte
	for i := range l.ends {
		for k, v := range []uint64{l.ends[i], uint64(l.size[i]), uint64(l.mtime[i])} {
			for b := range 8 {
				num[8*k+b] = byte(v >> (8 * b))
			}
		}
		_, _ = h.Write(num[:])
	}
	for _, s := range also {
		_, _ = h.WriteString(s + "\x00")
	}
	sum := h.Sum128()
	return fmt.Sprintf("%016x%016x", sum.Hi, sum.Lo)
}

// Open opens file i and compares it with what was listed.
func (l *List) Open(i int) (fd int, err error) {
	name := l.FullPath(i)
	for {
		fd, err = unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != unix.EINTR {
			break
		}
	}
	switch {
	case err == unix.ENOENT || err == unix.ENOTDIR:
		return -1, fmt.Errorf("%s: %w: the file is gone", name, ErrChanged)
	case err == unix.EMFILE:
		return -1, fmt.Errorf("%s: %w: raise the limit (ulimit -n)", name, err)
	case err != nil:
		return -1, fmt.Errorf("%s: %w", name, err)
	}
	if err := l.Check(i, fd); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// Check says whether the open file i is still what was listed.
func (l *List) Check(i, fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("%s: %w", l.FullPath(i), err)
	}
	if st.Size != l.size[i] || st.Mtim.Nano() != l.mtime[i] {
		return fmt.Errorf("%s: %w", l.FullPath(i), ErrChanged)
	}
	return nil
}

// ErrShort means that a file ended before the last byte wanted.
var ErrShort = errors.New("the file ends before that")

// Pread fills b from offset off of an open file, or fails.
func Pread(fd int, b []byte, off int64) error {
	for len(b) > 0 {
		n, err := unix.Pread(fd, b, off)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return err
		case n == 0:
			return ErrShort
		}
		b, off = b[n:], off+int64(n)
	}
	return nil
}

// ReaderAt is an io.ReaderAt over an open file.
type ReaderAt struct {
	FD   int
	Size int64
}

// ReadAt implements io.ReaderAt.
func (r ReaderAt) ReadAt(b []byte, off int64) (int, error) {
	if off < 0 || off > r.Size {
		return 0, ErrShort
	}
	n := min(int64(len(b)), r.Size-off)
	if err := Pread(r.FD, b[:n], off); err != nil {
		return 0, err
	}
	if n < int64(len(b)) {
		return int(n), ErrShort
	}
	return int(n), nil
}

// maxOpen is how many files of a Pool stay open.
const maxOpen = 128

// Pool keeps files open between reads, the first ones that were used.
type Pool struct {
	l    *List
	fds  []atomic.Int32 // descriptor + 1, 0 while not open
	open atomic.Int32
	mu   sync.Mutex
}

// NewPool returns a pool for the files of a list.
func NewPool(l *List) *Pool { return &Pool{l: l, fds: make([]atomic.Int32, l.Len())} }

// Get returns an open file, and whether the caller closes it with Put.
func (p *Pool) Get(i int) (fd int, err error) {
	if v := p.fds[i].Load(); v > 0 {
		return int(v - 1), nil
	}
	if p.open.Load() >= maxOpen {
		return p.l.Open(i)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if v := p.fds[i].Load(); v > 0 {
		return int(v - 1), nil
	}
	if fd, err = p.l.Open(i); err != nil {
		return -1, err
	}
	if p.open.Load() < maxOpen {
		p.open.Add(1)
		p.fds[i].Store(int32(fd + 1))
	}
	return fd, nil
}

// Put ends the use of a file from Get.
func (p *Pool) Put(i, fd int) {
	if p.fds[i].Load() != int32(fd+1) {
		unix.Close(fd)
	}
}

// Close closes the files.
func (p *Pool) Close() error {
	var first error
	for i := range p.fds {
		if v := p.fds[i].Swap(0); v > 0 {
			if err := unix.Close(int(v - 1)); err != nil && first == nil {
				first = err
			}
		}
	}
	return first
}

// Find returns the last element of ascending ends that is not above v: the file
// in which record v lies, when ends are the numbers of the files' first records.
func Find(first []int64, v int64) int {
	return sort.Search(len(first), func(i int) bool { return first[i] > v }) - 1
}

// plain is the cause of a file system error whose message names the path.
func plain(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
