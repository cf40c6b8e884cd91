// Package node is what the processes of a user on this machine know together, such as
// the ranks of a job: small files that end with the machine, in a folder that nobody
// else may look into. A lock on one is held by the process, so that one that is killed
// holds none.
package node

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Env names the folder; "off" for none.
const Env = "STOKER_RUNTIME_DIR"

// ErrNone is the failure of a machine or a user where nothing is shared.
var ErrNone = errors.New("processes of this user share nothing on this machine")

// folders are those that may be there, the best one first: in memory, and gone when the
// user has logged out or the machine has been started again.
func folders() []string {
	uid := os.Getuid()
	if at := os.Getenv(Env); at != "" {
		return []string{at}
	}
	var all []string
	if at := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(at) {
		all = append(all, filepath.Join(at, "stoker"))
	}
	return append(all, filepath.Join(fmt.Sprintf("/run/user/%d", uid), "stoker"), filepath.Join(os.TempDir(), fmt.Sprintf("stoker-%d", uid)))
}

// folder finds the folder that is used, or makes it. One that others may write to or look into is
// none: somebody may have made it to be told secrets.
func folder(create bool) (string, error) {
	if os.Getenv(Env) == "off" {
		return "", ErrNone
	}
	for _, dir := range folders() {
		if create {
			if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
				continue
			}
		}
		var st unix.Stat_t
		if unix.Lstat(dir, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR && int(st.Uid) == os.Getuid() && st.Mode&0o077 == 0 {
			return dir, nil
		}
	}
	return "", ErrNone
}

// File is a file that is shared. It is used by one goroutine at a time.
type File struct {
	f *os.File
}

// keepFor is how long a file of a kind is kept that nobody writes to.
const keepFor = 36 * time.Hour

// Open opens the file of a kind, a short word, that is shared by all who know the key.
// The key stands nowhere.
func Open(kind, key string) (*File, error) { return open(kind, key, os.O_CREATE) }

// Find is Open of a file that another process may have made; it makes none.
func Find(kind, key string) (*File, error) { return open(kind, key, 0) }

func open(kind, key string, create int) (*File, error) {
	dir, err := folder(create != 0)
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

// sweep removes files of a kind that nobody has written to for long.
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

// Close closes the file, and ends its lock.
func (f *File) Close() error { return f.f.Close() }

// TryLock takes the lock where nobody has it.
func (f *File) TryLock() bool {
	return unix.Flock(int(f.f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
}

// Unlock gives the lock back.
func (f *File) Unlock() { _ = unix.Flock(int(f.f.Fd()), unix.LOCK_UN) }

// lockEvery is how often it is looked whether a lock is free.
const lockEvery = 5 * time.Millisecond

// Lock waits for the lock until ctx is done, for patience at most: who holds it may have
// been stopped. It returns false when it does not have it.
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
	// maxBytes bounds what is shared.
	maxBytes = 64 << 10
)

// Read returns what was written last, nil where there is nothing, or something that
// was not written to its end.
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

// Write puts b in the place of what was there. The lock is held.
func (f *File) Write(b []byte) error {
	if len(b) > maxBytes {
		return fmt.Errorf("%d bytes are more than is shared", len(b))
	}
	out := binary.LittleEndian.AppendUint32(nil, uint32(len(b)))
	out = binary.LittleEndian.AppendUint32(out, crc32.ChecksumIEEE(b))
	_, err := f.f.WriteAt(append(out, b...), 0)
	return err
}
