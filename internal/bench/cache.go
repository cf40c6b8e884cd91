package bench

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// cacheUnit is the size of the parts of a large file that are cached or not: larger than the kernel's readahead and
// small compared with a shard.
const cacheUnit = 8 << 20

// maxFiles bounds the list of files that a cache setting is applied to.
const maxFiles = 5_000_000

// SourceFiles lists the files under a path or file: URL, the ones that hold
// data. It is an error for sources that are not local files.
func SourceFiles(source string) ([]string, error) {
	path := localPath(source)
	if strings.Contains(path, "://") {
		return nil, fmt.Errorf("the page cache of %s cannot be set: it is not a local path", source)
	}
	var files []string
	err := filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.Type()&fs.ModeSymlink != 0 {
			if st, err := os.Stat(name); err != nil || !st.Mode().IsRegular() {
				return nil
			}
		} else if !d.Type().IsRegular() {
			return nil
		}
		files = append(files, name)
		if len(files) > maxFiles {
			return fmt.Errorf("%s has more than %d files", source, maxFiles)
		}
		return nil
	})
	return files, err
}

// localPath takes the scheme off a file: URL.
func localPath(source string) string {
	return strings.TrimPrefix(strings.TrimPrefix(source, "file://"), "file:")
}

// setCached puts share of the bytes of files into the page cache and evicts the rest. The choice depends on the files
// alone. It needs no privileges, but cannot evict pages that other processes have mapped.
func setCached(ctx context.Context, files []string, share float64) error {
	rnd := rand.New(rand.NewPCG(7, 11))
	var buf []byte
	for _, name := range files {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := setFileCached(name, share, rnd, &buf); err != nil {
			return fmt.Errorf("setting what is cached of %s: %w", name, err)
		}
	}
	return nil
}

func setFileCached(name string, share float64, rnd *rand.Rand, buf *[]byte) error {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || st.Size() == 0 {
		return err
	}
	fd := int(f.Fd())
	if share < 1 {
		// Pages that are not written back cannot be dropped.
		if err := unix.Fdatasync(fd); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EROFS) {
			return err
		}
		if err := unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED); err != nil {
			return err
		}
		// Reading one part must not read the next one ahead.
		_ = unix.Fadvise(fd, 0, 0, unix.FADV_RANDOM)
	}
	if *buf == nil {
		*buf = make([]byte, 1<<20)
	}
	for at := int64(0); at < st.Size(); at += cacheUnit {
		if share < 1 && rnd.Float64() >= share {
			continue
		}
		end := min(at+cacheUnit, st.Size())
		for p := at; p < end; p += int64(len(*buf)) {
			if _, err := f.ReadAt((*buf)[:min(int64(len(*buf)), end-p)], p); err != nil {
				return err
			}
		}
	}
	return nil
}
