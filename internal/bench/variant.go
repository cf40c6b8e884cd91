package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/leftover"
	"github.com/stokerdata/stoker/internal/store/stores"
	"github.com/stokerdata/stoker/pack"
)

// decodedSize is the side of images that are decoded in advance, in pixels: the usual size before crops of 224.
const decodedSize = 256

// maxCopy bounds the size of a copy that a benchmark makes without being asked.
const maxCopy = 16 << 30

// Copy stores the source in another way, "dct" or "raw" (decoded, 256 x 256),
// in a folder inside dir ("" for the system's temporary one). remove takes it
// away.
func (s *Subject) Copy(ctx context.Context, codec, dir string) (copied *Subject, remove func(), err error) {
	if s.Image == "" {
		return nil, nil, fmt.Errorf("%s has no images", stores.Public(s.Source))
	}
	if s.Path == "" {
		return nil, nil, fmt.Errorf("%s is not a local path", stores.Public(s.Source))
	}
	size := s.RecordBytes * dctBytes * float64(s.Len)
	opt := &pack.Options{Images: codec}
	if codec == "raw" {
		size = decodedSize * decodedSize * 3 * float64(s.Len)
		if !s.Fixed {
			opt.Resize = pack.Resize{Width: decodedSize, Height: decodedSize}
		}
	}
	if size > maxCopy {
		return nil, nil, fmt.Errorf("a %s copy of %s would take %.0f GB, more than the %d that are made without being asked", codec, s.Source, size/1e9, maxCopy>>30)
	}
	if dir == "" {
		dir = os.TempDir()
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err == nil && float64(fs.Bavail)*float64(fs.Bsize) < 1.2*size {
		return nil, nil, fmt.Errorf("a %s copy of %s needs %.1f GB in %s, there are %.1f", codec, s.Source, size/1e9, dir, float64(fs.Bavail)*float64(fs.Bsize)/1e9)
	}
	tmp, removeTemp, err := leftover.MkdirTemp(dir, "stoker-bench-")
	if err != nil {
		return nil, nil, err
	}
	remove = func() { _ = removeTemp() }
	out := filepath.Join(tmp, codec)
	if pack.IsPack(s.Path) {
		_, err = pack.Convert(ctx, s.Path, out, opt)
	} else {
		_, err = pack.Write(ctx, s.Path, out, opt)
	}
	if err == nil {
		copied, err = Look(ctx, out)
	}
	if err != nil {
		remove()
		return nil, nil, fmt.Errorf("making a %s copy of %s: %w", codec, s.Source, err)
	}
	return copied, remove, nil
}
