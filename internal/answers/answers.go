// Package answers keeps what was found out about data by looking at all of it, so
// that it is there at once the next time: in the user's cache folder, by a question
// that names the content of the data.
package answers

import (
	"encoding/binary"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/stokerdata/stoker/store/localstore"
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
	err := localstore.WriteFile(name, func(w io.Writer) error {
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
