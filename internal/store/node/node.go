// Package node shares small files between the processes of a user on this machine, such as the ranks of a job. The
// files do not survive a restart, and their folder is closed to other users. A process holds the lock of a file, so
// that a killed process holds none.
package node

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/runfolder"
)

// Env names the folder, "off" for none.
const Env = runfolder.Env

// ErrNone means that this machine or user has no folder for sharing.
var ErrNone = runfolder.ErrNone

// File is a shared file. One goroutine at a time may use it.
type File struct {
	f *os.File
}

// keepFor is how long files without writes are kept.
const keepFor = 36 * time.Hour

// Open opens the shared file of a kind, a short word, and a key. All processes with the same key share it. The key
// itself is not stored.
func Open(kind, key string) (*File, error) { return open(kind, key, os.O_CREATE) }

// Find is Open for a file that another process may have made: it does not make one.
func Find(kind, key string) (*File, error) { return open(kind, key, 0) }

func open(kind, key string, create int) (*File, error) {
	dir, err := runfolder.Find(create != 0)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(key))
	name := filepath.Join(dir, kind+"-"+hex.EncodeToString(sum[:16]))
	if _, err := os.Lstat(name); err != nil && create != 0 {
		sweep(dir, kind)
	}
	f, err := os.OpenFile(name, os.O_RDWR|create|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, ErrNone
	}
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || int(st.Uid) != os.Getuid() || st.Mode&0o077 != 0 {
		_ = f.Close()
		return nil, ErrNone
	}
	return &File{f: f}, nil
}

// sweep removes old files of a kind.
func sweep(dir, kind string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && strings.HasPrefix(e.Name(), kind+"-") && time.Since(info.ModTime()) > keepFor {
			_ = os.Remove(filepath.Join(dir, e.Name())) // another process may have done it
		}
	}
}

// Close closes the file and ends its lock.
func (f *File) Close() error { return f.f.Close() }

// TryLock takes the lock if it is free.
func (f *File) TryLock() bool {
	return unix.Flock(int(f.f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
}

// Unlock gives the lock back.
func (f *File) Unlock() { _ = unix.Flock(int(f.f.Fd()), unix.LOCK_UN) }

// lockEvery is the interval for checking whether a lock is free.
const lockEvery = 5 * time.Millisecond

// Lock waits for the lock until ctx is done, but not longer than patience: the process that holds it may be
// stopped. It returns false if it does not get the lock.
func (f *File) Lock(ctx context.Context, patience time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	t := time.NewTicker(lockEvery)
	defer t.Stop()
	for !f.TryLock() {
		select {
		case <-ctx.Done():
			return false
		case <-t.C:
		}
	}
	return true
}

const (
	headBytes = 8
	// maxBytes is the maximum size of the content.
	maxBytes = 64 << 10
)

// Read returns the last content, nil if there is none or if it was not written completely.
func (f *File) Read() []byte {
	var head [headBytes]byte
	if n, err := f.f.ReadAt(head[:], 0); err != nil || n < headBytes {
		return nil
	}
	size := binary.LittleEndian.Uint32(head[:])
	if size == 0 || size > maxBytes {
		return nil
	}
	b := make([]byte, size)
	if _, err := f.f.ReadAt(b, headBytes); err != nil || crc32.ChecksumIEEE(b) != binary.LittleEndian.Uint32(head[4:]) {
		return nil
	}
	return b
}

// Write replaces the content. The lock must be held.
func (f *File) Write(b []byte) error {
	if len(b) > maxBytes {
		return fmt.Errorf("cannot share %d bytes: the maximum is %d", len(b), maxBytes)
	}
	out := binary.LittleEndian.AppendUint32(nil, uint32(len(b)))
	out = binary.LittleEndian.AppendUint32(out, crc32.ChecksumIEEE(b))
	_, err := f.f.WriteAt(append(out, b...), 0)
	return err
}
