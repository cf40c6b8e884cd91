package cache

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Copies (stage.go) are in folders that users choose. The cache folder has a JSON note of each copy in copies/ID. So
// unfinished copies can be found, counted and removed. Notes of copies that no longer exist are removed when the notes
// are read.
const (
	copiesName = "copies"
	maxCopies  = 1 << 14
	maxNote    = 64 << 10
)

// Copy is a complete or partial copy of remote data.
type Copy struct {
	ID     string `json:"id"`
	Origin string `json:"origin"`
	// Folder is the present or future folder of the complete copy.
	Folder string `json:"folder"`
	Whole  bool   `json:"whole"`
	// Bytes is the disk space of the copy, Of the size of the data.
	Bytes int64 `json:"bytes"`
	Of    int64 `json:"of"`
	// Used is the last time that a job started to make the copy. InUse reports that a job is making it.
	Used  time.Time `json:"used"`
	InUse bool      `json:"in_use"`
}

// copyNote is the note of a copy.
type copyNote struct {
	Origin string `json:"origin"`
	Folder string `json:"folder"`
	Of     int64  `json:"of"`
}

// NoteCopy writes down that there is a copy of some data in a folder, or will be.
func (d *Dir) NoteCopy(origin, folder string, of int64) error {
	dir := filepath.Join(d.root, copiesName)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	b, err := json.Marshal(copyNote{origin, folder, of})
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "new-")
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, ID(folder)))
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// isCopy matches the folder of a copy, with the suffix of StageName. No other folder is ever removed.
var isCopy = regexp.MustCompile(`-[0-9a-f]{12}$`)

// notes returns the notes of copies by their ids.
func (d *Dir) notes() map[string]copyNote {
	dir := filepath.Join(d.root, copiesName)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	notes := map[string]copyNote{}
	for _, e := range entries[:min(len(entries), maxCopies)] {
		if !isID(e.Name()) {
			continue
		}
		if n, err := readNote(filepath.Join(dir, e.Name())); err == nil && ID(n.Folder) == e.Name() {
			notes[e.Name()] = n
		}
	}
	return notes
}

func readNote(path string) (n copyNote, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return n, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxNote))
	if err == nil {
		err = json.Unmarshal(b, &n)
	}
	if err == nil && (!filepath.IsAbs(n.Folder) || filepath.Clean(n.Folder) != n.Folder || !isCopy.MatchString(n.Folder) || n.Of < 0) {
		err = errors.New("not the note of a copy")
	}
	return n, err
}

// Copies lists the copies that were made with this cache folder, the most recently used first. It reads the metadata of
// all of their files.
func (d *Dir) Copies() []Copy {
	var out []Copy
	for id, n := range d.notes() {
		c := Copy{ID: id, Origin: n.Origin, Folder: n.Folder, Of: n.Of}
		note := filepath.Join(d.root, copiesName, id)
		if info, err := os.Stat(note); err == nil {
			c.Used = info.ModTime()
		}
		folder := n.Folder
		if _, c.Whole = StageIsWhole(filepath.Split(n.Folder)); !c.Whole {
			folder += partEnd
			if _, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) {
				_ = os.Remove(note) // another process has removed it
				continue
			}
			c.InUse = inUse(n.Folder)
		}
		c.Bytes = diskUse(folder)
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b Copy) int {
		if n := b.Used.Compare(a.Used); n != 0 {
			return n
		}
		return strings.Compare(a.Folder, b.Folder)
	})
	return out
}

// diskUse returns the disk space of the files below a folder. Files of an unfinished copy have holes.
func diskUse(folder string) (n int64) {
	_ = filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil && e.Type().IsRegular() && unix.Lstat(path, &st) == nil {
			n += st.Blocks * 512
		}
		return nil // unreadable files count as zero
	})
	return n
}

// RemoveCopy removes a copy. If a job is making it, RemoveCopy returns ErrInUse. Jobs that read a complete copy
// continue with their open files, and then with the data itself.
func (d *Dir) RemoveCopy(c Copy) error {
	if !isCopy.MatchString(c.Folder) || c.ID != ID(c.Folder) {
		return fmt.Errorf("%q is not a copy", c.Folder)
	}
	if err := removeUnfinished(c.Folder); err != nil {
		return err
	}
	if err := os.RemoveAll(c.Folder); err != nil {
		return err
	}
	return os.Remove(filepath.Join(d.root, copiesName, c.ID))
}

// removeUnfinished removes an incomplete copy, unless a job is making it.
func removeUnfinished(folder string) error {
	if _, err := os.Stat(folder + partEnd); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	state, err := lockStage(folder, unix.F_WRLCK)
	if err != nil {
		return err
	}
	defer state.Close()
	if err := os.RemoveAll(folder + partEnd); err != nil {
		return err
	}
	return os.Remove(state.Name())
}

// Reclaim removes unfinished copies of the same data in the same folder that no job continues. They are left from an
// older version of the data, whose copy has another name. It returns the number of bytes that it freed.
func (d *Dir) Reclaim(origin, folder string) (bytes int64) {
	for id, n := range d.notes() {
		if n.Origin != origin || n.Folder == folder || filepath.Dir(n.Folder) != filepath.Dir(folder) {
			continue
		}
		if _, whole := StageIsWhole(filepath.Split(n.Folder)); whole {
			continue // a folder of the user by now
		}
		size := diskUse(n.Folder + partEnd)
		if removeUnfinished(n.Folder) == nil {
			bytes += size
			_ = os.Remove(filepath.Join(d.root, copiesName, id))
		}
	}
	return bytes
}

// useByte is the byte of a copy's state file that is locked by the processes that make the copy. It is far after the
// bytes of the chunks.
const useByte = 1 << 40

// lockStage opens and locks the state file of a copy, and creates it if necessary. Processes that make the copy share
// the lock; a process that removes the copy needs it exclusively. The lock ends when the file is closed.
func lockStage(folder string, how int16) (*os.File, error) {
	for {
		f, err := os.OpenFile(folder+stateEnd, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		l := unix.Flock_t{Type: how, Start: useByte, Len: 1}
		for err = unix.EINTR; err == unix.EINTR; {
			err = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &l)
		}
		switch {
		case err == unix.EAGAIN || err == unix.EACCES:
			_ = f.Close()
			return nil, ErrInUse
		case err != nil && how == unix.F_WRLCK: // without locks the state is unknown
			_ = f.Close()
			return nil, err
		}
		mine, err := f.Stat()
		if err != nil {
			_ = f.Close()
			return nil, err
		}
		if now, err := os.Lstat(folder + stateEnd); err == nil && os.SameFile(mine, now) {
			return f, nil
		}
		_ = f.Close() // it was removed meanwhile: once more
	}
}

// inUse reports whether a process is making a copy.
func inUse(folder string) bool {
	f, err := os.OpenFile(folder+stateEnd, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	l := unix.Flock_t{Type: unix.F_WRLCK, Start: useByte, Len: 1}
	return unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &l) == nil && l.Type != unix.F_UNLCK
}
