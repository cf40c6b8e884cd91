package localstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/store"
)

// writebackBytes is how many bytes are written before the system is asked to start writing them to the disk, so
// that a sync does not have to wait long.
const writebackBytes = 8 << 20

// upload is a file that is being written, under its name plus store.PartialSuffix. The writer holds its lock.
type upload struct {
	s    *Store
	name string
	f    *os.File // nil after the end
	at   int64
	sent int64 // the offset up to which the system was asked to write
	err  error // the error that made it useless
}

// Create begins a file.
func (s *Store) Create(ctx context.Context, name string) (store.Upload, error) {
	u, err := s.begin(ctx, name, false)
	if err == nil {
		if err = u.f.Truncate(0); err != nil {
			_ = u.Abort()
		}
	}
	if err != nil {
		return nil, s.failed("create", name, err)
	}
	return u, nil
}

// Resume implements store.Resumer.
func (s *Store) Resume(ctx context.Context, name string) (store.Partial, error) {
	u, err := s.begin(ctx, name, true)
	if err != nil {
		return nil, s.failed("go on with", name, err)
	}
	return u, nil
}

func (s *Store) partial(name string) string { return s.Path(name) + store.PartialSuffix }

// begin opens the partial file of name and locks it.
func (s *Store) begin(ctx context.Context, name string, resume bool) (*upload, error) {
	if err := s.check(ctx, name); err != nil {
		return nil, err
	}
	path := s.partial(name)
	dir := filepath.Dir(path)
	if err := makeFolder(dir); err != nil {
		return nil, &store.Error{Op: opFolder, Path: dir, Err: explained(err)}
	}
	for {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			return nil, err
		}
		mine, err := lock(f, path, resume)
		if err != nil || !mine {
			f.Close()
			if err != nil {
				return nil, err
			}
			continue
		}
		u := &upload{s: s, name: name, f: f}
		if resume {
			if err := u.adopt(); err != nil {
				_ = u.end()
				return nil, err
			}
		}
		return u, nil
	}
}

// lock takes the lock of a partial file. It returns false if the file is no longer the one at path, because its
// previous writer ended between open and lock.
func lock(f *os.File, path string, must bool) (mine bool, err error) {
	err = uninterrupted(func() error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) })
	switch {
	case err == unix.EWOULDBLOCK:
		return false, store.ErrLocked
	case err != nil && must:
		return false, fmt.Errorf("cannot lock it: %w", err)
	}
	have, err := f.Stat()
	if err != nil {
		return false, err
	}
	now, err := os.Stat(path)
	if errors.Is(err, store.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(have, now), err
}

// adopt continues an existing file: the partial file, or the finished one.
func (u *upload) adopt() error {
	st, err := u.f.Stat()
	if err != nil {
		return err
	}
	if st.Size() > 0 {
		u.at, u.sent = st.Size(), st.Size()
		return nil
	}
	whole, partial := u.s.Path(u.name), u.s.partial(u.name)
	f, err := os.OpenFile(whole, os.O_RDWR, 0)
	if errors.Is(err, store.ErrNotExist) {
		return nil // a new file
	}
	if err != nil {
		return err
	}
	// It is locked before it gets the name, so that no other writer can take it.
	mine, err := lock(f, whole, true)
	if err == nil && !mine {
		err = store.ErrLocked // another writer put a new file in place at this moment
	}
	if err == nil {
		err = os.Rename(whole, partial)
	}
	if err == nil {
		st, err = f.Stat()
	}
	if err != nil {
		f.Close()
		return err
	}
	_ = u.f.Close() // the empty file, which the rename replaced
	u.f, u.at, u.sent = f, st.Size(), st.Size()
	return nil
}

func (u *upload) failed(op string, err error) error {
	if u.err == nil {
		u.err = err
	}
	return u.s.failed(op, u.name, err)
}

// usable returns an error if the upload has ended or failed.
func (u *upload) usable(op string) error {
	switch {
	case u.f == nil:
		return u.s.failed(op, u.name, os.ErrClosed)
	case u.err != nil:
		return u.s.failed(op, u.name, fmt.Errorf("an earlier write failed: %w", u.err))
	}
	return nil
}

// Write appends p.
func (u *upload) Write(p []byte) (int, error) {
	if err := u.usable("write"); err != nil {
		return 0, err
	}
	n, err := u.f.WriteAt(p, u.at)
	u.at += int64(n)
	if err != nil {
		return n, u.failed("write", err)
	}
	if u.at-u.sent >= writebackBytes {
		// This is a hint: errors do not matter.
		_ = unix.SyncFileRange(int(u.f.Fd()), u.sent, u.at-u.sent, unix.SYNC_FILE_RANGE_WRITE)
		u.sent = u.at
	}
	return n, nil
}

// Sync makes what was written durable.
func (u *upload) Sync(ctx context.Context) error {
	if err := u.usable("write"); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return u.s.failed("write", u.name, context.Cause(ctx))
	}
	if err := u.f.Sync(); err != nil {
		return u.failed("write", err)
	}
	return nil
}

// Commit gives the file its name.
func (u *upload) Commit(ctx context.Context) error {
	if err := u.Sync(ctx); err != nil {
		return err
	}
	whole := u.s.Path(u.name)
	if err := os.Rename(u.s.partial(u.name), whole); err != nil {
		return u.failed("name", err)
	}
	err := syncFolder(filepath.Dir(whole))
	if cerr := u.end(); err == nil {
		err = cerr
	}
	if err != nil {
		return u.s.failed("write", u.name, err)
	}
	return nil
}

// Abort removes what was written.
func (u *upload) Abort() error {
	if u.f == nil {
		return nil
	}
	err := os.Remove(u.s.partial(u.name)) // before the lock ends
	if cerr := u.end(); err == nil {
		err = cerr
	}
	if err != nil && !errors.Is(err, store.ErrNotExist) {
		return u.s.failed("remove", u.name, err)
	}
	return nil
}

// Suspend implements store.Partial.
func (u *upload) Suspend(ctx context.Context) error {
	err := u.Sync(ctx)
	if u.f == nil {
		return err
	}
	if cerr := u.end(); cerr != nil && err == nil {
		err = u.s.failed("write", u.name, cerr)
	}
	return err
}

// end closes the file, which ends its lock.
func (u *upload) end() error {
	f := u.f
	u.f = nil
	return f.Close()
}

// Size implements store.Partial.
func (u *upload) Size() int64 { return u.at }

// ReadAt implements store.Partial.
func (u *upload) ReadAt(ctx context.Context, p []byte, off int64) error {
	fail := func(err error) error {
		return &store.Error{Op: "read", Path: u.s.partial(u.name), Off: off, Len: int64(len(p)), Err: explained(err)}
	}
	switch {
	case u.f == nil:
		return fail(os.ErrClosed)
	case ctx.Err() != nil:
		return fail(context.Cause(ctx))
	case off < 0 || off > u.at || int64(len(p)) > u.at-off:
		return fail(fmt.Errorf("%w: it has %d bytes", store.ErrShort, u.at))
	}
	if _, err := u.f.ReadAt(p, off); err != nil {
		if errors.Is(err, io.EOF) {
			err = errCut
		}
		return fail(err)
	}
	return nil
}

// Truncate implements store.Partial.
func (u *upload) Truncate(size int64) error {
	if err := u.usable("cut"); err != nil {
		return err
	}
	if size < 0 || size > u.at {
		return u.s.failed("cut", u.name, fmt.Errorf("to %d bytes: it has only %d", size, u.at))
	}
	if err := u.f.Truncate(size); err != nil {
		return u.failed("cut", err)
	}
	u.at, u.sent = size, min(u.sent, size)
	return nil
}

// Remove removes a file.
func (s *Store) Remove(ctx context.Context, name string) error {
	err := s.check(ctx, name)
	if err == nil {
		err = s.again(func() error { return unix.Unlink(s.Path(name)) })
	}
	if err != nil {
		return s.failed("remove", name, err)
	}
	return nil
}

// makeFolder makes a folder and its parents, durably.
func makeFolder(dir string) error {
	if st, err := os.Stat(dir); err == nil && st.IsDir() {
		return nil
	}
	if parent := filepath.Dir(dir); parent != dir {
		if err := makeFolder(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return syncFolder(filepath.Dir(dir))
}

// syncFolder makes the names in a folder durable.
func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	err = d.Sync()
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
		return nil // the file system does not support it
	}
	return err
}
