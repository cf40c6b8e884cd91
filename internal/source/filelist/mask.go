package filelist

import (
	"context"
	"sync/atomic"

	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/store"
)

const (
	// headBytes is more than the size of an image header.
	headBytes = 64 << 10
	// maskFiles is the number of files that are probed for a type.
	maskFiles = 8
)

// MaskType returns the type of the class numbers of masks: one byte or two. It reads the
// headers of some files. If there is not nil, files for which there returns false are skipped.
func (l *List) MaskType(ctx context.Context, there func(i int) bool) (driver.DType, error) {
	out, n := driver.Uint8, l.Len()
	for i := range min(n, maskFiles) {
		at := i * n / min(n, maskFiles)
		if there != nil && !there(at) {
			continue
		}
		info, err := l.probe(ctx, at)
		if err != nil {
			if err = l.note(ctx, at, err); err != nil {
				return out, err
			}
		}
		if info.Precision > 8 {
			out = driver.Uint16
		}
	}
	return out, nil
}

// probing is the number of files that are read at the same time.
const probing = 16

// MostPixels returns the number of pixels of the largest image, from the headers.
func (l *List) MostPixels(ctx context.Context) (int64, error) {
	var most atomic.Int64
	err := l.Bad.Probe(ctx, l.Len(), probing, func(ctx context.Context, i int) error {
		info, err := l.probe(ctx, i)
		n := int64(info.Width) * int64(info.Height)
		for v := most.Load(); n > v && !most.CompareAndSwap(v, n); v = most.Load() {
		}
		return err
	})
	return most.Load(), err
}

// MapType sets the type of an image field from the first file that can be read.
func (l *List) MapType(ctx context.Context, f *driver.Field) error {
	for i := range min(l.Len(), maskFiles) {
		b, err := l.head(ctx, i)
		if err == nil {
			MapType(f, b)
			break
		}
		if err = l.note(ctx, i, err); err != nil {
			return err
		}
	}
	return nil
}

// note marks file i as bad if err concerns only this file. Otherwise it returns err.
func (l *List) note(ctx context.Context, i int, err error) error {
	if ctx.Err() != nil {
		return err
	}
	return l.Bad.Note(i, err)
}

// head reads the beginning of a file.
func (l *List) head(ctx context.Context, i int) (b []byte, err error) {
	return b, l.with(ctx, i, func(o store.Object) error {
		b = make([]byte, min(o.Size(), headBytes))
		return o.ReadAt(ctx, b, 0)
	})
}

// probe reads the header of an image file. It returns an empty Info for a damaged header, since
// reading the record reports the error.
func (l *List) probe(ctx context.Context, i int) (imagefile.Info, error) {
	b, err := l.head(ctx, i)
	if err != nil {
		return imagefile.Info{}, err
	}
	info, err := imagefile.Probe(b)
	if err != nil {
		return imagefile.Info{}, nil
	}
	return info, nil
}
