package probe

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/leftover"
	"github.com/stokerdata/stoker/internal/pread"
	"github.com/stokerdata/stoker/plan"
	"github.com/stokerdata/stoker/store"
)

var fileDepths = []int{1, 8, 32}

const (
	// leastFiles is the minimum number of the user's images for a measurement with them.
	leastFiles = 64
	// Otherwise generated files of about the size of a small JPEG are used.
	ownFiles     = 256
	ownFileBytes = 64 << 10
	// maxFile limits the size of files that count as small.
	maxFile = 4 << 20
	// warmFiles are read into the page cache for the warm rate.
	warmFiles = 64
)

// files measures opening, reading and closing whole small files: those of the user past the page cache, or generated
// ones.
func (p *probe) files(ctx context.Context, d time.Duration) {
	s := p.m.Store
	if s == nil {
		return
	}
	ram := memoryKinds[s.Filesystem]
	var list []dataFile
	for _, f := range p.data.images {
		if f.size <= maxFile {
			list = append(list, f)
		}
	}
	own := len(list) < leastFiles
	if own {
		dir, made, err := p.makeFiles(ctx, d/3)
		if dir != "" {
			defer leftover.Add(dir, "")()
			defer os.RemoveAll(dir)
		}
		if err != nil {
			p.note("small files: %v", err)
			return
		}
		list = made
	}
	flags := unix.O_RDONLY | unix.O_CLOEXEC
	switch {
	case ram:
	case readsDirectFile(list[0].path):
		flags |= unix.O_DIRECT
	case !own:
		p.note("small files: the file system has no direct reads, and reading yours would take the place of what the page cache holds")
		return
	}
	each := d / time.Duration(len(fileDepths)+1)
	var mean, largest int64
	for _, f := range list {
		mean += f.size / int64(len(list))
		largest = max(largest, f.size)
	}
	var next atomic.Int64
	reader := func(flags int, drop bool, among []dataFile) func(int) func() (int, error) {
		return func(int) func() (int, error) {
			buf, err := anonymous((largest + alignment) &^ (alignment - 1))
			return func() (int, error) {
				if err != nil {
					return 0, err
				}
				f := among[int(next.Add(1)-1)%len(among)]
				return readWhole(f.path, flags, drop, buf)
			}
		}
	}
	for _, depth := range fileDepths {
		if int64(depth)*largest > maxBuffers {
			break
		}
		r := plan.ReadRate{Block: mean, Depth: depth, Cached: ram}
		res, hung, err := inFlight(ctx, each, depth, reader(flags, own && flags&unix.O_DIRECT == 0 && !ram, list))
		if hung {
			err = fmt.Errorf("a file has not been read for %v; the storage hangs", hungRead)
		}
		if err != nil {
			p.note("small files: %v", store.Cause(err))
			return
		}
		res.into(&r)
		s.Files = append(s.Files, r)
		if r.Latency.P50 > slowRead.Seconds() {
			break
		}
	}
	if ram {
		return
	}
	p.warm(ctx, s, list[:min(len(list), warmFiles)], mean, each, reader)
}

// warm measures files that are in memory. Those that were not are forgotten again.
func (p *probe) warm(ctx context.Context, s *plan.Store, list []dataFile, mean int64, d time.Duration,
	reader func(flags int, drop bool, among []dataFile) func(int) func() (int, error),
) {
	flags := unix.O_RDONLY | unix.O_CLOEXEC
	buf := make([]byte, maxFile)
	for _, f := range list {
		if ctx.Err() != nil {
			return
		}
		fd, err := unix.Open(f.path, flags, 0)
		if err != nil {
			continue
		}
		n, _ := unix.Preadv2(fd, [][]byte{buf[:1]}, 0, unix.RWF_NOWAIT)
		unix.Close(fd)
		if n == 0 {
			defer forget(f.path)
		}
		_, _ = readWhole(f.path, flags, false, buf)
	}
	res, hung, err := inFlight(ctx, d, 1, reader(flags, false, list))
	if hung || err != nil {
		return // the cold reads have reported the reason
	}
	r := plan.ReadRate{Block: mean, Depth: 1, Cached: true}
	res.into(&r)
	s.Files = append(s.Files, r)
}

// forget drops a file from the page cache.
func forget(path string) {
	if fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
		_ = unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED)
		unix.Close(fd)
	}
}

func readsDirectFile(path string) bool {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_DIRECT, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	buf, err := anonymous(alignment)
	if err != nil {
		return false
	}
	defer unix.Munmap(buf)
	_, err = unix.Pread(fd, buf, 0)
	return err == nil
}

// readWhole opens, reads and closes a file.
func readWhole(path string, flags int, drop bool, buf []byte) (int, error) {
	fd, err := unix.Open(path, flags, 0)
	if err != nil {
		return 0, fmt.Errorf("cannot open %s: %w", path, err)
	}
	defer unix.Close(fd)
	if drop {
		_ = unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED)
	}
	total := 0
	for total < len(buf) {
		n, err := pread.Once(fd, buf[total:], int64(total))
		if err != nil {
			return total, fmt.Errorf("cannot read %s: %w", path, err)
		}
		total += n
		// A direct read ends at the end of the file, at an offset where the next one could not begin.
		if n == 0 || total%alignment != 0 {
			break
		}
	}
	return total, nil
}

// makeFiles writes files of our own into a new folder and returns the folder
// also when it fails.
func (p *probe) makeFiles(ctx context.Context, d time.Duration) (dir string, list []dataFile, err error) {
	if free := freeSpace(p.path); free/scratchShare < ownFiles*ownFileBytes {
		return "", nil, fmt.Errorf("not measured: %s has only %d MiB free", p.path, free>>20)
	}
	dir, err = os.MkdirTemp(p.path, ".stoker-probe-*")
	if err != nil {
		return "", nil, fmt.Errorf("not measured: cannot write in %s: %w", p.path, store.Cause(err))
	}
	data := make([]byte, ownFileBytes)
	_, _ = rand.Read(data)
	start := time.Now()
	for i := range ownFiles {
		if ctx.Err() != nil || i >= leastFiles && time.Since(start) > d {
			break
		}
		name := filepath.Join(dir, fmt.Sprint(i))
		if err := writeSynced(name, data); err != nil {
			return dir, nil, fmt.Errorf("not measured: cannot write in %s: %w", p.path, store.Cause(err))
		}
		list = append(list, dataFile{name, ownFileBytes})
	}
	if len(list) == 0 {
		return dir, nil, ctx.Err()
	}
	return dir, list, nil
}

// writeSynced writes a file that is on the storage when it returns.
func writeSynced(name string, data []byte) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = unix.Fdatasync(int(f.Fd()))
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}
