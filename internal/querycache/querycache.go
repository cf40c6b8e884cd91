// Package querycache caches small results on disk, each under the question that it answers.
// Examples are the statistics of a dataset, the index of a compressed file and the manifest of
// a remote pack. A question names the content that its answer depends on. A cached answer
// therefore never becomes wrong, only unused.
//
// The answers are files in answers/ in the cache folder (cache.Folder), readable only by the
// user. A file has a line that names the format, the checksum of the rest, the length of the
// question, the question and the answer. A damaged file counts as missing. Without a writable
// folder everything still works, only slower.
package querycache

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/cache"
	"github.com/stokerdata/stoker/store"
)

const (
	cacheLine = "stoker answer 1\n"
	// maxAnswer limits the size of a file, keepAnswers that of all files. The oldest files are
	// removed first.
	maxAnswer   = 1 << 32
	keepAnswers = 1 << 30
	// checkEvery is the number of written bytes between two checks of the total size.
	checkEvery = 16 << 20
)

func cacheFile(key string) (string, error) {
	if key == "" {
		return "", errors.New("internal error: no question")
	}
	dir, err := cache.Folder("")
	if err != nil {
		return "", err
	}
	h := xxh3.HashString128(key).Bytes()
	return filepath.Join(dir, "answers", hex.EncodeToString(h[:])), nil
}

// Load returns the cached answer to a question.
func Load(key string) ([]byte, bool) {
	name, err := cacheFile(key)
	if err != nil {
		return nil, false
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, false
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() || st.Size() > maxAnswer {
		return nil, false
	}
	b := make([]byte, st.Size())
	if _, err := io.ReadFull(f, b); err != nil {
		return nil, false
	}
	const head = len(cacheLine) + 12
	if len(b) < head || string(b[:len(cacheLine)]) != cacheLine || binary.LittleEndian.Uint64(b[len(cacheLine):]) != xxh3.Hash(b[head-4:]) {
		return nil, false
	}
	n := int64(binary.LittleEndian.Uint32(b[head-4:]))
	b = b[head:]
	if n > int64(len(b)) || string(b[:n]) != key {
		return nil, false
	}
	now := time.Now()
	_ = os.Chtimes(name, now, now) // mark it as used
	return b[n:], true
}

// Save caches the answer to a question and returns the file. Most callers can ignore the error,
// since they have the answer.
func Save(key string, answer []byte) (file string, err error) {
	name, err := cacheFile(key)
	if err != nil {
		return "", err
	}
	if n := int64(len(answer)) + int64(len(key)); n > maxAnswer/2 {
		return "", fmt.Errorf("an answer of %d bytes is larger than the limit of %d", n, int64(maxAnswer/2))
	}
	body := binary.LittleEndian.AppendUint32(nil, uint32(len(key)))
	body = append(append(body, key...), answer...)
	head := binary.LittleEndian.AppendUint64([]byte(cacheLine), xxh3.Hash(body))
	if err := write(name, head, body); err != nil {
		return "", fmt.Errorf("cannot write to %s: %w", filepath.Dir(name), store.Cause(err))
	}
	if unchecked.Add(-int64(len(body))) < 0 {
		unchecked.Store(checkEvery)
		forget(filepath.Dir(name), keepAnswers)
	}
	return name, nil
}

// write replaces a file as a whole. It does not sync the file to disk, since the checksum
// detects a file that a crash has damaged.
func write(name string, parts ...[]byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".new-")
	if err != nil {
		return err
	}
	for _, b := range parts {
		if err == nil {
			_, err = f.Write(b)
		}
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// unchecked is the number of bytes that this process may write before it calls forget,
// initially 0.
var unchecked atomic.Int64

// Once returns the cached answer to a question, or calls find and caches its answer. If several
// processes of this user on this machine ask at the same time, one calls find and the others
// wait. Several may call find if nothing can be cached, or if find takes very long. The name
// all stands for a group of questions, for example about all versions of an object. Only one
// question of a group is answered at a time.
func Once(ctx context.Context, all, key string, find func() ([]byte, error)) ([]byte, error) {
	if b, ok := Load(key); ok {
		return b, nil
	}
	unlock, err := lock(ctx, all, waitFor)
	if err != nil {
		return nil, err
	}
	if unlock != nil {
		defer unlock()
	}
	if b, ok := Load(key); ok {
		return b, nil
	}
	b, err := find()
	if err == nil {
		save(all, key, b)
	}
	return b, err
}

// save caches an answer and notes that a question of the group all has one.
func save(all, key string, answer []byte) {
	_, _ = Save(key, answer)
	if all != key {
		_, _ = Save(all, nil)
	}
}

// Begun reports whether a question of the group all (see Once) was answered before.
func Begun(all string) bool {
	_, ok := Load(all)
	return ok
}

// Begin is Once for a question that is not known yet: find returns the question with the
// answer. Begin does nothing if a question of the group was answered before, if another process
// is answering one, or if nothing can be cached.
func Begin(all string, find func() (key string, answer []byte, err error)) {
	unlock, err := lock(context.Background(), all, 0)
	if err != nil || unlock == nil {
		return
	}
	defer unlock()
	if Begun(all) { // the previous holder of the lock has answered
		return
	}
	if key, b, err := find(); err == nil {
		save(all, key, b)
	}
}

const (
	// waitFor limits the wait for another process, which may be suspended.
	waitFor = 30 * time.Second
	// lookEvery is the time between two attempts to get the lock.
	lookEvery = 10 * time.Millisecond
)

// lock waits until no other process answers a question. It returns nil if that takes too long
// or if nothing can be cached. A process that exits or is killed loses its lock.
func lock(ctx context.Context, key string, within time.Duration) (unlock func(), err error) {
	name, err := cacheFile(key)
	if err != nil || os.MkdirAll(filepath.Dir(name), 0o700) != nil {
		return nil, nil
	}
	name += lockSuffix
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil
	}
	for until := time.Now().Add(within); ; {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return func() {
				// Processes that wait have the file open and will find the answer.
				_ = os.Remove(name)
				_ = f.Close()
			}, nil
		case err != unix.EWOULDBLOCK && err != unix.EINTR || !time.Now().Before(until):
			_ = f.Close()
			return nil, nil
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, context.Cause(ctx)
		case <-time.After(lookEvery):
		}
	}
}

const lockSuffix = ".lock"

// forget removes the oldest answers until all of them take at most keep bytes.
func forget(dir string, keep int64) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	type old struct {
		name string
		size int64
		at   time.Time
	}
	var all []old
	total := int64(0)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			all = append(all, old{e.Name(), info.Size(), info.ModTime()})
			total += info.Size()
		}
	}
	slices.SortFunc(all, func(a, b old) int { return a.at.Compare(b.at) })
	for _, o := range all {
		if total <= keep {
			return
		}
		if os.Remove(filepath.Join(dir, o.name)) == nil {
			total -= o.size
		}
	}
}
