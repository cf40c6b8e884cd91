package tablesource

import (
	"context"

	"github.com/stokerdata/stoker/internal/source/filelist"
	"github.com/stokerdata/stoker/internal/source/stream"
	"github.com/stokerdata/stoker/store"
)

// Compressed tables are decompressed on opening and held in memory. Rows are then located as in
// other tables.

// bytesOf is a table to scan: an object of the store or its decompressed bytes.
type bytesOf interface {
	Size() int64
	ReadAt(ctx context.Context, p []byte, off int64) error
	Close() error
}

// inMemory is a decompressed table.
type inMemory struct{ b []byte }

func (t inMemory) Size() int64  { return int64(len(t.b)) }
func (t inMemory) Close() error { return nil }

func (t inMemory) ReadAt(_ context.Context, p []byte, off int64) error {
	if off < 0 || off > int64(len(t.b)) || copy(p, t.b[off:]) < len(p) {
		return store.ErrShort
	}
	return nil
}

// open opens table f.
func (s *source) open(ctx context.Context, f int) (bytesOf, error) {
	if b := s.held[f]; b != nil {
		return inMemory{b}, nil
	}
	return s.list.Open(ctx, f)
}

// unpack decompresses all compressed tables.
func (s *source) unpack(ctx context.Context) error {
	s.held = make([][]byte, s.list.Len())
	for f := range s.held {
		o, err := s.list.Open(ctx, f)
		if err != nil {
			return err
		}
		err = s.unpackOne(ctx, f, o)
		if cerr := o.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *source) unpackOne(ctx context.Context, f int, o store.Object) error {
	head := make([]byte, min(o.Size(), stream.HeadBytes))
	if err := o.ReadAt(ctx, head, 0); err != nil {
		return err
	}
	format := stream.Detect(head)
	if format == stream.Plain {
		return nil
	}
	var r stream.Reader
	defer r.Close()
	r.Open(ctx, o.ReadAt, o.Size(), format, 0)
	b, err := s.memory.ReadAll(&r, o.Size())
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return filelist.ErrPlace(s.list, int64(f), "", err)
	}
	s.held[f] = b
	return store.Check(ctx, o)
}

// Held implements driver.Holder.
func (s *source) Held() int64 {
	n := s.memory.Total()
	for _, b := range s.held {
		if s.made {
			n += int64(len(b))
		}
	}
	return n
}
