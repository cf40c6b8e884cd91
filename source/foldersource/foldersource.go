// Package foldersource reads a folder of image files as torchvision's
// ImageFolder does: the class of a file is the first folder of its path, and
// records are numbered in sorted order. A folder without class folders is read
// as images without labels.
//
// Nothing is prepared: every record costs an open, a read and a close. A pack
// (package pack) of the same folder has the same records under the same
// numbers and costs one read each.
package foldersource

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/source/driver"
)

// MaxFileBytes is the largest file that is taken for an image.
const MaxFileBytes = 1 << 30

// Options change how a folder is read. Nil means the defaults.
type Options struct {
	// Threads bounds the folders listed at once, 0 for four per core.
	Threads int
}

type source struct {
	list  *Listing
	info  driver.Info
	label bool
}

// Open lists the folder dir. The list is taken once: files that appear later
// are not seen, files that change later fail with an error that names them.
func Open(ctx context.Context, url, dir string, opt *Options) (driver.Source, error) {
	var o Options
	if opt != nil {
		o = *opt
	}
	list, err := Scan(ctx, dir, ScanOptions{Threads: o.Threads})
	if err != nil {
		return nil, err
	}
	if list.Len() == 0 {
		return nil, fmt.Errorf("no image in %s: looked for files ending in .jpg, .jpeg, .png, .bmp, .gif, .webp or .tiff, in the folder and in its subfolders", dir)
	}
	if bad := list.unreadable(); bad != nil {
		return nil, fmt.Errorf("cannot read %s in %s: %s", bad.Path, dir, bad.Reason)
	}
	_, largest := list.Bytes()
	s := &source{list: list, label: list.Classes != nil}
	s.info = driver.Info{
		URL:         url,
		Format:      "folder",
		Len:         int64(list.Len()),
		Fields:      []driver.Field{{Name: "image", Kind: driver.KindImage, MaxBytes: largest}},
		Fingerprint: list.Fingerprint(),
	}
	if s.label {
		s.info.Fields = append(s.info.Fields, driver.Field{Name: "label", Kind: driver.KindLabel, Classes: list.Classes})
	}
	return s, nil
}

// unreadable returns the first folder or file that could not be looked at. A
// training run must not lose a class without a word.
func (l *Listing) unreadable() *Skipped {
	for i := range l.Skipped {
		if !l.Skipped[i].beside {
			return &l.Skipped[i]
		}
	}
	return nil
}

func (s *source) Info() *driver.Info { return &s.info }

func (s *source) Name(id int64) string {
	if id < 0 || id >= s.info.Len {
		return fmt.Sprintf("%s, record %d", s.info.URL, id)
	}
	return s.list.FullPath(int(id))
}

func (s *source) Read(ctx context.Context, ids []int64, buf *driver.Buffer) error {
	if len(buf.Records) != len(ids) {
		return fmt.Errorf("read of %d records into a buffer of %d", len(ids), len(buf.Records))
	}
	for k, id := range ids {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		rec := &buf.Records[k]
		rec.ID, rec.Err = id, nil
		if id < 0 || id >= s.info.Len {
			rec.Err = fmt.Errorf("record %d is outside of the %d records of %s", id, s.info.Len, s.info.URL)
			continue
		}
		b, err := s.list.ReadFile(int(id), buf.Alloc)
		if errors.Is(err, errAlloc) {
			return err
		}
		if err != nil {
			rec.Err = err
			continue
		}
		rec.Values[0] = driver.Value{Bytes: b}
		if s.label {
			rec.Values[1] = driver.Value{Int: int64(s.list.Label(int(id)))}
		}
	}
	return nil
}

func (s *source) Close() error { return nil }

// ErrChanged is in the errors of files that are not what they were when the
// folder was listed: changed, shortened or gone.
var ErrChanged = errors.New("changed since the folder was listed")

// errAlloc marks a failure of alloc: it is not the file's.
var errAlloc = errors.New("no memory")

// ReadFile reads file i into memory that alloc gives. A file that is not the
// one that was listed, or that changes while it is read, is noticed by size and
// time of change.
func (l *Listing) ReadFile(i int, alloc func(n int) ([]byte, error)) ([]byte, error) {
	name := l.FullPath(i)
	if l.Size(i) > MaxFileBytes {
		return nil, fmt.Errorf("%s: %d bytes are more than the limit of %d", name, l.Size(i), int64(MaxFileBytes))
	}
	fd, err := retry(func() (int, error) { return unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		if err == unix.ENOENT || err == unix.ENOTDIR {
			return nil, fmt.Errorf("%s: %w: the file is gone", name, ErrChanged)
		}
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	defer unix.Close(fd)
	if err := l.same(i, name, fd); err != nil {
		return nil, err
	}
	b, err := alloc(int(l.Size(i)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w for %d bytes: %w", name, errAlloc, l.Size(i), err)
	}
	for at := 0; at < len(b); {
		n, err := retry(func() (int, error) { return unix.Read(fd, b[at:]) })
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if n == 0 {
			return nil, fmt.Errorf("%s: %w: it became shorter", name, ErrChanged)
		}
		at += n
	}
	return b, l.same(i, name, fd)
}

// retry runs a system call again when a signal interrupted it.
func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != unix.EINTR {
			return n, err
		}
	}
}

func (l *Listing) same(i int, name string, fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if st.Size != l.Size(i) || st.Mtim.Nano() != l.ModTime(i) {
		return fmt.Errorf("%s: %w", name, ErrChanged)
	}
	return nil
}
