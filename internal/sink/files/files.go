// Package files writes the files of sinks. It has a buffered file that starts writing to the device
// early, and shards of about one size.
package files

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const (
	buffered = 256 << 10
	// early is the number of bytes after which the system is asked to start writing to the device.
	// Without this hundreds of megabytes collect, and the sync at the end waits for them.
	early = 32 << 20
)

// File is a file that is written from start to end.
type File struct {
	f    *os.File
	buf  []byte
	at   int64 // bytes written, including buf
	sent int64
	err  error
}

// Create makes a new file.
func Create(path string) (*File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, err
	}
	return &File{f: f, buf: make([]byte, 0, buffered)}, nil
}

// Size returns the number of bytes written.
func (f *File) Size() int64 { return f.at }

// Path returns the name of the file.
func (f *File) Path() string { return f.f.Name() }

// Write appends p.
func (f *File) Write(p []byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	if len(p) >= buffered {
		if err := f.Flush(); err != nil {
			return 0, err
		}
		if _, f.err = f.f.Write(p); f.err != nil {
			return 0, f.err
		}
		f.at += int64(len(p))
		f.begin()
		return len(p), nil
	}
	if len(f.buf)+len(p) > buffered {
		if err := f.Flush(); err != nil {
			return 0, err
		}
	}
	f.buf = append(f.buf, p...)
	f.at += int64(len(p))
	return len(p), nil
}

// Flush passes the buffered bytes to the system.
func (f *File) Flush() error {
	if f.err == nil && len(f.buf) > 0 {
		_, f.err = f.f.Write(f.buf)
		f.buf = f.buf[:0]
		f.begin()
	}
	return f.err
}

// begin asks the system to start writing its cached bytes to the device.
func (f *File) begin() {
	if n := f.at - f.sent; n >= early {
		_ = unix.SyncFileRange(int(f.f.Fd()), f.sent, n, unix.SYNC_FILE_RANGE_WRITE) // only a hint
		f.sent = f.at
	}
}

// WriteAt overwrites earlier bytes. Write continues at the end.
func (f *File) WriteAt(p []byte, off int64) (int, error) {
	if err := f.Flush(); err != nil {
		return 0, err
	}
	var n int
	n, f.err = f.f.WriteAt(p, off)
	return n, f.err
}

// ReadAt reads bytes that were written.
func (f *File) ReadAt(p []byte, off int64) (int, error) {
	if err := f.Flush(); err != nil {
		return 0, err
	}
	return f.f.ReadAt(p, off)
}

// Zeros appends n zeros.
func (f *File) Zeros(n int64) error {
	for n > 0 && f.err == nil {
		k := min(n, int64(len(zeros)))
		_, _ = f.Write(zeros[:k])
		n -= k
	}
	return f.err
}

var zeros [4096]byte

// Skip leaves a gap of n bytes, which WriteAt fills later.
func (f *File) Skip(n int64) error {
	if err := f.Flush(); err != nil {
		return err
	}
	f.at += n
	_, f.err = f.f.Seek(f.at, 0)
	return f.err
}

// Align appends zeros up to a multiple of n.
func (f *File) Align(n int64) error { return f.Zeros((n - f.at%n) % n) }

// Append appends the content of another file. The system copies it without passing it through
// memory if it can.
func (f *File) Append(from *File) error {
	if err := from.Flush(); err != nil {
		return err
	}
	if err := f.Flush(); err != nil {
		return err
	}
	if _, f.err = from.f.Seek(0, 0); f.err != nil {
		return f.err
	}
	n, err := f.f.ReadFrom(from.f)
	f.at += n
	f.err = err
	if err == nil && n != from.at {
		f.err = fmt.Errorf("copy %s: only %d of its %d bytes could be read", from.Path(), n, from.at)
	}
	f.begin()
	return f.err
}

// Close ends the file without syncing it. The owner of the folder makes files durable.
func (f *File) Close() error {
	err := f.Flush()
	if cerr := f.f.Close(); err == nil {
		err = cerr
	}
	return err
}

// Abort closes the file after a failure.
func (f *File) Abort() {
	if f != nil {
		_ = f.f.Close()
	}
}

// Remove closes and removes a temporary file.
func (f *File) Remove() error {
	f.Abort()
	return os.Remove(f.Path())
}

// Shards are files of about one size. They are named Dir/Name, or Dir/shard-00000.EXT,
// Dir/shard-00001.EXT, ... Stem replaces "shard-" if it is not empty.
type Shards struct {
	Dir, Name, Stem, Ext string
	Max                  int64

	cur *File
	n   int
}

// Next returns the file for n more bytes, and whether it is new. It calls end to complete the file
// before it.
func (s *Shards) Next(n int64, end func(*File) error) (f *File, fresh bool, err error) {
	if s.cur != nil && s.Name == "" && s.cur.Size() > 0 && s.cur.Size()+n > s.Max {
		if err := s.Finish(end); err != nil {
			return nil, false, err
		}
	}
	if s.cur != nil {
		return s.cur, false, nil
	}
	name := s.Name
	if name == "" {
		name = fmt.Sprintf("%s%05d%s", cmp.Or(s.Stem, "shard-"), s.n, s.Ext)
	}
	s.n++
	s.cur, err = Create(filepath.Join(s.Dir, name))
	return s.cur, true, err
}

// Count returns the number of files.
func (s *Shards) Count() int { return s.n }

// Finish completes and closes the current file.
func (s *Shards) Finish(end func(*File) error) error {
	if s.cur == nil {
		return nil
	}
	if end != nil {
		if err := end(s.cur); err != nil {
			return err
		}
	}
	err := s.cur.Close()
	s.cur = nil
	return err
}

// Abort closes the current file after a failure.
func (s *Shards) Abort() { s.cur.Abort() }
