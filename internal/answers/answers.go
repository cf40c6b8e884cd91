// Package answers keeps what was found out about data by looking at all of it, so
// that it is there at once the next time: in the user's cache folder, by a question
// that names the content of the data.
package answers

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"github.com/stokerdata/stoker/internal/store/localstore"
)

// What was found out about a source is kept in stoker/answers/ in the user's cache
// folder (XDG_CACHE_HOME, or ~/.cache), one file per question: a line that says what
// it is, the checksum of what follows, the length of the question, the question and
// the answer. Where there is no such folder everything works, only slower.

const (
	cacheLine = "stoker answer 1\n"
	// maxAnswer bounds a file, keepAnswers all of them: the oldest go first.
	maxAnswer   = 1 << 32
	keepAnswers = 1 << 30
)

func cacheFile(key string) (string, bool) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", false
	}
	h := xxh3.HashString128(key).Bytes()
	return filepath.Join(base, "stoker", "answers", hex.EncodeToString(h[:])), true
}

// Load returns the answer to a question that was kept before.
func Load(key string) ([]byte, bool) {
	name, ok := cacheFile(key)
	if key == "" || !ok {
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
	_ = os.Chtimes(name, now, now) // it is in use
	return b[n:], true
}

// Save keeps the answer to a question, where that is possible.
func Save(key string, answer []byte) {
	name, ok := cacheFile(key)
	if key == "" || !ok || int64(len(answer))+int64(len(key)) > maxAnswer/2 {
		return
	}
	if os.MkdirAll(filepath.Dir(name), 0o700) != nil {
		return
	}
	body := binary.LittleEndian.AppendUint32(nil, uint32(len(key)))
	body = append(append(body, key...), answer...)
	head := binary.LittleEndian.AppendUint64([]byte(cacheLine), xxh3.Hash(body))
	err := localstore.WritePrivate(name, func(w io.Writer) error {
		if _, err := w.Write(head); err != nil {
			return err
		}
		_, err := w.Write(body)
		return err
	})
	if err == nil {
		forget(filepath.Dir(name))
	}
}

// Once returns the answer to a question, and has it found where none is kept: by one of
// the processes of this user on this machine that ask at the same time, while the others
// wait. Find may still be called by several of them, where nothing can be kept or the
// one who finds takes very long.
func Once(ctx context.Context, key string, find func() ([]byte, error)) ([]byte, error) {
	return OnceOf(ctx, key, key, find)
}

// OnceOf is Once of one of several questions, of which one at a time is looked into: those
// about all versions of something.
func OnceOf(ctx context.Context, all, key string, find func() ([]byte, error)) ([]byte, error) {
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

// save keeps an answer, and that there is one of all these questions.
func save(all, key string, answer []byte) {
	Save(key, answer)
	if all != key {
		Save(all, nil)
	}
}

// Begun says whether one of several questions, as OnceOf has them, was answered before.
func Begun(all string) bool {
	_, ok := Load(all)
	return ok
}

// Begin is OnceOf of something of which nobody knows yet which of the questions it answers:
// find says. Where one of them was answered before, somebody looks into one already, or nothing
// can be kept, it does nothing.
func Begin(all string, find func() (key string, answer []byte, err error)) {
	unlock, err := lock(context.Background(), all, 0)
	if err != nil || unlock == nil {
		return
	}
	defer unlock()
	if Begun(all) { // by who had the lock before
		return
	}
	if key, b, err := find(); err == nil {
		save(all, key, b)
	}
}

const (
	// waitFor is how long somebody else is waited for, who may have been stopped.
	waitFor = 30 * time.Second
	// lookEvery is how often it is looked whether it is done.
	lookEvery = 10 * time.Millisecond
)

// lock waits until nobody else finds the answer to a question; it gives nil where that takes
// too long, and where nothing can be kept. Whoever ends, also by being killed, holds no lock
// any more.
func lock(ctx context.Context, key string, within time.Duration) (unlock func(), err error) {
	name, ok := cacheFile(key)
	if !ok || os.MkdirAll(filepath.Dir(name), 0o700) != nil {
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
				// Those who wait have it open, and find the answer.
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

// forget removes the oldest answers where there are too many.
func forget(dir string) {
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
		if total <= keepAnswers {
			return
		}
		if os.Remove(filepath.Join(dir, o.name)) == nil {
			total -= o.size
		}
	}
}
