package pack

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/stokerdata/stoker/internal/imagefile"
	"github.com/stokerdata/stoker/source/foldersource"
	"github.com/stokerdata/stoker/store"
	"github.com/stokerdata/stoker/store/localstore"
)

// folderInput is a folder of image files.
type folderInput struct {
	list *foldersource.Listing
	src  Source
}

func openFolderInput(ctx context.Context, src, dst string) (input, error) {
	inside, err := within(dst, src)
	if err != nil {
		return nil, err
	}
	if inside {
		return nil, fmt.Errorf("%s lies inside of %s: choose a folder outside of it, or the pack would become a part of its own source", dst, src)
	}
	if IsPack(src) {
		return nil, fmt.Errorf("%s is a pack already: to change how its images are stored use stoker convert", src)
	}
	list, err := foldersource.Scan(ctx, localstore.New(src), foldersource.ScanOptions{AllFiles: true})
	if err != nil {
		return nil, err
	}
	total, _ := list.Bytes()
	return &folderInput{list: list, src: Source{
		Kind: "folder", Path: filepath.Clean(src), Files: int64(list.Len() + len(list.Skipped)), Bytes: total, Fingerprint: list.Fingerprint(),
	}}, nil
}

// within reports whether path lies inside of dir or is dir.
func within(path, dir string) (bool, error) {
	p, err := filepath.Abs(path)
	if err != nil {
		return false, err
	}
	d, err := filepath.Abs(dir)
	if err != nil {
		return false, err
	}
	rel, err := filepath.Rel(d, p)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator)), nil
}

func (in *folderInput) source() Source    { return in.src }
func (in *folderInput) command() string   { return "pack" }
func (in *folderInput) classes() []string { return in.list.Classes }
func (in *folderInput) len() int64        { return int64(in.list.Len()) }
func (in *folderInput) bytes(i int64) int64 {
	return in.list.Size(int(i))
}

func (in *folderInput) skipped() []Skipped {
	out := make([]Skipped, len(in.list.Skipped))
	for i, s := range in.list.Skipped {
		out[i] = Skipped{Path: strings.ToValidUTF8(s.Path, "\uFFFD"), Reason: s.Reason}
	}
	return out
}

func (in *folderInput) load(ctx context.Context, n int64, w *worker, j *job) error {
	i := int(n)
	path := in.list.Path(i)
	size := in.list.Size(i)
	switch {
	case size == 0:
		return &BadInput{path, imagefile.ErrEmpty.Error()}
	case size > foldersource.MaxFileBytes:
		return &BadInput{path, fmt.Sprintf("%d bytes are more than the limit of %d", size, int64(foldersource.MaxFileBytes))}
	}
	_, err := in.list.ReadFile(ctx, i, func(n int) ([]byte, error) {
		w.src = grow(w.src, n)
		return w.src, nil
	})
	if err != nil {
		return in.failed(path, err)
	}
	r := &j.rec
	r.path = path
	r.label = int64(in.list.Label(i))
	if err := w.enc.encodeFile(w.src, j); err != nil {
		var bad *BadInput
		if errors.As(err, &bad) {
			bad.Path = path
		}
		return err
	}
	return nil
}

// failed tells files that are bad from a source that is not standing still.
func (in *folderInput) failed(path string, err error) error {
	if errors.Is(err, store.ErrChanged) {
		return fmt.Errorf("%w; the source must stand still while it is packed: run again with --restart when it does", err)
	}
	if cause := errors.Unwrap(err); cause != nil {
		err = cause // the path is named already
	}
	return &BadInput{path, err.Error()}
}

// grow returns a slice of n bytes, b's own memory when that is large enough.
func grow(b []byte, n int) []byte {
	if cap(b) >= n {
		return b[:n]
	}
	return make([]byte, n, n+n/4)
}
