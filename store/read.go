package store

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// OpenEntry opens the object that e describes. It fails with ErrChanged if the object has another version now or is
// gone. If the store is an EntryOpener, the first read fails instead.
func OpenEntry(ctx context.Context, s Store, e Entry) (Object, error) {
	if eo, ok := s.(EntryOpener); ok && e.Version != "" {
		return eo.OpenEntry(ctx, e)
	}
	o, err := s.Open(ctx, e.Name)
	if errors.Is(err, ErrNotExist) {
		return nil, &Error{Op: "open", Path: s.Path(e.Name), Err: fmt.Errorf("%w: it is gone (%w)", ErrChanged, ErrNotExist)}
	}
	if err != nil {
		return nil, err
	}
	if err := same(s, o, e); err != nil {
		_ = o.Close()
		return nil, err
	}
	return o, nil
}

func same(s Store, o Object, e Entry) error {
	switch {
	case o.Size() != e.Size:
		return &Error{Op: "open", Path: s.Path(e.Name), Err: fmt.Errorf("%w: it had %d bytes, now it has %d", ErrChanged, e.Size, o.Size())}
	case o.Version() != e.Version:
		return &Error{Op: "open", Path: s.Path(e.Name), Err: ErrChanged}
	}
	return nil
}

// ReadFile reads a whole object. It fails if the object is larger than limit.
func ReadFile(ctx context.Context, s Store, name string, limit int64) ([]byte, error) {
	o, err := s.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	return readAll(ctx, s, o, name, limit)
}

// ReadEntry is ReadFile for the version that e describes.
func ReadEntry(ctx context.Context, s Store, e Entry, limit int64) ([]byte, error) {
	o, err := OpenEntry(ctx, s, e)
	if err != nil {
		return nil, err
	}
	return readAll(ctx, s, o, e.Name, limit)
}

// readAll reads an object and closes it.
func readAll(ctx context.Context, s Store, o Object, name string, limit int64) ([]byte, error) {
	defer o.Close()
	if o.Size() > limit {
		return nil, &Error{Op: "read", Path: s.Path(name), Err: fmt.Errorf("it has %d bytes, the limit is %d", o.Size(), limit)}
	}
	b := make([]byte, o.Size())
	if err := o.ReadAt(ctx, b, 0); err != nil {
		return nil, err
	}
	return b, Check(ctx, o)
}

// ReaderAt returns an io.ReaderAt for an object.
func ReaderAt(ctx context.Context, o Object) io.ReaderAt { return readerAt{ctx, o} }

type readerAt struct {
	ctx context.Context
	o   Object
}

// ReadAt implements io.ReaderAt: it returns io.EOF at the end of the object.
func (r readerAt) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("offset %d: %w", off, ErrShort)
	}
	n := min(int64(len(p)), max(r.o.Size()-off, 0))
	if n > 0 {
		if err := r.o.ReadAt(r.ctx, p[:n], off); err != nil {
			return 0, err
		}
	}
	if n < int64(len(p)) {
		return int(n), io.EOF
	}
	return int(n), nil
}
