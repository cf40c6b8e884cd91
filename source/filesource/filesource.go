// Package filesource reads a folder of any files: each file is one record, its
// bytes as they are, in the order of the paths. It decodes nothing.
package filesource

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/source/driver"
	"github.com/stokerdata/stoker/source/internal/filelist"
)

// Field is the name of the one field.
const Field = "data"

// MaxFileBytes is the largest file.
const MaxFileBytes = 1 << 36

// piece is how much is read between two looks at whether anybody still wants it.
const piece = 32 << 20

type source struct {
	list *filelist.List
	info driver.Info
}

// Open lists the files below path, or the one file that it is. Files that appear
// later are not seen, files that change later fail with an error that names them.
func Open(ctx context.Context, url, path string) (driver.Source, error) {
	list, err := filelist.Scan(ctx, path, nil)
	if err != nil {
		return nil, err
	}
	if list.Len() == 0 {
		return nil, fmt.Errorf("no file in %s or its subfolders", path)
	}
	_, largest := list.Bytes()
	if largest > MaxFileBytes {
		return nil, fmt.Errorf("a file of %d bytes in %s is larger than the limit of %d for a record", largest, path, int64(MaxFileBytes))
	}
	return &source{list: list, info: driver.Info{
		URL: url, Format: "files", Len: int64(list.Len()), Fingerprint: list.Fingerprint("files"),
		Fields: []driver.Field{{Name: Field, Kind: driver.KindBytes, MaxBytes: largest}},
	}}, nil
}

func (s *source) Info() *driver.Info { return &s.info }

func (s *source) Name(id int64) string {
	if id < 0 || id >= s.info.Len {
		return fmt.Sprintf("%s, record %d", s.info.URL, id)
	}
	return s.list.FullPath(int(id))
}

// Path implements driver.Pather.
func (s *source) Path(id int64) string { return s.list.Path(int(id)) }

// Sizes implements driver.Sizer.
func (s *source) Sizes(_ int, ids, sizes []int64) {
	for i, id := range ids {
		sizes[i] = s.list.Size(int(id))
	}
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
		b, err := buf.Take(k, 0, s.list.Size(int(id)))
		if err != nil {
			return fmt.Errorf("no memory for the %d bytes of %s: %w", s.list.Size(int(id)), s.list.FullPath(int(id)), err)
		}
		if rec.Err = s.readFile(ctx, int(id), b); rec.Err == nil {
			rec.Values[0] = driver.Value{Bytes: b}
		} else if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

func (s *source) readFile(ctx context.Context, i int, b []byte) error {
	fd, err := s.list.Open(i)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for at := 0; at < len(b); at += piece {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := filelist.Pread(fd, b[at:min(at+piece, len(b))], int64(at)); err != nil {
			if err == filelist.ErrShort {
				err = fmt.Errorf("%w: it became shorter", filelist.ErrChanged)
			}
			return fmt.Errorf("%s: %w", s.list.FullPath(i), err)
		}
	}
	return s.list.Check(i, fd)
}

func (s *source) Close() error { return nil }
